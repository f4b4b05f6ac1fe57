"""Reading the witnesses: the whole log, the scheduler, the reconciler, and the streams that monitors read and write.

What flows in: a client. What flows out: snapshots, and a report once what differs has settled. A witness that cannot
be heard is named in the report; it never counts as "nothing there".
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from bus.ledger.follow import decode_commit
from bus.ledger.proof import Prover, conservation
from bus.ledger.shelf import checkpoints
from bus.ledger.state import LedgerState
from bus.protocol import BusError
from contracts import subjects
from contracts.answers import AskState, Summary
from contracts.inventory import NodeInventory
from contracts.outcomes import Allocation, DeadLetter, NodeShares, RequestEvent
from gpubus.audit import compare
from gpubus.audit.snapshot import Finding, Report, Snapshot
from gpubus.client import Client
from gpubus.errors import NoAnswer
from gpubus.hearing import LISTEN_S, Hearing
from scheduler.core.replay import Replay

PAUSE_S = 0.5
"""Between two rounds: longer than it takes for a pod's end to reach the ledger."""


async def audit(client: Client, *, pool: str = "default", settle_s: float = 5.0) -> Report:
    """Read and compare until nothing differs, or until what differs has stayed for `settle_s`.

    Raises:
        NoAnswer: the ledger itself cannot be read.
    """
    book = _Ledger(client, pool, await _beginning(client, pool))
    hearing = Hearing(client.bus)
    rounds: list[tuple[Finding, ...]] = []
    until = time.monotonic() + settle_s
    async with hearing.listening():
        while True:
            snapshot = await _snapshot(client, book, hearing, 0.0 if rounds else LISTEN_S)
            rounds.append(tuple(compare.findings(snapshot)))
            stayed = compare.settled(rounds)
            if not stayed or time.monotonic() >= until:
                return compare.report(snapshot, stayed, len(rounds))
            await asyncio.sleep(PAUSE_S)


class _Ledger:
    """The log, walked once and continued from round to round."""

    def __init__(self, client: Client, pool: str, begin: LedgerState | None) -> None:
        self._client = client
        self.prover = Prover(pool, begin)
        self.replay = Replay(pool, begin)
        self._next = begin.sequence + 1 if begin is not None else 1
        self._subject = subjects.LEDGER.subject(pool=pool)

    async def read(self) -> None:
        """Fold what is new."""
        reading = self._client.bus.read(subjects.LEDGER.stream, subject=self._subject, from_sequence=self._next)
        try:
            async with asyncio.timeout(60), contextlib.aclosing(reading) as batches:
                async for batch in batches:
                    for message in batch.messages:
                        self._next = message.sequence + 1
                        if not self.prover.take(message):
                            return
                        self.replay.take(decode_commit(message), message.sequence)
                    await asyncio.sleep(0)
                    if batch.caught_up:
                        return
        except (BusError, TimeoutError) as error:
            raise NoAnswer("the ledger", str(error) or "not read within 60 s") from error


async def _beginning(client: Client, pool: str) -> LedgerState | None:
    """Where the walk begins: at the first commit, or, once that has aged out, at the oldest checkpoint that reaches."""
    found: LedgerState | None = None
    try:
        first = await client.bus.first_sequence(subjects.LEDGER.stream)
        if first > 1:
            async with contextlib.aclosing(checkpoints(client.bus, pool)) as kept:
                async for state in kept:
                    if state.sequence + 1 < first:
                        break
                    found = state
    except BusError as error:
        raise NoAnswer("the ledger", str(error)) from error
    return found


async def _snapshot(client: Client, book: _Ledger, hearing: Hearing, listen_s: float) -> Snapshot:
    await book.read()
    await hearing.heard(_with_cards(book.prover.state), listen_s)
    before = frozenset(uid for uid, r in book.prover.state.requests.items() if r.phase in compare.PAST_PLACED)
    silent: dict[str, str] = {}
    allocations, unreadable = await _allocations(client, silent)
    inventories = await client.stored(subjects.INVENTORY.stream, NodeInventory, subject=subjects.INVENTORY.wildcard)
    events = await client.stored(subjects.EVENTS.stream, RequestEvent)
    letters = await client.stored(subjects.DEAD_LETTERS.stream, DeadLetter)
    summary, at = await _summary(client, silent)
    await book.read()
    shares = await client.stored(subjects.SHARES.stream, NodeShares, subject=subjects.SHARES.wildcard)
    state = book.prover.state
    return Snapshot(
        state=state,
        before=before,
        proof=book.prover.proof(),
        conserved=conservation(state),
        replayed=book.replay.result(),
        summary=summary,
        summary_sequence=at,
        allocations=allocations,
        unreadable=unreadable,
        inventories={i.node: i for _, i in inventories},
        shares={s.node: s for _, s in shares},
        refused=sum(event.phase == "refused" for _, event in events),
        dead_letters=len(letters),
        usage=dict(hearing.usage),
        silent=silent,
    )


def _with_cards(state: LedgerState) -> set[str]:
    """Nodes whose monitors should be heard; of one that has fallen silent nothing is waited for."""
    return {name for name, node in state.nodes.items() if node.cards and node.fresh}


async def _allocations(client: Client, silent: dict[str, str]) -> tuple[tuple[Allocation, ...] | None, tuple[str, ...]]:
    try:
        items, unreadable = await client.allocations()
    except NoAnswer as error:
        silent["Kubernetes"] = str(error)
        return None, ()
    return tuple(items), tuple(unreadable)


async def _summary(client: Client, silent: dict[str, str]) -> tuple[Summary | None, int]:
    try:
        view = await client.state(AskState(what="summary"))
    except NoAnswer as error:
        silent["scheduler"] = str(error)
        return None, 0
    return view.summary, view.ledger_sequence
