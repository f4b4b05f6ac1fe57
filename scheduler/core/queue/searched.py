"""Searches in vain, so that only what changed since is looked at again.

In: a unit, and how a search for it ended. Out: the nodes that changed since the last search in vain for such a unit,
and those of gangs that did, whose members may leave with fewer others now; all nodes when there was no such search, or
when it is too long ago for the state to tell.

Units fare alike when they are of one kind and priority, or a gang of just these members. A search for victims and a
search among places that are left anyway are two things, each with its own memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from bus.ledger.state import LedgerState, RequestState
from contracts.priorities import priority_of
from contracts.units import RequestUid
from scheduler.core.queue.teams import Teams, team_key
from scheduler.core.queue.waiting import Kind, kind_of

Same = tuple[Kind, int] | tuple[RequestUid, ...]
"""Units of which the next one fares like the last: of one kind and priority; or a gang with just these members."""


def same_again(unit: Sequence[RequestState]) -> Same:
    """What a unit has in common with those that fare like it."""
    if team_key(unit[0]) is not None:
        return tuple(request.uid for request in unit)
    return (kind_of(unit[0]), priority_of(unit[0].request))


class Searched:
    """The memory of one state.

    Args:
        state: read only here.
        teams: kept for it.
    """

    def __init__(self, state: LedgerState, teams: Teams) -> None:
        self.state = state
        self.teams = teams
        self._in_vain: dict[bool, dict[Same, tuple[int, int]]] = {True: {}, False: {}}
        """By whether others were asked to leave: the position in `touched` and the tick of gangs at that time."""

    def changed(self, unit: Sequence[RequestState], *, asking: bool) -> list[str]:
        """Nodes that such a unit has not been offered as they are now."""
        known = self._in_vain[asking].get(same_again(unit))
        if known is None:
            return list(self.state.nodes)
        position, tick = known
        try:
            changed = dict.fromkeys((*self.state.touched[position:], *self.teams.stirred(tick)))
            return [name for name in changed if name in self.state.nodes]
        except IndexError:
            return list(self.state.nodes)

    def ended(self, unit: Sequence[RequestState], *, asking: bool, found: bool) -> None:
        """A search is over."""
        if found:
            self._in_vain[asking].pop(same_again(unit), None)
        else:
            self._in_vain[asking][same_again(unit)] = (len(self.state.touched), self.teams.tick)

    def forget(self, request: RequestState) -> None:
        """It had a place in sight and has none any more."""
        for known in self._in_vain.values():
            if team_key(request) is not None:
                known.clear()
            else:
                known.pop(same_again((request,)), None)
