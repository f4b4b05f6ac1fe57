"""What the log teaches about what is coming: how often each class of requests was accepted, and how long it ran. Pure.

In: acceptances, beginnings and ends of placements, and the wall clock that commits and acceptances carry. Out: `mix`
and `service` of the state, counted without a break, and what of them is *learned*: frozen at learning points, so that
decisions between two points rest on one picture, and the same picture on every machine that folds the same log.

    coming     frozen at the last learning point: known, and not gone by yet
    learned    what decisions go by: `coming` is moved here `IN_FORCE_AFTER` acceptances after its point

The pause between the two is for whoever must prepare something from it: tables take some 10 ms, spread over the
decisions in between. It counts acceptances and not time, so that a replay changes over at the same record.

Time. The clock of a state is the last wall clock that it was told: `Commit.at_ms`, or `Accepted.submitted_ms`. What
began and ended since is stamped when the next time is told, mostly the end of its own commit. A clock that goes back
makes lives shorter, never negative; a placement whose beginning is not known is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from bus.ledger.state import LedgerState, RequestState, Service
from contracts.requests import PodRequest

MIX_LIMIT = 512
"""Distinct request shapes that are counted; twice as many between two prunings."""

FIRST_LEARNING_POINT = 64
STEADY_LEARNING_POINT = 65_536
"""The mix is learned at 64, 128, 256, ... 65,536 requests accepted in the epoch, then four times per doubling: counts
add up from the beginning, so doubling is the step in which they change. Whatever is learned makes all that was computed
from it stale, a tenth of a second in all on 5,000 nodes."""

IN_FORCE_AFTER = 48
"""Acceptances between a learning point and the first decision that goes by it: less than the 64 to the next point."""


def mix_key(request: PodRequest) -> str:
    """The part of a request that placement quality depends on: CPU, cards, share, models."""
    gpu = request.gpu
    models = ",".join(sorted(gpu.models)) if gpu.models else ""
    return f"{request.pod.cpu_milli}|{gpu.cards}|{gpu.share_milli if gpu.cards else 0}|{models}"


def is_learning_point(accepted: int) -> bool:
    """Whether the mix is learned when so many requests have been accepted."""
    if accepted >= STEADY_LEARNING_POINT:
        return accepted % (1 << (accepted.bit_length() - 3)) == 0
    return accepted >= FIRST_LEARNING_POINT and accepted.bit_count() == 1


def learn(state: LedgerState, request: PodRequest) -> None:
    """One more acceptance, counted in `totals` already."""
    _count(state, mix_key(request))
    accepted = state.totals.accepted
    if is_learning_point(accepted):
        state.coming, state.coming_at = dict(state.mix), accepted
        state.coming_service = lived(state)
    elif state.coming_at and accepted == state.coming_at + IN_FORCE_AFTER:
        state.learned, state.learned_at = state.coming, state.coming_at
        state.learned_service = state.coming_service


def _count(state: LedgerState, key: str) -> None:
    """Of too many shapes keep the most frequent. Half are dropped at once: sorting each time costs 60 us."""
    mix = state.mix
    mix[key] = mix.get(key, 0) + 1
    if len(mix) > 2 * MIX_LIMIT:
        for rare in sorted(mix, key=lambda shape: (-mix[shape], shape))[MIX_LIMIT:]:
            del mix[rare]
        for gone in [key for key, spent in state.service.items() if key not in mix and not spent.running]:
            del state.service[gone]


def lived(state: LedgerState) -> dict[str, tuple[int, int]]:
    """By class: milliseconds in service so far, those still running included, and how many have ended."""
    now = state.clock_ms
    return {
        key: (spent.ended_ms + max(0, spent.running * now - spent.begun_ms), spent.ended)
        for key, spent in state.service.items()
    }


def began(state: LedgerState, request: RequestState) -> None:
    """It holds a placement from now on; stamped when the time is told."""
    state.began.append(request.uid)


def ended(state: LedgerState, request: RequestState) -> None:
    """It holds none any more."""
    if request.started_ms:
        state.ended.append((mix_key(request.request), request.started_ms))


def tell_time(state: LedgerState, now_ms: int) -> None:
    """The wall clock, 0 = not known: what began and ended since the last time is stamped with it."""
    if now_ms:
        state.clock_ms = now_ms
    if state.began:
        begun, state.began = state.began, []
        _stamp(state, (state.requests.get(uid) for uid in begun))
    if state.ended:
        done, state.ended = state.ended, []
        for key, started_ms in done:
            _close(state, key, started_ms)


def _stamp(state: LedgerState, begun: Iterable[RequestState | None]) -> None:
    now = state.clock_ms
    for request in begun:
        if now and request is not None:
            request.started_ms = now
            spent = state.service.setdefault(mix_key(request.request), Service())
            spent.running += 1
            spent.begun_ms += now


def _close(state: LedgerState, key: str, started_ms: int) -> None:
    spent = state.service.setdefault(key, Service())
    spent.ended += 1
    spent.ended_ms += max(0, state.clock_ms - started_ms)
    spent.running -= 1
    spent.begun_ms -= started_ms
