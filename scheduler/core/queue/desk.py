"""What all parts of the queue share: the state, the index over it, and the few things that are done to it.

In: decisions of the parts. Out: records, each folded by whoever owns the state before `write` returns, so that the next
decision sees it; and the events that follow from them: somebody's place is free, somebody waits again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Nominated, NominationEnded, Record, Reserved
from contracts.messages import Value
from scheduler.core.message_room import MESSAGE_BYTES
from scheduler.core.placer import Placer
from scheduler.core.queue import quota
from scheduler.core.queue.fair import Capacity, Fairness, capacity_of
from scheduler.core.queue.loads import Loads
from scheduler.core.queue.nominate import Search
from scheduler.core.queue.rounds import Round
from scheduler.core.queue.searched import Searched
from scheduler.core.queue.teams import TeamKey, Teams, team_key
from scheduler.core.queue.waiting import Lane, Waiting, kind_of
from scheduler.core.request import shape_for


def always() -> bool:
    """There is time."""
    return True


class QueueRules(Value, frozen=True, kw_only=True):
    """What an operator may choose."""

    preemption: bool = True
    """Requests of a class that may ask others to leave do so."""
    requeue: bool = True
    """Who had to leave waits again; else that was its end."""


class Desk:
    """One state and what is known of its queue.

    Args:
        state: changed by `write` only.
        placer: reads the same state.
        write: folds a record and keeps it for the commit.
        full: whether the commit has no room for more.
        rules: what an operator chose.
        policy: name of the default placement policy.
    """

    def __init__(
        self,
        state: LedgerState,
        placer: Placer,
        write: Callable[[Record], None],
        full: Callable[[], bool],
        *,
        rules: QueueRules,
        policy: str,
    ) -> None:
        self.state = state
        self.placer = placer
        self.write, self.full = write, full
        self.room: Callable[[], int] = lambda: MESSAGE_BYTES
        """Bytes of records that the message of this commit still takes."""
        self.may_go_on: Callable[[], bool] = always
        """Whether the present turn has time for one unit more."""
        self.rules = rules
        self.policy = policy
        self.teams = Teams(state)
        self.waiting = Waiting()
        self.search = Search(state, Loads(state), self.teams)
        self.searched = Searched(state, self.teams)
        self.improved: dict[str, None] = dict.fromkeys(state.nodes)
        """Nodes where something is free that was not."""
        self.left_behind: dict[str, None] = {
            r.placement.node: None for r in state.requests.values() if r.placement is not None and r.leaving
        }
        """Nodes on which somebody has been told to go."""
        self.gangs_awake: dict[TeamKey, None] = {}
        """Gangs to be tried."""
        self.gangs_looking: dict[TeamKey, None] = {}
        """Gangs that found no room and look at neighbours."""
        self.promised = {u: r for u, r in state.requests.items() if r.placement and r.request.expected_s}
        """Placed requests that have told how long they expect to run."""
        self.order: Round | None = None
        self.capacity: Capacity | None = None

    # --- order -----------------------------------------------------------------------------------------------------

    def ordered(self, lanes: Iterable[Lane], gangs: Iterable[TeamKey]) -> Round:
        """These in queue order, by the shares of this moment."""
        if self.capacity is None:
            self.capacity = capacity_of(self.state)
        order = Round(self.state, Fairness(self.state, self.capacity), self.teams)
        order.fill(lanes, gangs)
        return order

    def enough(self) -> bool:
        """The turn ends here: its commit is full, or its time is up."""
        return self.full() or not self.may_go_on()

    def over(self, unit: Iterable[RequestState]) -> bool:
        """Its namespace may not hold what the unit asks for."""
        return quota.held_back(self.state, unit) is not None

    def within(self, unit: Sequence[RequestState], records: Iterable[Nominated]) -> bool:
        """Its namespace may hold these places."""
        placements = [record.placement for record in records]
        return quota.beyond(self.state, unit[0].accepted.namespace, placements) is None

    def complete(self, key: TeamKey) -> bool:
        """Enough members have arrived to begin."""
        members = self.teams.waiting(key)
        return bool(members) and len(members) >= self.teams.lacking(key)

    def gangs(self) -> Iterator[tuple[TeamKey, list[RequestState]]]:
        """All gangs with members in the queue."""
        return ((key, self.teams.waiting(key)) for key in self.teams.queued)

    # --- what is done ----------------------------------------------------------------------------------------------

    def place(self, request: RequestState, found: Reserved) -> None:
        """The decision of a request that waits."""
        if team_key(request) is None:
            self.waiting.remove(request)
        self.write(found)
        self.teams.note(request)
        if request.request.expected_s is not None:
            self.promised[request.uid] = request
        if self.order is not None:
            self.order.fairness.forget(request.accepted.namespace)
        if request.request.locality.affinity is not None or self.looking:
            self.improved[found.placement.node] = None  # others may be waiting for just this neighbour

    @property
    def looking(self) -> bool:
        """Somebody who found no room looks at neighbours: each placement may be what it waits for."""
        return self.waiting.looking or bool(self.gangs_looking)

    def nominate(self, found: Iterable[Nominated]) -> None:
        """Places in sight, and whom that sends away."""
        for record in found:
            self.write(record)
            for uid in record.victims:
                victim = self.state.requests[uid]
                self.teams.note(victim)
                if victim.placement is not None:
                    self.left_behind[victim.placement.node] = None

    def end(self, request: RequestState, reason: str) -> None:
        """Its place is waited for no more: it is tried again, and so is whoever was held back by it."""
        node = request.nomination.placement.node if request.nomination is not None else ""
        self.write(NominationEnded(uid=request.uid, reason=reason[:1000]))
        self.improved[node] = None
        self._again(request)
        self.namespace_changed(request.accepted.namespace)

    def _again(self, request: RequestState) -> None:
        key = team_key(request)
        if key is not None:
            self.gangs_awake[key] = None
        else:
            self.waiting.wake(kind_of(request))
        self.searched.forget(request)

    def namespace_changed(self, namespace: str) -> None:
        """It holds less, or its quota is another."""
        self.waiting.namespace_changed(namespace)
        if self.state.quotas:
            self.gangs_awake.update((key, None) for key in self.teams.queued if key[0] == namespace)

    def nominable(self, request: RequestState) -> bool:
        """Rules about neighbours are not asked of a place that is not free yet: such requests wait for room.

        Neither is where the members of a gang stand to each other.
        """
        gang = request.request.gang
        if self.placer.contested or (gang is not None and gang.within != "anywhere"):
            return False
        terms = shape_for(request).terms
        return terms is None or not terms.binding
