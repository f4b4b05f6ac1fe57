"""One card among others, in a whole monitor on a virtual clock: hanging, failing, coming back, and how it is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bus.memory import InMemoryBus
from contracts.messages import encode
from monitor.cards.protocol import (
    Place,
)
from tests.builders.monitor_bench import LOST, SUBJECT, A, B, Bench, FakeCards

pytestmark = pytest.mark.looptime


@pytest.fixture
def cards() -> FakeCards:
    return FakeCards(A, B)


@pytest.fixture
def bench(cards: FakeCards, tmp_path: Path) -> Bench:
    (tmp_path / "stat").write_text("cpu 1 1 1 1 1 1 1 1 1 1\ncpu0 1\n")
    (tmp_path / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
    return Bench(cards, tmp_path)


async def test_a_card_that_hangs_is_suspect_alone_and_the_others_go_on(bench: Bench) -> None:
    """Claim: asked at 2.5 s, suspect 5 s later; the other card's use is known all the time; well with its answer."""
    async with bench.running():
        await asyncio.sleep(2.2)
        bench.runner.hung = {1}
        await asyncio.sleep(8)
        hanging = bench.watch.hanging
        bench.runner.free()
        await asyncio.sleep(1)

    assert [(at, [c.health for c in i.cards]) for at, i in bench.ear.inventories] == [
        (0, ["healthy", "healthy"]), (7.5, ["healthy", "suspect"]), (10.5, ["healthy", "healthy"])
    ]  # fmt: skip
    assert hanging == ("1",)
    during = [u.cards for at, u in bench.ear.usage if 4 <= at <= 10]
    assert {(a.compute_percent, b.compute_percent) for a, b in during} == {(10, None)}


async def test_a_card_that_hangs_from_the_start_does_not_keep_the_others_from_being_offered(bench: Bench) -> None:
    """Claim: the first inventory waits for the deadline of the one that does not answer, and then names the others."""
    bench.runner.hung = {1}
    async with bench.running():
        await asyncio.sleep(7)

    assert [(at, [c.uuid for c in i.cards]) for at, i in bench.ear.inventories] == [(5, ["GPU-a"])]


async def test_after_ten_seconds_with_a_failed_card_the_session_is_another_one(bench: Bench, cards: FakeCards) -> None:
    """Claim: every ten seconds while it lasts, and never while a call is out or all is well."""
    async with bench.running():
        await asyncio.sleep(30)
        assert cards.reopened == 0
        cards.against[1] = ("fatal", LOST)
        await asyncio.sleep(25)
        assert cards.reopened == 2
        bench.runner.hung = {0}
        await asyncio.sleep(30)
        assert cards.reopened == 2
        bench.runner.free()


async def test_s062_a_card_that_passed_its_trouble_comes_back_by_itself(bench: Bench, cards: FakeCards) -> None:
    """Claim: lost for 3 s, recovering with the first good look, offered a minute later; three inventories tell it."""
    async with bench.running():
        await asyncio.sleep(1.2)
        cards.against[1] = ("fatal", LOST)
        await asyncio.sleep(3)
        cards.against.clear()
        await asyncio.sleep(70)

    assert [(at, i.cards[1].health) for at, i in bench.ear.inventories] == [
        (0, "healthy"), (1.5, "failed"), (4.5, "recovering"), (64.5, "healthy")
    ]  # fmt: skip
    assert [at for at, b in bench.ear.heartbeats if at % 1] == [1.5, 4.5, 64.5]


async def test_inventories_count_up_and_name_the_driver(bench: Bench, cards: FakeCards) -> None:
    """Claim: 1, 2, ... within a life, with the versions of driver and CUDA."""
    async with bench.running():
        await asyncio.sleep(1)
        cards.against[0] = ("fatal", LOST)
        await asyncio.sleep(1)

    assert [(i.sequence, i.driver_version, i.cuda_version) for _, i in bench.ear.inventories] == [
        (1, "570", "13.0"), (2, "570", "13.0")
    ]  # fmt: skip


async def test_a_copy_of_our_own_older_inventory_is_corrected(bench: Bench, cards: FakeCards) -> None:
    """Claim: a replayed inventory of this life over a newer one is replaced at the next look."""
    async with bench.running():
        await asyncio.sleep(1)
        old = bench.last()
        cards.against[1] = ("fatal", LOST)
        await asyncio.sleep(1)
        await InMemoryBus(bench.server, "replayer").store(f"{SUBJECT}.inventory", encode(old))
        await asyncio.sleep(60)

    assert [(at, i.sequence) for at, i in bench.ear.inventories] == [(0, 1), (1, 2), (2, 1), (30, 3)]
    assert bench.last().cards[1].health == "failed"


async def test_wiring_is_asked_once_and_comes_with_the_first_inventory(bench: Bench, cards: FakeCards) -> None:
    """Claim: the cards are never published before their groups; a wiring that hangs leaves them unknown."""
    cards.places = lambda seats: {seat: Place(nvlink_group=3) for seat in seats}  # type: ignore[method-assign]  # a test's world
    async with bench.running():
        await asyncio.sleep(3)

    assert [[c.nvlink_group for c in i.cards] for _, i in bench.ear.inventories] == [[3, 3]]


@pytest.mark.parametrize("lane", ["wiring", "driver"])
async def test_a_lane_that_hangs_at_the_start_delays_no_heartbeat(bench: Bench, lane: str) -> None:
    """Claim: without wiring the cards are published in no group; without a driver nothing is, and heartbeats go on."""
    bench.runner.hung = {lane}
    async with bench.running():
        await asyncio.sleep(10)

    assert [c.nvlink_group for _, i in bench.ear.inventories for c in i.cards] == (
        [None] * 2 if lane == "wiring" else []
    )
    assert len([at for at, _ in bench.ear.heartbeats if at == int(at)]) >= 11
