"""The lease on a virtual clock: one holder at a time, the old one stops before the new one starts, whatever is lost."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.lease import Claim, Lease, Seen, decide, look, read_claim
from bus.memory import Fault, InMemoryBus, MemoryServer

pytestmark = pytest.mark.looptime(noop_cycles=0)  # nothing outside of the loop to wait for: ten times faster

DURATION_S = 1.2


def now() -> float:
    return asyncio.get_running_loop().time()


async def world(*names: str) -> tuple[MemoryServer, list[InMemoryBus]]:
    server = MemoryServer()
    buses = [InMemoryBus(server, name) for name in names]
    await buses[0].ensure_streams()
    return server, buses


CLAIM = Claim(holder="other", attempt=3)


@pytest.mark.parametrize(
    ("sequence", "claim", "age_s", "expected"),
    [
        (0, None, 0.0, "take"),
        (7, CLAIM, 0.0, "wait"),
        (7, CLAIM, 1.19, "wait"),
        (7, CLAIM, 1.2, "take"),
        (7, Claim(holder="other", released=True), 0.0, "take"),
        (7, Claim(holder="me"), 0.0, "take"),
        (7, None, 1.19, "wait"),
        (7, None, 1.2, "take"),
    ],
)
def test_what_a_candidate_does(sequence: int, claim: Claim | None, age_s: float, expected: str) -> None:
    """Nothing there, released, our own, or not moved for the duration: take it. A claim nobody can read counts."""
    seen = Seen(sequence=sequence, claim=claim, since_s=100.0)

    assert decide(seen, me="me", now_s=100.0 + age_s, duration_s=DURATION_S) == expected


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1))
def test_age_counts_from_the_first_sight_of_a_sequence(looks: list[tuple[int, int]]) -> None:
    """Looking again changes nothing while the sequence stands; a new one starts anew."""
    seen: Seen | None = None
    time_s, expected = 0.0, (0, 0.0)
    for sequence, step in looks:
        time_s += step
        if expected[0] != sequence:
            expected = (sequence, time_s)
        seen = look(seen, sequence=sequence, claim=None, now_s=time_s)
        assert (seen.sequence, seen.since_s) == expected


@pytest.mark.parametrize("data", [b"", b"x", b"{}", b'{"holder":1}', b"\xff"])
def test_a_claim_that_cannot_be_read_is_none(data: bytes) -> None:
    """A stranger's write on the subject does not stop anybody."""
    assert read_claim(data) is None


async def test_the_first_takes_it_at_once_and_keeps_it() -> None:
    """Two minutes of renewals are one term."""
    _, (bus,) = await world("a")
    async with Lease(bus, "scheduler", "a") as lease:
        term = await lease.wait_acquired()
        assert now() == pytest.approx(0.0)
        await asyncio.sleep(120)

        assert (True, term) == (lease.held, lease.term)


async def test_given_back_it_is_taken_within_a_look() -> None:
    """A graceful stop costs a fifth of a second, not the duration."""
    _, (a, b) = await world("a", "b")
    second = Lease(b, "scheduler", "b")
    async with Lease(a, "scheduler", "a") as first:
        await first.wait_acquired()
        waiting = asyncio.create_task(second.run())
        await asyncio.sleep(10)
        assert not second.held
    stopped = now()
    await second.wait_acquired()

    assert now() - stopped <= 0.2 + 1e-6
    assert second.term > first.term
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_dead_holder_is_replaced_after_the_duration() -> None:
    """Killed: the other acts within the duration and two looks; the dead one's last write was at most 0.4 s old."""
    _, (a, b) = await world("a", "b")
    first = Lease(a, "scheduler", "a")
    running = asyncio.create_task(first.run())
    await first.wait_acquired()
    async with Lease(b, "scheduler", "b") as second:
        await asyncio.sleep(5)
        a.drop()
        killed = now()
        await second.wait_acquired()
        took = now() - killed
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert DURATION_S - 0.4 <= took <= DURATION_S + 2 * 0.2


async def test_a_holder_that_is_cut_off_stops_before_it_can_be_replaced() -> None:
    """It counts from before its last renewal was sent: 1.1 s, and hears of the loss."""
    _, (a, b) = await world("a", "b")
    async with Lease(a, "scheduler", "a") as first, Lease(b, "scheduler", "b") as second:
        await first.wait_acquired()
        await asyncio.sleep(5)
        a.drop()
        await first.wait_lost()
        lost = now()
        assert not first.held
        await second.wait_acquired()

        assert lost < now()
        assert lost - 5 <= DURATION_S


async def test_the_time_counts_from_before_the_write_was_sent() -> None:
    """A write that takes 0.3 s there and back: 1.1 s are counted from its start."""
    server, (a,) = await world("a")
    sent: list[float] = []

    def slow(_client: str, kind: str, _subject: str) -> Fault:
        if kind == "store":
            sent.append(now())
        return Fault(delay_s=0.15)

    server.fault = slow
    async with Lease(a, "scheduler", "a") as lease:
        await lease.wait_acquired()
        a.drop()
        await lease.wait_lost()

        assert now() - sent[0] == pytest.approx(1.1, abs=0.01)


async def test_a_renewal_whose_answer_is_lost_is_recognised() -> None:
    """Every second answer is lost; the conflict shows our own claim, and we go on in the same term."""
    server, (a,) = await world("a")
    async with Lease(a, "scheduler", "a") as lease:
        term = await lease.wait_acquired()
        answers = itertools.count()
        server.fault = lambda _client, kind, _subject: Fault(
            lose="after" if kind == "store" and next(answers) % 2 else ""
        )
        await asyncio.sleep(20)

        assert (True, term) == (lease.held, lease.term)


async def test_held_turns_false_by_the_clock_alone() -> None:
    """An event loop that was busy for two seconds does not believe it still holds."""
    _, (a,) = await world("a")
    lease = Lease(a, "scheduler", "a")
    task = asyncio.create_task(lease.run())
    await lease.wait_acquired()
    task.cancel()
    lease._release = lease._bus.ensure_streams  # type: ignore[method-assign]  # gone without a word
    await asyncio.gather(task, return_exceptions=True)
    assert lease.held
    await asyncio.sleep(2)

    assert not lease.held


async def test_a_stranger_on_the_subject_costs_one_duration() -> None:
    """Nonsense written over the claim: the holder stops, somebody holds it again soon."""
    _, (a, b) = await world("a", "b")
    async with Lease(a, "scheduler", "a") as lease:
        await lease.wait_acquired()
        await b.store("gpubus.v1.leases.scheduler", b"nonsense")
        await lease.wait_lost()
        lost = now()
        await lease.wait_acquired()

        assert now() - lost <= DURATION_S + 2 * 0.2


@pytest.mark.parametrize("seed", range(12))
async def test_never_two_holders(seed: int) -> None:
    """A minute of lost, slow and cut-off round trips: at no moment do two hold it, and often somebody does."""
    rng = random.Random(seed)
    server, buses = await world("a", "b", "c")
    server.fault = lambda *_: Fault(
        delay_s=rng.choice([0.0, 0.0, 0.01, 0.15, 0.5]), lose=rng.choice(["", "", "", "", "", "before", "after"])
    )
    leases = [Lease(bus, "scheduler", bus.name) for bus in buses]
    tasks = [asyncio.create_task(lease.run()) for lease in leases]
    held = moments = 0
    terms: dict[int, str] = {}
    while now() < 60:
        await asyncio.sleep(rng.uniform(0.001, 0.05))
        holders = [lease for lease in leases if lease.held]
        assert len(holders) <= 1, f"two holders at {now()}"
        moments += 1
        held += len(holders)
        for lease in holders:
            assert terms.setdefault(lease.term, lease.holder_id) == lease.holder_id
        if rng.random() < 0.01:
            victim = rng.choice(buses)
            victim.drop() if victim.connected else victim.restore()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert held > moments / 10
