"""Decisions of the menu value: arrays choose what the rules in Python choose, whatever happened before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState
from contracts.decisions import CardHealthSet, HealthSet, Released, Reserved
from contracts.units import CardUuid, NodeName, RequestUid, request_key
from scheduler.core.arrays import kernels as k
from scheduler.core.arrays.rows import Rows
from scheduler.core.decide import Placed, Unplaced, decide
from scheduler.core.feasibility import fits
from scheduler.core.gang import place_gang
from scheduler.core.menu.demand import Idle, prices_of, slots_of
from scheduler.core.menu.outlook import Outlook, chassis_of
from scheduler.core.menu.ties import Chassis
from scheduler.core.menu_rankings import plain
from scheduler.core.placer import Placer
from scheduler.core.policies import POLICIES, Policy, evaluate, score_parts
from scheduler.core.ranking import Rankings
from scheduler.core.replay import Replay
from scheduler.core.request import Shape, shape_of
from scheduler.core.view import view_of
from tests.builders.ledger import Cluster, Node, Request, cluster, node, request

MENU, ARRIVALS = POLICIES["menu-value"], POLICIES["menu-value-arrivals"]
MIX = {
    "100|1|250|": 40,
    "600|1|500|": 25,
    "600|1|1000|T4": 12,
    "600|2|1000|A100": 8,
    "4000|4|1000|": 5,
    "600|0|0|": 20,
}
SERVICE = {"100|1|250|": (4_000_000, 20), "600|1|500|": (90_000_000, 30), "600|1|1000|T4": (9_000_000, 2)}


def taught(drawn: Cluster) -> Cluster:
    """As if the ledger had learned."""
    drawn.state.learned, drawn.state.learned_at, drawn.state.learned_service = dict(MIX), 1, dict(SERVICE)
    return drawn


def by_the_rules(shape: Shape, policy: Policy, rankings: Rankings) -> tuple[Any, ...] | None:
    """Node, cards, score, the next node's score and the number of nodes with room: every node scored in Python."""
    mix = rankings.mix_for(policy)
    scored = [
        (-score, view.tie, name)
        for name, view in rankings.views.items()
        if (score := evaluate(policy, shape, view, mix)) is not None
    ]
    if not scored:
        return None
    scored.sort()
    name = scored[0][2]
    chosen = fits(shape, rankings.views[name], policy.order, mix) or ()
    cards = tuple(card.uuid for card in sorted(chosen, key=lambda card: card.position))
    return name, cards, -scored[0][0], -scored[1][0] if len(scored) > 1 else None, len(scored)


def told(decision: Placed | Unplaced) -> tuple[Any, ...] | None:
    """The same of a decision."""
    if isinstance(decision, Unplaced):
        return None
    why, other = decision.rationale, decision.rationale.runner_up
    cards = tuple(piece.card for piece in decision.placement.slices)
    return decision.placement.node, cards, why.chosen.score, other.score if other else None, why.feasible_nodes


ODDITIES: tuple[Callable[[Node, str], Any], ...] = (
    lambda each, model: each.gpus(1, memory_mib=None, model=model),
    lambda each, _: each.gpus(1, model="V100"),
    lambda each, model: each.gpus(1, model=model, isolation="mig"),
    lambda each, model: each.gpus(1, model=model, mig_enabled=True),
    lambda each, _: each.taint("gpu", "NoSchedule"),
    lambda each, _: each.taint("gpu", "PreferNoSchedule"),
    lambda each, _: each.card_health(0, "failed"),
    lambda each, _: each.card_health(0, "cordoned"),
    lambda each, _: each.stale(),
    lambda each, _: each.labels(zone="a"),
    *[lambda each, _: each] * 4,
)


@st.composite
def drawn_nodes(draw: Callable[..., Any]) -> list[Node]:
    """Nodes of several sizes, with what makes a node odd now and then."""
    found = []
    for index in range(draw(st.integers(2, 6))):
        each = node(f"n{index}").cpu(draw(st.sampled_from([1500, 4000, 64_000])))
        model = draw(st.sampled_from(["A100", "T4"]))
        for _ in range(draw(st.sampled_from([1, 2, 4, 4, 8]))):
            each.gpus(1, memory_mib=draw(st.sampled_from([16_000, 16_000, 16_000, 999])), model=model)
        draw(st.sampled_from(ODDITIES))(each, model)
        found.append(each)
    return found


@st.composite
def drawn_requests(draw: Callable[..., Any]) -> Request:
    """Mostly plain requests; the name is given later."""
    cards = draw(st.sampled_from([0, 1, 1, 1, 1, 1, 2, 4]))
    whole = cards > 1 and draw(st.integers(0, 5)) > 0
    asked = request("r").cards(cards).share(1000 if whole else draw(st.sampled_from([100, 250, 333, 500, 810, 1000])))
    asked.cpu(draw(st.sampled_from([0, 100, 600, 1200])))
    match draw(st.integers(0, 14)):
        case 0:
            asked.gpu_memory(draw(st.sampled_from([0, 900, 12_000])))
        case 1:
            asked.models(draw(st.sampled_from(["T4", "A100"])))
        case 2:
            asked.select(zone="a")
        case 3:
            asked.tolerate("gpu", operator="Exists")
        case 4:
            asked.exclusion("x")
        case 5:
            asked.affinity("x")
    return asked


@settings(max_examples=15, deadline=None)
@given(drawn_nodes(), st.lists(st.tuples(drawn_requests(), st.integers(0, 9)), min_size=1, max_size=14), st.booleans())
def test_arrays_choose_what_the_rules_choose(nodes: list[Node], asks: list[tuple[Request, int]], known: bool) -> None:
    """Node, cards, score, the next score and the number of nodes: byte for byte, through placements and releases."""
    drawn = cluster(*nodes)
    if known:
        taught(drawn)
    rankings, rows = Rankings(), Rows()
    held: list[RequestUid] = []
    for number, (asked, release) in enumerate(asks):
        asked.name = f"r{number}"
        request_state = drawn.accept(asked)
        decision = decide(drawn.state, request_state, MENU, rankings)
        shape = shape_of(request_state.request, "default")
        if not _discouraged(rankings):
            assert told(decision) == by_the_rules(shape, MENU, rankings)
        if number == len(asks) - 1:
            assert decide(drawn.state, request_state, MENU, Rankings()) == decision
        if isinstance(decision, Placed):
            _parts_add_up(decision, shape, rankings)
            drawn.fold(decision.record())
            held.append(decision.uid)
        if held and not release:
            drawn.fold(Released(uid=held.pop(release % len(held)), evidence="ended"))
        _rows_tell_what_views_tell(drawn.state, rows)
        rankings.sync(drawn.state)
        _rows_are_as_if_read_anew(rankings, drawn.state)


def _discouraged(rankings: Rankings) -> bool:
    """A soft taint somewhere, which scores alone do not tell."""
    taints = [taint for view in rankings.views.values() if view.facts for taint in view.facts.taints]
    return any(taint.effect == "PreferNoSchedule" for taint in taints)


def _parts_add_up(decision: Placed, shape: Shape, rankings: Rankings) -> None:
    """The parts in the rationale are those of the rules, and their sum, rounded, is the score."""
    view, mix = rankings.views[decision.placement.node], rankings.mix_for(MENU)
    chosen = tuple(card for card in view.cards if card.uuid in {piece.card for piece in decision.placement.slices})
    parts = {name: part for name, part in score_parts(MENU, shape, view, chosen, mix).items() if part}
    if plain(shape) and decision.rationale.parts:
        assert decision.rationale.parts == parts
        assert abs(sum(parts.values()) - 1000 * decision.rationale.chosen.score) <= 20_000


def _rows_tell_what_views_tell(state: LedgerState, rows: Rows) -> None:
    """A row made of a node is the row made of its view."""
    for each in state.nodes.values():
        rows.refresh(each, state.requests)
        slot = rows.slots[each.name]
        direct = rows.data[slot].tolist(), slot in rows.odd
        rows.put(view_of(each, state.requests))
        again = rows.data[slot].tolist(), slot in rows.odd
        size = min(direct[0][9], again[0][9])
        assert (direct[0][1:9], direct[0][10:13], direct[1]) == (again[0][1:9], again[0][10:13], again[1])
        for first in (13, 29, 45):
            opened = [at for at in range(size) if direct[0][13 + at] >= 0]
            assert [direct[0][first + at] for at in opened] == [again[0][first + at] for at in opened]


def _rows_are_as_if_read_anew(rankings: Rankings, state: LedgerState) -> None:
    """Rows that were followed move by move, against rows that read every node as a whole."""
    for menus in rankings._menus.values():
        rows, afresh = menus.cluster.rows, Rows()
        if state.learned_at:
            afresh.tenants.learn(menus.cluster.tables.leaves, state.requests)
        for each in state.nodes.values():
            afresh.refresh(each, state.requests)
            one, other = (of.data[of.slots[each.name]].tolist() for of in (rows, afresh))
            if one[k.ADMITS] or other[k.ADMITS]:
                assert [one[at] for at in FOLLOWED] == [other[at] for at in FOLLOWED]
                assert rows.kinds[one[k.KIND]] == afresh.kinds[other[k.KIND]]
                assert rows.chassis[one[k.CHASSIS]] == afresh.chassis[other[k.CHASSIS]]
                size = one[k.CARDS]
                for first in (k.FREE, k.MIB, k.CAPACITY):
                    assert one[first : first + size] == other[first : first + size]


FOLLOWED = (k.ADMITS, k.ODD, k.CPU, k.MEMORY, k.PODS, k.GPUS, k.CARDS, k.WHOLES, k.IDLE, k.LN_PSI)


def test_a_node_is_not_read_as_a_whole_for_every_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: where somebody only came or left, rows follow the moves, in any number between two decisions."""
    drawn = taught(cluster(node(f"n{i}").gpus(4).cpu(64_000) for i in range(3)))
    rankings = Rankings()
    decide(drawn.state, drawn.accept(request("first").share(1000).cpu(600)), MENU, rankings)
    with monkeypatch.context() as patched:
        patched.setattr(Rows, "refresh", lambda *_: pytest.fail("a node was read as a whole"))
        for number in range(9):
            pair = [drawn.accept(request(f"{name}{number}").share(250).cpu(100)) for name in "ab"]
            for asked in pair:
                decision = decide(drawn.state, asked, MENU, rankings)
                assert isinstance(decision, Placed)
                drawn.fold(decision.record())
            drawn.fold(Released(uid=pair[number % 2].uid, evidence="ended"))
        rankings.sync(drawn.state)
    _rows_are_as_if_read_anew(rankings, drawn.state)


def test_moves_are_told_once_whatever_comes_between() -> None:
    """Claim: who came and left unseen, a node that changed as well, a policy asked for late: sums stay right."""
    drawn = taught(cluster(node(f"n{i}").gpus(2).cpu(64_000) for i in range(2)))
    rankings = Rankings()
    decide(drawn.state, drawn.accept(request("first").cpu(600)), MENU, rankings)
    drawn.hold(request("short").share(250).cpu(100), "n0", 0)
    drawn.hold(request("long").share(250).cpu(600), "n0", 1)
    drawn.fold(Released(uid=drawn.state.by_key[request_key("default", "short")], evidence="ended"))
    rankings.sync(drawn.state)
    _rows_are_as_if_read_anew(rankings, drawn.state)

    drawn.hold(request("other").share(250).cpu(100), "n0", 0)
    drawn.fold(CardHealthSet(node=NodeName("n0"), card=CardUuid("n0-gpu1"), health="failed", reason="fell"))
    drawn.hold(request("third").share(250).cpu(100), "n0", 0)
    drawn.hold(request("fourth").share(250).cpu(100), "n1", 0)
    rankings.mix_for(ARRIVALS)  # not synchronised yet: its rows read what the others are still to be told
    rankings.sync(drawn.state)
    _rows_are_as_if_read_anew(rankings, drawn.state)
    drawn.fold(Released(uid=drawn.state.by_key[request_key("default", "third")], evidence="ended"))
    rankings.sync(drawn.state)
    _rows_are_as_if_read_anew(rankings, drawn.state)


@pytest.mark.parametrize(("more", "pressed"), [({"600|1|1000|T4": 400}, "tie"), ({"4000|4|1000|": 200}, "slot")])
def test_prices_follow_from_the_sums_of_all_nodes(more: dict[str, int], pressed: str) -> None:
    """What arrays keep as running sums is what adding up all nodes gives."""
    drawn = taught(cluster(*(node(f"n{i}").gpus(8, model="A100" if i % 3 else "T4").cpu(20_000) for i in range(7))))
    drawn.state.learned = MIX | more
    rankings = Rankings()
    for number in range(40):
        asked = request(f"r{number}").share(1000).cpu(600).models("T4" if number < 10 else "A100")
        decision = decide(drawn.state, drawn.accept(asked), MENU, rankings)
        assert told(decision) == by_the_rules(shape_of(asked.build(), "default"), MENU, rankings)
        if isinstance(decision, Placed):
            drawn.fold(decision.record())
    rankings.sync(drawn.state)
    outlook = rankings.mix_for(MENU)
    assert isinstance(outlook, Outlook)
    views = list(rankings.views.values())
    ties = outlook.reach.demand.ties
    group_of = {Chassis(("T4",), 8, 20_000): ties.groups[0], Chassis(("A100",), 8, 20_000): ties.groups[1]}
    count = ties.count
    idle = Idle(
        milli=sum(view.left_milli for view in views),
        cpu_milli=sum(view.cpu_milli for view in views),
        slots=tuple(
            map(sum, zip(*(slots_of(v.wholes, v.cpu_milli, outlook.reach.demand) for v in views), strict=True))
        ),
        by_group=tuple(sum(v.left_milli for v in views if group_of[chassis_of(v)] == g) for g in range(count + 1)),
        cards_by_group=tuple(
            sum(1000 * len(v.cards) for v in views if group_of[chassis_of(v)] == g) for g in range(count + 1)
        ),
    )
    assert outlook.prices == prices_of(outlook.reach.demand, idle, outlook.tables.terms)
    assert any(getattr(outlook.prices, pressed))


def test_nothing_known_is_first_fit() -> None:
    """Until something is learned all costs are equal, and the fixed order decides alone."""
    drawn = cluster(node(f"n{i}").gpus(2) for i in range(8))
    rankings = Rankings()
    for number in range(16):
        asked = drawn.accept(request(f"r{number}").share(600))
        decision, first = (decide(drawn.state, asked, policy, rankings) for policy in (MENU, POLICIES["first-fit"]))
        assert isinstance(decision, Placed)
        assert isinstance(first, Placed)
        assert decision.placement == first.placement
        drawn.fold(decision.record())


def test_a_pod_keeps_off_a_node_that_is_about_to_be_empty() -> None:
    """A short-lived pod sits on one node, a long-lived one on the other; eight cards at once are what is scarce.

    The next long-lived pod goes to where it blocks nothing.
    """
    drawn = cluster(node(f"n{i}").gpus(8).cpu(64_000) for i in range(2))
    drawn.state.learned = {"600|1|1000|": 10, "700|1|1000|": 10, "4000|8|1000|": 40}
    drawn.state.learned_at = 1
    drawn.state.learned_service = {"600|1|1000|": (10 * 60_000, 10), "700|1|1000|": (10 * 9_000_000, 10)}
    drawn.hold(request("short").cpu(600), "n0", 0)
    drawn.hold(request("long").cpu(700), "n1", 0)
    decision = decide(drawn.state, drawn.accept(request("next").cpu(700)), MENU)

    assert isinstance(decision, Placed)
    assert decision.placement.node == "n1"
    assert isinstance(decide(drawn.state, drawn.accept(request("other").cpu(700)), ARRIVALS), Placed)


def test_a_gang_is_tried_on_arrays_and_leaves_no_trace() -> None:
    """Every member sees those before it; afterwards decisions are those of fresh rankings."""
    drawn = taught(cluster(node(f"n{i}").gpus(4).cpu(64_000) for i in range(3)))
    rankings = Rankings()
    members = [drawn.accept(request(f"m{i}").share(1000).cpu(600).gang("g", 12)) for i in range(12)]
    placed = place_gang(drawn.state, members, MENU, rankings)
    alone = drawn.accept(request("alone").share(500).cpu(600))

    assert isinstance(placed, list)
    assert len({piece.card for each in placed for piece in each.placement.slices}) == 12
    assert decide(drawn.state, alone, MENU, rankings) == decide(drawn.state, alone, MENU)


def test_what_is_learned_is_prepared_while_decisions_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through three learning points: who follows every step and who begins at the end decide alike."""
    monkeypatch.setattr("scheduler.core.arrays.rows.LIVES_PIECE", 5)
    drawn = cluster(node(f"n{i}").gpus(8).cpu(64_000).pods(1000) for i in range(12))
    placer = Placer(drawn.state, "menu-value")
    seen = set()
    for number in range(330):
        asked = drawn.accept(request(f"r{number}").share(100 if number % 3 else 300).cpu(100 + number % 2))
        reserved = placer.place(asked)
        assert isinstance(reserved, Reserved)
        drawn.fold(reserved)
        if number % 37 == 0:
            late = drawn.accept(request(f"late{number}").share(500).cpu(100))
            assert placer.place(late) == Placer(drawn.state, "menu-value").place(late)
            _rows_are_as_if_read_anew(placer.rankings, drawn.state)
        seen.add(drawn.state.learned_at)
    assert seen == {0, 64, 128, 256}


def test_a_decision_of_another_version_is_not_called_different() -> None:
    """The log was written by a policy that is not here any more: it is counted by name and version."""
    drawn = cluster(node("n1").gpus(2))
    decision = decide(drawn.state, drawn.accept(request("r").share(500)), MENU)
    assert isinstance(decision, Placed)
    replay = Replay()
    old = decision.record()
    foreign = Reserved(uid=old.uid, placement=old.placement, rationale=replace(old.rationale, version=99))
    replay.state = drawn.state
    replay._decide([foreign], 1)
    assert (replay.result().decisions, replay.result().differences) == (0, ())
    assert replay.result().unknown == {"menu-value version 99": 1}
    replay._decide([old], 1)
    assert (replay.result().decisions, replay.result().differences) == (1, ())


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(request("a").exclusion("x"), id="tags"),
        pytest.param(request("a").gpu(min_card_memory_mib=1), id="card size"),
        pytest.param(request("a").cards(2).share(500), id="parts of several cards"),
        pytest.param(request("a").gpu(memory_milli=300), id="memory apart"),
    ],
)
def test_what_arrays_do_not_know_goes_to_the_rules(asked: Request) -> None:
    """And is placed all the same."""
    assert not plain(shape_of(asked.build(), "default"))
    drawn = taught(cluster(node("n1").gpus(2)))
    state = drawn.accept(asked)
    decision = decide(drawn.state, state, MENU)
    assert isinstance(decision, Placed)
    apply_record(drawn.state, decision.record(), 1)


def test_a_request_that_came_before_the_first_card_is_placed_when_it_comes() -> None:
    """Claim: what a shape may take is asked anew for each kind of node, also the first one of all."""
    drawn = cluster(node("n1").gpus(1))
    drawn.state.nodes["n1"].fresh = False
    rankings, asked = Rankings(), drawn.accept(request("early").share(700))
    assert isinstance(decide(drawn.state, asked, MENU, rankings), Unplaced)
    apply_record(drawn.state, HealthSet(node=NodeName("n1"), health="fresh"), 1)
    assert isinstance(decide(drawn.state, asked, MENU, rankings), Placed)
