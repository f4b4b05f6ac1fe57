"""Which warm replica is promoted when several could be, and which is given back first (as DGSF chooses, IPDPS 2022).

In: warm replicas, steadiest first, and a `Choice`: the rule that the function names, and what is free on the cards that
they hold. Out: the same replicas in another order. Nobody is left out: a started replica on a card without room still
serves earlier than one that has to be made.

A card *fits* with `free_mib` of memory that nobody was sold and a free slot. Those that are ready come first, then
those whose cards fit, then those on a near node; then the rule decides, and between equals the steadiest goes first:

    best-fit      the card with the least free memory: work comes together, and empty cards become empty
    first-fit     the replica with the lowest number
    steadiest     none of cards is looked at

    Cards of 16,000 MiB, 10,000 of A sold, nothing of B. 4,000 wanted: best fit is A. 7,000: B. 6,000: A, exactly.
    Two are promoted with 4,000 each: A, then B, because 2,000 are left of A then.

Given back first is who would be promoted last, so that best-fit gives back what stands alone on its card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from autoscaler.core.replicas import Replica
from contracts.messages import Value

Rule = Literal["steadiest", "best-fit", "first-fit"]
Key = tuple[int, ...]


class CardRoom(Value, frozen=True, kw_only=True):
    """What is free on a card that a warm replica holds a piece of."""

    free_mib: int
    """Memory that nobody was sold; below zero where the card shrank."""
    free_slots: int | None = None
    """How many more may serve there; None = as many as there are."""


class Choice(Value, frozen=True, kw_only=True):
    """How to choose, and among what."""

    rule: Rule = "steadiest"
    free_mib: int = 0
    """A card fits with so much; one that is promoted there takes it."""
    cards: Mapping[str, CardRoom] = {}
    """By UUID. One that is not in it is not known, or must not be used: it does not fit."""
    near: frozenset[str] = frozenset()
    """Names of nodes."""

    @property
    def plain(self) -> bool:
        """Nothing to choose by."""
        return self.rule == "steadiest" and not self.near


STEADIEST = Choice()


def promoted(warm: Sequence[Replica], count: int, choice: Choice) -> list[Replica]:
    """The next `count` to serve, one after the other: each changes what is free for the next.

    Args:
        warm: steadiest first, which decides between equals.
        count: at most so many; below one, none.
        choice: the rule.
    """
    if choice.plain:
        return list(warm[: max(0, count)])
    left, chosen = list(warm), list[Replica]()
    while left and len(chosen) < count:
        best = min(left, key=lambda replica: _key(replica, choice))
        left.remove(best)
        chosen.append(best)
        choice = _with(choice, best)
    return chosen


def last_first(warm: Sequence[Replica], choice: Choice) -> list[Replica]:
    """The order in which they are given back: the reverse of that in which they would be promoted as things stand."""
    ordered = warm if choice.plain else sorted(warm, key=lambda replica: _key(replica, choice))
    return list(ordered[::-1])


def fits(replica: Replica, choice: Choice) -> bool:
    """Whether every card that it holds has room for one more that serves."""
    rooms = [choice.cards.get(card) for card in replica.cards]
    return all(r is not None and r.free_mib >= choice.free_mib and r.free_slots not in range(1) for r in rooms)


def _key(replica: Replica, choice: Choice) -> Key:
    """Smaller is promoted earlier."""
    tight = choice.rule != "steadiest" and not fits(replica, choice)
    far = replica.node not in choice.near
    return (int(not replica.ready), int(tight), int(far), *(() if tight else _rank(replica, choice)))


def _rank(replica: Replica, choice: Choice) -> Key:
    if choice.rule == "best-fit":
        return (min((choice.cards[card].free_mib for card in replica.cards), default=0),)
    return (_number(replica.name),) if choice.rule == "first-fit" else ()


def _number(name: str) -> int:
    """Of a replica's name, `<function>-<n>`."""
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isascii() and tail.isdigit() else 0


def _with(choice: Choice, replica: Replica) -> Choice:
    """After one was promoted."""
    taken = {card: _less(choice.cards[card], choice.free_mib) for card in replica.cards if card in choice.cards}
    return msgspec.structs.replace(choice, cards={**choice.cards, **taken})


def _less(room: CardRoom, free_mib: int) -> CardRoom:
    slots = None if room.free_slots is None else max(0, room.free_slots - 1)
    return CardRoom(free_mib=room.free_mib - free_mib, free_slots=slots)
