"""Which node is best for a shape, without looking at the cluster again.

In: a `LedgerState`, read through `touched`, its log of changed nodes. Out: for each (policy, shape) the feasible
nodes in order, best first. What is kept is a cache and nothing else: dropped and built again it gives the same
answers.

    sync(state)        views of the nodes that changed since the last time are built anew, and noted in a log of our own
    ranked(shape, p)   the ranking of a shape scores again what that log names since *it* was last asked
    put(view)          a trial: a view that is not the state's; put the state's own back afterwards

Order: score descending, `NodeState.tie` ascending, node name ascending. One integer holds all three, smallest first:

    (-score << 80) + seat,    seat = (tie << 16) + place among nodes of equal tie in name order

so that a sorted list of integers is the ranking: bisection and insertion cost 1.4 us at 1,000 nodes, the best is its
first, the runner-up its second, the number of feasible nodes its length. (Sorted tuples took 2.5 us.)

Policies that learn: their `Mix` is what the ledger had learned at its last learning point (`LedgerState.learned`); all
their scores follow.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict

from bus.ledger.state import LedgerState
from scheduler.core.mix import NOTHING_KNOWN, Mix, classes_of
from scheduler.core.policies import Policy, evaluate
from scheduler.core.reasons import Refusals
from scheduler.core.request import Shape
from scheduler.core.view import NodeView, view_of

_SEAT_BITS = 80
_SEAT_MASK = (1 << _SEAT_BITS) - 1
_PLACE_BITS = 16

MAX_RANKINGS = 256
"""Rankings kept, least recently used dropped first: 1,000 nodes x 256 shapes take about 40 MiB. A shape that comes back
is scored on all nodes again, 2 us each."""

LOG_LIMIT = 100_000
"""Entries of our own log; the older half is dropped beyond it, and rankings that far behind score all nodes again."""


class Ranking:
    """The feasible nodes of one shape under one policy."""

    def __init__(self, shape: Shape, policy: Policy) -> None:
        self.shape = shape
        self.policy = policy
        self.order: list[int] = []
        """Keys of feasible nodes, best first."""
        self.position = -1
        """Of the log of `Rankings`, up to which the scores are right; -1 = nothing is."""
        self.mix: Mix = NOTHING_KNOWN
        self.refusals = Refusals(shape)
        self._keys: dict[str, int] = {}

    def fill(self, views: dict[str, NodeView], seats: dict[str, int], mix: Mix) -> None:
        """Score all nodes."""
        self.mix = mix
        scored = ((name, self._key(view, seats[name])) for name, view in views.items())
        self._keys = {name: key for name, key in scored if key is not None}
        self.order = sorted(self._keys.values())

    def update(self, name: str, view: NodeView | None, seat: int) -> None:
        """Score one node again; None: it is gone."""
        key = self._key(view, seat) if view is not None else None
        old = self._keys.get(name)
        if key == old:
            return
        if old is not None:
            del self.order[bisect_left(self.order, old)]
            del self._keys[name]
        if key is not None:
            insort(self.order, key)
            self._keys[name] = key

    @property
    def equals(self) -> int:
        """Number of nodes that share the best score; the first of `order`."""
        order = self.order
        return bisect_left(order, ((order[0] >> _SEAT_BITS) + 1) << _SEAT_BITS) if order else 0

    def _key(self, view: NodeView, seat: int) -> int | None:
        score = evaluate(self.policy, self.shape, view, self.mix)
        return None if score is None else (-score << _SEAT_BITS) + seat


class Rankings:
    """Views of all nodes and the rankings made of them, for one state after another."""

    def __init__(self) -> None:
        self.views: dict[str, NodeView] = {}
        self.mix: Mix = NOTHING_KNOWN
        self._learned_at = -1
        self._seats: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._ties: dict[str, list[str]] = {}
        self._log: list[str] = []
        self._dropped = 0
        self._rankings: OrderedDict[tuple[str, Shape], Ranking] = OrderedDict()
        self._state: LedgerState | None = None
        self._epoch = ""
        self._read = 0

    # --- following the state ---------------------------------------------------------------------------------------

    def sync(self, state: LedgerState) -> None:
        """Take in what changed in `state`; another state or epoch than last time is read from the beginning."""
        if state is not self._state or state.epoch != self._epoch:
            self._restart(state)
        else:
            self._follow(state)
        self._read = len(state.touched)
        if state.learned_at != self._learned_at:
            self._learned_at = state.learned_at
            self.mix = Mix(classes_of(state.learned)) if state.learned_at else NOTHING_KNOWN

    def _follow(self, state: LedgerState) -> None:
        try:
            changed = state.touched[self._read :]
        except IndexError:  # too far behind: names have been dropped
            self._restart(state)
            return
        for name in changed if len(changed) < 2 else dict.fromkeys(changed):  # noqa: PLR2004 - nothing to deduplicate
            self._refresh(state, name)

    def _restart(self, state: LedgerState) -> None:
        self._state, self._epoch, self._learned_at = state, state.epoch, -1
        self._rankings.clear()
        for name in [name for name in self.views if name not in state.nodes]:
            self._leave(name)
        for name in state.nodes:
            self._refresh(state, name)

    def _refresh(self, state: LedgerState, name: str) -> None:
        node = state.nodes.get(name)
        if node is not None:
            self.put(view_of(node, state.requests, self.views.get(name)))
        elif name in self.views:
            self._leave(name)

    def put(self, view: NodeView) -> None:
        """This is the node from now on."""
        if view.name not in self.views:
            self._join(view)
        self.views[view.name] = view
        self._note(view.name)

    def _join(self, view: NodeView) -> None:
        group = self._ties.setdefault(view.tie, [])
        insort(group, view.name)
        self._seat(view.tie, group)

    def _leave(self, name: str) -> None:
        view = self.views.pop(name)
        group = self._ties[view.tie]
        group.remove(name)
        del self._names[self._seats.pop(name)]
        self._seat(view.tie, group)
        self._note(name)

    def _seat(self, tie: str, group: list[str]) -> None:
        """Seats of all nodes of one tie; more than one is a collision of digests, and handled for order's sake."""
        for place, name in enumerate(group):
            self._seats[name] = (int(tie, 16) << _PLACE_BITS) + place
            self._names[self._seats[name]] = name
            if len(group) > 1:
                self._note(name)

    def _note(self, name: str) -> None:
        self._log.append(name)
        if len(self._log) > LOG_LIMIT:
            del self._log[: LOG_LIMIT // 2]
            self._dropped += LOG_LIMIT // 2

    # --- answering -------------------------------------------------------------------------------------------------

    def ranked(self, shape: Shape, policy: Policy) -> Ranking:
        """The ranking of a shape, up to date with the views."""
        key = (policy.name, shape)
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = self._rankings[key] = Ranking(shape, policy)
            if len(self._rankings) > MAX_RANKINGS:
                self._rankings.popitem(last=False)
        else:
            self._rankings.move_to_end(key)
        self._catch_up(ranking)
        return ranking

    def _catch_up(self, ranking: Ranking) -> None:
        end = self._dropped + len(self._log)
        stale = ranking.policy.learns and ranking.mix is not self.mix
        if stale or ranking.position < self._dropped:
            ranking.fill(self.views, self._seats, self.mix)
        elif ranking.position < end:
            for name in set(self._log[ranking.position - self._dropped :]):
                ranking.update(name, self.views.get(name), self._seats.get(name, 0))
        ranking.position = end

    def read(self, key: int) -> tuple[str, int]:
        """A key of a ranking as node name and score."""
        return self._names[key & _SEAT_MASK], -(key >> _SEAT_BITS)
