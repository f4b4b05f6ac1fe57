"""How the trainers of a job are, as the ledger has it, and who is a trainer and should not be there. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.core.elastic_life import Sight
from autoscaler.core.elastic_trainers import cause_of, trainer_index, trainer_name, unpack
from bus.ledger.state import LedgerState, RequestState
from contracts.units import RequestKey, request_key
from contracts.workloads import JobStatus


def strays(state: LedgerState, statuses: Mapping[str, JobStatus]) -> list[tuple[str, str]]:
    """Namespace and name of trainers that live and are in no status.

    One was asked for, told to go before the ledger had it, forgotten as absent, and accepted after all.
    """
    found: list[tuple[str, str]] = []
    held = {name: unpack(status) for name, status in statuses.items()}
    for uid in state.by_key.values():
        request = state.requests[uid]
        job, _, _ = request.request.name.rpartition("-t")
        trainers = held.get(request_key(request.accepted.namespace, job))
        if trainers is None or request.withdrawn or request.request.cause != cause_of(job):
            continue
        index = trainer_index(job, request.request.name)
        if index is not None and index not in trainers:
            found.append((request.accepted.namespace, request.request.name))
    return sorted(found)


_LIVE: dict[str, Sight] = {"pending": "pending", "placed": "placed", "bound": "placed", "running": "running"}


def sights(state: LedgerState, status: JobStatus, exits: Mapping[RequestKey, int | None]) -> dict[int, Sight]:
    """How each trainer of a status is.

    One that has ended and whose exit code is not in `exits` is left out: it has to be looked up first.
    """
    found: dict[int, Sight] = {}
    for index in unpack(status):
        key = request_key(status.namespace, trainer_name(status.name, index))
        request = state.find(key)
        sight = "absent" if request is None else sight_of(request, exits)
        if sight is not None:
            found[index] = sight
    return found


def sight_of(request: RequestState, exits: Mapping[RequestKey, int | None]) -> Sight | None:
    """How one trainer is; None: it ended, and nobody has looked how. An exit code that is not known is no success."""
    if request.live:
        return "going" if request.leaving else _LIVE[request.phase]
    if request.ending == "ended":
        return ("succeeded" if exits[request.key] == 0 else "failed") if request.key in exits else None
    return "failed" if request.ending == "rejected" else "lost"
