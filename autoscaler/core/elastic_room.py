"""Free room, node by node and card by card: where one more trainer would fit, and what one trainer less gives back.

In: nodes with what is free of them, in a fixed order. Out: places that are taken and given back; the sums of the ledger
are not touched. A trainer takes the first node that holds it, and there the fullest cards that hold it, so that whole
cards stay whole. Room that only shrinks is looked at once for each shape: the search goes on where it stopped, after a
look at the nodes that got something back meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from autoscaler.core.elastic_shape import Shape, admits, slice_mib
from contracts.decisions import CardSlice, Placement
from contracts.inventory import NodeFacts
from contracts.units import CardUuid, NodeName


class CardRoom(msgspec.Struct):
    """What is free of one card that may be sold."""

    uuid: str
    free_milli: int
    free_mib: int
    sellable_mib: int
    total_mib: int = 0
    model: str = ""


class NodeRoom(msgspec.Struct):
    """What is free of one node."""

    name: str
    facts: NodeFacts
    cpu_milli: int
    memory_mib: int
    pods: int
    cards: list[CardRoom] = []

    def seat(self, shape: Shape) -> Placement | None:
        """Where the shape would sit here now, or None."""
        gpu = shape.gpu
        if self.pods < 1 or self.cpu_milli < shape.cpu_milli or self.memory_mib < shape.memory_mib:
            return None
        if not gpu.cards:
            return self._placement(shape, ())
        if len(self.cards) < gpu.cards:
            return None
        fitting = [card for card in self.cards if card.free_milli >= gpu.share_milli and _holds(card, shape)]
        if len(fitting) < gpu.cards:
            return None
        fitting.sort(key=lambda card: card.free_milli)
        return self._placement(shape, tuple(_slice(card, shape) for card in fitting[: gpu.cards]))

    def _placement(self, shape: Shape, slices: tuple[CardSlice, ...]) -> Placement:
        return Placement(
            node=NodeName(self.name), slices=slices, cpu_milli=shape.cpu_milli, memory_mib=shape.memory_mib
        )

    def add(self, seat: Placement, sign: int) -> None:
        """Give it back (1) or take it (-1). Cards that are not offered any more give nothing back."""
        self.pods += sign
        self.cpu_milli += sign * seat.cpu_milli
        self.memory_mib += sign * seat.memory_mib
        held = {piece.card: piece for piece in seat.slices}
        for card in self.cards if held else ():
            if (piece := held.get(CardUuid(card.uuid))) is not None:
                card.free_milli += sign * piece.share_milli
                card.free_mib += sign * piece.memory_mib


def _holds(card: CardRoom, shape: Shape) -> bool:
    gpu = shape.gpu
    return (
        card.free_mib >= slice_mib(gpu, card.sellable_mib)
        and (not gpu.models or card.model in gpu.models)
        and card.total_mib >= gpu.min_card_memory_mib
    )


def _slice(card: CardRoom, shape: Shape) -> CardSlice:
    mib = slice_mib(shape.gpu, card.sellable_mib)
    return CardSlice(card=CardUuid(card.uuid), share_milli=shape.gpu.share_milli, memory_mib=mib)


class Room:
    """The nodes of a cluster.

    Args:
        nodes: in the order in which they are tried.
    """

    def __init__(self, nodes: Iterable[NodeRoom]) -> None:
        self.nodes = list(nodes)
        self.by_name = {node.name: node for node in self.nodes}
        self._freed: list[NodeRoom] = []
        """Nodes that got something back, in that order."""
        self._looked: dict[Shape, tuple[int, int]] = {}
        """By shape, the first of the freed nodes and of all nodes that may still hold it."""

    def take(self, shape: Shape) -> Placement | None:
        """A seat, taken; None when no node holds the shape."""
        freed, begin = self._looked.get(shape, (len(self._freed), 0))
        for index in range(freed, len(self._freed)):
            if (seat := self._take(self._freed[index], shape)) is not None:
                self._looked[shape] = index, begin
                return seat
        for index in range(begin, len(self.nodes)):
            if (seat := self._take(self.nodes[index], shape)) is not None:
                self._looked[shape] = len(self._freed), index
                return seat
        self._looked[shape] = len(self._freed), len(self.nodes)
        return None

    def take_at(self, name: str, shape: Shape) -> Placement | None:
        """A seat on that node, taken; None when it does not hold the shape."""
        node = self.by_name.get(name)
        return None if node is None else self._take(node, shape)

    def give(self, seat: Placement) -> None:
        """A seat is free, or will be. One on a node that is not offered is forgotten."""
        if (node := self.by_name.get(seat.node)) is not None:
            node.add(seat, 1)
            self._freed.append(node)

    def retake(self, seat: Placement) -> None:
        """Undo `give`."""
        if (node := self.by_name.get(seat.node)) is not None:
            node.add(seat, -1)

    def could_hold(self, seat: Placement, shape: Shape) -> bool:
        """A quick look before `give`: whether CPU and host memory would be enough on that node with the seat free."""
        node = self.by_name.get(seat.node)
        return (
            node is not None
            and node.cpu_milli + seat.cpu_milli >= shape.cpu_milli
            and node.memory_mib + seat.memory_mib >= shape.memory_mib
            and len(node.cards) >= shape.gpu.cards
        )

    def _take(self, node: NodeRoom, shape: Shape) -> Placement | None:
        seat = node.seat(shape)
        if seat is None or not admits(node.facts, shape):
            return None
        node.add(seat, -1)
        return seat
