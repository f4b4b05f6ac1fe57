"""Every rule that can keep a request away: when it speaks, with which code and numbers, and when it is silent."""

from __future__ import annotations

import pytest

from scheduler.core.feasibility import CARD_RULES, NODE_RULES, Choice, card_reasons, fits, node_reasons
from scheduler.core.feasibility.taints import tolerated
from scheduler.core.mix import NOTHING_KNOWN
from scheduler.core.orders import tightest
from scheduler.core.reasons import card_tags
from scheduler.core.request import shape_of
from scheduler.core.view import view_of
from tests.builders.ledger import Cluster, Node, Request, cluster, node, request

NODE_CASES = [
    ("not reported by Kubernetes", node("n1").unknown(), request("r"), "node-unknown", None, None),
    ("not ready", node("n1").facts(ready=False), request("r"), "node-not-ready", None, None),
    ("cordoned", node("n1").facts(unschedulable=True), request("r"), "node-unschedulable", None, None),
    ("silent", node("n1").stale(), request("r"), "stale", None, None),
    ("never heard", node("n1").stale(heard=False), request("r"), "stale", None, None),
    ("tainted", node("n1").taint("gpu"), request("r"), "taint", None, None),
    ("tainted NoExecute", node("n1").taint("gpu", "NoExecute"), request("r"), "taint", None, None),
    ("label missing", node("n1"), request("r").select(zone="a"), "node-selector", None, None),
    ("label different", node("n1").labels(zone="b"), request("r").select(zone="a"), "node-selector", None, None),
    ("CPU short by one", node("n1").cpu(4000, foreign=1001), request("r").cpu(3000), "node-cpu", 3000, 2999),
    ("memory short by one", node("n1").memory(4096, foreign=1), request("r").memory(4096), "node-memory", 4096, 4095),
    ("no pod slot", node("n1").facts(allocatable_pods=3, foreign_pods=3), request("r"), "node-pods", 1, 0),
    ("foreign pods beyond it", node("n1").cpu(100, foreign=900), request("r").cpu(1), "node-cpu", 1, 0),
]

NODE_SILENT = [
    ("ready, fresh, roomy", node("n1"), request("r")),
    ("preferred only", node("n1").taint("gpu", "PreferNoSchedule"), request("r")),
    ("tolerated", node("n1").taint("gpu"), request("r").tolerate("gpu", operator="Exists")),
    ("all tolerated", node("n1").taint("gpu").taint("x", "NoExecute"), request("r").tolerate(operator="Exists")),
    ("label there", node("n1").labels(zone="a"), request("r").select(zone="a")),
    ("CPU exactly", node("n1").cpu(4000, foreign=1000), request("r").cpu(3000)),
    ("memory exactly", node("n1").memory(4096), request("r").memory(4096)),
    ("last pod slot", node("n1").facts(allocatable_pods=3, foreign_pods=2), request("r")),
    ("no CPU asked of a node that is over-full", node("n1").cpu(100, foreign=900), request("r").cpu(0)),
]

CARD_CASES = [
    ("failed", node("n1").gpus(1).card_health(0, "failed", "Xid 79"), request("r"), "card-health", None, None),
    ("suspect", node("n1").gpus(1).card_health(0, "suspect"), request("r"), "card-health", None, None),
    ("cordoned", node("n1").gpus(1).card_health(0, "cordoned"), request("r"), "card-cordoned", None, None),
    ("found failed", node("n1").gpus(1, health="failed"), request("r"), "card-health", None, None),
    ("split by MIG", node("n1").gpus(1, mig_enabled=True), request("r").share(500), "card-mig", None, None),
    ("split by MIG, whole asked", node("n1").gpus(1, mig_enabled=True), request("r"), "card-mig", None, None),
    ("an instance", node("n1").gpus(1, isolation="mig"), request("r").share(500), "card-mig", 500, 1000),
    ("unknown", node("n1").gpus(1, memory_mib=None), request("r").share(1), "card-memory-unknown", None, None),
    ("model", node("n1").gpus(1, model="T4"), request("r").models("A100", "H100"), "card-model", None, None),
    ("memory", node("n1").gpus(1, memory_mib=2000), request("r").gpu_memory(2001), "card-memory", 2001, 2000),
    (
        "memory kept by the driver is not sold",
        node("n1").gpus(1, memory_mib=16_384, memory_reserved_mib=384),
        request("r").share(500).gpu_memory(16_001),
        "card-memory",
        16_001,
        16_000,
    ),
]

CARD_SILENT = [
    ("a healthy one", node("n1").gpus(1), request("r")),
    ("a whole card of unknown memory", node("n1").gpus(1, memory_mib=None), request("r")),
    ("an instance of a split card, whole", node("n1").gpus(1, isolation="mig"), request("r")),
    ("MIG possible and off", node("n1").gpus(1, mig_enabled=False), request("r").share(500)),
    ("one of the models", node("n1").gpus(1, model="T4"), request("r").models("A100", "T4")),
    ("all of its memory", node("n1").gpus(1, memory_mib=2000), request("r").share(1).gpu_memory(2000)),
]


def fast(drawn: Node, asked: Request) -> Choice | None:
    """What the fast path says of the same node."""
    state = cluster(drawn).state
    view = view_of(state.nodes["n1"], state.requests)
    return fits(shape_of(asked.build()), view, tightest, NOTHING_KNOWN)


def _id(case: tuple[object, ...]) -> str:
    return str(case[0])


@pytest.mark.parametrize("case", NODE_CASES, ids=_id)
def test_a_node_is_refused_with_code_and_numbers(case: tuple[str, Node, Request, str, int | None, int | None]) -> None:
    """The first reason against the node has the code and the numbers of the case, and names the node."""
    _, drawn, asked, code, needed, free = case
    drawn.gpus(1)
    reasons = node_reasons(shape_of(asked.build()), cluster(drawn).state.nodes["n1"])

    assert fast(drawn, asked) is None
    assert (code, needed, free, "n1") == (reasons[0].code, reasons[0].needed, reasons[0].free, reasons[0].node)
    assert "n1" in reasons[0].text
    assert needed is None or (str(needed) in reasons[0].text and str(free) in reasons[0].text)


@pytest.mark.parametrize("case", NODE_SILENT, ids=_id)
def test_a_node_is_not_refused(case: tuple[str, Node, Request]) -> None:
    """At the bound, and where a rule does not apply, nothing is said."""
    _, drawn, asked = case

    drawn.gpus(1)

    assert fast(drawn, asked) is not None
    assert node_reasons(shape_of(asked.build()), cluster(drawn).state.nodes["n1"]) == []


def card_codes(state: Cluster, asked: Request) -> list[list[str]]:
    """The codes against each card of n1."""
    drawn = state.state.nodes["n1"]
    tags = card_tags(drawn, state.state.requests)
    shape = shape_of(asked.build())
    return [[r.code for r in card_reasons(shape, drawn, card, tags[uuid])] for uuid, card in drawn.cards.items()]


@pytest.mark.parametrize("case", CARD_CASES, ids=_id)
def test_a_card_is_refused_with_code_and_numbers(case: tuple[str, Node, Request, str, int | None, int | None]) -> None:
    """The first reason against the card has the code and the numbers of the case, and names the card."""
    _, drawn, asked, code, needed, free = case
    state = cluster(drawn).state
    card = state.nodes["n1"].cards["n1-gpu0"]
    tags = card_tags(state.nodes["n1"], state.requests)["n1-gpu0"]
    reason = card_reasons(shape_of(asked.build()), state.nodes["n1"], card, tags)[0]

    assert fast(drawn, asked) is None
    assert (code, needed, free, "n1-gpu0") == (reason.code, reason.needed, reason.free, reason.card)
    assert "n1-gpu0" in reason.text


@pytest.mark.parametrize("case", CARD_SILENT, ids=_id)
def test_a_card_is_not_refused(case: tuple[str, Node, Request]) -> None:
    """At the bound, and where a rule does not apply, nothing is said."""
    _, drawn, asked = case

    assert fast(drawn, asked) is not None
    assert card_codes(cluster(drawn), asked) == [[]]


def test_a_share_is_refused_by_the_card_and_not_by_the_node() -> None:
    """Half a card free on each of two cards is told as half a card, not as a whole."""
    drawn = cluster(node("n1").gpus(2))
    drawn.hold(request("a").share(500), "n1", 0)
    drawn.hold(request("b").share(500), "n1", 1)
    state = drawn.state
    card = state.nodes["n1"].cards["n1-gpu0"]
    tags = card_tags(state.nodes["n1"], state.requests)["n1-gpu0"]
    reasons = card_reasons(shape_of(request("r").share(501).build()), state.nodes["n1"], card, tags)

    assert [(r.code, r.needed, r.free) for r in reasons if r.code == "card-share"] == [("card-share", 501, 500)]


def test_a_card_that_the_inventory_lost_is_refused_while_tenants_hold_it() -> None:
    """A replaced card keeps its tenants counted and takes nobody new."""
    drawn = cluster(node("n1").gpus(1))
    drawn.hold(request("a").share(100), "n1", 0)
    drawn.fold(node("n1").records()[0])

    assert card_codes(drawn, request("r").share(1))[0][0] == "card-missing"


def test_a_card_that_two_nodes_list_is_offered_by_the_first_only() -> None:
    """One physical card is never sold twice."""
    drawn = cluster(node("n0").gpus(1), node("n1"))
    twin = drawn.state.nodes["n0"].inventory
    assert twin is not None
    drawn.fold(*node("n1").gpus(0).with_cards(twin.cards).records()[:1])

    assert card_codes(drawn, request("r"))[0] == ["card-rival"]


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Equal"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations_match_as_kubernetes_says(toleration: dict[str, str], covers: bool) -> None:
    """Key, operator, value and effect, each by its own rule."""
    facts = cluster(node("n1").taint("gpu", "NoSchedule", "yes")).state.nodes["n1"].facts
    assert facts is not None

    assert tolerated(shape_of(request("r").tolerate(**toleration).build()), facts) is covers


def test_rules_stand_in_the_order_of_the_table() -> None:
    """Cheap and telling first: a silent node without CPU is told as silent; share comes before memory."""
    drawn = cluster(node("n1").gpus(1).cpu(0).stale())
    drawn_reasons = node_reasons(shape_of(request("r").cpu(1).build()), drawn.state.nodes["n1"])

    assert [r.code for r in drawn_reasons] == ["stale", "node-cpu"]
    assert [rule.__name__ for rule in CARD_RULES][-2:] == ["share", "memory"]
    assert NODE_RULES[0].__name__ == "known"
