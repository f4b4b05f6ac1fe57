"""Checkpoints in their stream: written in one piece or not at all, read back newest first. Projections, never truth.

In: a copy of the committed state. Out: a head and compressed chunks in a stream of their own; read back, a state whose
digest is the one in its head, or nothing.

    head, chunk 1/3, chunk 2/3, chunk 3/3, head, chunk 1/2 <- torn: the writer died here

Each message is stored by compare-and-set on the one before it, so that a checkpoint stands in one piece or not at all:
with two writers one of them stops. Each chunk names its head and its place in a header, each head the head of the last
whole checkpoint before it; so the newest message leads to the newest whole one, and from there back.
Dumping, hashing and compressing run in a thread; what the event loop pays is the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import AsyncGenerator

import msgspec

from bus.ledger import snapshot
from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusError, Received, SequenceConflict
from bus.runtime.retry import GaveUp, retrying
from contracts.decisions import CheckpointHead
from contracts.messages import encode
from contracts.subjects import CHECKPOINTS

CHUNK_BYTES = 512 * 1024
"""Half of the smallest payload limit in use."""

LEVEL = 1
"""Of zlib: 28 MB of state in 0.09 s to a twentieth; level 6 takes 3 times as long for a third less."""

DEADLINE_S = 15.0

HEAD = "Gpubus-Checkpoint-Head"
"""On a chunk: the sequence of its head. On a head: that of the last whole checkpoint before it, 0 = none."""

PLACE = "Gpubus-Checkpoint-Chunk"
"""On a chunk: `2/3`."""

_log = logging.getLogger(__name__)
_read_head = msgspec.json.Decoder(CheckpointHead).decode


# --- writing -------------------------------------------------------------------------------------------------------


class Packed(msgspec.Struct, frozen=True):
    """A state ready to be stored."""

    head: CheckpointHead
    chunks: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes to be stored."""
        return sum(map(len, self.chunks))


def pack(state: LedgerState) -> Packed:
    """Dump, hash, compress, cut. Pure; 0.3 s for 50,000 live requests."""
    dumped = snapshot.dump(state)
    packed = zlib.compress(dumped, LEVEL)
    chunks = tuple(packed[at : at + CHUNK_BYTES] for at in range(0, len(packed), CHUNK_BYTES))
    head = CheckpointHead(
        pool=state.pool,
        epoch=state.epoch,
        ledger_sequence=state.sequence,
        number=state.number,
        digest=snapshot.digest_of(dumped),
        chunks=len(chunks),
        bytes_total=len(dumped),
    )
    return Packed(head, chunks)


async def write_checkpoint(bus: Bus, state: LedgerState) -> Packed | None:
    """Store a checkpoint of `state`, which nobody else changes meanwhile; None when it was not, and the log says why.

    A checkpoint is never worth an error: the service goes on, its next start is slower.
    """
    try:
        packed = await asyncio.to_thread(pack, state)
        await _store(bus, packed)
    except SequenceConflict:
        _log.info("checkpoint given up: another message came between", extra={"sequence": state.sequence})
    except (BusError, GaveUp) as error:
        _log.warning("checkpoint not written", extra={"sequence": state.sequence, "reason": str(error)})
    else:
        _log.info("checkpoint written", extra={"sequence": state.sequence, "bytes": packed.size})
        return packed
    return None


async def _store(bus: Bus, packed: Packed) -> None:
    pool, count = packed.head.pool, len(packed.chunks)
    last = await bus.last(CHECKPOINTS.stream, CHECKPOINTS.subject(pool=pool))
    whole = await _last_whole(bus, pool, last)
    at = await _put(bus, pool, encode(packed.head), {HEAD: str(whole)}, last.sequence if last else 0)
    head = at
    for index, chunk in enumerate(packed.chunks, start=1):
        at = await _put(bus, pool, chunk, {HEAD: str(head), PLACE: f"{index}/{count}"}, at)


async def _put(bus: Bus, pool: str, data: bytes, headers: dict[str, str], after: int) -> int:
    """One message right after another one. A second try whose first was stored is a conflict: then this one is lost."""
    store = retrying("store a checkpoint", deadline_s=DEADLINE_S)
    stored = await store(
        bus.store,
        CHECKPOINTS.subject(pool=pool),
        data,
        headers=headers,
        expected_last=after,
        stream=CHECKPOINTS.stream,
    )
    return stored.sequence


async def _last_whole(bus: Bus, pool: str, last: Received | None) -> int:
    """The head of the newest checkpoint that has all its chunks, given the newest message."""
    while last is not None:
        named = _named(last)
        index, _, count = last.headers.get(PLACE, "").partition("/")
        if index == count:  # a head (neither), or the last chunk
            return named
        last = await _at(bus, pool, named) if named else None
    return 0


# --- reading -------------------------------------------------------------------------------------------------------


async def checkpoints(bus: Bus, pool: str = "default") -> AsyncGenerator[LedgerState, None]:
    """The states of whole and sound checkpoints, newest first. Others are logged and passed over."""
    last = await bus.last(CHECKPOINTS.stream, CHECKPOINTS.subject(pool=pool))
    at = await _last_whole(bus, pool, last)
    while at:
        message = await _at(bus, pool, at)
        if message is None:
            return
        state = await _read(bus, pool, message)
        if state is not None:
            yield state
        at = _named(message)


async def newest_head(bus: Bus, pool: str = "default") -> tuple[CheckpointHead, float] | None:
    """The head of the newest whole checkpoint and when it was stored (wall clock of the server, seconds)."""
    last = await bus.last(CHECKPOINTS.stream, CHECKPOINTS.subject(pool=pool))
    at = await _last_whole(bus, pool, last)
    message = await _at(bus, pool, at) if at else None
    if message is None:
        return None
    try:
        return _read_head(message.data), message.stored_at
    except msgspec.MsgspecError:
        return None


async def _read(bus: Bus, pool: str, message: Received) -> LedgerState | None:
    """The state behind a head; None (and a line in the log) when it is not what the head says."""
    try:
        head = _read_head(message.data)
        chunks = (await _page(bus, pool, message.sequence, 1 + head.chunks))[1:]
        return await asyncio.to_thread(unpack, head, [chunk.data for chunk in chunks])
    except (msgspec.MsgspecError, zlib.error, snapshot.SnapshotError) as error:
        _log.warning("checkpoint ignored", extra={"head": message.sequence, "reason": str(error)})
        return None


def unpack(head: CheckpointHead, chunks: list[bytes]) -> LedgerState:
    """The state in the chunks. Pure.

    Raises:
        SnapshotError, zlib.error: it is not the one that the head names.
    """
    dumped = zlib.decompressobj().decompress(b"".join(chunks), head.bytes_total + 1)
    if len(dumped) != head.bytes_total or snapshot.digest_of(dumped) != head.digest:
        raise snapshot.SnapshotError(f"{len(dumped)} of {head.bytes_total} bytes, or another digest than in the head")
    state = snapshot.load(dumped)
    if (state.pool, state.epoch, state.sequence, state.number) != (
        head.pool,
        head.epoch,
        head.ledger_sequence,
        head.number,
    ):
        raise snapshot.SnapshotError(f"the state is at {state.sequence}, the head says {head.ledger_sequence}")
    return state


async def _at(bus: Bus, pool: str, sequence: int) -> Received | None:
    """The head at a sequence; None when it has aged out."""
    for message in await _page(bus, pool, sequence, 1):
        if message.sequence == sequence and PLACE not in message.headers:
            return message
    return None


async def _page(bus: Bus, pool: str, sequence: int, count: int) -> list[Received]:
    """Up to `count` messages from `sequence` on; fewer when there are no more now."""
    found: list[Received] = []
    subject, size = CHECKPOINTS.subject(pool=pool), max(1, min(count, 64))
    batches = bus.read(CHECKPOINTS.stream, subject=subject, from_sequence=sequence, batch=size)
    async with contextlib.aclosing(batches):
        async for batch in batches:
            found.extend(batch.messages)
            if len(found) >= count or batch.caught_up:
                break
    return found[:count]


def _named(message: Received) -> int:
    """The sequence in the header, which is always of an earlier message; else 0."""
    text = message.headers.get(HEAD, "")
    number = int(text) if text.isdigit() and text.isascii() else 0
    return number if number < message.sequence else 0
