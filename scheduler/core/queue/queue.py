"""The queue at work: events in, decisions out, through one `write`.

In: requests that enter and leave, nodes that improved, namespaces that may hold more. Out: records, each folded by
whoever owns the state before `write` returns, so that the next decision sees it.

One turn:
    1. nominated requests get their place, or go back to the queue (`settle`)
    2. events wake those whom they can help (`waiting`, `gangs`), and these are tried in order (`rounds`, `trying`)
    3. places that will be free are kept for those who find none now (`ahead`)

What is kept here is an index over the state: a queue that is begun anew from the same state decides the same. A turn
may be cut between any two units, when its commit is full or its time is up; the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Record, Reserved
from scheduler.core.placer import Placer
from scheduler.core.queue.ahead import Ahead
from scheduler.core.queue.desk import Desk, QueueRules, always
from scheduler.core.queue.gangs import Gangs
from scheduler.core.queue.settle import settle
from scheduler.core.queue.teams import team_key
from scheduler.core.queue.trying import Trying

__all__ = ["Queue", "QueueRules"]


class Queue:
    """The queue of one state; the arguments are those of its `Desk`."""

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
        self.desk = Desk(state, placer, write, full, rules=rules, policy=policy)
        self.gangs = Gangs(self.desk)
        self.ahead = Ahead(self.desk, self.gangs)
        self.trial = Trying(self.desk, self.gangs)
        self._changed_at = 0
        self._contested = False
        """Whether residents kept others away by their labels when the blocked ones were last woken."""
        self._cut = False
        """The last turn may have ended before everybody was looked at."""
        for request in state.pending.values():
            self.entered(request)

    # --- events ----------------------------------------------------------------------------------------------------

    def entered(self, request: RequestState) -> None:
        """A request waits: a new one, or one that had to leave its place."""
        self.desk.teams.note(request)
        key = team_key(request)
        if key is None:
            self.desk.waiting.add(request)
        else:
            self.desk.gangs_awake[key] = None

    def left(self, request: RequestState) -> None:
        """A waiting request is withdrawn; it is still as it was."""
        if team_key(request) is None:
            self.desk.waiting.remove(request)

    def gone(self, request: RequestState) -> None:
        """It was withdrawn, or released: its gang and its namespace are not what they were."""
        desk, key = self.desk, team_key(request)
        desk.teams.note(request)
        if key is not None and key in desk.teams.queued:
            desk.gangs_awake[key] = None  # fewer may be needed without it
        elif key is not None:
            desk.gangs_looking.pop(key, None)
        desk.promised.pop(request.uid, None)
        self.namespace_changed(request.accepted.namespace)

    def improved(self, node: str) -> None:
        """Something is free there that was not, or a rule is no longer against it."""
        self.desk.improved[node] = None

    def cards_changed(self) -> None:
        """There are more or fewer of them."""
        self.desk.capacity = None

    def leaving(self, node: str) -> None:
        """Somebody there has been told to go."""
        self.desk.left_behind[node] = None

    def namespace_changed(self, namespace: str) -> None:
        """It holds less, or its quota is another."""
        self.desk.namespace_changed(namespace)
        self.gangs.namespace_changed(namespace)
        self.ahead.quota_changed()

    @property
    def unfinished(self) -> bool:
        """Something could be placed without any further input."""
        return bool(self._to_do() or self.gangs.later or self._cut)

    def _to_do(self) -> bool:
        return bool(self.desk.improved or self.desk.waiting.awake or self.desk.gangs_awake)

    # --- one turn --------------------------------------------------------------------------------------------------

    def turn(self, may_go_on: Callable[[], bool] = always) -> None:
        """Decide what can be decided now, or until the commit is full or the time is up."""
        self.desk.may_go_on = may_go_on
        self.gangs.begin_turn()
        self._ask_cards_again()
        settle(self.desk)
        self._cut = self.desk.full()
        while self._to_do() and not self._cut:
            self._wake()
            self.trial.round()
            self._cut = self.desk.full() or (self._to_do() and self.desk.enough())
        self._cut = self._cut or not self.ahead.look()

    def _ask_cards_again(self) -> None:
        """Memory that follows the share is within a quota on one card and not on another: any change may help."""
        if self._changed_at != len(self.state.touched):
            self.trial.ask_cards_again()
            self.gangs.ask_cards_again()
        self._changed_at = len(self.state.touched)

    def _wake(self) -> None:
        desk = self.desk
        names, desk.improved = list(desk.improved), {}
        if not names:
            return
        contested = desk.placer.contested
        anyway, self._contested = contested or self._contested, contested
        woken = desk.waiting.improved(lambda shape: anyway or desk.placer.fits_any(shape, names))
        self.trial.woken = {} if anyway else dict.fromkeys(woken, names)
        self.gangs.improved(names, anyway=anyway)

    def would_get(self, request: RequestState) -> list[Reserved]:
        """What it, or its gang, would get if nothing but the nodes were asked; for explanations."""
        key = team_key(request)
        if key is not None:
            members = [member for member in self.desk.teams.waiting(key) if member.nomination is None]
            return self.desk.placer.place_gang(members) or []
        found = self.desk.placer.place(request)
        return [found] if found is not None else []
