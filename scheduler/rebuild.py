"""Beginning an epoch: an empty ledger may only begin when Kubernetes has said what runs.

In: the reconciler's pages of allocations, read from pods alone, what operators said of quotas, and what the events and
requests streams still hold.
Out: the records of the first commits. Nothing that runs is forgotten, nothing that ended runs again, and a request that
waited when the ledger was lost waits again. With nothing anywhere, the epoch begins empty.

A large cluster needs several commits, and whoever writes them may be killed between two. Each but the last says that
the rebuild goes on; a scheduler that finds such a commit at the end of the log asks again and writes what is missing,
before it decides anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator

import msgspec

from bus.codec import ask, decode
from bus.ledger.follow import last_commit
from bus.ledger.state import LedgerState
from bus.protocol import Bus, Received
from bus.runtime.retry import GaveUp, retrying
from contracts import subjects
from contracts.decisions import Accepted, Adopted, EpochStarted, Placement, QuotaSet, Record
from contracts.messages import encode
from contracts.outcomes import Allocation, AllocationsPage, AskAllocations, RequestEvent
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest
from contracts.units import RequestKey, RequestUid, request_key
from scheduler.admission import Admitted, admit

_log = logging.getLogger(__name__)

WAITING = ("accepted", "pending", "nominated", "requeued")
PER_COMMIT = 400
COMMIT_BYTES = 512 * 1024
"""Of one commit; the server takes 1 MiB."""

GOES_ON = "rebuild-goes-on"
"""Cause of every commit of a rebuild but the last."""


Waiting = dict[RequestKey, tuple[int, PodRequest]]
"""Requests that waited, each with its sequence in the requests stream."""


class History(msgspec.Struct, kw_only=True):
    """What the other streams remember of a lost ledger."""

    answered: int = 0
    """Highest sequence of the requests stream that had an answer."""
    waiting: dict[RequestKey, int] = {}
    """Requests whose last word was that they wait, with their sequence in the requests stream."""


def groups(
    state: LedgerState,
    epoch: str,
    found: tuple[Allocation, ...],
    waiting: Waiting,
    *,
    quotas: tuple[NamespaceQuota, ...] = (),
    reason: str,
) -> Iterator[tuple[Record, ...]]:
    """What `state` lacks, in order, in groups that belong in one commit. Pure.

    Quotas come before anything that could be decided: nothing is placed as if there were none.

    A request keeps the uid that its pod carries; one that waited gets a new one. Accepted alone would be decided again.
    """
    if not state.epoch:
        yield (EpochStarted(epoch=epoch, reason=reason),)
    for quota in quotas:
        if state.quotas.get(quota.namespace) != quota:
            yield (QuotaSet(quota=quota),)
    taken = set(state.by_key)
    for one in _first_of_each(found)[0]:
        key = request_key(one.namespace, one.request.name)
        if key not in taken and one.uid not in state.requests:
            accepted = Accepted(uid=one.uid, namespace=one.namespace, request=one.request)
            yield accepted, Adopted(uid=one.uid, placement=_placement(one), pod=one.pod, running=one.running)
        taken.add(key)
    begun = sum(uid.startswith(f"{epoch}-0-") for uid in state.requests)
    lacking = ((key, item) for key, item in sorted(waiting.items()) if key not in taken)
    for index, (key, (sequence, request)) in enumerate(lacking, begun):
        uid = RequestUid(f"{epoch}-0-{index}")
        namespace = key.partition("/")[0]
        yield (Accepted(uid=uid, namespace=namespace, request=request, request_sequence=sequence),)


def parts(records: Iterable[tuple[Record, ...]]) -> Iterator[tuple[Record, ...]]:
    """The groups, packed into commits. Pure. At least one part, so that the last commit can say that it is the last."""
    part: list[Record] = []
    size = 0
    for group in records:
        more = sum(len(encode(record)) for record in group)
        if part and (size + more > COMMIT_BYTES or len(part) + len(group) > PER_COMMIT):
            yield tuple(part)
            part, size = [], 0
        part += group
        size += more
    yield tuple(part)


def duplicates(found: tuple[Allocation, ...]) -> list[str]:
    """Pods that cannot be counted, because another one has their name or their uid: an operator must remove them."""
    return [f"{one.namespace}/{one.pod}" for one in _first_of_each(found)[1]]


def _first_of_each(found: tuple[Allocation, ...]) -> tuple[list[Allocation], list[Allocation]]:
    """One allocation for each name and uid, the one that was decided last, and the others.

    Annotations are words on pods, and whoever may write pods may write them: two may say the same.
    """
    names: set[RequestKey] = set()
    uids: set[RequestUid] = set()
    counted: list[Allocation] = []
    extra: list[Allocation] = []
    for one in sorted(found, key=lambda a: (a.namespace, a.request.name, -a.ledger_sequence, a.uid, a.pod)):
        key = request_key(one.namespace, one.request.name)
        if key in names or one.uid in uids:
            extra.append(one)
        else:
            names.add(key)
            uids.add(one.uid)
            counted.append(one)
    return counted, extra


def _placement(one: Allocation) -> Placement:
    pod = one.request.pod
    return Placement(node=one.node, slices=one.slices, cpu_milli=pod.cpu_milli, memory_mib=pod.memory_mib)


async def unfinished(bus: Bus, pool: str) -> bool:
    """Whether the log ends in the middle of a rebuild."""
    last = await last_commit(bus, pool)
    return last is not None and GOES_ON in last[0].causes


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


async def quotas(bus: Bus) -> tuple[NamespaceQuota, ...]:
    """The last word on each namespace, as operators left it in the stream; in the order in which they said it.

    One that cannot be read, or speaks of another namespace than its subject, is passed by here; `intake` buries it.
    """
    channel = subjects.NAMESPACE_QUOTAS
    found: dict[str, NamespaceQuota] = {}
    async with contextlib.aclosing(bus.read(channel.stream, subject=channel.wildcard)) as batches:
        async for batch in batches:
            for message in batch.messages:
                seen = decode(channel, message)
                if isinstance(seen, NamespaceQuota) and channel.parse(message.subject) == {"namespace": seen.namespace}:
                    found[seen.namespace] = seen
            if batch.caught_up:
                break
    return tuple(found.values())


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
