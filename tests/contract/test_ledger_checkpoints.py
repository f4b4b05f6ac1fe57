"""Checkpoints on both buses: checkpoint and tail give the whole fold; what is torn or foreign is passed over."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from bus.ledger import checkpoint, shelf
from bus.ledger.append import Ledger, commit_after
from bus.ledger.checkpoint import Checkpointer, due
from bus.ledger.follow import RefusesToStart, end_of_log, open_ledger
from bus.ledger.shelf import checkpoints, newest_head, pack, write_checkpoint
from bus.ledger.snapshot import copy, digest
from bus.protocol import Bus, StreamFull
from contracts.decisions import CheckpointHead, EpochStarted
from contracts.messages import encode
from contracts.subjects import CHECKPOINTS, LEDGER
from tests.builders.history import tell
from tests.contract.bus_worlds import World, collect
from tests.contract.ledger_world import EPOCH, SUBJECT, LossyBus, begun, note, stored_checkpoints, write
from tests.servers.process import wait_until

SHELF = CHECKPOINTS.subject(pool="default")


async def opened_at(bus: Bus) -> tuple[str, list[int]]:
    """The digest after a start, and the sequences of the checkpoints that were found sound."""
    state, following = await open_ledger(bus)
    assert following == state.sequence + 1
    return digest(state), [found.sequence async for found in checkpoints(bus)]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks for little states."""
    monkeypatch.setattr(shelf, "CHUNK_BYTES", 100)


@pytest.mark.usefixtures("small_chunks")
async def test_checkpoint_and_tail_give_the_whole_fold(bus: Bus) -> None:
    """Claim: a start from the newest checkpoint ends where the writer is; older ones are there as well."""
    ledger = await begun(bus)
    for index in range(12):
        await write(ledger, "a", index)
        if index % 4 == 0:
            packed = await write_checkpoint(bus, copy(ledger.state))
            assert packed is not None
            assert packed.head.chunks > 1
    assert await opened_at(bus) == (digest(ledger.state), [10, 6, 2])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kept", [1, 2])
async def test_a_torn_checkpoint_is_passed_over_and_does_not_hide_the_one_before(bus: Bus, kept: int) -> None:
    """Claim: what a writer left that died after the head or between chunks is not used; the next one is whole."""
    ledger = await begun(bus)
    assert await write_checkpoint(bus, copy(ledger.state))
    await write(ledger, "a", 1)
    before = len(await stored_checkpoints(bus))
    dying = LossyBus(bus, [*[""] * kept, *["before"] * 1000])  # type: ignore[list-item]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shelf, "DEADLINE_S", 0.0)
        assert await write_checkpoint(dying, copy(ledger.state)) is None
    assert len(await stored_checkpoints(bus)) == before + kept
    assert await opened_at(bus) == (digest(ledger.state), [1])
    assert await _newest(bus) == 1
    await write(ledger, "a", 2)
    assert await write_checkpoint(bus, copy(ledger.state))
    assert await opened_at(bus) == (digest(ledger.state), [3, 1])


@pytest.mark.usefixtures("small_chunks")
async def test_of_two_writers_of_checkpoints_one_gives_up(world: World) -> None:
    """Claim: their chunks never mix; what is stored is whole, or torn and passed over."""
    one, two = await world.client("one"), await world.client("two")
    await one.ensure_streams()
    ledger = await begun(one)
    for _ in range(5):
        await write(ledger, "a", ledger.state.number)
        await asyncio.gather(*(write_checkpoint(bus, copy(ledger.state)) for bus in (one, two)))
    assert await write_checkpoint(one, copy(ledger.state))
    ends, found = await opened_at(two)
    assert ends == digest(ledger.state)
    assert found[0] == ledger.state.sequence


@pytest.mark.usefixtures("small_chunks")
async def test_a_writer_that_another_one_overtook_gives_up_and_does_not_hide_it(bus: Bus) -> None:
    """Claim: between two chunks of one writer another one writes a whole checkpoint: that one is found."""
    ledger = await begun(bus)
    await write(ledger, "a", 1)
    slow, calls = LossyBus(bus, []), 0
    store = slow.store

    async def overtaken(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            assert await write_checkpoint(bus, copy(ledger.state))
        return await store(*args, **options)

    slow.store = overtaken  # type: ignore[method-assign]  # the other one writes between two chunks
    assert await write_checkpoint(slow, copy(ledger.state)) is None
    assert await opened_at(bus) == (digest(ledger.state), [2])


def spoilt(ledger: Ledger, **changes: Any) -> list[tuple[bytes, dict[str, str]]]:
    """A whole checkpoint as messages, its head changed."""
    packed = pack(ledger.state)
    head = encode(msgspec.structs.replace(packed.head, **changes))
    return [(head, {}), *((chunk, {}) for chunk in packed.chunks)]


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": "0" * 64},
        {"bytes_total": 5},
        {"ledger_sequence": 1},
        {"number": 7},
        {"epoch": "e2"},
        {"pool": "other"},
        {"chunks": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_checkpoint_that_is_not_what_its_head_says_is_passed_over(
    bus: Bus, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Claim: it is logged, and the one before it is used."""
    ledger = await begun(bus)
    await write_checkpoint(bus, copy(ledger.state))
    await write(ledger, "a", 1)
    last = await bus.last_sequence(CHECKPOINTS.stream)
    (head, _), (chunk, _) = spoilt(ledger, **changes)
    stored = await bus.store(SHELF, head, headers={shelf.HEAD: "1"}, expected_last=last)
    await bus.store(SHELF, chunk, headers={shelf.HEAD: str(stored.sequence), shelf.PLACE: "1/1"})
    with caplog.at_level(logging.WARNING):
        assert await opened_at(bus) == (digest(ledger.state), [1])
    assert "checkpoint ignored" in caplog.text


@pytest.mark.parametrize("data", [b"", b"{}", b"garbage", b'{"type":"ledger.checkpoint.v1"}'])
async def test_rubbish_in_the_checkpoint_stream_changes_nothing(bus: Bus, data: bytes) -> None:
    """Claim: it is a projection: whatever stands there, the log is folded."""
    ledger = await begun(bus)
    await bus.store(CHECKPOINTS.subject(pool="other"), data)
    places: list[dict[str, str]] = [{shelf.PLACE: "1/2"}, {}, {shelf.PLACE: "1/1"}, {shelf.PLACE: "x"}]
    for headers in [{**place, shelf.HEAD: head} for place in places for head in ("1", "", "x", "9")]:
        await bus.store(SHELF, data, headers=headers)
        assert await opened_at(bus) == (digest(ledger.state), [])


async def test_a_checkpoint_of_a_lost_log_is_not_taken_for_the_new_one(world: World) -> None:
    """Claim: the epoch tells two logs apart, even where sequences and numbers agree."""
    bus = await world.client("one")
    await bus.ensure_streams()
    ledger = await begun(bus)
    await write_checkpoint(bus, copy(ledger.state))
    await write(ledger, "old", 1)
    await write_checkpoint(bus, copy(ledger.state))
    await world.recreate(LEDGER.stream)
    with pytest.raises(RefusesToStart, match="holds no commit, and the newest checkpoint is at 2") as caught:
        await open_ledger(bus)
    assert (caught.value.oldest, caught.value.checkpoint) == (None, 2)
    fresh = Ledger(bus, await end_of_log(bus))
    await fresh.append(commit_after(fresh.state, [EpochStarted(epoch="e2", reason="rebuilt")], author="a", epoch="e2"))
    for index in range(4):
        await write(fresh, "new", index)
        state, _ = await open_ledger(bus)
        assert digest(state) == digest(fresh.state)


async def store_raw(bus: Bus, ledger: Ledger, number: int, epoch: str = EPOCH, *records: Any) -> None:
    """A commit as if those before it had aged out."""
    commit = commit_after(ledger.state, records, author="a", epoch=epoch)
    await bus.store(SUBJECT, encode(msgspec.structs.replace(commit, number=number, predecessor=number - 1)))


async def test_a_log_that_does_not_reach_back_to_a_checkpoint_refuses_to_start(world: World) -> None:
    """Claim: both sequences are named, and nothing is guessed; the same where there is no checkpoint at all."""
    bus = await world.client("one")
    await bus.ensure_streams()
    ledger = await begun(bus)
    await write_checkpoint(bus, copy(ledger.state))
    await world.recreate(LEDGER.stream)
    for index in range(3):
        await bus.store("gpubus.v1.ledger.other", b"%d" % index)
    await store_raw(bus, ledger, 9)
    with pytest.raises(RefusesToStart, match=r"begins at 4, in .*, and the newest checkpoint is at 1"):
        await open_ledger(bus)
    await world.recreate(CHECKPOINTS.stream)
    with pytest.raises(RefusesToStart, match="there is no sound checkpoint"):
        await open_ledger(bus)


async def test_a_commit_that_follows_a_checkpoint_by_number_only_does_not_fit(world: World) -> None:
    """Claim: another epoch in the place of the next commit is another log, not a break in this one."""
    bus = await world.client("one")
    await bus.ensure_streams()
    ledger = await begun(bus)
    await write_checkpoint(bus, copy(ledger.state))
    await world.recreate(LEDGER.stream)
    await bus.store("gpubus.v1.ledger.other", b"")
    await store_raw(bus, ledger, 2, "e9")
    with pytest.raises(RefusesToStart, match="begins at 2"):
        await open_ledger(bus)


async def test_a_log_without_its_beginning_is_folded_from_the_next_epoch(world: World) -> None:
    """Claim: a rebuild in the same log makes it whole again, without any checkpoint."""
    bus = await world.client("one")
    await bus.ensure_streams()
    await store_raw(bus, Ledger(bus, await end_of_log(bus)), 9, "e1")
    end = await end_of_log(bus)
    assert (end.sequence, end.number, end.epoch) == (1, 9, "e1")
    ledger = Ledger(bus, end)
    await ledger.append(commit_after(end, [EpochStarted(epoch="e2", reason="rebuilt")], author="a", epoch="e2"))
    await write(ledger, "a", 1)
    assert await opened_at(bus) == (digest(ledger.state), [])


async def test_a_large_state_survives_in_several_chunks(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: any legal state comes back, chunk by chunk."""
    monkeypatch.setattr(shelf, "CHUNK_BYTES", 1000)
    kinds = ("accept", "place", "observe", "withdraw", "release", "adopt", "resize")
    state = tell([(kind, 7 * i % 60, 11 * i % 60) for i in range(60) for kind in kinds]).log.state
    packed = await write_checkpoint(bus, copy(state))
    assert packed is not None
    assert packed.head.chunks > 3
    (again,) = [found async for found in checkpoints(bus)]
    assert digest(again) == digest(state) == packed.head.digest


async def test_a_stream_that_is_full_is_logged_and_no_error(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    """Claim: a checkpoint is never worth stopping for."""
    ledger = await begun(bus)
    full = LossyBus(bus, [])

    async def store(*_: object, **__: object) -> None:
        raise StreamFull("maximum bytes exceeded")

    full.store = store  # type: ignore[assignment,method-assign]  # the stream's limit, without writing 2 GiB
    assert await write_checkpoint(full, copy(ledger.state)) is None
    assert "checkpoint not written" in caplog.text


# --- when ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "log_bytes", "age_s", "last_bytes", "expected"),
    [
        (0, 0, 60, 0, False),
        (49_999, 10**9, 3600, 0, False),
        (50_000, 10**9, 29, 0, False),
        (50_000, 10**9, 30, 0, True),
        (50_000, 4_000, 3600, 1_001, False),
        (50_000, 4_004, 3600, 1_001, True),
        (0, 0, 86_400, 10**9, True),
    ],
)
def test_a_checkpoint_is_due(records: int, log_bytes: int, age_s: float, last_bytes: int, expected: bool) -> None:
    """Claim: after many records, not too often, within a quarter of the log's bytes, and at least daily."""
    assert due(records=records, log_bytes=log_bytes, age_s=age_s, last_bytes=last_bytes) is expected


async def test_the_checkpointer_writes_the_first_one_at_once_and_the_next_when_enough_has_come(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claim: a ledger without a checkpoint gets one; then records decide."""
    monkeypatch.setattr(checkpoint, "LOOK_S", 0.005)
    monkeypatch.setattr(checkpoint, "SOONEST_S", 0.0)
    ledger = await begun(bus)
    running = asyncio.create_task(Checkpointer(bus, ledger, every_records=50).run(), name="checkpoints")
    try:
        await _until(bus, 1)
        await write(ledger, "a", 1)
        await asyncio.sleep(0.1)
        assert await _newest(bus) == 1, "one record is not enough"
        for index in range(60):
            await write(ledger, "a", 10 * index, 10 * index + 1, 10 * index + 2)
        await _until(bus, 10)
        before = len(await stored_checkpoints(bus))
        await asyncio.sleep(0.2)
        assert len(await stored_checkpoints(bus)) - before <= 2, "nothing came, so none (but one in flight) is written"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    state, _ = await open_ledger(bus)
    assert digest(state) == digest(ledger.state)


async def test_a_checkpointer_that_starts_again_knows_what_there_is(bus: Bus) -> None:
    """Claim: a restart is no reason for a checkpoint; a day is, and so is another epoch."""
    ledger = await begun(bus)
    assert await Checkpointer(bus, ledger)._find_last() == checkpoint.LATEST_S
    assert await write_checkpoint(bus, copy(ledger.state))
    await write(ledger, "a", 1)
    found = await newest_head(bus)
    assert found is not None
    head, stored_at = found
    assert isinstance(head, CheckpointHead)
    again = Checkpointer(bus, ledger, wall=lambda: stored_at + 77)
    assert await again._find_last() == pytest.approx(77)
    assert not again._due(77.0)
    assert again._due(checkpoint.LATEST_S)
    for opened in (ledger, Ledger(bus, copy(ledger.state))):
        for every_records in (1, 2):
            eager = Checkpointer(bus, opened, every_records=every_records)
            await eager._find_last()
            assert eager._due(77.0) == (every_records == 1), "one commit came since, whoever wrote it"
    ledger.state.epoch = "e2"
    assert await again._find_last() == checkpoint.LATEST_S


async def _newest(bus: Bus) -> int:
    found = await newest_head(bus)
    return found[0].ledger_sequence if found else 0


async def _until(bus: Bus, sequence: int) -> None:
    async def reached() -> bool:
        return await _newest(bus) >= sequence

    await wait_until(reached, what=f"a checkpoint at {sequence} or later")


async def test_notes_are_records(bus: Bus) -> None:
    """Claim: what these tests write is what they read."""
    ledger = await begun(bus)
    await write(ledger, "a", 1, 2)
    assert len(await collect(bus, LEDGER.stream)) == 2
    assert ledger.state.nodes.keys() == {note("a", 1).node, note("a", 2).node}  # type: ignore[union-attr]
