"""Node affinity, size of a card, fraction of memory, links: rules, refusals, nearest changes, and the door."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.constraints import Expression, FieldExpression, NodeAffinity, NodeTerm
from contracts.units import NodeName
from scheduler.admission import Admitted, Refused, admit
from scheduler.core.decide import Placed, Unplaced, decide
from scheduler.core.explain import explain, what_if
from scheduler.core.feasibility import fits
from scheduler.core.mix import NOTHING_KNOWN
from scheduler.core.nearest import nearest_change
from scheduler.core.orders import tightest
from scheduler.core.policies import POLICIES
from scheduler.core.reasons import node_reason
from scheduler.core.request import memory_on, shape_of
from scheduler.core.view import view_of
from tests.builders.ledger import Cluster, Node, Request, cluster, node, request

PACKING = POLICIES["packing"]


def expression(operator: Any, *values: str, key: str = "zone") -> NodeTerm:
    """A term of one expression."""
    return NodeTerm(match_expressions=(Expression(key=key, operator=operator, values=values),))


EXISTS, OTHER = expression("Exists").match_expressions[0], expression("In", "b").match_expressions[0]


def named(operator: Any, *names: str) -> NodeTerm:
    """A term on the name of the node."""
    return NodeTerm(
        match_fields=(FieldExpression(key="metadata.name", operator=operator, values=tuple(map(NodeName, names))),)
    )


def required(*terms: NodeTerm) -> Request:
    """A request that may only go where one of the terms holds."""
    return request("r").fields(node_affinity=NodeAffinity(required=terms))


def code_on(drawn: Node, asked: Request) -> str | None:
    """The reason of the node, and that the decision agrees."""
    made = cluster(drawn)
    waiting = made.accept(asked)
    decision = decide(made.state, waiting, PACKING)
    found = node_reason(shape_of(asked.build()), made.state.nodes[drawn.name], made.state.requests)
    assert isinstance(decision, Placed) is (found is None)
    return None if found is None else found[1].code


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ((expression("In", "a", "b"),), True),
        ((expression("In", "b"),), False),
        ((expression("NotIn", "b"),), True),
        ((expression("NotIn", "a"),), False),
        ((expression("NotIn", "a", key="rack"),), True),
        ((expression("Exists"),), True),
        ((expression("Exists", key="rack"),), False),
        ((expression("DoesNotExist", key="rack"),), True),
        ((expression("DoesNotExist"),), False),
        ((expression("Gt", "6", key="generation"),), True),
        ((expression("Gt", "7", key="generation"),), False),
        ((expression("Lt", "8", key="generation"),), True),
        ((expression("Lt", "7", key="generation"),), False),
        ((expression("Lt", "7", key="rack"),), False),
        ((expression("Gt", "1"),), False),
        ((expression("In", "b"), expression("Exists")), True),
        ((NodeTerm(match_expressions=(EXISTS, OTHER)),), False),
        ((named("In", "n1", "n2"),), True),
        ((named("In", "n2"),), False),
        ((named("NotIn", "n2"),), True),
        ((named("NotIn", "n1"),), False),
    ],
)
def test_node_affinity_means_what_kubernetes_says(terms: tuple[NodeTerm, ...], fits: bool) -> None:
    """Terms are alternatives, expressions of a term hold together; n1 is in zone a, of generation 7."""
    drawn = node("n1").gpus(1).labels(zone="a", generation="7")

    assert code_on(drawn, required(*terms)) == (None if fits else "node-affinity")


def test_an_unmet_node_affinity_names_the_condition_and_what_is_there() -> None:
    """Of the term that lacks fewest conditions the first one; and the nearest change says what would help."""
    drawn = cluster(node("n1").gpus(1).labels(zone="a"))
    terms = (
        NodeTerm(
            match_expressions=(
                *expression("In", "b").match_expressions,
                *expression("Exists", key="rack").match_expressions,
            )
        ),
        expression("In", "b", "c"),
    )
    answer = explain(drawn.state, drawn.accept(required(*terms)), default_policy="packing")

    assert answer.reasons[0].text == "n1: node affinity asks for zone in (b, c), it is 'a'; none of 2 terms holds"
    assert answer.nearest is not None
    assert answer.nearest.text == ("n1 card n1-gpu0 would take it without that condition of the node affinity")


def test_a_card_is_known_by_its_total_and_not_by_what_is_left() -> None:
    """A card of 40 GiB stays one when the driver keeps some of it and most of it is sold."""
    drawn = cluster(
        node("n1").gpus(1, memory_mib=40_960, memory_reserved_mib=424), node("n2").gpus(1, memory_mib=16_384)
    )
    drawn.hold(request("held").share(900), "n1", 0)
    asked = request("r").share(100).gpu(min_card_memory_mib=40_960)
    more = request("s").share(100).gpu(min_card_memory_mib=40_961)
    answer = explain(drawn.state, drawn.accept(more), default_policy="packing")
    decision = decide(drawn.state, drawn.accept(asked), PACKING)

    assert isinstance(decision, Placed)
    assert decision.placement.node == "n1"
    assert [(r.code, r.needed, r.free) for r in answer.reasons] == [("card-size", 40_961, 40_960)]
    assert answer.nearest is not None
    assert answer.nearest.text == (
        "n1 card n1-gpu0 would take it with 40960 MiB of the whole card instead of 40961 (1 missing)"
    )


def test_a_card_of_unknown_size_is_not_big_enough() -> None:
    """Unknown is never yes."""
    assert code_on(node("n1").gpus(1, memory_mib=None), request("r").gpu(min_card_memory_mib=1)) == "card-size"


@pytest.mark.parametrize(
    ("capacity", "milli", "charged"),
    [(46_067, 500, 23_033), (46_067, 1000, 46_067), (999, 1, 1), (80_000, 250, 20_000)],
)
def test_memory_by_its_own_fraction_is_rounded_on_the_card(capacity: int, milli: int, charged: int) -> None:
    """The share of compute does not matter; rounding is down, never below 1 MiB; equal fractions split no shape."""
    shape = shape_of(request("r").share(100).gpu(memory_milli=milli).build())
    same = request("r").share(milli)

    assert memory_on(capacity, shape) == charged
    assert shape_of(same.build()) == shape_of(same.gpu(memory_milli=milli).build())


def test_a_fraction_of_memory_that_is_not_free_tells_what_is() -> None:
    """Compute is there, half of the memory is not; a third is."""
    drawn = cluster(node("n1").gpus(1, memory_mib=9_000))
    drawn.hold(request("held").share(100).gpu_memory(6_000), "n1", 0)
    asked = request("r").share(100).gpu(memory_milli=500)
    answer = explain(drawn.state, drawn.accept(asked), default_policy="packing")

    assert [(r.code, r.needed, r.free) for r in answer.reasons] == [("card-memory", 4_500, 3_000)]
    assert answer.nearest is not None
    assert "with 333 thousandths of a card's memory instead of 500 (167 missing)" in answer.nearest.text


# --- links --------------------------------------------------------------------------------------------------------


def linked(name: str, *groups: int | None) -> Node:
    """One card for each number, of that NVLink group."""
    made = node(name)
    for group in groups:
        made.gpus(1, memory_mib=10_000, nvlink_group=group)
    return made


def taken(drawn: Cluster, asked: Request) -> list[str] | str:
    """The cards, or the code."""
    decision = decide(drawn.state, drawn.accept(asked), PACKING)
    if isinstance(decision, Unplaced):
        return decision.reasons[0].code
    return [piece.card for piece in decision.placement.slices]


@pytest.mark.parametrize(
    ("groups", "nvlink", "cards"),
    [
        ((0, 1, 1, 0), "prefer", ["n1-gpu0", "n1-gpu3"]),
        ((0, 1, 1, 0), "any", ["n1-gpu0", "n1-gpu1"]),
        ((0, 0, 0, 1, 1), "require", ["n1-gpu3", "n1-gpu4"]),
        ((0, 1, 2, 3), "prefer", ["n1-gpu0", "n1-gpu1"]),
        ((0, 1, 2, 3), "require", "card-links"),
        ((None, None), "prefer", ["n1-gpu0", "n1-gpu1"]),
        ((None, None), "require", "card-links"),
    ],
)
def test_linked_cards(groups: tuple[int | None, ...], nvlink: str, cards: list[str] | str) -> None:
    """Two of them: of the smallest group that has two, if links count; a missing group is no group."""
    assert taken(cluster(linked("n1", *groups)), request("r").cards(2).gpu(nvlink=nvlink)) == cards


def test_a_node_where_they_are_linked_goes_before_a_fuller_one() -> None:
    """`prefer` ranks nodes as well, and shows in the score."""
    drawn = cluster(linked("n1", 0, 1, 2), linked("n2", 0, 0, 0, 0))
    drawn.hold(request("held"), "n1", 2)
    answer = what_if(drawn.state, "d", request("r").cards(2).gpu(nvlink="prefer").build(), default_policy="packing")

    assert taken(drawn, request("s").cards(2)) == ["n1-gpu0", "n1-gpu1"]
    assert answer.placement is not None
    assert answer.placement.node == "n2"
    assert answer.nodes[0].scores["linked_cards"] > 0 == answer.nodes[1].scores["linked_cards"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(2, "with 1 cards instead of 2 (1 missing)"), (3, "with 2 cards instead of 3 (1 missing)")],
)
def test_cards_that_are_not_linked_tell_how_many_are(count: int, text: str) -> None:
    """The numbers of what is linked, and the cheapest way out."""
    drawn = cluster(linked("n1", 0, 1, 2, 3) if count == 2 else linked("n1", 0, 0, 1, 1))
    asked = request("r").cards(count).gpu(nvlink="require")
    answer = explain(drawn.state, drawn.accept(asked), default_policy="packing")

    most = 1 if count == 2 else 2
    assert [(r.code, r.needed, r.free) for r in answer.reasons] == [("card-links", count, most)]
    assert answer.nearest is not None
    assert text in answer.nearest.text


@settings(max_examples=30, deadline=None)
@given(
    held=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 1000), st.integers(0, 9_999)), max_size=6),
    count=st.integers(1, 4),
    share=st.integers(1, 1000),
    memory_milli=st.one_of(st.none(), st.integers(1, 1000)),
    size=st.sampled_from([0, 9_999, 10_000, 10_001]),
    nvlink=st.sampled_from(["any", "prefer", "require"]),
)
def test_the_nearest_change_of_a_constrained_request_really_fits(
    *, held: list[tuple[int, int, int]], count: int, share: int, memory_milli: int | None, size: int, nvlink: str
) -> None:
    """What is proposed without conditions fits the node that is named; it costs nothing only where nothing is amiss."""
    drawn = cluster(*(linked(f"n{i}", 0, 0, 1) for i in (1, 2)))
    for index, (place, milli, mib) in enumerate(held):
        where, card = f"n{1 + place // 3}", place % 3
        state = list(drawn.state.nodes[where].cards.values())[card]
        if milli <= state.free_milli and mib <= state.free_mib:
            drawn.hold(request(f"h{index}").share(milli).gpu_memory(mib), where, card)
    asked = (
        request("r").cards(count).share(share).gpu(memory_milli=memory_milli, min_card_memory_mib=size, nvlink=nvlink)
    )
    shape = shape_of(asked.build())
    change = nearest_change(shape, drawn.state.nodes, drawn.state.requests)
    if change is None or change.conditions:
        return
    each = drawn.state.nodes[change.node]

    assert fits(change.shape, view_of(each, drawn.state.requests), tightest, NOTHING_KNOWN) is not None
    assert (change.cost == 0) == (node_reason(shape, each, drawn.state.requests) is None)


# --- the door -----------------------------------------------------------------------------------------------------

LABELLED = {"image": "i", "labels": {"app": "a"}}
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "In without values",
        {"node_affinity": {"required": [{"match_expressions": [{"key": "z", "operator": "In"}]}]}},
        "node_affinity.required[0].match_expressions[0].values",
        "at least 1 value with In",
    ),
    (
        "Exists with a value",
        {"node_affinity": {"required": [{"match_expressions": [{"key": "z", "operator": "Exists", "values": ["a"]}]}]}},
        "node_affinity.required[0].match_expressions[0].values",
        "no value with Exists",
    ),
    (
        "Gt of a word",
        {
            "node_affinity": {
                "preferred": [
                    {"weight": 1, "term": {"match_expressions": [{"key": "z", "operator": "Gt", "values": ["a"]}]}}
                ]
            }
        },
        "node_affinity.preferred[0].term.match_expressions[0].values",
        "1 integer with Gt",
    ),
    (
        "Gt of two",
        {
            "node_affinity": {
                "required": [{"match_expressions": [{"key": "z", "operator": "Gt", "values": ["1", "2"]}]}]
            }
        },
        "node_affinity.required[0].match_expressions[0].values",
        "1 integer with Gt",
    ),
    (
        "empty term",
        {"node_affinity": {"required": [{}]}},
        "node_affinity.required[0]",
        "at least one of match_expressions",
    ),
    (
        "no such operator",
        {"node_affinity": {"required": [{"match_expressions": [{"key": "z", "operator": "Is"}]}]}},
        "node_affinity.required[...].match_expressions[...].operator",
        "Invalid enum value 'Is'",
    ),
    (
        "weight",
        {"node_affinity": {"preferred": [{"weight": 101, "term": {}}]}},
        "node_affinity.preferred[...].weight",
        "<= 100",
    ),
    ("too many terms", {"node_affinity": {"required": [{}] * 17}}, "node_affinity.required", "length <= 16"),
    ("misspelt", {"node_affinity": {"requird": []}}, "node_affinity.requird", "did you mean node_affinity.required?"),
    (
        "selects nobody",
        {"topology_spread": [{"topology_key": "zone", "selector": {}}]},
        "topology_spread[0].selector",
        "at least one of",
    ),
    ("no labels", {"topology_spread": [{"topology_key": "zone"}]}, "topology_spread[0].selector", "labels of the pod"),
    (
        "twice",
        {"pod": LABELLED, "topology_spread": [{"topology_key": "zone"}] * 2},
        "topology_spread[1].topology_key",
        "once",
    ),
    ("skew", {"topology_spread": [{"topology_key": "zone", "max_skew": 0}]}, "topology_spread[...].max_skew", ">= 1"),
    (
        "pod term",
        {"pod_anti_affinity": {"required": [{"topology_key": "zone"}]}},
        "pod_anti_affinity.required[0].selector",
        "labels of the pod",
    ),
    (
        "preferred pod term",
        {
            "pod_affinity": {
                "preferred": [
                    {
                        "weight": 1,
                        "term": {
                            "topology_key": "zone",
                            "selector": {"match_expressions": [{"key": "a", "operator": "In"}]},
                        },
                    }
                ]
            }
        },
        "pod_affinity.preferred[0].term.selector.match_expressions[0].values",
        "at least 1 value",
    ),
    ("both memories", {"gpu": {"memory_mib": 1, "memory_milli": 1}}, "gpu.memory_milli", "one of"),
    ("size of no card", {"gpu": {"cards": 0, "min_card_memory_mib": 1}}, "gpu.cards", "at least 1"),
    ("one linked card", {"gpu": {"nvlink": "require"}}, "gpu.nvlink", "fewer than 2"),
    (
        "domain of nothing",
        {"gang": {"name": "g", "size": 2, "within": "domain"}},
        "gang.topology_key",
        "a label of nodes",
    ),
    (
        "label for a node",
        {"gang": {"name": "g", "size": 2, "within": "node", "topology_key": "zone"}},
        "gang.topology_key",
        "only with",
    ),
]


def _plain(field: str) -> str:
    """Without the places in lists: some versions of msgspec tell them, some do not."""
    return re.sub(r"\[[^]]*\]", "[]", field)


@pytest.mark.parametrize("case", REFUSED, ids=[case[0] for case in REFUSED])
def test_admission_names_field_value_and_bound(case: tuple[str, dict[str, Any], str, str]) -> None:
    """What cannot be meant is refused, never ignored."""
    _, fields, field, bound = case
    verdict = admit(json.dumps({"type": "pod.request.v1", "name": "r", "pod": {"image": "i"}, **fields}).encode())

    assert isinstance(verdict, Refused)
    assert _plain(verdict.refusals[0].field) == _plain(field)
    assert verdict.refusals[0].value
    assert bound in f"{verdict.refusals[0].bound} {verdict.refusals[0].text}"


def test_admission_takes_a_request_with_everything() -> None:
    """Every constraint at once, as Kubernetes would have it."""
    term = {
        "topology_key": "zone",
        "selector": {"match_expressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]},
    }
    expressions = [
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "gen", "operator": "Gt", "values": ["1"]},
    ]
    body = {
        "type": "pod.request.v1",
        "name": "r",
        "pod": LABELLED,
        "gpu": {"cards": 2, "memory_milli": 200, "min_card_memory_mib": 40_000, "nvlink": "require"},
        "gang": {"name": "g", "size": 2, "within": "domain", "topology_key": "zone"},
        "node_affinity": {
            "required": [
                {"match_expressions": expressions, "match_fields": [{"key": "metadata.name", "values": ["n1"]}]}
            ],
            "preferred": [{"weight": 100, "term": {"match_expressions": [{"key": "x", "operator": "Exists"}]}}],
        },
        "topology_spread": [{"topology_key": "zone"}, {"topology_key": "zone", "when_unsatisfiable": "ScheduleAnyway"}],
        "pod_affinity": {"required": [term], "preferred": [{"weight": 1, "term": term}]},
        "pod_anti_affinity": {"required": [term]},
    }

    assert isinstance(admit(json.dumps(body).encode()), Admitted)
