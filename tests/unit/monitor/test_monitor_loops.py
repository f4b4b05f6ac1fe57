"""The whole monitor on a virtual clock and an in-memory bus: pace, news, hanging drivers, lost buses, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus.memory import Fault, InMemoryBus
from contracts.inventory import Card, NodeInventory
from contracts.messages import encode
from contracts.outcomes import NodeShares, ShareAssignment
from contracts.units import CardUuid, NodeName, RequestUid
from monitor.cards.protocol import (
    DriverLost,
    DriverMissing,
)
from monitor.cards.simulated import SimulatedCards, SimulatedKind
from monitor.report import Identity
from monitor.service import Monitor
from monitor.ticks import next_due
from monitor.watch import CardWatch
from tests.builders.monitor_bench import LOST, NODE, SUBJECT, A, B, Bench, Ear, FakeCards, well

pytestmark = pytest.mark.looptime


@pytest.fixture
def cards() -> FakeCards:
    return FakeCards(A, B)


@pytest.fixture
def bench(cards: FakeCards, tmp_path: Path) -> Bench:
    (tmp_path / "stat").write_text("cpu 1 1 1 1 1 1 1 1 1 1\ncpu0 1\n")
    (tmp_path / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
    return Bench(cards, tmp_path)


# --- pace -----------------------------------------------------------------------------------------------------------


async def test_a_quiet_node_says_the_same_things_at_a_steady_pace(bench: Bench) -> None:
    """Claim: heartbeats at 0 and each second, one more when cards are first seen; usage each second; one inventory."""
    async with bench.running():
        await asyncio.sleep(3.4)

    assert [(at, beat.sequence, beat.uptime_ms) for at, beat in bench.ear.heartbeats] == [
        (0, 1, 0), (0, 2, 0), (1, 3, 1000), (2, 4, 2000), (3, 5, 3000)
    ]  # fmt: skip
    assert {(beat.incarnation, beat.boot_id, beat.node) for _, beat in bench.ear.heartbeats} == {
        ("m-1", "boot-1", NODE)
    }
    assert [(at, u.sequence, u.period_ms) for at, u in bench.ear.usage] == [(1, 1, 1000), (2, 2, 1000), (3, 3, 1000)]
    assert [(at, i.cards) for at, i in bench.ear.inventories] == [(0, (A, B))]
    assert bench.last().driver_version == "570"


async def test_usage_is_the_mean_of_the_looks_of_its_period_and_of_the_host(bench: Bench, cards: FakeCards) -> None:
    """Claim: looks at 0 (10 %), 0.5 and 1 (20 %) make 17 %, that of the same moment among them: what is said is new.

    The host's memory is there, its CPU unknown without time.
    """
    async with bench.running():
        await asyncio.sleep(0.2)
        cards.busy = 20
        await asyncio.sleep(1)
        cards.busy = 40
        await asyncio.sleep(1)
    used = bench.ear.usage[0][1]

    assert [card.compute_percent for card in used.cards] == [17, 17]
    assert [card.compute_percent for card in bench.ear.usage[1][1].cards] == [40, 40]
    assert used.cpu is not None
    assert (used.cpu.cores, used.cpu.memory_used_mib, used.cpu.used_milli) == (1, 1, None)


async def test_s066_no_wall_clock_takes_part(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Claim: with the wall clock jumping back by minutes at every look, the same bytes are said at the same times."""
    async with bench.running():
        await asyncio.sleep(2.5)
    moments = iter(range(2_000_000_000, 0, -600))
    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    again = Bench(FakeCards(A, B), tmp_path)
    began = asyncio.get_running_loop().time()
    async with again.running():
        await asyncio.sleep(2.5)

    def said(ear: Ear, since: float) -> list[tuple[float, bytes]]:
        return [(round(at - since, 3), encode(m)) for at, m in [*ear.heartbeats, *ear.usage, *ear.inventories]]

    assert len(bench.ear.heartbeats) == 4
    assert said(again.ear, began) == said(bench.ear, 0)


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from([0.1, 0.5, 1.0, 30.0]),
)  # fmt: skip
@pytest.mark.looptime(False)
def test_the_next_tick_is_always_ahead_and_never_more_than_a_period(due: float, now: float, period: float) -> None:
    """Claim: after the last tick, after now, at most one period ahead of the later of both; no burst after a pause."""
    following = next_due(due, now, period)
    tolerance = 1e-6

    assert following > due
    assert following > now - tolerance
    assert following <= max(due, now) + period + tolerance


# --- news -----------------------------------------------------------------------------------------------------------


async def test_s061_a_lost_card_is_news_at_once_and_does_not_move_the_beat(bench: Bench, cards: FakeCards) -> None:
    """Claim: lost at 1.2 s, found by the look at 1.5 s: an inventory and an extra heartbeat then, the next at 2 s."""
    async with bench.running():
        await asyncio.sleep(1.2)
        cards.against[1] = ("fatal", LOST)
        await asyncio.sleep(1.0)

    assert [(at, [c.health for c in i.cards]) for at, i in bench.ear.inventories] == [
        (0, ["healthy", "healthy"]), (1.5, ["healthy", "failed"])
    ]  # fmt: skip
    assert [(at, b.sequence, b.unhealthy) for at, b in bench.ear.heartbeats] == [
        (0, 1, ()), (0, 2, ()), (1, 3, ()), (1.5, 4, ("GPU-b",)), (2, 5, ("GPU-b",))
    ]  # fmt: skip


async def test_a_change_that_is_no_alarm_is_only_an_inventory(bench: Bench, cards: FakeCards) -> None:
    """Claim: MIG switched on is stored at once; heartbeats keep their pace; looks without change store nothing."""
    async with bench.running():
        await asyncio.sleep(5.2)
        cards.cards = (A, replace(B, mig_enabled=True))
        await asyncio.sleep(5)

    assert [at for at, _ in bench.ear.inventories] == [0, 5.5]
    assert [at for at, _ in bench.ear.heartbeats] == [0, *range(11)]


async def test_a_driver_that_hangs_keeps_the_use_of_the_node_for_a_tenth_of_a_second_at_most(bench: Bench) -> None:
    """Claim: a message waits for the look of its moment; one that does not come back is not waited for any longer."""
    async with bench.running():
        await asyncio.sleep(1.7)
        bench.runner.hang = True
        await asyncio.sleep(3)
        bench.runner.free()
        await asyncio.sleep(2)

    assert [at for at, _ in bench.ear.usage] == pytest.approx([1, 2.1, 3.1, 4.1, 5, 6])


@pytest.mark.parametrize("hang_first", [False, True])
async def test_a_node_without_cards_says_so(bench: Bench, cards: FakeCards, hang_first: bool) -> None:
    """Claim: a driver that lists nothing is known to list nothing: an empty inventory is stored, once it answers."""
    cards.cards = ()
    bench.runner.hang = hang_first
    async with bench.running():
        await asyncio.sleep(6)
        assert bool(bench.ear.inventories) is not hang_first
        bench.runner.free()
        await asyncio.sleep(6)

    assert [i.cards for _, i in bench.ear.inventories] == [()]


# --- the driver -----------------------------------------------------------------------------------------------------


async def test_a_hanging_driver_is_never_silence(bench: Bench) -> None:
    """Claim: heartbeats keep their pace, all cards become suspect after the deadline, use is unknown."""
    async with bench.running():
        await asyncio.sleep(2.2)
        bench.runner.hang = True
        await asyncio.sleep(20)
        silent = bench.last()
        bench.runner.free()
        await asyncio.sleep(8)

    on_the_beat = [at for at, _ in bench.ear.heartbeats if at == int(at)]
    assert on_the_beat == [0, *range(31)]
    suspect_from = next(at for at, b in bench.ear.heartbeats if b.unhealthy)
    assert suspect_from == 7.5  # the look at 2.5 s and the deadline of 5 s
    assert [c.health for c in silent.cards] == ["suspect", "suspect"]
    assert "has not answered" in silent.cards[0].health_reason
    hung = [u for at, u in bench.ear.usage if 4 <= at <= 22]
    assert {(c.uuid, c.compute_percent, c.processes) for u in hung for c in u.cards} == {
        (A.uuid, None, None), (B.uuid, None, None)
    }  # fmt: skip
    assert all(u.cpu and u.cpu.memory_used_mib == 1 for u in hung)
    assert well(bench) == (A, B)
    assert len(bench.ear.inventories) == 3
    assert bench.ear.heartbeats[-1][1].unhealthy == ()


async def test_a_lost_driver_is_named_and_found_again(bench: Bench, cards: FakeCards) -> None:
    """Claim: DriverLost makes cards suspect with its text; /readyz says it; the first answer makes them well."""
    async with bench.running():
        await asyncio.sleep(1)
        cards.broken = DriverLost("the driver does not answer any more: Driver Not Loaded")
        await asyncio.sleep(1)
        assert {c.health_reason for c in bench.last().cards} == {str(cards.broken)}
        assert bench.watch.trouble == str(cards.broken)
        cards.broken = None
        await asyncio.sleep(1)
        assert bench.watch.trouble == ""
        assert well(bench) == (A, B)


async def test_a_driver_that_never_answers_leaves_the_cards_unknown_not_none(bench: Bench) -> None:
    """Claim: hanging from the start: heartbeats, and no inventory that would say "no cards"."""
    bench.runner.hang = True
    async with bench.running() as monitor:
        await asyncio.sleep(12)
        assert monitor.stored is None

    assert bench.ear.inventories == []
    assert len([at for at, _ in bench.ear.heartbeats if at == int(at)]) == 13


async def test_a_missing_driver_ends_the_monitor_with_its_message(bench: Bench, cards: FakeCards) -> None:
    """Claim: run raises DriverMissing, so that the process can end with the reason."""
    cards.broken = DriverMissing("libnvidia-ml.so.1 is not found", "Install it")
    bench.watch = CardWatch(cards, bench.runner, bench.settings)
    who = Identity(node=NodeName(NODE), boot_id="b", incarnation="i")
    with pytest.RaisesGroup(pytest.RaisesExc(DriverMissing, match="libnvidia-ml")):
        await Monitor(bench.bus, bench.watch, who, bench.settings).run(bench.stop)

    assert cards.closed


async def test_a_stop_does_not_wait_for_a_hanging_driver(bench: Bench, cards: FakeCards) -> None:
    """Claim: stopping takes the half second that closing may take, not the driver's deadline."""
    async with bench.running():
        bench.runner.hang = True
        await asyncio.sleep(1.3)
        asked = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() - asked <= 0.5
    assert not cards.closed


# --- the bus --------------------------------------------------------------------------------------------------------


async def test_an_outage_costs_heartbeats_but_no_inventory(bench: Bench, cards: FakeCards) -> None:
    """Claim: what changed while the bus was away is stored when it is back; sequences show the gap."""
    async with bench.running():
        await asyncio.sleep(1.5)
        bench.bus.drop()
        cards.against[1] = ("fatal", LOST)
        await asyncio.sleep(10)
        bench.bus.restore()
        await asyncio.sleep(3)

    assert [c.health for c in bench.last().cards] == ["healthy", "failed"]
    sequences = [beat.sequence for _, beat in bench.ear.heartbeats]
    assert sequences == sorted(set(sequences))
    assert max(b - a for a, b in itertools.pairwise(sequences)) > 9


async def test_outages_are_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Claim: ten lost heartbeats and usages are one warning, and one line when it is over."""
    with caplog.at_level(logging.INFO, logger="monitor.service"):
        async with bench.running():
            await asyncio.sleep(1.5)
            bench.bus.drop()
            await asyncio.sleep(10)
            bench.bus.restore()
            await asyncio.sleep(3)

    lines = [record.message for record in caplog.records]
    assert lines.count("the bus does not take our messages") == 1
    assert lines.count("the bus takes our messages again") == 1


async def test_an_inventory_whose_acknowledgement_is_lost_is_stored_again(bench: Bench) -> None:
    """Claim: "unknown" is not "stored": it is tried until an acknowledgement comes; the stream keeps one."""
    lost = iter([Fault(lose="after"), Fault(lose="before")])
    bench.server.fault = lambda _c, kind, _s: next(lost, Fault()) if kind == "store" else Fault()
    async with bench.running() as monitor:
        await asyncio.sleep(10)
        assert monitor.stored is not None

    assert len(bench.ear.inventories) == 2


async def test_a_bus_that_lost_its_disk_gets_the_inventory_again(bench: Bench) -> None:
    """Claim: within `verify_s` of the streams being back, the inventory is too, though nothing changed on the node."""
    async with bench.running():
        await asyncio.sleep(5)
        bench.server.wipe()
        bench.server.create_streams()
        await asyncio.sleep(26)

    assert [at for at, _ in bench.ear.inventories] == [0, 30]


async def test_an_old_monitor_that_spoke_last_is_corrected(bench: Bench) -> None:
    """Claim: another incarnation's inventory over ours is replaced at the next look; our own is left alone."""
    async with bench.running():
        await asyncio.sleep(1)
        zombie = replace(bench.last(), incarnation="m-0", cards=())
        await InMemoryBus(bench.server, "zombie").store(f"{SUBJECT}.inventory", encode(zombie))
        await asyncio.sleep(60)

    assert [(at, i.incarnation) for at, i in bench.ear.inventories] == [(0, "m-1"), (1, "m-0"), (30, "m-1")]


async def test_without_streams_the_monitor_waits_for_them(bench: Bench) -> None:
    """Claim: the one that creates the streams may start later: heartbeats go, the inventory follows."""
    bench.server.wipe()
    async with bench.running():
        await asyncio.sleep(100.5)
        assert len(bench.ear.heartbeats) == 102
        bench.server.create_streams()
        await asyncio.sleep(3)

    assert bench.last().cards == (A, B)


# --- restarts -------------------------------------------------------------------------------------------------------


async def test_a_new_monitor_of_the_same_boot_misses_the_card_that_is_gone(bench: Bench, tmp_path: Path) -> None:
    """Claim: a card that the old monitor published and the driver lacks now is failed, not forgotten."""
    async with bench.running("m-1"):
        await asyncio.sleep(1)
    again = Bench(FakeCards(A), tmp_path, bench.server)
    async with again.running("m-2"):
        await asyncio.sleep(1)

    assert [(c.uuid, c.health) for c in again.last().cards] == [("GPU-a", "healthy"), ("GPU-b", "failed")]
    assert {beat.incarnation for _, beat in again.ear.heartbeats} == {"m-2"}
    assert again.ear.heartbeats[0][1].sequence == 1


async def test_s073_after_a_reboot_with_other_cards_the_old_ones_are_forgotten(bench: Bench, tmp_path: Path) -> None:
    """Claim: two cards were replaced by one of another model: the inventory names that one only."""
    async with bench.running("m-1", boot="boot-1"):
        await asyncio.sleep(1)
    new = Card(uuid=CardUuid("GPU-new"), index=0, model="L4", memory_total_mib=23_000)
    again = Bench(FakeCards(new), tmp_path, bench.server)
    async with again.running("m-2", boot="boot-2"):
        await asyncio.sleep(1)

    assert again.last().cards == (new,)


async def test_a_new_monitor_with_a_hanging_driver_doubts_what_it_remembers(bench: Bench, tmp_path: Path) -> None:
    """Claim: the cards of the last inventory are published as suspect, so that nobody places on them."""
    async with bench.running("m-1"):
        await asyncio.sleep(1)
    again = Bench(FakeCards(A, B), tmp_path, bench.server)
    again.runner.hang = True
    async with again.running("m-2"):
        await asyncio.sleep(2)

    assert [c.health for c in again.last().cards] == ["suspect", "suspect"]
    assert again.ear.heartbeats[-1][1].unhealthy == ("GPU-a", "GPU-b")


async def test_a_broken_last_inventory_does_not_stop_the_monitor(bench: Bench) -> None:
    """Claim: garbage on our subject is replaced by a good inventory."""
    await InMemoryBus(bench.server, "vandal").store(f"{SUBJECT}.inventory", b'{"type": "nonsense"}')
    with contextlib.suppress(AssertionError):
        async with bench.running():
            await asyncio.sleep(1)
    kept = bench.server.streams["GPUBUS_FACTS"].last(f"{SUBJECT}.inventory")

    assert kept is not None
    assert msgspec.json.decode(kept.data, type=NodeInventory).cards == (A, B)


# --- shares ---------------------------------------------------------------------------------------------------------


def shares(sequence: int, *milli: int, card: str, epoch: str = "e") -> bytes:
    assignments = tuple(
        ShareAssignment(uid=RequestUid(f"{m}"), namespace="t", pod="p", card=card, share_milli=m, memory_mib=100)
        for m in milli
    )
    return encode(NodeShares(node=NodeName(NODE), epoch=epoch, ledger_sequence=sequence, assignments=assignments))


async def test_simulated_cards_are_used_by_the_shares_that_are_sold(tmp_path: Path) -> None:
    """Claim: the newest snapshot counts; an older one of its epoch and garbage change nothing; a new epoch does."""
    simulated = SimulatedCards(NODE, SimulatedKind(cards=1), lambda: 0)
    bench = Bench(simulated, tmp_path)
    card, writer = simulated.look(0).cards[0].uuid, InMemoryBus(bench.server, "reconciler")
    held = []
    async with bench.running():
        for data in [
            shares(7, 300, 200, card=card),
            shares(6, 100, card=card),
            b"garbage",
            shares(1, 400, card=card, epoch="f"),
        ]:
            await writer.store(f"{SUBJECT}.shares", data)
            await asyncio.sleep(2)
            held.append(len(bench.ear.usage[-1][1].cards[0].processes or ()))

    assert held == [2, 2, 2, 1]
