"""Gangs that must stand together: on one node, on cards of one NVLink group, or in one domain of a label. Pure.

In: the members, the views of the nodes, an order of nodes. Out: the grounds to try, best first. A ground is a set of
nodes, and for NVLink a group of cards on its one node; the gang is placed on the first ground that takes all of it.

Grounds are tried in the order in which their best node stands for the member that is hardest to place. One that could
not hold the gang whatever the order is left out: too few pod slots, too little CPU or host memory in all, or room for
too few slices of the smallest share. These are sums, and they only ever say no. At most `MAX_GROUNDS` of the rest are
tried: each is a trial of the whole gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from bus.ledger.state import RequestState
from contracts.decisions import Placement
from contracts.outcomes import Reason
from contracts.units import WHOLE_CARD
from scheduler.core.request import Shape
from scheduler.core.signs import domain_of
from scheduler.core.view import CardView, NodeView

MAX_GROUNDS = 128
"""Half a millisecond each on 5,000 nodes, if none takes the gang."""

_NARROW = ("nvlink", "node", "domain")
"""The narrowest first."""


class Within(msgspec.Struct, frozen=True):
    """What all members must have in common."""

    kind: str
    key: str = ""
    """The label of a domain."""

    def __str__(self) -> str:
        """For people."""
        return {"nvlink": "one NVLink group", "node": "one node"}.get(self.kind, f"one domain of {self.key}")


class Ground(msgspec.Struct, frozen=True):
    """Where a gang may stand."""

    name: str
    """For people: a node, a group of a node, or a domain."""
    nodes: frozenset[str]
    group: int | None = None
    """Only cards of this NVLink group, on the one node."""


def within_of(members: Iterable[RequestState]) -> Within | None:
    """The narrowest that a member asks for; None when they may stand anywhere."""
    asked = {(g.within, g.topology_key or "") for m in members if (g := m.request.gang) and g.within != "anywhere"}
    kinds = sorted(asked, key=lambda item: (_NARROW.index(item[0]), item[1]))
    return Within(*kinds[0]) if kinds else None


def same_domain(
    within: Within,
    shapes: Sequence[Shape],
    views: Mapping[str, NodeView],
    order: Iterable[str],
    seated: Sequence[Placement] = (),
) -> Iterator[Ground]:
    """The grounds that may take all `shapes`, best first: `order` names nodes where one of the shapes fits, best first.

    `seated` are placements of members that stand already; only their ground will do.
    """
    able = (
        ground
        for ground in _grounds(within, views, order)
        if _holds(ground, seated, views) and _could(ground, shapes, views)
    )
    return islice(able, MAX_GROUNDS)


def no_ground(within: Within, gang: str, shapes: Sequence[Shape], views: Mapping[str, NodeView]) -> Reason:
    """Why no ground was tried: the slices that are needed, and the most of the smallest share that any has room for."""
    needed, least = sum(shape.cards for shape in shapes), _least(shapes)
    grounds = _grounds(within, views, sorted(views))
    most, where = min(((-_room(ground, least, views), ground.name) for ground in grounds), default=(0, ""))
    text = f"gang {gang}: {len(shapes)} members need {needed} slices on {within}, "
    if -most < needed:
        text += f"the most that any has room for is {-most}" + (f", {where}" if where else "")
    else:
        text += "and none has CPU, host memory and pod slots for all of them, or members stand elsewhere already"
    return Reason(
        code="gang-within",
        text=text[:1024],
        needed=needed,
        free=-most if -most < needed else None,
        unit=f"slices on {within}"[:1024],
        node=where,
    )


def _grounds(within: Within, views: Mapping[str, NodeView], order: Iterable[str]) -> Iterator[Ground]:
    """All of them, by the first of their nodes in `order`."""
    if within.kind == "domain":
        yield from _domains(within.key, views, order)
        return
    for name in order:
        if within.kind == "node":
            yield Ground(name, frozenset({name}))
            continue
        for group in sorted({c.card.nvlink_group for c in views[name].cards if c.card.nvlink_group is not None}):
            yield Ground(f"{name} NVLink group {group}", frozenset({name}), group)


def _domains(key: str, views: Mapping[str, NodeView], order: Iterable[str]) -> Iterator[Ground]:
    homes = {n: domain_of(view.facts, key) for n, view in views.items() if view.facts is not None}
    nodes: dict[str, list[str]] = {}
    for name, domain in homes.items():
        if domain is not None:
            nodes.setdefault(domain, []).append(name)
    for domain in dict.fromkeys(homes.get(name) for name in order):
        if domain is not None:
            yield Ground(f"{key}={domain}", frozenset(nodes[domain]))


def _holds(ground: Ground, seated: Sequence[Placement], views: Mapping[str, NodeView]) -> bool:
    """Everybody who stands already stands here."""
    return all(placement.node in ground.nodes and _on_group(ground, placement, views) for placement in seated)


def _on_group(ground: Ground, placement: Placement, views: Mapping[str, NodeView]) -> bool:
    if ground.group is None:
        return True
    mine = {card.uuid for card in _cards(ground, views[placement.node])}
    return all(piece.card in mine for piece in placement.slices)


def _cards(ground: Ground, view: NodeView) -> Sequence[CardView]:
    return view.cards if ground.group is None else [c for c in view.cards if c.card.nvlink_group == ground.group]


def _could(ground: Ground, shapes: Sequence[Shape], views: Mapping[str, NodeView]) -> bool:
    """No sum forbids it."""
    here = [view for name in ground.nodes if (view := views[name]).admits]
    if sum(v.pods for v in here if v.pods > 0) < len(shapes):
        return False
    if sum(s.cpu_milli for s in shapes) > sum(v.cpu_milli for v in here):
        return False
    if sum(s.host_memory_mib for s in shapes) > sum(v.memory_mib for v in here):
        return False
    least = _least(shapes)
    return not least or _room(ground, least, views) >= sum(s.cards for s in shapes)


def _least(shapes: Sequence[Shape]) -> int:
    """The smallest share that any of them takes of a card; 0 = none takes a card."""
    return min((s.share_milli for s in shapes if s.cards), default=0)


def _room(ground: Ground, share_milli: int, views: Mapping[str, NodeView]) -> int:
    """Slices of that share that the cards could take, by their shares alone."""
    cards = (card for name in ground.nodes for card in _cards(ground, views[name]))
    return sum(card.free_milli // share_milli for card in cards) if share_milli else 0


def narrowed(view: NodeView, ground: Ground) -> NodeView:
    """The view of a node with the cards of the ground only."""
    if ground.group is None:
        return view
    cards = list(_cards(ground, view))
    tight = sorted(cards)
    frees = [card.free_milli for card in tight]
    return msgspec.structs.replace(
        view,
        cards=cards,
        tight=tight,
        frees=frees,
        wholes=frees.count(WHOLE_CARD),
        left_milli=sum(frees),
        memo={},
    )
