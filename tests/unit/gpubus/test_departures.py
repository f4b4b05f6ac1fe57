"""The protocol with departures: timelines worked out by hand, streams by seed, and equal bytes for equal seeds."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from contracts.messages import encode
from gpubus.errors import UsageError
from gpubus.local.nodes import Model, NodeSpec
from gpubus.simulate import generated, offers
from gpubus.simulate.departures import Departures, Steady
from gpubus.simulate.offers import HOUR_MS, Fault, Faults, Offer
from gpubus.simulate.openb import PodRow
from gpubus.simulate.plan import Horizon, Job, Plan
from gpubus.simulate.world import World, cluster_of

T4 = Model(name="T4", memory_mib=15_360, reserved_mib=0)


def pod(share: int = 1000, *, cards: int = 1, life_s: float | None = 100.0) -> PodRow:
    """One pod."""
    name = f"p{share}-{cards}"
    return PodRow(name=name, cpu_milli=100, memory_mib=1, cards=cards, share_milli=share, life_s=life_s)


def offer(at: int, life: int, share: int = 1000) -> Offer:
    """A pod at a millisecond for so many."""
    return Offer(at, life, pod(share))


def play(coming: list[Offer], faults: list[Fault] | None = None, *, nodes: int = 1, until: int = 1000) -> Steady:
    """Nodes with one card each, nothing discarded; a node that goes away is back after 300 ms."""
    world = World(cluster_of([NodeSpec(name=f"n{i}", cards=1, model=T4) for i in range(nodes)], 1), "first-fit")
    return Departures(world, until_ms=until, discard_ms=0, away_ms=300).play(coming, faults or [])


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_allocation_is_averaged_over_time() -> None:
    """One card: a whole one from 100 to 300, a half from 400 to 600, of 1000 ms: 300 card-milliseconds, 30 %."""
    found = play([offer(100, 200), offer(400, 200, 500)])

    assert (found.allocated_percent, found.lost_percent, found.refused) == (30.0, 0.0, 0)


def test_what_does_not_fit_is_lost_with_its_whole_time() -> None:
    """The card is taken from 0 to 500; one of 300 ms comes at 200 and is lost: 300 of 800 asked for."""
    found = play([offer(0, 500), offer(200, 300)])

    assert (found.refused, found.lost_percent, found.allocated_percent) == (1, 37.5, 50.0)


def test_an_end_comes_before_an_arrival_of_the_same_millisecond() -> None:
    """The card is free again when the next pod arrives."""
    assert play([offer(0, 500), offer(500, 500)]).refused == 0


def test_what_is_discarded_is_played_and_not_counted() -> None:
    """The first of 1000 ms is discarded: a pod that came then still holds the card, and its refusals do not count."""
    world = World(cluster_of([NodeSpec(name="n", cards=1, model=T4)], 1), "first-fit")
    run = Departures(world, until_ms=2000, discard_ms=1000)
    found = run.play([offer(0, 1500), offer(500, 100), offer(1200, 100)])

    assert (found.arrived, found.refused, found.allocated_percent) == (1, 1, 50.0)


def test_a_node_that_fails_kills_its_pods_and_comes_back() -> None:
    """Fails at 200: of 500 ms the pod loses 300. At 300 nothing fits, at 500 the node is back."""
    found = play([offer(0, 500), offer(300, 100), offer(500, 100)], [Fault(200, 0, kills=True)])

    assert (found.killed, found.refused) == (1, 1)
    assert found.lost_percent == pytest.approx(100 * (300 + 100) / 700)
    assert found.allocated_percent == 30.0


def test_a_drained_node_lets_its_pods_run_and_takes_no_new_ones() -> None:
    """Drained at 100 until 400: the half that runs stays, one that comes at 200 is lost, at 450 it is open."""
    coming = [offer(0, 800, 500), offer(200, 100, 500), offer(450, 100, 500)]
    found = play(coming, [Fault(100, 0, kills=False)])

    assert (found.killed, found.refused, found.arrived) == (0, 1, 3)


def test_a_node_that_is_away_does_not_fail_again() -> None:
    """It drains from 100 on; a failure at 200 finds it away, and its pod runs on to its end."""
    found = play([offer(0, 500)], [Fault(100, 0, kills=False), Fault(200, 0, kills=True)])

    assert (found.killed, found.allocated_percent) == (0, 50.0)


def test_lost_time_is_told_by_size() -> None:
    """Pods of two cards find no node with two: all their time is lost, and none of the others'."""
    found = play([offer(0, 100), Offer(200, 100, pod(cards=2))])

    assert [(each.cards, each.offered, each.lost) for each in found.lost_by_cards] == [
        (1, 100_000, 0),
        (2, 200_000, 200_000),
    ]


def test_lives_are_learned_by_the_fold() -> None:
    """Two pods of 100 and 300 ms ended: the ledger's own counts say 400 ms over two."""
    world = World(cluster_of([NodeSpec(name="n", cards=2, model=T4)], 1), "first-fit")
    Departures(world, until_ms=1000, discard_ms=0).play([offer(0, 100), offer(50, 300)])
    (spent,) = world.state.service.values()

    assert (spent.ended, spent.ended_ms, spent.running) == (2, 400, 0)


# --- the streams ------------------------------------------------------------------------------------------------------


def test_the_offered_load_is_met() -> None:
    """Over 6,000 hours the card time asked for is the load times what there is, within three percent (4 sigma)."""
    rows, capacity, until = [pod(500), pod(life_s=9000.0)], 8000, 6000 * HOUR_MS
    drawn = offers.drawn(rows, capacity_milli=capacity, load=0.9, until_ms=until, seed=1)
    asked = sum(each.row.demand_milli * each.life_ms for each in drawn)

    assert asked / (capacity * until) == pytest.approx(0.9, rel=0.03)


def test_lifetimes_are_cut_and_times_ascend() -> None:
    """60 s at least, 4 h at most; arrivals in order, all before the end."""
    rows = [pod(life_s=1.0), pod(500, life_s=99_999.0)]
    drawn = list(offers.drawn(rows, capacity_milli=8000, load=1.0, until_ms=50 * HOUR_MS, seed=3))

    assert {each.life_ms for each in drawn} == {60_000, 4 * HOUR_MS}
    assert all(one.at_ms <= two.at_ms < 50 * HOUR_MS for one, two in itertools.pairwise(drawn))


def test_recorded_times_begin_at_zero() -> None:
    """The trace's clock begins where it likes; lifetimes are not cut."""
    rows = [PodRow(name=n, cpu_milli=1, memory_mib=1, cards=1, share_milli=1, created_s=at, life_s=5.0)
            for n, at in (("b", 107.5), ("a", 100.0))]  # fmt: skip

    assert [(each.row.name, each.at_ms, each.life_ms) for each in offers.recorded(rows)] == [
        ("a", 0, 5000),
        ("b", 7500, 5000),
    ]


def test_faults_come_at_their_rate_and_in_their_proportion() -> None:
    """100 nodes, 3 failures and 1 drain a node and day, ten days: about 4,000, three in four of them failures."""
    found = list(offers.faults(Faults(fail_per_day=3, drain_per_day=1), nodes=100, until_ms=240 * HOUR_MS, seed=1))

    assert len(found) == pytest.approx(4000, rel=0.1)
    assert sum(each.kills for each in found) / len(found) == pytest.approx(0.75, abs=0.05)
    assert list(offers.faults(Faults(), nodes=100, until_ms=HOUR_MS, seed=1)) == []


def test_a_pod_without_a_lifetime_is_told_or_takes_one_by_name_or_by_cards() -> None:
    """With the line, and the flag that helps; of those with as many cards one is drawn by the name alone."""
    row = PodRow(name="a", cpu_milli=1, memory_mib=1, cards=2, share_milli=1000, line=7)
    pairs = [msgspec.structs.replace(row, name=name, life_s=life) for name, life in (("x", 9.0), ("y", 8.0))]
    single = msgspec.structs.replace(row, name="z", cards=1, life_s=7.0)
    others = [*pairs, single]

    with pytest.raises(UsageError, match=r"t line 7: a has no deletion_time.*--lifetimes"):
        offers.lives([row], "t")
    with pytest.raises(UsageError, match=r"by name or by number of cards"):
        offers.lives([row], "t", [single])
    assert offers.lives([row], "t", [*others, msgspec.structs.replace(row, life_s=6.0)])[0].life_s == 6.0
    found = {
        name: offers.lives([msgspec.structs.replace(row, name=name)], "t", others)[0].life_s for name in "abcdefgh"
    }
    again = {
        name: offers.lives([msgspec.structs.replace(row, name=name)], "t", others[::-1])[0].life_s for name in found
    }
    assert set(found.values()) == {8.0, 9.0}
    assert again == found


# --- generated workloads ----------------------------------------------------------------------------------------------

WORKLOAD = """
pods = 400
seconds_between = 20

[[node]]
count = 3
cards = 4

[[shape]]
weight = 3
share_milli = 250
life = {kind = "fixed", mean_s = 600}

[[shape]]
cards = 2
models = ["A100-40G"]
life = {kind = "uniform", low_s = 10, high_s = 20}
"""


def test_a_workload_is_what_its_description_says() -> None:
    """Three in four pods ask for a quarter; two cards come with lives of 10 to 20 s; nodes are named apart."""
    workload = generated.read(WORKLOAD, "w")
    rows, nodes = generated.pods(workload, 5), generated.nodes(workload)
    pairs = [row for row in rows if row.cards == 2]

    assert (len(rows), len({node.name for node in nodes}), sum(node.cards for node in nodes)) == (400, 3, 12)
    assert len(pairs) == pytest.approx(100, abs=30)
    assert all(10 <= (row.life_s or 0) <= 20 for row in pairs)
    assert {row.life_s for row in rows if row.cards == 1} == {600.0}
    assert rows == generated.pods(workload, 5) != generated.pods(workload, 6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WORKLOAD.replace("cards = 4", "cards = 0"), "node"),
        (WORKLOAD.replace("weight = 3", "wieght = 3"), "wieght"),
        (WORKLOAD.replace("share_milli = 250", "share_milli = -1"), "shape"),
        (WORKLOAD.replace('"fixed"', '"forever"'), "forever"),
        ("pods = 3", "node"),
        ("pods = ", "w: "),
    ],
)
def test_a_wrong_description_is_told_by_its_path(text: str, words: str) -> None:
    """Unknown fields as well."""
    with pytest.raises(UsageError, match=words):
        generated.read(text, "w")


@pytest.mark.parametrize("policy", ["packing", "fgd"])
def test_the_same_seed_gives_the_same_bytes(policy: str) -> None:
    """Two runs with failures and drains, encoded; another seed gives others."""
    workload = generated.read(WORKLOAD, "w")
    faults = Faults(fail_per_day=20, drain_per_day=20, away_s=600)
    plan = Plan(
        nodes=tuple(generated.nodes(workload)),
        traces={"w": tuple(generated.pods(workload, 1))},
        policies=(policy,),
        seeds=(1, 2),
        loads=(1.2,),
        horizon=Horizon(hours=4, discard=1, faults=faults),
    )
    job = Job(trace="w", policy=policy, seed=1, load=1.2)
    one, two, other = (encode(plan.run(each)) for each in (job, job, Job(trace="w", policy=policy, seed=2, load=1.2)))

    assert one == two != other
    assert b'"killed":0' not in one
