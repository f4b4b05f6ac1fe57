"""Gangs at their turn: as many members as fit together, or none.

In: a desk, a gang with all its waiting members. Out: the decisions of those who begin or join, all in one commit; or
what the gang waits for:

    room              a node that improved, where one of its shapes fits; any placement, if it looks at neighbours
    its quota         its namespace holds less, or the quota is another; any change, if it depends on the cards
    its own members   who have places in sight with which it begins: the others join when these are taken

Places in sight that are to be had elsewhere without waiting are given up for those, as by a single request: all of
them together before the gang has begun, one by one afterwards.
"""

from __future__ import annotations

from copy import copy

from bus.ledger.rules import over_quota
from bus.ledger.state import RequestState
from contracts.decisions import Reserved
from scheduler.core.message_room import MESSAGE_BYTES, size_of
from scheduler.core.queue import quota
from scheduler.core.queue.desk import Desk
from scheduler.core.queue.teams import TeamKey
from scheduler.core.request import shape_for


class Gangs:
    """The gangs of a desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.joined: dict[TeamKey, None] = {}
        self.later: dict[TeamKey, None] = {}
        """Gangs some of whose members are placed in this commit, and others may be in the next: a commit places members
        of one gang together or not at all, so that who decides again knows which were decided together."""
        self.crowded = False
        """A gang was too large for what is left of this commit: the next one is for those who wait, not for more."""
        self._by_quota: dict[TeamKey, None] = {}
        self._by_card: dict[TeamKey, None] = {}
        """Gangs that a quota holds because of the cards that were chosen for them."""
        self._over_by_card = False

    def begin_turn(self) -> None:
        """The last commit is closed."""
        self.desk.gangs_awake.update(self.later)
        self.joined, self.later, self.crowded = {}, {}, False

    def ask_cards_again(self) -> None:
        """Something changed: other cards may be chosen, which are within the quota."""
        self.desk.gangs_awake.update(self._by_card)
        self._by_card = {}

    def namespace_changed(self, namespace: str) -> None:
        """It holds less, or its quota is another."""
        self._by_quota = {key: None for key in self._by_quota if key[0] != namespace}

    def improved(self, names: list[str], *, anyway: bool) -> None:
        """Nodes improved: those that may fit there now are tried; `anyway`: all are."""
        desk = self.desk
        for key, members in desk.gangs():
            shapes = dict.fromkeys(map(shape_for, members))
            if anyway or any(desk.placer.fits_any(shape, names) for shape in shapes):
                desk.gangs_awake[key] = None

    def blocked(self) -> list[TeamKey]:
        """Complete gangs that find no room."""
        awake = self.desk.gangs_awake
        return [
            key
            for key in self.desk.teams.queued
            if key not in awake and key not in self._by_quota and self.desk.complete(key)
        ]

    # --- one of them -----------------------------------------------------------------------------------------------

    def attempt(self, key: TeamKey) -> None:
        """Place what can be placed of it."""
        desk = self.desk
        desk.gangs_awake.pop(key, None)
        if key in self.joined:
            self.later[key] = None
            return
        lacking = desk.teams.lacking(key)
        sighted = [member for member in desk.teams.waiting(key) if member.nomination is not None]
        if lacking > 0 and sighted and not self._freed(sighted):
            return
        for member in sighted if lacking <= 0 else ():
            self._freed([member])
        desk.gangs_awake.pop(key, None)
        desk.gangs_looking.pop(key, None)
        self._over_by_card = False
        members = [member for member in desk.teams.waiting(key) if member.nomination is None]
        found = self._most_of(members, max(1, lacking)) if members else None
        if not found and lacking <= 0:  # it has begun: any of them may join
            found = next(filter(None, (self._together([member]) for member in members)), None)
        if found and size_of(found) > desk.room() < MESSAGE_BYTES:
            self.later[key], self.crowded = None, True
            return
        if found:
            self.joined[key] = None
            if len(found) < len(members):
                self.later[key] = None  # beside these, others may fit that did not together with them
        for each in found or ():
            desk.place(desk.state.pending[each.uid], each)
        self._note(key)

    def _note(self, key: TeamKey) -> None:
        """What those wait for who have no place now."""
        desk = self.desk
        rest = [member for member in desk.teams.waiting(key) if member.nomination is None]
        if not rest:
            return
        if any(_looks(member) for member in rest):
            desk.gangs_looking[key] = None
        if key not in self.joined and desk.over(rest[: max(1, desk.teams.lacking(key))]):
            self._by_quota[key] = None
        elif self._over_by_card:
            self._by_card[key] = None

    def _freed(self, nominated: list[RequestState]) -> bool:
        """Whether these have no place in sight any more: all of them fit elsewhere without waiting."""
        found = self.desk.placer.place_gang([_without_place(member) for member in nominated])
        if found is None or not self._instead(nominated, found):
            return False
        for member in nominated:
            self.desk.end(member, "it fits without waiting")
        return True

    def _instead(self, nominated: list[RequestState], found: list[Reserved]) -> bool:
        """Whether the quota, which counts what is promised to them, lets them have these places for it."""
        share = memory = 0
        promised = [(r.nomination.placement, -1) for r in nominated if r.nomination is not None]
        for placement, sign in [*promised, *((record.placement, 1) for record in found)]:
            share += sign * sum(piece.share_milli for piece in placement.slices)
            memory += sign * sum(piece.memory_mib for piece in placement.slices)
        return over_quota(self.desk.state, nominated[0].accepted.namespace, share, memory) is None

    def _most_of(self, members: list[RequestState], needed: int) -> list[Reserved] | None:
        """Places for as many as fit together, the first accepted ones, and at least `needed`."""
        found = self._together(members)
        low, high = needed, len(members) - 1
        while low <= high and (found is None or len(found) < len(members)):
            middle = (low + high) // 2
            fewer = self._together(members[:middle])
            if fewer is None:
                high = middle - 1
            else:
                found, low = fewer, middle + 1
        return found

    def _together(self, members: list[RequestState]) -> list[Reserved] | None:
        """Places for exactly these, within their quota."""
        if quota.held_back(self.desk.state, members) is not None:
            return None
        found = self.desk.placer.place_gang(members)
        over = found and quota.beyond(
            self.desk.state, members[0].accepted.namespace, [each.placement for each in found]
        )
        self._over_by_card = self._over_by_card or bool(over)
        return None if over else found


def _without_place(request: RequestState) -> RequestState:
    """As if it had none in sight; what is held for it stays held, so that it is not found again."""
    bare = copy(request)
    bare.nomination, bare.held, bare.nominated_at = None, None, 0
    return bare


def _looks(request: RequestState) -> bool:
    terms = shape_for(request).terms
    return terms is not None and terms.binding
