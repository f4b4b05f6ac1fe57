"""What one function's load is, and what its replicas can do: readings kept from look to look.

In: how its queue stands, what its workers say, where its replicas run. Out: samples for the windows, the capacity of
one replica, and how far replicas are stretched. All rules are in `core.readings`, `core.measuring` and `core.profiles`;
here is what they have to remember.

    concurrency   calls in progress and waiting
    rate          calls that arrived since the look before, per second, and what those that wait add if they are to be
                  answered within the long window. Handed out and waiting together is what ever arrived; a call that is
                  handed out again counts again, it is work again
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from autoscaler.core import measuring
from autoscaler.core.measuring import Meter, Slice
from autoscaler.core.profiles import capacity_on
from autoscaler.core.readings import Counter, Report, observe, rate_milli, waiting_rate_milli
from autoscaler.core.replicas import Counts, Replica, is_hot
from autoscaler.core.windows import Sample, Samples, add
from autoscaler.roster import Heard, slice_of
from bus.ledger.state import LedgerState
from bus.protocol import QueueState
from contracts.functions import WorkerReport
from contracts.workloads import Function, Profile

WHOLE_PERCENT = 100


class Sensing:
    """One function's senses.

    Args:
        state: the ledger, folded.
        limit_milli: what a request may use of each of its cards now, in thousandths; None = what it was sold.
    """

    def __init__(self, state: Callable[[], LedgerState], limit_milli: Callable[[str], int | None]) -> None:
        self.samples = Samples()
        self._state = state
        self._limit_milli = limit_milli
        self._meter = Meter()
        self._given: tuple[Profile, ...] = ()
        self._arrived: Counter | None = None

    def adopt(self, function: Function, measured: tuple[Profile, ...] = ()) -> None:
        """The function as it is published now; rows that it brings along are new only when they have changed."""
        if function.scaling.profiles != self._given or measured:
            self._given = function.scaling.profiles
            self._meter = measuring.begin(self._given, measured)

    @property
    def measured(self) -> tuple[Profile, ...]:
        """Rows that were measured here, or before us."""
        return tuple(row for row in self._meter.profiles if row not in self._given)

    def hear(self, report: WorkerReport, uid: str, *, now_ms: int, seasoned: bool) -> None:
        """A worker of the replica with that uid spoke."""
        on = slice_of(self._state(), uid)
        self._meter = measuring.reported(self._meter, report, on, now_ms=now_ms, seasoned=seasoned)

    def forget(self, gone: Iterable[str]) -> None:
        """Replicas that are no more."""
        if names := frozenset(gone):
            self._meter = measuring.without(self._meter, names)

    def look(
        self, function: Function, queue: QueueState | None, words: Mapping[str, Heard], counted: Counts, now_ms: int
    ) -> None:
        """One reading more."""
        self._meter = measuring.looked(self._meter, queue.waiting if queue else None, now_ms)
        by_rate = function.scaling.metric == "rate"
        load = self._rate(function, queue, now_ms) if by_rate else _calls(function, queue, words, counted, now_ms)
        self.samples = add(self.samples, Sample(at_ms=now_ms, load_milli=load), function.scaling.stable_s * 1000)

    def _rate(self, function: Function, queue: QueueState | None, now_ms: int) -> int | None:
        before, self._arrived = self._arrived, None
        if queue is None:
            return None
        self._arrived = Counter(at_ms=now_ms, total=queue.delivered + queue.waiting)
        rate = rate_milli(before, self._arrived) if before is not None else None
        return None if rate is None else rate + waiting_rate_milli(queue.waiting, function.scaling.stable_s * 1000)

    def capacity_milli(self, replicas: Iterable[Replica]) -> int | None:
        """Calls per second that one of them answers at full load, in thousandths; None = not known on some slice."""
        state = self._state()
        slices = [slice_of(state, replica.uid) for replica in replicas if is_hot(replica) and replica.node]
        found: list[Slice] = [on for on in slices if on is not None]
        return capacity_on(self._meter.profiles, found) if len(found) == len(slices) else None

    def stretch_percent(self, replicas: Iterable[Replica]) -> int:
        """What those that serve may use, of what they were sold, on average; at least 100."""
        state, sold, may = self._state(), 0, 0
        for replica in replicas:
            on = slice_of(state, replica.uid) if is_hot(replica) and replica.ready else None
            if on is not None:
                sold += on[1]
                may += max(on[1], self._limit_milli(replica.uid) or 0)
        return may * WHOLE_PERCENT // sold if sold else WHOLE_PERCENT


def _calls(
    function: Function, queue: QueueState | None, words: Mapping[str, Heard], counted: Counts, now_ms: int
) -> int | None:
    return observe(
        [
            Report(replica=name, at_ms=word.at_ms, in_flight=word.report.in_flight, hot_since_ms=word.hot_ms)
            for name, word in words.items()
            if word.report.phase == "ready"
        ],
        now_ms=now_ms,
        hot_ready=counted.hot_ready,
        waiting=queue.waiting if queue else None,
        outstanding=queue.outstanding if queue else None,
        concurrency=function.scaling.concurrency,
        warmup_ms=function.scaling.warmup_s * 1000,
    )
