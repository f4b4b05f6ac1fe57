"""What holds for every cluster and request: decisions fold, both answers agree, order and machine do not matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bus.ledger.snapshot import copy, digest
from bus.ledger.state import LedgerState
from contracts.constraints import Expression, NodeAffinity, NodeTerm
from scheduler.core.decide import Decision, Placed, Unplaced, decide
from scheduler.core.feasibility import fits
from scheduler.core.gang import place_gang
from scheduler.core.mix import NOTHING_KNOWN
from scheduler.core.orders import in_position
from scheduler.core.policies import POLICIES, Policy
from scheduler.core.ranking import Rankings
from scheduler.core.reasons import node_reason, reasons_against
from scheduler.core.request import shape_of
from scheduler.core.view import view_of
from tests.builders.history import validate
from tests.builders.ledger import Cluster, Node, Request, cluster, node, request

NUMBERS = {
    "card-share",
    "card-memory",
    "cards",
    "node-cpu",
    "node-memory",
    "node-pods",
    "no-nodes",
    "gang",
    "card-links",
}
"""Codes of what runs out; each must say how much was needed and how much there was."""

tags = st.sampled_from([None, None, None, "x", "y"])


@st.composite
def drawn_nodes(draw: Callable[..., Any]) -> list[Node]:
    """One to five nodes, most of them ordinary."""
    found = []
    for index in range(draw(st.integers(1, 5))):
        each = node(f"n{index}").cpu(
            draw(st.sampled_from([0, 700, 4000, 64_000])), foreign=draw(st.sampled_from([0, 100]))
        )
        each.memory(draw(st.sampled_from([100, 4096]))).pods(draw(st.sampled_from([2, 110])))
        for _ in range(draw(st.integers(0, 3))):
            each.gpus(
                1,
                memory_mib=draw(st.sampled_from([None, 1, 7, 999, 46_067])),
                model=draw(st.sampled_from(["A100", "T4"])),
                mig_enabled=draw(st.sampled_from([None, False, False, True])),
                isolation=draw(st.sampled_from(["none", "none", "mig"])),
                memory_reserved_mib=draw(st.sampled_from([0, 0, 5])),
                nvlink_group=draw(st.sampled_from([None, 0, 0, 1])),
            )
        if each._cards and draw(st.booleans()):
            each.card_health(0, draw(st.sampled_from(["failed", "suspect", "cordoned", "healthy"])))
        match draw(st.integers(0, 12)):
            case 0:
                each.stale()
            case 1:
                each.unknown()
            case 2:
                each.facts(ready=False)
            case 3:
                each.facts(unschedulable=True)
            case 4:
                each.taint("gpu", draw(st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])), "a")
            case 5:
                each.labels(zone="a")
        found.append(each)
    return found


@st.composite
def drawn_requests(draw: Callable[..., Any]) -> Request:
    """A request; the name is given later."""
    asked = request("r").cards(draw(st.sampled_from([0, 1, 1, 1, 1, 2, 3])))
    asked.share(draw(st.sampled_from([1, 250, 333, 500, 900, 1000])))
    asked.cpu(draw(st.sampled_from([0, 100, 600]))).memory(draw(st.sampled_from([0, 64, 90])))
    if draw(st.booleans()):
        asked.gpu_memory(draw(st.sampled_from([0, 1, 3, 500, 20_000])))
    for kind in ("affinity", "anti_affinity", "exclusion"):
        tag = draw(tags)
        if tag:
            getattr(asked, kind)(tag)
    _narrowed(draw, asked)
    return asked


def _narrowed(draw: Callable[..., Any], asked: Request) -> None:
    """What else it may ask of nodes and cards, one thing at a time."""
    match draw(st.integers(0, 10)):
        case 0:
            asked.models("T4")
        case 1:
            asked.select(zone="a")
        case 2:
            asked.tolerate("gpu", operator="Exists")
        case 3:
            asked.tolerate(value="a")
        case 4:
            asked.gpu(min_card_memory_mib=draw(st.sampled_from([1, 8, 46_067])))
        case 5:
            asked.gpu(nvlink=draw(st.sampled_from(["prefer", "require"])))
        case 6:
            asked.fields(node_affinity=draw(st.sampled_from(AFFINITIES)))
    if "memory_mib" not in asked._gpu and draw(st.integers(0, 3)) == 0:
        asked.gpu(memory_milli=draw(st.sampled_from([1, 500, 1000])))


AFFINITIES = [
    NodeAffinity(required=(NodeTerm(match_expressions=(Expression(key="zone", operator=operator),)),))
    for operator in ("Exists", "DoesNotExist")
]


steps = st.lists(st.one_of(drawn_requests(), st.integers(0, 20)), min_size=1, max_size=10)
"""Requests that arrive; a number releases the placed request at that place, if there is one."""

FEW = settings(max_examples=30, deadline=None)
"""30 in every check run: about two seconds each; the database of Hypothesis keeps what failed once."""

policies = st.sampled_from(list(POLICIES.values()))


def play(
    nodes: list[Node],
    story: list[Request | int],
    policy: Policy,
    *,
    between: Callable[[LedgerState], LedgerState] | None = None,
) -> tuple[Cluster, list[Decision]]:
    """Decide and fold the story; `between` may put another state in the place of the present one after each step."""
    drawn = cluster(nodes)
    rankings = Rankings()
    decisions: list[Decision] = []
    placed: list[Placed] = []
    for index, step in enumerate(story):
        if isinstance(step, int):
            if step < len(placed):
                drawn.release(placed.pop(step).uid)
        else:
            step.name = f"r{index}"
            decision = decide(drawn.state, drawn.accept(step), policy, rankings)
            decisions.append(decision)
            if isinstance(decision, Placed):
                drawn.fold(decision.record())
                placed.append(decision)
        if between is not None:
            drawn.state = between(drawn.state)
    return drawn, decisions


@FEW
@given(nodes=drawn_nodes(), story=steps, policy=policies)
def test_every_decision_can_be_folded_and_every_refusal_has_reasons_with_numbers(
    nodes: list[Node], story: list[Request | int], policy: Policy
) -> None:
    """`fold` raises on what would over-commit; the judge of states counts every sum again."""
    drawn, decisions = play(nodes, story, policy)

    validate(drawn.state)
    assert not drawn.state.overcommits()
    for decision in decisions:
        if isinstance(decision, Unplaced):
            assert decision.reasons
            for reason in decision.reasons:
                assert reason.text
                assert reason.code not in NUMBERS or (reason.needed is not None and reason.free is not None)
                assert (
                    reason.needed is None
                    or reason.free is None
                    or reason.needed > reason.free
                    or (reason.code == "card-mig")
                )


@FEW
@given(nodes=drawn_nodes(), story=steps, policy=policies, asked=drawn_requests())
def test_the_fast_answer_and_the_explaining_one_agree(
    nodes: list[Node], story: list[Request | int], policy: Policy, asked: Request
) -> None:
    """On every node, in every order of cards: it fits, or there is a reason, never both and never neither."""
    drawn, _ = play(nodes, story, policy)
    shape, state = shape_of(asked.build()), drawn.state
    for each in state.nodes.values():
        view = view_of(each, state.requests)
        explained = node_reason(shape, each, state.requests)
        for order in (policy.order, in_position):
            assert (fits(shape, view, order, NOTHING_KNOWN) is None) == (explained is not None), explained
    decision = decide(state, drawn.accept(asked), policy)
    refused = sum(reason.nodes for reason in reasons_against(shape, state.nodes, state.requests))
    assert isinstance(decision, Placed) == (refused < len(state.nodes))


@FEW
@given(nodes=drawn_nodes(), story=steps, policy=policies)
def test_decisions_do_not_depend_on_the_order_of_nodes_nor_on_what_was_remembered(
    nodes: list[Node], story: list[Request | int], policy: Policy
) -> None:
    """Nodes that joined in the other order; a state read back from its checkpoint, and a copy, after every step."""
    drawn, decisions = play(nodes, story, policy)
    _backwards, same = play(list(reversed(nodes)), story, policy)
    restored, again = play(nodes, story, policy, between=_restored)
    copied, copies = play(nodes, story, policy, between=copy)

    assert decisions == same == again == copies
    assert digest(drawn.state) == digest(restored.state) == digest(copied.state)


def _restored(state: LedgerState) -> LedgerState:
    made = Cluster()
    made.state = state
    return made.replayed(nodes_reversed=True)


@FEW
@given(
    nodes=drawn_nodes(),
    story=steps,
    policy=policies,
    members=st.lists(drawn_requests(), min_size=1, max_size=5),
)
def test_a_gang_is_all_or_nothing(
    nodes: list[Node], story: list[Request | int], policy: Policy, members: list[Request]
) -> None:
    """Either every member is placed and all of it can be folded, or the state is as it was, with reasons."""
    drawn, _ = play(nodes, story, policy)
    for index, member in enumerate(members):
        member.name = f"m{index}"
    accepted = [drawn.accept(member.gang("g", len(members))) for member in members]
    rankings = Rankings()
    before = digest(drawn.state)
    decision = place_gang(drawn.state, accepted, policy, rankings)

    assert digest(drawn.state) == before
    if isinstance(decision, Unplaced):
        assert len(decision.reasons) > 1
        assert decision.reasons[0].code == "gang"
        return
    assert {placed.uid for placed in decision} == {member.uid for member in accepted}
    assert decision == place_gang(drawn.state, accepted, policy, rankings)
    drawn.fold(*(placed.record() for placed in decision))
    validate(drawn.state)
