"""Nominations decided again: the same place for the same requests, from the state that the log gives before them. Pure.

In: a state that somebody folds record by record, the nominations of one unit as they stand in the log. Out: what the
search finds for that unit now, over all nodes.

The search at work looks only where something changed since it last found nothing. That decides nothing: where nothing
changed there is still nothing, because every place is proved before a search is given up (`nominate`). Who is looked
for, and when, is not decided again: that is the order of the queue, at a moment that the log does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bus.ledger.state import LedgerState
from contracts.decisions import Nominated, NominationEnded, Record
from contracts.units import RequestUid
from scheduler.core.queue import drain
from scheduler.core.queue.first import LENT
from scheduler.core.queue.loads import Loads
from scheduler.core.queue.nominate import Search
from scheduler.core.queue.order import acceptance
from scheduler.core.queue.teams import TeamKey, Teams, team_key


class Renominations:
    """Searches over one state; what they need is begun with the first nomination.

    Args:
        state: folded by who reads the log; read only here.
    """

    def __init__(self, state: LedgerState) -> None:
        self.state = state
        self._teams: Teams | None = None
        self._search: Search | None = None
        self._lent: dict[RequestUid, Nominated] = {}

    def commit(self) -> None:
        """The next commit begins."""
        self._lent = {}

    def coming(self, record: Record) -> None:
        """A record is about to be folded."""
        if isinstance(record, NominationEnded) and record.reason.endswith(LENT):
            wanted = self.state.requests[record.uid].nomination
            if wanted is not None:
                self._lent[record.uid] = wanted

    def folded(self, record: Record) -> None:
        """It is."""
        if self._teams is None:
            return
        for uid in _whom(record):
            request = self.state.get(uid)
            if request is not None:
                self._teams.note(request)

    def together(self, uid: RequestUid) -> TeamKey | None:
        """The gang of a request whose places are looked for together: one that has not begun."""
        key = team_key(self.state.requests[uid])
        return key if key is not None and self._known().teams.lacking(key) > 0 else None

    def again(self, logged: Sequence[Nominated]) -> dict[RequestUid, Nominated]:
        """What is found for these now, by request; empty when nothing is."""
        if logged[0].uid in self._lent:
            return {logged[0].uid: self._lent[logged[0].uid]}
        search = self._known()
        unit = [self.state.requests[uid] for uid in sorted((record.uid for record in logged), key=acceptance)]
        if logged[0].why == "drains":
            any_place = drain.due(unit, self.state.clock_ms)
            found = drain.keep(search, unit, None if any_place else drain.promised_nodes(self.state.requests.values()))
        else:
            asking = any(record.why == "preempts" for record in logged)
            found = search.nominate(unit, self.state.nodes, asking=asking)
        return {record.uid: record for record in found or ()}

    def _known(self) -> Search:
        if self._search is None:
            self._teams = Teams(self.state)
            self._search = Search(self.state, Loads(self.state), self._teams)
        return self._search


def _whom(record: Record) -> Iterable[RequestUid]:
    uid = getattr(record, "uid", None)
    victims = record.victims if isinstance(record, Nominated) else ()
    return (uid, *victims) if uid is not None else ()
