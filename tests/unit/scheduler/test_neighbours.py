"""Spreading, neighbours and preferences: the decision is that of the plain computation, after any history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.ledger.state import LedgerState, RequestState
from contracts.constraints import (
    Expression,
    NodeAffinity,
    NodeTerm,
    PodAffinity,
    PodExpression,
    PodSelector,
    PodTerm,
    PreferredNodeTerm,
    PreferredPodTerm,
    TopologySpread,
)
from contracts.decisions import Accepted, FactsSet
from contracts.inventory import NodeFacts, Taint
from contracts.requests import Toleration
from contracts.units import NodeName, RequestUid
from scheduler.core.around import PREFERENCE
from scheduler.core.decide import Placed, Unplaced, decide
from scheduler.core.explain import explain, what_if
from scheduler.core.gang import place_gang
from scheduler.core.policies import POLICIES, Policy
from scheduler.core.ranking import Rankings
from tests.builders import neighbours
from tests.builders.ledger import Cluster, Request, cluster, node, request

ZONE, HOST = "zone", "kubernetes.io/hostname"
PACKING = POLICIES["packing"]
APP = PodSelector(match_labels={"app": "a"})


def zones(*names: str, gpus: int = 4) -> Cluster:
    """One node for each letter, in the zone of that letter: `n0` in the first."""
    return cluster([node(f"n{i}").gpus(gpus).labels(zone=zone) for i, zone in enumerate(names)])


def app(name: str, label: str = "a") -> Request:
    """A tenth of a card, labelled."""
    return request(name).share(100).labels(app=label)


def where(drawn: Cluster, asked: Request, rankings: Rankings | None = None) -> str:
    """The node that it is placed on, or the code of the closest reason."""
    decision = decide(drawn.state, drawn.accept(asked), PACKING, rankings)
    if isinstance(decision, Unplaced):
        return decision.reasons[0].code
    drawn.fold(decision.record())
    return decision.placement.node


def spread(key: str = ZONE, skew: int = 1, **fields: Any) -> dict[str, Any]:
    """One spread constraint over the own labels."""
    return {"topology_spread": (TopologySpread(topology_key=key, max_skew=skew, **fields),)}


def near(*terms: PodTerm) -> dict[str, Any]:
    return {"pod_affinity": PodAffinity(required=terms)}


def apart(*terms: PodTerm) -> dict[str, Any]:
    return {"pod_anti_affinity": PodAffinity(required=terms)}


def test_a_spread_goes_round_the_zones_and_not_into_the_fullest_node() -> None:
    """Six pods over zones of two, two and one nodes: two in each, although packing would fill one node."""
    drawn = zones("x", "x", "y", "y", "z")
    rankings = Rankings()
    found = [where(drawn, app(f"r{i}").fields(**spread()), rankings) for i in range(6)]
    by_zone = [{"n0": "x", "n1": "x", "n2": "y", "n3": "y", "n4": "z"}[name] for name in found]

    assert sorted(by_zone[:3]) == sorted(by_zone[3:]) == ["x", "y", "z"]


def test_a_spread_that_cannot_be_kept_tells_skew_bound_and_domain() -> None:
    """Zone y is full, x would be one too many."""
    drawn = zones("x", "y", gpus=1)
    drawn.hold(request("full"), "n1", 0)
    drawn.hold(app("first"), "n0", 0)
    decision = decide(drawn.state, drawn.accept(app("r").fields(**spread())), PACKING)

    assert isinstance(decision, Unplaced)
    told = decision.reasons[0]
    assert (told.code, told.needed, told.free, told.node) == ("topology-spread", 2, 1, "n0")
    assert "zone=x has 1 pods of app=a, the domain with fewest has 0" in told.text
    assert decision.reasons[1].code == "card-share"


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (
            app("r", "b").fields(**near(PodTerm(topology_key=ZONE, selector=APP))),
            "n0",
            "",
        ),
        (
            app("r").fields(**near(PodTerm(topology_key=ZONE, selector=PodSelector(match_labels={"app": "c"})))),
            "pod-affinity",
            "needs a pod of app=c in zone=x, 0 there; nowhere",
        ),
        (app("r").fields(**apart(PodTerm(topology_key=ZONE))), "n1", ""),
        (
            app("r").select(zone="x").fields(**apart(PodTerm(topology_key=ZONE))),
            "pod-anti-affinity",
            "must not be in zone=x with a pod of app=a, 1 there",
        ),
        (app("r").fields(**apart(PodTerm(topology_key="rack"))), "n0", ""),
        (app("r").fields(**spread("rack")), "no-domain", "has no label rack"),
        (app("r").select(zone="x").fields(**apart(PodTerm(topology_key=HOST))), "n2", ""),
    ],
    ids=["near", "near nobody", "apart", "apart nowhere", "no such label", "no domain", "another host"],
)
def test_one_pod_of_a_runs_in_zone_x(asked: Request, code: str, text: str) -> None:
    """Where a newcomer goes, or what it is told; n0 and n2 are in x, n1 in y, and n0 is the fullest."""
    drawn = zones("x", "y", "x")
    drawn.hold(app("first"), "n0", 0)
    waiting = drawn.accept(asked)
    decision = decide(drawn.state, waiting, PACKING)
    found = decision.placement.node if isinstance(decision, Placed) else decision.reasons[0].code

    assert found == code
    assert not text or any(
        text in reason.text for reason in explain(drawn.state, waiting, default_policy="packing").reasons
    )


def test_the_first_of_a_group_may_go_anywhere_and_the_others_follow() -> None:
    """Affinity to the own labels: somebody must be the first."""
    drawn = zones("x", "y", "z")
    rankings = Rankings()
    terms = near(PodTerm(topology_key=ZONE))
    found = {where(drawn, app(f"r{i}").fields(**terms), rankings) for i in range(4)}

    assert len(found) == 1
    assert found < {"n0", "n1", "n2"}


def test_anti_affinity_holds_both_ways() -> None:
    """Who asked to be alone stays alone, though the newcomer asks for nothing; other namespaces do not matter."""
    drawn = zones("x", gpus=1)
    rankings = Rankings()
    selector = PodSelector(match_labels={"app": "loud"})
    alone = where(drawn, app("quiet").fields(**apart(PodTerm(topology_key=HOST, selector=selector))), rankings)
    loud = drawn.accept(app("r", "loud"))
    told = decide(drawn.state, loud, PACKING, rankings)

    assert alone == "n0"
    assert isinstance(told, Unplaced)
    assert told.reasons[0].code == "pod-repelled"
    assert "1 pods in kubernetes.io/hostname=n0 must not be with a pod of app=loud" in told.reasons[0].text
    assert where(drawn, app("other", "b"), rankings) == "n0"
    elsewhere = what_if(drawn.state, "elsewhere", app("r", "loud").build(), default_policy="packing", rankings=rankings)
    assert elsewhere.placement is not None


def test_domains_follow_what_comes_and_goes() -> None:
    """Forty arrivals, each third time the oldest leaves, relabelled half-way: always where the plain answer says."""
    drawn = zones("x", "x", "y", "y", "y")
    rankings, placed = Rankings(), []
    for turn in range(40):
        waiting = drawn.accept(app(f"r{turn}", "ab"[turn % 2]).fields(**spread()))
        expected = neighbours.best(drawn.state, waiting, PACKING)
        decision = decide(drawn.state, waiting, PACKING, rankings)
        assert isinstance(decision, Placed)
        assert expected is not None
        assert decision.rationale.chosen.node == expected[0]
        drawn.fold(decision.record())
        placed.append(waiting.uid)
        if turn % 3:
            drawn.release(placed.pop(0))
        if turn == 20:
            _told(drawn, (2, {"zone": "x"}, (), "ready"))


def test_who_kept_others_away_and_has_gone_keeps_nobody_away() -> None:
    """The repeller leaves, and the newcomer is let in."""
    drawn = zones("x")
    rankings = Rankings()
    selector = PodSelector(match_labels={"app": "loud"})
    quiet = drawn.hold(app("quiet").fields(**apart(PodTerm(topology_key=HOST, selector=selector))), "n0", 0)
    loud = drawn.accept(app("r", "loud"))
    before = decide(drawn.state, loud, PACKING, rankings)
    drawn.release(quiet.uid)

    assert isinstance(before, Unplaced)
    assert isinstance(decide(drawn.state, loud, PACKING, rankings), Placed)


def test_a_pod_on_a_node_that_is_not_ready_is_still_a_neighbour() -> None:
    """Its zone counts it: near it is on the other node of the zone."""
    drawn = zones("x", "y", "x")
    drawn.hold(app("first"), "n0", 0)
    _told(drawn, (0, {"zone": "x"}, (), "not ready"))

    assert where(drawn, app("r", "b").fields(**near(PodTerm(topology_key=ZONE, selector=APP)))) == "n2"


PREFERENCES: list[tuple[str, dict[str, Any], str]] = [
    ("nothing preferred: the fullest", {}, "n0"),
    (
        "a node term",
        {"node_affinity": NodeAffinity(preferred=(PreferredNodeTerm(weight=1, term=NodeTerm(
            match_expressions=(Expression(key=ZONE, operator="In", values=("y",)),))),))},
        "n1",
    ),
    (
        "the greater weight",
        {"node_affinity": NodeAffinity(preferred=tuple(
            PreferredNodeTerm(weight=w, term=NodeTerm(
                match_expressions=(Expression(key=ZONE, operator="In", values=(z,)),)))
            for w, z in ((50, "y"), (51, "z"))))},
        "n2",
    ),
    (
        "away from its own",
        {"pod_anti_affinity": PodAffinity(preferred=(
            PreferredPodTerm(weight=5, term=PodTerm(topology_key=ZONE)),))},
        "n2",
    ),
    (
        "near, and a preference for another zone that counts less",
        {
            "pod_affinity": PodAffinity(preferred=(PreferredPodTerm(weight=6, term=PodTerm(topology_key=ZONE)),)),
            "pod_anti_affinity": PodAffinity(preferred=(PreferredPodTerm(weight=5, term=PodTerm(topology_key=ZONE)),)),
        },
        "n0",
    ),
    ("evenly, if it can be", spread(when_unsatisfiable="ScheduleAnyway"), "n2"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), [case[1:] for case in PREFERENCES], ids=[c[0] for c in PREFERENCES])
def test_preferences_rank_and_never_forbid(fields: dict[str, Any], expected: str) -> None:
    """n0 holds one pod of a; n2 stands before n1 where they are equal. With n0 alone it goes there all the same."""
    drawn = zones("x", "y", "z")
    drawn.hold(app("first"), "n0", 0)
    only = zones("x")
    only.hold(app("first"), "n0", 0)

    assert where(drawn, app("r").fields(**fields)) == expected
    assert where(only, app("r").fields(**fields)) == "n0"


def test_a_discouraging_taint_is_avoided_unless_tolerated_or_there_is_no_other_node() -> None:
    """PreferNoSchedule: the fullest node is passed over for it, and taken when it is the only one."""
    drawn = cluster(node("n0").gpus(2).taint("old", "PreferNoSchedule"), node("n1").gpus(2))
    drawn.hold(request("first").share(100), "n0", 0)

    assert where(drawn, request("r").share(100).tolerate("old", operator="Exists")) == "n0"
    assert where(drawn, request("s").share(100)) == "n1"
    assert where(cluster(node("n0").gpus(1).taint("old", "PreferNoSchedule")), request("t")) == "n0"


def test_a_discouraging_taint_that_is_taken_away_discourages_nobody() -> None:
    """What was worked out from the taints is forgotten with them."""
    drawn = cluster(node("n0").gpus(2).taint("old", "PreferNoSchedule"), node("n1").gpus(2))
    rankings = Rankings()
    drawn.hold(request("first").share(100), "n0", 0)
    before = where(drawn, request("r").share(100), rankings)
    drawn.release(next(uid for uid, held in drawn.state.requests.items() if held.request.name == "r"))
    _told(drawn, (0, {}, (), "ready"))
    _told(drawn, (1, {}, (Taint(key="old", effect="PreferNoSchedule"),), "ready"))

    assert before == "n1"
    assert where(drawn, request("s").share(100), rankings) == "n0"


def test_explain_shows_preferences_as_parts_of_the_score() -> None:
    """Parts add up to the score, and the score is that of the decision."""
    drawn = zones("x", "y")
    asked = app("r").fields(**PREFERENCES[1][1])
    answer = what_if(drawn.state, "default", asked.build(), default_policy="packing")

    assert answer.rationale is not None
    assert answer.nodes[0].node == answer.rationale.chosen.node == "n1"
    assert answer.nodes[0].score == answer.rationale.chosen.score
    assert answer.nodes[0].scores["node_affinity"] == PREFERENCE
    assert answer.nodes[1].scores["node_affinity"] == 0
    assert all(sum(verdict.scores.values()) == verdict.score for verdict in answer.nodes)


# --- against the plain computation -----------------------------------------------------------------------------------

keys = st.sampled_from([ZONE, ZONE, "rack", HOST])
values = st.sampled_from(["a", "b"])
selectors = st.one_of(
    st.none(),
    st.builds(lambda v: PodSelector(match_labels={"app": v}), values),
    st.builds(
        lambda op, v: PodSelector(match_expressions=(PodExpression(key="app", operator=op, values=v),)),
        st.sampled_from(["In", "NotIn"]),
        st.sampled_from([("a",), ("a", "b")]),
    ),
    st.just(PodSelector(match_expressions=(PodExpression(key="job", operator="DoesNotExist"),))),
)
terms = st.builds(PodTerm, topology_key=keys, selector=selectors)
weights = st.sampled_from([1, 40, 100])
node_terms = st.builds(
    lambda key, op, v: NodeTerm(match_expressions=(Expression(key=key, operator=op, values=v),)),
    st.sampled_from([ZONE, "rack"]),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from([("x",), ("x", "y"), ("7",)]),
)
affinities = st.builds(
    PodAffinity,
    required=st.lists(terms, max_size=2).map(tuple),
    preferred=st.lists(st.builds(PreferredPodTerm, weight=weights, term=terms), max_size=2).map(tuple),
)
spreads = st.builds(
    TopologySpread,
    topology_key=keys,
    max_skew=st.sampled_from([1, 1, 2]),
    when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    selector=selectors,
)
nothing: st.SearchStrategy[Any] = st.just(PodAffinity())


@st.composite
def newcomers(draw: Callable[..., Any]) -> Request:
    """A request with some of everything; it always has a label, so that absent selectors mean something."""
    asked = request("r").share(draw(st.sampled_from([100, 500]))).labels(app=draw(values))
    asked.fields(
        topology_spread=tuple(draw(st.lists(spreads, max_size=2))),
        pod_affinity=draw(st.one_of(nothing, nothing, affinities)),
        pod_anti_affinity=draw(st.one_of(nothing, nothing, affinities)),
        node_affinity=NodeAffinity(
            required=tuple(draw(st.lists(node_terms, max_size=1))),
            preferred=tuple(draw(st.lists(st.builds(PreferredNodeTerm, weight=weights, term=node_terms), max_size=2))),
        ),
        tolerations=draw(st.sampled_from([(), (Toleration(key="old", operator="Exists"),)])),
    )
    return asked


facts = st.tuples(
    st.integers(0, 4),
    st.sampled_from([{}, {"zone": "x"}, {"zone": "y"}, {"zone": "x", "rack": "7"}]),
    st.sampled_from([(), (), (Taint(key="old", effect="PreferNoSchedule"),)]),
    st.sampled_from(["ready", "ready", "ready", "not ready", "gone"]),
)
"""A node as Kubernetes tells it from now on."""

arrivals = st.tuples(st.integers(0, 2), st.sampled_from(["default", "default", "other"]))
"""One of the kinds of a story, in a namespace: few kinds, so that the same is asked again and again."""

steps = st.lists(
    st.one_of(arrivals, arrivals, arrivals, st.integers(0, 9), facts, st.sampled_from(["gang", "restored"])),
    min_size=4,
    max_size=30,
)


def _told(drawn: Cluster, told: tuple[int, dict[str, str], tuple[Taint, ...], str]) -> None:
    index, labels, taints, how = told
    drawn.fold(
        FactsSet(
            facts=NodeFacts(
                node=NodeName(f"n{index}"),
                uid="u",
                labels=labels,
                taints=taints,
                ready=how == "ready",
                gone=how == "gone",
                allocatable_cpu_milli=64_000,
                allocatable_memory_mib=524_288,
            )
        )
    )


def _trial(state: LedgerState, drawn: Cluster, rankings: Rankings, index: int) -> None:
    """A gang that is tried and not folded: nothing of it may be left in what is kept."""
    members = [drawn.accept(app(f"g{index}-{i}").gang(f"g{index}", 2).fields(**spread())) for i in range(2)]
    place_gang(state, members, PACKING, rankings)


def _arrives(drawn: Cluster, kind: Request, namespace: str) -> RequestState:
    message = kind.build()
    uid = RequestUid(f"e0000000-{drawn.state.totals.accepted + 1}-0")
    message = msgspec.structs.replace(message, name=f"r{drawn.state.totals.accepted}")
    drawn.fold(Accepted(uid=uid, namespace=namespace, request=message))
    return drawn.state.requests[uid]


@settings(max_examples=25, deadline=None)
@given(
    kinds=st.lists(newcomers(), min_size=3, max_size=3),
    story=steps,
    policy=st.sampled_from([POLICIES["packing"], POLICIES["spreading"], POLICIES["first-fit"]]),
)
def test_kept_domains_give_the_plain_answer_after_any_history(
    kinds: list[Request], story: list[Any], policy: Policy
) -> None:
    """Placements, releases, nodes relabelled, unready and deleted, abandoned trials: node, score and count agree."""
    drawn = cluster([node(f"n{i}").gpus(2).labels(zone="xxyyz"[i]) for i in range(5)])
    rankings, placed = Rankings(), []
    for index, step in enumerate(story):
        if isinstance(step, int):
            if placed:
                drawn.release(placed.pop(step % len(placed)))
        elif step == "gang":
            _trial(drawn.state, drawn, rankings, index)
        elif step == "restored":
            drawn.state = drawn.replayed(nodes_reversed=True)
        elif len(step) > 2:
            _told(drawn, step)
        else:
            waiting = _arrives(drawn, kinds[step[0]], step[1])
            expected = neighbours.best(drawn.state, waiting, policy)
            decision = decide(drawn.state, waiting, policy, rankings)
            if isinstance(decision, Placed):
                why = decision.rationale
                assert (why.chosen.node, why.chosen.score, why.feasible_nodes) == expected
                placed.append(waiting.uid)
                drawn.fold(decision.record())
            else:
                assert expected is None
                assert decision.reasons
