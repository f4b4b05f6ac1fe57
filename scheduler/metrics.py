"""What the scheduler counts; one addition per commit, not per request, because a counter costs six microseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Commit, Refused, Released, Reserved
from scheduler import policyfile


class Metrics:
    """Instruments of one scheduler process.

    Args:
        meter: where they are made.
        state: the committed state, read when somebody scrapes.
    """

    def __init__(self, meter: Meter, state: Callable[[], LedgerState]) -> None:
        self._commits = meter.create_counter("gpubus.scheduler.commits", unit="{commit}")
        self.lost_commits = meter.create_counter("gpubus.scheduler.commits.lost", unit="{commit}")
        self._records = meter.create_counter("gpubus.scheduler.records", unit="{record}")
        self._decisions = meter.create_counter("gpubus.scheduler.requests", unit="{request}")
        self._latency = meter.create_histogram("gpubus.scheduler.commit.duration", unit="s")
        meter.create_observable_gauge(
            "gpubus.scheduler.state", callbacks=[lambda options: _gauges(state(), options)], unit="{item}"
        )

        meter.create_observable_counter(
            "gpubus.scheduler.policy.failures", callbacks=[_policy_failures], unit="{failure}"
        )

    def committed(self, commit: Commit, seconds: float) -> None:
        """A commit is stored."""
        self._commits.add(1)
        self._records.add(len(commit.records))
        self._latency.record(seconds)
        for kind, count in Counter(map(type, commit.records)).items():
            if (verdict := _VERDICTS.get(kind)) is not None:
                self._decisions.add(count, {"verdict": verdict})

    def buried(self, dead: int) -> None:
        """Messages that could not be read."""
        if dead:
            self._decisions.add(dead, {"verdict": "dead-letter"})


_VERDICTS: dict[type, str] = {Accepted: "accepted", Reserved: "placed", Released: "released", Refused: "refused"}


def _policy_failures(_: CallbackOptions) -> list[Observation]:
    """Of policies of users: what they could not decide was decided by the default one."""
    found = policyfile.failures()
    return [Observation(count, {"policy": name, "kind": kind}) for (name, kind), count in sorted(found.items())]


def _gauges(state: LedgerState, _: CallbackOptions) -> list[Observation]:
    unaccounted = state.totals.accepted - (len(state.requests) + state.totals.withdrawn + state.totals.ended)
    return [
        Observation(len(state.pending), {"what": "pending"}),
        Observation(state.placed_count(), {"what": "placed"}),
        Observation(len(state.nodes), {"what": "nodes"}),
        Observation(sum(n.fresh for n in state.nodes.values()), {"what": "fresh-nodes"}),
        Observation(len(state.overcommits()), {"what": "over-commits"}),
        Observation(unaccounted, {"what": "unaccounted"}),
    ]
