"""What to do about one pod of anybody that names our scheduler, before it has a place: one action. Pure.

In: the pod (does it wait for us, which life), what it asks for as it was read, the live requests that name it. Out: the
action; the shell does it and asks again. Level-triggered like `plan`, which takes over once the ledger has placed the
request: no order of events matters, and a crash anywhere ends in the same place.

    pod →             waits for us        bound, ended, gone
    no request        read, then submit   rest
    pending, same     rest                take the request back
    pending, other    take it back        take it back
    placed            rest (`plan` acts)  rest (`plan` acts)

A name has one live request at a time: a pod made again under its name waits until what the ledger counts for the one
before is released, on evidence.
"""

from __future__ import annotations

import msgspec

from bus.ledger.state import RequestState
from contracts.requests import PodRequest
from reconciler.foreign import Refused


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """All that the decision is made from."""

    waits: bool
    """There is a pod that names us and has no node, no end, and nothing of ours on it."""
    found: PodRequest | Refused | None = None
    """What it asks for; None = not read since it last changed."""
    request: RequestState | None = None
    """The live request of this very life of the pod."""
    others: tuple[RequestState, ...] = ()
    """Live requests of other lives of its name."""


class Read(msgspec.Struct, frozen=True):
    """Read the pod whole."""


class Submit(msgspec.Struct, frozen=True):
    """Ask for a place in the name of the pod's namespace."""

    request: PodRequest


class TakeBack(msgspec.Struct, frozen=True):
    """Withdraw a request that has no place yet."""

    name: str
    reason: str


class Refuse(msgspec.Struct, frozen=True):
    """Say on the pod why it cannot be a request."""

    text: str


class Rest(msgspec.Struct, frozen=True):
    """Nothing to do until something changes."""

    reason: str


AdoptStep = Read | Submit | TakeBack | Refuse | Rest


def adoption(case: Adoption) -> AdoptStep:
    """The one action."""
    stale = next((other for other in case.others if _pending(other)), None)
    if stale is not None:
        return TakeBack(stale.request.name, "its pod is gone")
    if not case.waits:
        return _without_pod(case.request)
    if case.others:
        return Rest("the ledger still counts an earlier pod of this name")
    if case.found is None:
        return Read()
    return _without_request(case.found) if case.request is None else _with_request(case.found, case.request)


def _without_request(found: PodRequest | Refused) -> AdoptStep:
    return Refuse(found.text) if isinstance(found, Refused) else Submit(found)


def _with_request(found: PodRequest | Refused, request: RequestState) -> AdoptStep:
    if not _pending(request):
        return Rest("it has a place, or is about to lose it")
    if found == request.request:
        return Rest("in the queue")
    why = found.text if isinstance(found, Refused) else "the pod asks for something else now"
    return TakeBack(request.request.name, why)


def _pending(request: RequestState) -> bool:
    return request.placement is None and not request.withdrawn


def _without_pod(request: RequestState | None) -> AdoptStep:
    if request is not None and _pending(request):
        return TakeBack(request.request.name, "its pod is gone, ended, or was bound by somebody else")
    return Rest("nothing waits")
