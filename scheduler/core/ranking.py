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
from collections.abc import Mapping
from typing import Final, Literal

from bus.ledger.state import LedgerState, NodeState
from contracts.units import RequestUid
from scheduler.core.changes import Changes
from scheduler.core.cheapest import Cheapest
from scheduler.core.domains import Domains
from scheduler.core.lazy_views import Views
from scheduler.core.locality import Requests
from scheduler.core.menu.classes import typical_by_lifetime
from scheduler.core.menu.terms import MenuTerms
from scheduler.core.menu_rankings import MenuRankings, plain
from scheduler.core.mix import NOTHING_KNOWN, Mix, classes_of
from scheduler.core.policies import Policy, evaluate
from scheduler.core.prices.stock import Stock
from scheduler.core.reasons import Refusals
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

SEAT_BITS = 80
"""Below the score: who adds to the score of a key subtracts so many bits further left."""
_SEAT_MASK = (1 << SEAT_BITS) - 1
_PLACE_BITS = 16

MAX_RANKINGS = 256
"""Rankings kept, least recently used dropped first: 1,000 nodes x 256 shapes take about 40 MiB. A shape that comes back
is scored on all nodes again, 2 us each."""

ASK: Final = "ask the ranking"
"""Arrays do not tell."""


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

    def fill(self, views: Mapping[str, NodeView], seats: dict[str, int], mix: Mix) -> None:
        """Score all nodes."""
        self.mix = mix
        scored = ((name, self._key(view, seats[name])) for name, view in views.items())
        self._keys = {name: key for name, key in scored if key is not None}
        self.order = sorted(self._keys.values())

    def take(self, keys: dict[str, int], mix: Mix) -> None:
        """Keys that somebody else made."""
        self.mix, self._keys = mix, keys
        self.order = sorted(keys.values())

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
    def keys(self) -> Mapping[str, int]:
        """The key of each node that fits, in no order."""
        return self._keys

    @property
    def equals(self) -> int:
        """Number of nodes that share the best score; the first of `order`."""
        order = self.order
        return bisect_left(order, ((order[0] >> SEAT_BITS) + 1) << SEAT_BITS) if order else 0

    def _key(self, view: NodeView, seat: int) -> int | None:
        score = evaluate(self.policy, self.shape, view, self.mix)
        return None if score is None else (-score << SEAT_BITS) + seat


class Rankings:
    """Views of all nodes and the rankings made of them, for one state after another."""

    def __init__(self) -> None:
        self.views = Views()
        self.mix: Mix = NOTHING_KNOWN
        self._changes = Changes()
        self.domains = Domains(self._changes)
        self._weighed: Mix | None = None
        """The mix with classes weighted by lifetime; None: nobody has asked since it was learned."""
        self._stock = Stock()
        self._unstocked: dict[str, NodeState] = {}
        """Nodes that changed and that prices have not looked at."""
        self._learned_at = -1
        self._seats: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._ties: dict[str, list[str]] = {}
        self._tie_of: dict[str, str] = {}
        self._rankings: OrderedDict[tuple[str, Shape], Ranking] = OrderedDict()
        self._state: LedgerState | None = None
        self._epoch = ""
        self._read = 0
        self._seen = 0
        """Up to where in `touched` rows hold what came: a move that they have seen must not be told to them again."""
        self._menus: dict[MenuTerms, MenuRankings] = {}
        self._tried: set[str] = set()
        """Nodes that stand as they were put, not as the state has them."""

    # --- following the state ---------------------------------------------------------------------------------------

    def sync(self, state: LedgerState) -> None:
        """Take in what changed in `state`; another state or epoch than last time is read from the beginning."""
        if state is not self._state or state.epoch != self._epoch:
            self._restart(state)
        elif self._read != len(state.touched):
            self._follow(state)
        self._read = len(state.touched)
        if state.learned_at != self._learned_at:
            self._learned_at = state.learned_at
            self.mix = Mix(classes_of(state.learned)) if state.learned_at else NOTHING_KNOWN
            self._weighed = None
        for menus in self._menus.values():
            menus.cluster.learn(state)

    def _follow(self, state: LedgerState) -> None:
        try:
            names, moves = state.touched.since(self._read)
        except IndexError:  # too far behind: names have been dropped
            self._restart(state)
            return
        nodes, marked, noted = state.nodes, self.views.marked, self._changes.names
        whole: dict[str, None] = {}
        if self._seen > self._read:
            whole.update(dict.fromkeys(names[: self._seen - self._read]))
        if None in moves:
            whole.update((name, None) for name, move in zip(names, moves, strict=True) if move is None)
        for name, move in zip(names, moves, strict=True):
            node = nodes.get(name)
            if move is None or node is None or name in whole:
                continue
            marked[name] = self._unstocked[name] = node
            noted.append(name)
            if self._tried:
                self._tried.discard(name)
            for menus in self._menus.values():
                if not menus.cluster.rows.moved(node, move, state.requests):
                    whole[name] = None
        for name in whole:
            self._refresh(state, name)
        self._changes.trim()

    def _restart(self, state: LedgerState) -> None:
        self.views.requests = state.requests
        self._state, self._epoch, self._learned_at = state, state.epoch, -1
        self._rankings.clear()
        self._menus.clear()
        self._seen = 0
        for name in [name for name in self.views if name not in state.nodes]:
            self._leave(name)
        for name in state.nodes:
            self._refresh(state, name)

    def _refresh(self, state: LedgerState, name: str) -> None:
        node = state.nodes.get(name)
        if node is not None:
            if name not in self._seats:
                self._join(name, node.tie)
                self.views.join(node)
            self.views.marked[name] = node
            self._unstocked[name] = node
            if self._tried:
                self._tried.discard(name)
            for menus in self._menus.values():
                menus.cluster.refresh(node, state.requests)
            self._note(name)
        elif name in self.views:
            self._leave(name)

    def put(self, view: NodeView) -> None:
        """This is the node, until it changes: a trial, or what it was before."""
        self.views.put(view)
        self._tried.add(view.name)
        for menus in self._menus.values():
            menus.cluster.rows.put(view)
        self._note(view.name)

    def _join(self, name: str, tie: str) -> None:
        self._tie_of[name] = tie
        group = self._ties.setdefault(tie, [])
        insort(group, name)
        self._seat(tie, group)

    def _leave(self, name: str) -> None:
        self.views.drop(name)
        self._stock.drop(name)
        self._unstocked.pop(name, None)
        self._tried.discard(name)
        tie = self._tie_of.pop(name)
        group = self._ties[tie]
        group.remove(name)
        del self._names[self._seats.pop(name)]
        self._seat(tie, group)
        for menus in self._menus.values():
            menus.cluster.leave(name)
        self._note(name)

    def _seat(self, tie: str, group: list[str]) -> None:
        """Seats of all nodes of one tie; more than one is a collision of digests, and handled for order's sake."""
        for place, name in enumerate(group):
            self._seats[name] = (int(tie, 16) << _PLACE_BITS) + place
            self._names[self._seats[name]] = name
            if len(group) > 1:
                self._note(name)

    def _note(self, name: str) -> None:
        self._changes.names.append(name)
        self._changes.trim()

    # --- answering -------------------------------------------------------------------------------------------------

    def cheapest(self, shape: Shape, policy: Policy) -> Cheapest | Literal["ask the ranking"] | None:
        """The best node, where a policy with menus can tell it from arrays alone; None: there is no room.

        Arrays know numbers, models, labels and taints. What else a shape asks for, or others ask of it, is for
        `ranked` and the rules in Python.
        """
        if policy.menu is None or shape.terms is not None:
            return ASK
        menus = self._menus.get(policy.menu) or self._menu(policy.menu)
        return menus.cheapest(shape, policy) if menus.knows(shape) and menus.quiet(self.requests) else ASK

    def expect(self, uid: RequestUid, found: Cheapest, policy: Policy) -> None:
        """What `cheapest` found is decided for this request: it need not be looked up when it is there."""
        if policy.menu is not None:
            self._menus[policy.menu].cluster.rows.tenants.settle(uid, found.number)

    def ranked(self, shape: Shape, policy: Policy) -> Ranking:
        """The ranking of a shape without its terms, up to date with the views."""
        shape = shape.bare
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

    def mix_for(self, policy: Policy) -> Mix:
        """What the scores of a policy know of what is coming."""
        if policy.menu is not None:
            return self._menu(policy.menu).cluster.outlook()
        if not policy.priced:
            return self.mix
        for node in self._unstocked.values():
            self._stock.refresh(node)
        self._unstocked.clear()
        return self._stock.priced(self._by_lifetime() if policy.by_lifetime else self.mix)

    def _by_lifetime(self) -> Mix:
        """The mix that is *there*: its classes count by arrivals x mean lifetime."""
        if self._weighed is None:
            state = self._state
            known = typical_by_lifetime(state.learned, state.learned_service) if state is not None else ()
            self._weighed = Mix(known)
        return self._weighed

    def _menu(self, terms: MenuTerms) -> MenuRankings:
        found = self._menus.get(terms)
        if found is None:
            found = self._menus[terms] = MenuRankings(terms, self.views)
            if self._state is not None:
                self._seen = len(self._state.touched)
                for name in self.views:
                    found.cluster.refresh(self._state.nodes[name], self._state.requests)
                for name in self._tried:
                    found.cluster.rows.put(self.views[name])
                found.cluster.learn(self._state)
        return found

    def _catch_up(self, ranking: Ranking) -> None:
        end, mix = self._changes.end, self.mix_for(ranking.policy)
        if ranking.policy.menu is not None and plain(ranking.shape):
            if ranking.position != end or ranking.mix is not mix:
                scores = self._menu(ranking.policy.menu).scores(ranking.shape, ranking.policy)
                keys = {name: (-score << SEAT_BITS) + self._seats[name] for name, score in scores.items()}
                ranking.take(keys, mix)
            ranking.position = end
            return
        stale = ranking.policy.learns and ranking.mix is not mix
        changed = self._changes.since(ranking.position)
        if stale or changed is None:
            ranking.fill(self.views, self._seats, mix)
        else:
            for name in set(changed):
                ranking.update(name, self.views.get(name), self._seats.get(name, 0))
        ranking.position = end

    @property
    def requests(self) -> Requests:
        """Those of the state that is followed."""
        return self._state.requests if self._state is not None else {}

    def read(self, key: int) -> tuple[str, int]:
        """A key of a ranking as node name and score."""
        return self._names[key & _SEAT_MASK], -(key >> SEAT_BITS)
