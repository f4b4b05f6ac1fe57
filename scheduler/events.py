"""What users are told: events from commits, and why requests wait. Pure.

Events are a projection of the ledger: the same commit gives the same events, so that a scheduler that takes over
publishes again what the last one may not have, under the same message ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import (
    Accepted,
    Adopted,
    Commit,
    InventorySet,
    Nominated,
    Observed,
    Record,
    Refused,
    Released,
    Reserved,
    Resized,
    Withdrawn,
)
from contracts.outcomes import EventPhase, Reason, RequestEvent
from contracts.units import RequestUid


def of_commit(state: LedgerState, commit: Commit, sequence: int) -> list[tuple[int, RequestEvent]]:
    """The events of a commit that is folded into `state`, each with the index of its record.

    A request accepted and placed at once has one.
    """
    placed_here = {r.uid for r in commit.records if isinstance(r, Reserved)}
    found = ((index, event) for index, r in enumerate(commit.records) for event in _of_record(state, r, placed_here))
    return [(index, replace(event, ledger_sequence=sequence, at_ms=commit.at_ms)) for index, event in found]


def _of_record(state: LedgerState, record: Record, placed_here: set[RequestUid]) -> Iterator[RequestEvent]:
    """Of one record: one event at most, and one for each who has to leave, or whose memory somebody holds."""
    if isinstance(record, InventorySet):
        yield from _squeezed(state, record)
    if isinstance(record, Refused):
        yield _refused(record)
    step = _STEPS.get(type(record))
    if step is None or (isinstance(record, Accepted) and record.uid in placed_here):
        return
    request = state.get(record.uid)  # type: ignore[union-attr]  # every step is of a record about one request
    if request is None:
        return
    yield step(record, request)
    for uid in record.victims if isinstance(record, Nominated) else ():
        victim = state.get(uid)
        if victim is not None:
            yield _event(victim, "evicting", f"it has to leave for {request.key}, which is more important")


def _event(request: RequestState, phase: EventPhase, text: str, *, pod: str = "") -> RequestEvent:
    where = request.placement
    return RequestEvent(
        namespace=request.accepted.namespace,
        name=request.request.name,
        uid=request.uid,
        phase=phase,
        text=text[:1024],
        node=where.node if where else "",
        slices=where.slices if where else (),
        pod=pod,
        request_sequence=request.accepted.request_sequence,
        cause=request.uid,
    )


def _squeezed(state: LedgerState, record: InventorySet) -> Iterator[RequestEvent]:
    """To whom a card was sold of which a process of nobody holds more than is free; again with each inventory."""
    node = state.nodes.get(record.inventory.node)
    for card in node.cards.values() if node is not None else ():
        if not card.squeezed_mib:
            continue
        text = f"{card.squeezed_mib} MiB of what is sold of card {card.card.uuid} are held by {card.card.unmanaged_by}"
        for uid in sorted(card.residents):
            resident = state.get(uid)
            if resident is not None:
                yield _event(resident, "squeezed", text)


def _placed(record: Reserved, request: RequestState) -> RequestEvent:
    where, cards = record.placement, len(record.placement.slices)
    how = f"{cards} card{'s' if cards != 1 else ''} of {where.node}" if cards else where.node
    return _event(request, "placed", f"on {how}, policy {record.rationale.policy}")


def _adopted(record: Adopted, request: RequestState) -> RequestEvent:
    phase: EventPhase = "running" if record.running else "bound"
    return _event(request, phase, "found in Kubernetes when the ledger was rebuilt", pod=record.pod)


def _released(record: Released, request: RequestState) -> RequestEvent:
    """An end is an end by itself; any other evidence is a release, and who had to leave waits again."""
    phase: EventPhase = "ended" if record.evidence == "ended" else "released"
    text = ": ".join(filter(None, (record.evidence, record.detail)))
    return _event(request, "requeued", f"it waits again: {text}") if record.requeue else _event(request, phase, text)


def _nominated(record: Nominated, request: RequestState) -> RequestEvent:
    cards, node = len(record.placement.slices), record.placement.node
    how = f"{cards} card{'s' if cards != 1 else ''} of {node}" if cards else node
    who = f", for which {len(record.victims)} must leave" if record.victims else ""
    return _event(request, "nominated", f"{how} {'are' if cards > 1 else 'is'} kept for it{who}")


def _observed(record: Observed, request: RequestState) -> RequestEvent:
    node = request.placement.node if request.placement else ""
    phase: EventPhase = "waiting" if record.detail and record.phase != "running" else record.phase
    what = f"pod {record.pod} on {node}" if record.pod else f"no pod on {node} yet"
    return _event(request, phase, ": ".join(filter(None, (what, record.detail))), pod=record.pod)


def _resized(record: Resized, request: RequestState) -> RequestEvent:
    what = f"{record.share_milli} thousandths and {record.memory_mib} MiB of each card"
    if record.cpu_milli is not None:
        what = f"{what}, {record.cpu_milli} milli-cores"
    return _event(request, "resized", f"put back to {what}: {record.reason}" if record.reason else what)


_STEPS: dict[type, Callable[[Any, RequestState], RequestEvent]] = {
    Accepted: lambda _, request: _event(request, "accepted", "in the queue"),
    Withdrawn: lambda record, request: _event(request, "withdrawn", record.reason),
    Reserved: _placed,
    Adopted: _adopted,
    Observed: _observed,
    Released: _released,
    Nominated: _nominated,
    Resized: _resized,
}


def _refused(record: Refused) -> RequestEvent:
    """A request that was not accepted; the first reason is the text."""
    return RequestEvent(
        namespace=record.namespace,
        name=record.name,
        phase="refused",
        text=record.refusals[0].text if record.refusals else "",
        refusals=record.refusals,
        request_sequence=record.request_sequence,
    )


def pending(request: RequestState, reasons: tuple[Reason, ...], *, sequence: int, at_ms: int) -> RequestEvent:
    """Why a request still waits, as of ledger sequence `sequence`."""
    return RequestEvent(
        namespace=request.accepted.namespace,
        name=request.request.name,
        uid=request.uid,
        phase="pending",
        text="; ".join(reason.text for reason in reasons)[:1024],
        reasons=reasons,
        ledger_sequence=sequence,
        at_ms=at_ms,
        cause=request.uid,
    )
