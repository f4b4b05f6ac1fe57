"""Which waiting requests bring which nodes how many more cards."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bus.ledger.state import CardState, RequestState
from contracts.constraints import Expression, NodeAffinity, NodeTerm
from contracts.decisions import QuotaSet
from contracts.quotas import NamespaceQuota
from reconciler.placeholders.demand import askers, demand
from reconciler.placeholders.rooms import room
from reconciler.placeholders.survey import survey
from reconciler.placeholders.values import NodeSeen, Placeholder
from tests.builders.ledger import Cluster, Node, Request, cluster, node, request
from tests.builders.placeholders import RULES, held, pod, proven, starting
from tests.builders.pods import kube_node


def shared(name: str, cards: int = 8, **fields: Any) -> Node:
    """A node of the ledger that shares its cards, none of which is ours."""
    return node(name).gpus(cards, **fields).facts(mode="coexist")


def asked(world: Cluster, *requests: Request) -> list[RequestState]:
    """They are accepted, and wait."""
    return [world.accept(each) for each in requests]


def wants(world: Cluster, asking: list[RequestState], **of: NodeSeen) -> dict[str, int]:
    """The demand, with nodes as they are seen; those not named have all cards free for the plugin."""
    rooms = []
    for name, known in world.state.nodes.items():
        count = len(known.cards)
        seen = of.get(name, NodeSeen(name=name, devices=count, free=count))
        made = room(seen, known, paused=False)
        rooms += [made] if made is not None else []
    return demand(askers(world.state, asking), rooms)


def seen(name: str, *placeholders: Placeholder, free: int = 8, **fields: Any) -> NodeSeen:
    """A node with these placeholders."""
    return NodeSeen(name=name, devices=8, free=free, placeholders=placeholders, **fields)


def half(name: str) -> Request:
    """Half a card."""
    return request(name).share(500).gpu_memory(1000)


def test_halves_are_packed_before_a_second_card_is_got() -> None:
    """Five halves are three cards."""
    world = cluster(shared("n1"))

    assert wants(world, asked(world, *(half(f"r{n}") for n in range(5)))) == {"n1": 3}


def test_s058_five_thousand_requests_for_one_node_ask_for_its_eight_cards_and_no_more() -> None:
    """S058: a hundred or five thousand make no difference to what can be got."""
    world = cluster(shared("n1"))
    asking = asked(world, *(half(f"r{n}") for n in range(300)))

    assert wants(world, asking * 10) == {"n1": 8}


def test_an_idle_card_and_one_on_its_way_are_filled_first() -> None:
    """S049, KubeShare 1.18-13: a retry never brings a second card."""
    world = cluster(shared("n1"))
    asking = asked(world, request("r1"), request("r2"))

    assert wants(world, asking, n1=seen("n1", held("n1-gpu3"), starting(1), free=6)) == {}
    assert wants(world, asking, n1=seen("n1", starting(1), free=7)) == {"n1": 1}
    assert wants(world, asking, n1=seen("n1", held("n1-gpu3", releasing=True), free=7)) == {"n1": 2}


def test_s049_a_group_gets_one_card_while_it_has_room() -> None:
    """Four quarters of one affinity group share a card; the fifth needs another."""
    world = cluster(shared("n1"))
    quarters = [request(f"r{n}").share(250).gpu_memory(10).affinity("group") for n in range(5)]

    assert wants(world, asked(world, *quarters[:4])) == {"n1": 1}
    assert wants(world, asked(world, request("r9").share(250).gpu_memory(10).affinity("group"))) == {"n1": 1}
    assert wants(world, list(world.state.pending.values())) == {"n1": 2}


@pytest.mark.parametrize(
    ("tag", "cards"),
    [("anti_affinity", 3), ("exclusion", 1), ("affinity", 1)],
)
def test_tags_keep_apart_or_together(tag: str, cards: int) -> None:
    """Three small ones with the same tag."""
    world = cluster(shared("n1"))
    small = [getattr(request(f"r{n}").share(100).gpu_memory(10), tag)("t") for n in range(3)]

    assert wants(world, asked(world, *small)) == {"n1": cards}


def test_an_exclusive_one_shares_with_nobody_else() -> None:
    """Two different exclusions are two cards."""
    world = cluster(shared("n1"))
    small = [request(f"r{n}").share(100).gpu_memory(10).exclusion(f"t{n}") for n in range(2)]

    assert wants(world, asked(world, *small)) == {"n1": 2}


def test_a_gang_counts_whole_or_not_at_all() -> None:
    """S060: cards for all members at once, on one node where that is asked for; none for a gang that has no room."""
    world = cluster(shared("n1", 4), shared("n2", 8))
    five = [request(f"r{n}").gang("g", 5, within="node") for n in range(5)]
    assert wants(world, asked(world, *five)) == {"n2": 5}

    thirteen = cluster(shared("n1", 4), shared("n2", 8))
    assert wants(thirteen, asked(thirteen, *(request(f"r{n}").gang("g", 13) for n in range(13)))) == {}
    assert wants(thirteen, list(thirteen.state.pending.values())[:12]) == {"n1": 4, "n2": 8}


NODES = [
    (shared("n1").facts(ready=False), request("r")),
    (shared("n1").facts(unschedulable=True), request("r")),
    (shared("n1").taint("gpu"), request("r")),
    (shared("n1").labels(zone="a"), request("r").select(zone="b")),
    (shared("n1").cpu(100), request("r").cpu(200)),
    (shared("n1").memory(100), request("r").memory(200)),
    (shared("n1").facts(allocatable_pods=1, foreign_pods=1), request("r")),
    (shared("n1").stale(), request("r")),
    (node("n1").gpus(8), request("r")),
    (shared("n1", model="T4"), request("r").models("A100")),
    (shared("n1", memory_mib=16_000), request("r").gpu(min_card_memory_mib=20_000)),
    (shared("n1", memory_mib=16_000), request("r").gpu_memory(20_000)),
    (shared("n1", 2), request("r").cards(3)),
    (shared("n1", health="failed"), request("r")),
    (shared("n1", mig_enabled=True), request("r")),
]


@pytest.mark.parametrize(("drawn", "who"), NODES, ids=[str(n) for n in range(len(NODES))])
def test_no_card_is_got_where_the_request_could_not_go(drawn: Node, who: Request) -> None:
    """Each of the rules of the node and of the card alone keeps it from asking."""
    world = cluster(drawn)

    assert wants(world, asked(world, who)) == {}


WELCOME = [
    (shared("n1").taint("gpu"), request("r").tolerate("gpu", operator="Exists")),
    (shared("n1").taint("gpu", "PreferNoSchedule"), request("r")),
    (shared("n1").labels(zone="a"), request("r").select(zone="a")),
    (shared("n1", 2), request("r").cards(2)),
    (shared("n1", memory_mib=16_000), request("r").gpu(min_card_memory_mib=16_000)),
]


@pytest.mark.parametrize(("drawn", "who"), WELCOME, ids=[str(n) for n in range(len(WELCOME))])
def test_cards_are_got_where_it_could(drawn: Node, who: Request) -> None:
    """As many as it asks for."""
    world = cluster(drawn)

    assert wants(world, asked(world, who)) == {"n1": who.build().gpu.cards}


@pytest.mark.parametrize(
    ("operator", "values", "welcome"),
    [
        ("In", ("a", "b"), True),
        ("In", ("b",), False),
        ("NotIn", ("b",), True),
        ("NotIn", ("a",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
    ],
)
def test_required_affinity_of_the_node(operator: Any, values: tuple[str, ...], welcome: bool) -> None:
    """One term has to hold."""
    world = cluster(shared("n1").labels(zone="a"))
    term = NodeTerm(match_expressions=(Expression(key="zone", operator=operator, values=values),))
    asking = asked(world, request("r").fields(node_affinity=NodeAffinity(required=(term,))))

    assert wants(world, asking) == ({"n1": 1} if welcome else {})


def test_a_quota_that_is_full_is_no_reason_for_a_card() -> None:
    """It would wait with one as well."""
    world = cluster(shared("n1")).fold(QuotaSet(quota=NamespaceQuota(namespace="default", share_milli=500)))

    assert wants(world, asked(world, request("r1"))) == {}
    assert wants(world, asked(world, half("r2"))) == {"n1": 1}


def test_a_node_in_a_pause_or_with_something_against_it_is_passed_over() -> None:
    """The next node gets the card."""
    world = cluster(shared("n1", 4), shared("n2", 8))
    asking = asked(world, request("r1"))

    assert wants(world, asking) == {"n1": 1}, "fewest left first"
    assert wants(world, asking, n1=NodeSeen(name="n1", devices=4, free=4, against="no")) == {"n2": 1}
    assert wants(world, asking, n1=NodeSeen(name="n1", devices=4, free=0)) == {"n2": 1}
    known = world.state.nodes["n1"]
    paused = room(NodeSeen(name="n1", devices=4, free=4), known, paused=True)
    assert paused is not None
    assert demand(asking, [paused]) == {}


def test_a_card_with_somebody_on_it_is_left_to_the_scheduler() -> None:
    """It had its chance there: a request that still waits needs another card."""
    world = cluster(shared("n1").facts(acquired=("n1-gpu0",)))
    world.hold(request("tenant").share(100), "n1", 0)
    here = seen("n1", held("n1-gpu0"), free=7, tenants=frozenset({"n1-gpu0"}))

    assert wants(world, asked(world, half("r1")), n1=here) == {"n1": 1}


def test_mixed_cards_ask_for_another_until_the_right_one_came() -> None:
    """Nobody can choose: a T4 came for a request that needs an A100, and the next try brings the next card."""
    cards = shared("n1", 1, model="T4")
    world = cluster(cards.gpus(1, model="A100"))
    asking = asked(world, request("r1").models("A100"))

    assert wants(world, asking, n1=seen("n1", starting(0), free=1)) == {"n1": 1}
    assert wants(world, asking, n1=seen("n1", held("n1-gpu0"), free=1)) == {"n1": 1}
    assert wants(world, asking, n1=seen("n1", held("n1-gpu1"), free=1)) == {}


def test_the_survey_counts_devices_and_names_who_has_which() -> None:
    """From the Node object, the pods that are bound there, and the ledger."""
    world = cluster(shared("n1", 4).facts(acquired=("n1-gpu0",)))
    world.hold(request("tenant").share(100), "n1", 0)
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "boot-1"}}
    kube = kube_node(
        "n1",
        metadata={"name": "n1", "labels": {"gpubus.dev/mode": "coexist"}},
        status={**ready, "allocatable": {"nvidia.com/gpu": "4"}},
    )
    other = replace(pod(card="n1-gpu2", slot="7"), metadata=replace(pod().metadata, namespace="team", name="train"))
    ended = replace(pod(card="n1-gpu3", slot="8", phase="Succeeded"), metadata=other.metadata)
    found = survey(kube, [pod(card="n1-gpu0", notes=proven("n1-gpu0")), other, ended], world.state.nodes["n1"], RULES)

    assert (found.devices, found.free, found.against) == (4, 2, "")
    assert [each.card for each in found.placeholders] == ["n1-gpu0"]
    assert (found.tenants, found.offered) == ({"n1-gpu0"}, {"n1-gpu0"})
    assert found.taken == {"n1-gpu2": "team/train"}


def test_a_card_with_nothing_in_it_is_a_whole_one() -> None:
    """The bins begin with what the card can sell."""
    world = cluster(shared("n1", 1))
    made = room(NodeSeen(name="n1", devices=1, free=1), world.state.nodes["n1"], paused=False)
    card: CardState = next(iter(world.state.nodes["n1"].cards.values()))

    assert made is not None
    assert [(each.free_milli, each.free_mib, each.ours) for each in made.bins] == [(1000, card.capacity_mib, False)]
