"""Beginning an epoch: an empty ledger may only begin when Kubernetes has said what runs.

In: the reconciler's pages of allocations, read from pods alone, and what the events and requests streams still hold.
Out: the records of the first commits. Nothing that runs is forgotten, nothing that ended runs again, and a request that
waited when the ledger was lost waits again. With nothing anywhere, the epoch begins empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import msgspec

from bus.codec import ask
from bus.protocol import Bus, Received
from bus.runtime.retry import GaveUp, retrying
from contracts import subjects
from contracts.decisions import Accepted, Adopted, EpochStarted, Placement, Record
from contracts.outcomes import Allocation, AllocationsPage, AskAllocations, RequestEvent
from contracts.requests import PodRequest
from contracts.units import RequestKey, RequestUid, request_key
from scheduler.admission import Admitted, admit

_log = logging.getLogger(__name__)

WAITING = ("accepted", "pending")
PER_COMMIT = 200


Waiting = dict[RequestKey, tuple[int, PodRequest]]
"""Requests that waited, each with its sequence in the requests stream."""


class History(msgspec.Struct, kw_only=True):
    """What the other streams remember of a lost ledger."""

    answered: int = 0
    """Highest sequence of the requests stream that had an answer."""
    waiting: dict[RequestKey, int] = {}
    """Requests whose last word was that they wait, with their sequence in the requests stream."""


def records(epoch: str, found: tuple[Allocation, ...], waiting: Waiting, *, reason: str) -> Iterator[Record]:
    """All records of a new epoch, in order. Pure.

    A request keeps the uid that its pod carries; one that waited gets a new one, numbered within the first commit.
    """
    yield EpochStarted(epoch=epoch, reason=reason)
    names: set[RequestKey] = set()
    for one in sorted(found, key=lambda a: (a.namespace, a.request.name, -a.ledger_sequence, a.uid)):
        key = request_key(one.namespace, one.request.name)
        if key not in names:
            names.add(key)
            yield Accepted(uid=one.uid, namespace=one.namespace, request=one.request)
            yield Adopted(uid=one.uid, placement=_placement(one), pod=one.pod, running=one.running)
    for index, (key, (sequence, request)) in enumerate(sorted(waiting.items())):
        if key not in names:
            uid = RequestUid(f"{epoch}-0-{index}")
            namespace = key.partition("/")[0]
            yield Accepted(uid=uid, namespace=namespace, request=request, request_sequence=sequence)


def duplicates(found: tuple[Allocation, ...]) -> list[str]:
    """Pods beyond the first of one name: they run uncounted until an operator removes them."""
    seen: dict[RequestKey, str] = {}
    extra: list[str] = []
    for one in sorted(found, key=lambda a: (a.namespace, a.request.name, -a.ledger_sequence, a.uid)):
        key = request_key(one.namespace, one.request.name)
        if seen.setdefault(key, one.uid) != one.uid:
            extra.append(f"{one.namespace}/{one.pod}")
    return extra


def _placement(one: Allocation) -> Placement:
    pod = one.request.pod
    return Placement(node=one.node, slices=one.slices, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)


# --- asking --------------------------------------------------------------------------------------------------------


async def allocations(bus: Bus, *, patience_s: float) -> tuple[Allocation, ...]:
    """Every pod that carries an allocation of ours. Waits for the reconciler for as long as it takes, and says so."""
    while True:
        try:
            return await retrying("ask the reconciler what runs", deadline_s=patience_s)(_all_pages, bus)
        except GaveUp as error:
            _log.warning(
                "an empty ledger waits for the reconciler to say what runs in Kubernetes", extra={"reason": str(error)}
            )


async def _all_pages(bus: Bus) -> tuple[Allocation, ...]:
    found: list[Allocation] = []
    after = ""
    while True:
        page = await ask(bus, subjects.ALLOCATIONS, AskAllocations(after=after), AllocationsPage)
        for pod in page.unreadable:
            _log.error("a pod carries our label and cannot be read; it is not counted", extra={"pod": pod})
        found.extend(page.items)
        if not page.more:
            return tuple(found)
        after = page.last


async def history(bus: Bus) -> History:
    """Read the events that survived."""
    past = History()
    if await bus.last_sequence(subjects.EVENTS.stream) == 0:
        return past
    async with contextlib.aclosing(bus.read(subjects.EVENTS.stream)) as batches:
        async for batch in batches:
            for message in batch.messages:
                _remember(past, message)
            if batch.caught_up:
                break
            await asyncio.sleep(0)
    return past


def _remember(past: History, message: Received) -> None:
    try:
        event = msgspec.json.decode(message.data, type=RequestEvent)
    except msgspec.MsgspecError:
        return
    past.answered = max(past.answered, event.request_sequence)
    key = request_key(event.namespace, event.name)
    if event.phase in WAITING:
        past.waiting[key] = max(event.request_sequence, past.waiting.get(key, 0))
    elif event.phase != "refused":
        past.waiting.pop(key, None)


async def waiting_requests(bus: Bus, past: History) -> Waiting:
    """The requests that waited, from the requests stream; submits by request/reply are not kept there."""
    wanted = {sequence: key for key, sequence in past.waiting.items() if sequence}
    found: Waiting = {}
    if not wanted:
        return found
    async with contextlib.aclosing(bus.read(subjects.REQUESTS.stream, from_sequence=min(wanted))) as batches:
        async for batch in batches:
            for message in batch.messages:
                if message.sequence in wanted:
                    verdict = admit(message.data, malformed=message.malformed)
                    if isinstance(verdict, Admitted) and isinstance(verdict.message, PodRequest):
                        found[wanted[message.sequence]] = (message.sequence, verdict.message)
            if batch.caught_up or (batch.messages and batch.messages[-1].sequence >= max(wanted)):
                break
    return found
