"""One pod that could be elsewhere: whose move alone would make room for a request that fits nowhere. Advice only.

In: a state at rest, the search over it, a request that waits. Out: who would have to move, where the request would then
go, and where the other one fits now, on another node and beside everybody else; or None: one move is not enough.

Both places are proved by the rules of feasibility before anything is said. The order of candidates is that of victims
(`places`): the least important, then the one that has run for the shortest time. Members of gangs, and whoever leaves
already, are not candidates. Priorities do not matter: nobody loses its place.

Nobody is moved by this. A pod is ended and begun again when it moves, which is its owner's to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bus.ledger.state import RequestState
from contracts.decisions import Placement
from contracts.units import RequestUid
from scheduler.core.placer import Placer
from scheduler.core.queue.nominate import Search, proved
from scheduler.core.queue.places import Asking, Place
from scheduler.core.request import shape_for

ANYBODY = 1 << 40
"""A priority above all others."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One pod goes from here to there, and the request takes its place."""

    mover: RequestUid
    home: Placement
    place: Placement


class Movers(Asking):
    """Everybody who stands alone may be asked to move."""

    def of(self, uid: RequestUid) -> tuple[RequestUid, ...] | None:
        """It alone; None for members of gangs and those who leave."""
        other = self.state.requests[uid]
        return None if other.request.gang is not None or other.leaving else (uid,)


def one_move(search: Search, placer: Placer, request: RequestState) -> Move | None:
    """The least that would make room for the request, proved on both sides."""
    state = search.state
    for place in sorted(_candidates(search, request), key=lambda place: place.cost):
        record = proved(state, request, shape_for(request), place)
        if record is None:
            continue
        mover = state.requests[place.choice.victims[0]]
        home = placer.place_elsewhere(mover, place.node)
        if home is not None:
            return Move(mover=mover.uid, home=home.placement, place=record.placement)
    return None


def _candidates(search: Search, request: RequestState) -> Iterator[Place]:
    """Places by numbers for which exactly one would have to go."""
    asked = Movers(search.state, search.teams, ANYBODY, None)
    search.loads.sync()
    for load in search.loads.of(search.state.nodes):
        place = search.place_on(asked, shape_for(request), load)
        if place is not None and len(place.choice.victims) == 1:
            yield place
