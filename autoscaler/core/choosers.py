"""Which idle environment runs a call, and which slot of which card it gets (the choosers of DGSF, IPDPS 2022).

In: idle environments and cards as they are, where the call's data lies. Out: a choice, or None. A card qualifies when
its free memory and a free slot suffice; slots bound how many calls a card works on at once. Chance comes as a number
from outside. Order is the caller's, and decides ties.

    two cards of 16000 MiB, 10000 of the first in use. Best fit of 4000: the first; 7000: the second; 6000: the first
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from contracts.messages import Value


class CardSlots(Value, frozen=True, kw_only=True):
    """A card that works on several calls at once."""

    uuid: str
    node: str
    memory_mib: int
    used_mib: int = 0
    ports: tuple[int, ...]
    """Of its workers, as the node tells them: one a slot."""
    busy: frozenset[int] = frozenset()
    """Slots that work."""

    @property
    def free_mib(self) -> int:
        """Memory that nobody was granted."""
        return self.memory_mib - self.used_mib

    @property
    def slot(self) -> int | None:
        """The first free one."""
        return next((slot for slot in range(len(self.ports)) if slot not in self.busy), None)

    def takes(self, memory_mib: int) -> bool:
        """Memory and a slot are free."""
        return self.slot is not None and self.free_mib >= memory_mib


class Grant(Value, frozen=True, kw_only=True):
    """What a call holds of a card: recorded, because the function may ask for something else later."""

    card: str
    node: str
    slot: int
    port: int
    memory_mib: int


class Environment(Value, frozen=True, kw_only=True):
    """A replica that waits for a call."""

    name: str
    node: str


CardChooser = Callable[[int, Sequence[CardSlots]], Grant | None]


def best_fit(memory_mib: int, cards: Sequence[CardSlots]) -> Grant | None:
    """The card with the least free memory that suffices; the first of equal ones."""
    return _granted(memory_mib, min((c for c in cards if c.takes(memory_mib)), key=lambda c: c.free_mib, default=None))


def first_fit(memory_mib: int, cards: Sequence[CardSlots]) -> Grant | None:
    """The first card that suffices."""
    return _granted(memory_mib, next((card for card in cards if card.takes(memory_mib)), None))


def _granted(memory_mib: int, card: CardSlots | None) -> Grant | None:
    if card is None or card.slot is None:
        return None
    return Grant(card=card.uuid, node=card.node, slot=card.slot, port=card.ports[card.slot], memory_mib=memory_mib)


def any_of(idle: Sequence[Environment], chance: int) -> Environment | None:
    """One at random: `chance` is any whole number from outside."""
    return idle[chance % len(idle)] if idle else None


def near_data(
    idle: Sequence[Environment], chance: int, *, previous_node: str = "", uploads: int = 0
) -> Environment | None:
    """The first on the node that holds what the call before has uploaded; without such data or such a one, any."""
    near = on_node(idle, previous_node) if uploads > 0 and previous_node else None
    return near or any_of(idle, chance)


def on_node(idle: Iterable[Environment], node: str) -> Environment | None:
    """The first on that node, or nothing."""
    return next((environment for environment in idle if environment.node == node), None)


def off_node(idle: Iterable[Environment], node: str) -> Environment | None:
    """The first on another node, or nothing."""
    return next((environment for environment in idle if environment.node != node), None)


def in_turn(idle: Sequence[Environment], last_node: str) -> Environment | None:
    """The first on the node that follows the last one, by name, in a ring; one node is a ring too."""
    nodes = sorted({environment.node for environment in idle})
    following = next((node for node in nodes if node > last_node), nodes[0] if nodes else "")
    return on_node(idle, following)
