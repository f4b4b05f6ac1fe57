"""What users are told: events from commits, refusals and pending reasons. Pure.

Events are a projection of the ledger: the same commit gives the same events, so that a scheduler that takes over
publishes again what the last one may not have, under the same message ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Accepted, Adopted, Commit, Observed, Record, Released, Reserved, Resized, Withdrawn
from contracts.outcomes import EventPhase, Reason, Refusal, RequestEvent
from contracts.units import RequestUid


def of_commit(state: LedgerState, commit: Commit, sequence: int) -> list[tuple[int, RequestEvent]]:
    """The events of a commit that is folded into `state`, each with the index of its record.

    A request accepted and placed at once has one.
    """
    placed_here = {r.uid for r in commit.records if isinstance(r, Reserved)}
    found = ((index, _of_record(state, record, placed_here)) for index, record in enumerate(commit.records))
    return [
        (index, replace(event, ledger_sequence=sequence, at_ms=commit.at_ms))
        for index, event in found
        if event is not None
    ]


def _of_record(state: LedgerState, record: Record, placed_here: set[RequestUid]) -> RequestEvent | None:
    step = _STEPS.get(type(record))
    if step is None or (isinstance(record, Accepted) and record.uid in placed_here):
        return None
    request = state.get(record.uid)  # type: ignore[union-attr]  # every step is of a record about one request
    return step(record, request) if request is not None else None


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


def _placed(record: Reserved, request: RequestState) -> RequestEvent:
    where, cards = record.placement, len(record.placement.slices)
    how = f"{cards} card{'s' if cards != 1 else ''} of {where.node}" if cards else where.node
    return _event(request, "placed", f"on {how}, policy {record.rationale.policy}")


def _adopted(record: Adopted, request: RequestState) -> RequestEvent:
    phase: EventPhase = "running" if record.running else "bound"
    return _event(request, phase, "found in Kubernetes when the ledger was rebuilt", pod=record.pod)


def _released(record: Released, request: RequestState) -> RequestEvent:
    """An end is an end by itself; any other evidence is a release."""
    phase: EventPhase = "ended" if record.evidence == "ended" else "released"
    return _event(request, phase, ": ".join(filter(None, (record.evidence, record.detail))))


def _observed(record: Observed, request: RequestState) -> RequestEvent:
    node = request.placement.node if request.placement else ""
    return _event(request, record.phase, f"pod {record.pod} on {node}", pod=record.pod)


def _resized(record: Resized, request: RequestState) -> RequestEvent:
    return _event(request, "resized", f"{record.share_milli} thousandths and {record.memory_mib} MiB of each card")


_STEPS: dict[type, Callable[[Any, RequestState], RequestEvent]] = {
    Accepted: lambda _, request: _event(request, "accepted", "in the queue"),
    Withdrawn: lambda record, request: _event(request, "withdrawn", record.reason),
    Reserved: _placed,
    Adopted: _adopted,
    Observed: _observed,
    Released: _released,
    Resized: _resized,
}


def refused(
    namespace: str, name: str, refusals: tuple[Refusal, ...], *, request_sequence: int, at_ms: int
) -> RequestEvent:
    """A request that was not accepted; the first reason is the text."""
    return RequestEvent(
        namespace=namespace,
        name=name,
        phase="refused",
        text=refusals[0].text if refusals else "",
        refusals=refusals,
        request_sequence=request_sequence,
        at_ms=at_ms,
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
