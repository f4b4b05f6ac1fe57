"""Gangs: who has arrived, who has a place, how many are still needed to begin.

In: requests of gangs as they come, are placed, and go. Out: for each gang its waiting members and those that ever had
a place. A gang holds nothing before it can begin: two of them that each fit alone can never block each other half-way.

A member that ended counts as placed: a gang some of whose members have succeeded is not broken. A member that has to
leave, or had to, does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bus.ledger.state import LedgerState, RequestState
from contracts.units import RequestUid
from scheduler.core.queue.order import acceptance

TEAMS_LIMIT = 20_000
"""Gangs beyond which those are dropped whose members the ledger has forgotten too."""

TeamKey = tuple[str, str]
"""Namespace and name of a gang."""


def team_key(request: RequestState) -> TeamKey | None:
    """The gang of a request."""
    gang = request.request.gang
    return (request.accepted.namespace, gang.name) if gang is not None else None


class Team(msgspec.Struct):
    """One gang."""

    waiting: dict[RequestUid, None] = {}
    begun: dict[RequestUid, None] = {}
    """Have a place, or had one to the end."""
    seated: dict[RequestUid, None] = {}
    """Have a place now."""


class Teams:
    """All gangs of a state."""

    def __init__(self, state: LedgerState) -> None:
        self.state = state
        self.all: dict[TeamKey, Team] = {}
        self.queued: dict[TeamKey, None] = {}
        """Gangs with members in the queue."""
        self.tick = 0
        self._noted: dict[TeamKey, int] = {}
        """When something was last noted of a gang, in `tick`s; the latest last."""
        for request in (*state.requests.values(), *state.recent.values()):
            self.note(request)

    def note(self, request: RequestState) -> None:
        """A request of this state is as it is now."""
        key = team_key(request)
        if key is None:
            return
        team = self.all.setdefault(key, Team())
        self.tick += 1
        self._noted.pop(key, None)
        self._noted[key] = self.tick
        for members, inside in (
            (team.waiting, request.phase == "pending"),
            (team.begun, request.decided_at > 0 and not request.evicted_for),
            (team.seated, request.live and request.placement is not None),
        ):
            if inside:
                members[request.uid] = None
            else:
                members.pop(request.uid, None)
        if team.waiting:
            self.queued[key] = None
        else:
            self.queued.pop(key, None)
        if len(self.all) > TEAMS_LIMIT:
            self.all = {key: team for key, team in self.all.items() if self._remembered(team)}
            self._noted = {key: tick for key, tick in self._noted.items() if key in self.all}

    def _remembered(self, team: Team) -> bool:
        return bool(team.waiting) or any(uid in self.state.requests or uid in self.state.recent for uid in team.begun)

    def waiting(self, key: TeamKey) -> list[RequestState]:
        """Members in the queue, in order of acceptance."""
        team = self.all.get(key)
        uids = sorted(team.waiting, key=acceptance) if team is not None else ()
        return [self.state.pending[uid] for uid in uids]

    def lacking(self, key: TeamKey) -> int:
        """How many members must be placed together before it has begun; 0 or less when it has."""
        team = self.all[key]
        needed = max((gang.needed for uid in team.waiting if (gang := self.state.pending[uid].request.gang)), default=0)
        return needed - sum(uid in self.state.requests or uid in self.state.recent for uid in team.begun)

    def stirred(self, since: int) -> Iterator[str]:
        """Nodes of those whose companions may be others than at that `tick`: also there, others may be asked now."""
        for key, tick in reversed(self._noted.items()):
            if tick <= since:
                return
            requests = (self.state.requests.get(uid) for uid in self.all[key].seated)
            yield from (r.placement.node for r in requests if r is not None and r.placement is not None)

    def companions(self, victim: RequestState) -> tuple[RequestUid, ...]:
        """Who must leave with a placed request: itself; or its whole gang, if fewer than it needs would be left.

        Members beyond the number that is needed may leave one by one, the last accepted first: the first is the leader.
        """
        key, gang = team_key(victim), victim.request.gang
        if key is None or gang is None:
            return (victim.uid,)
        seated = [u for u in sorted(self.all[key].seated, key=acceptance) if not self.state.requests[u].leaving]
        if victim.uid in seated[gang.needed :]:
            return (victim.uid,)
        return tuple(seated)
