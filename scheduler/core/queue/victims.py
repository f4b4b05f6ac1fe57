"""The fewest on one node who would have to leave for a request, and the cards that it would get.

In: the load of a node, the cards of it that would do if they were empty, a shape, a priority, the gangs. Out: a
`Choice`, or None: the node cannot serve it this way. Only strictly lower priorities are asked, and none when no
priority is given: then only what is free soon counts.

For one card: whoever keeps the shape away by its tags, all of them; and of the others nobody, or the first one whose
leaving is enough, or the first such pair, in the order of being asked (with twenty tenants, 190 pairs); beyond two the
largest tenants first, and then whoever turns out not to be needed is left alone. Of the cards, as many as are asked
for, those with the fewest to leave; of one NVLink group where the shape requires that. What the node then lacks of CPU
and host memory is made up by its largest tenants of that kind. A gang of which too few would be left leaves as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import combinations
from typing import TypeVar

import msgspec

from contracts.units import RequestUid
from scheduler.core.locality import rivals
from scheduler.core.queue.loads import CardLoad, NodeLoad, Seat
from scheduler.core.request import Shape, memory_on

T = TypeVar("T")
Companions = Callable[[RequestUid], tuple[RequestUid, ...] | None]
"""All who leave when one does, itself included; None when it may not be asked, because one of them may not."""


class Choice(msgspec.Struct, frozen=True):
    """Who leaves, and the cards for the request."""

    victims: tuple[RequestUid, ...]
    cards: tuple[str, ...]


def on_node(
    load: NodeLoad, cards: Collection[str], shape: Shape, priority: int | None, companions: Companions
) -> Choice | None:
    """The choice on one node. `priority`: of who asks; None = nobody may be asked to leave."""
    options = []
    for position, card in enumerate(load.cards):
        option = _on_card(card, shape, priority, companions) if card.uuid in cards else None
        if option is not None:
            options.append((_cost(option, companions), position, card.uuid, option))
    chosen = of_one_group(load, shape, sorted(options), lambda option: option[1])
    if chosen is None:
        return None
    seats = {seat.uid: seat for *_, option in chosen for seat in option}
    victims = _for_the_node(load, shape, priority, companions, _with_companions(seats, companions))
    if victims is None:
        return None
    cards = tuple(uuid for _, _, uuid, _ in sorted(chosen, key=lambda item: item[1]))
    return Choice(tuple(sorted(victims)), cards)


def of_one_group(load: NodeLoad, shape: Shape, options: list[T], position: Callable[[T], int]) -> list[T] | None:
    """The first so many of the options, best first, that the shape asks for; all of one NVLink group if it must be."""
    if shape.nvlink != "require":
        return options[: shape.cards] if len(options) >= shape.cards else None
    groups: dict[int, list[T]] = {}
    for option in options:
        group = load.cards[position(option)].group
        if group is not None:
            groups.setdefault(group, []).append(option)
            if len(groups[group]) == shape.cards:
                return groups[group]
    return None


def _cost(option: Sequence[Seat], companions: Companions) -> tuple[int, list[tuple[int, int, tuple[int, int]]]]:
    return len(_with_companions((seat.uid for seat in option), companions)), [seat.asked for seat in option]


def _with_companions(uids: Iterable[RequestUid], companions: Companions) -> dict[RequestUid, None]:
    return {each: None for uid in uids for each in companions(uid) or (uid,)}


def _on_card(card: CardLoad, shape: Shape, priority: int | None, companions: Companions) -> tuple[Seat, ...] | None:
    """The tenants of one card who would have to leave; None when that is not enough."""
    memory = memory_on(card.capacity_mib, shape, known=card.known)
    milli, mib = shape.share_milli - card.milli, memory - card.mib
    must = _keeping_away(card, shape)
    if milli <= 0 and mib <= 0 and not must:
        return ()
    if priority is None or any(s.priority >= priority or companions(s.uid) is None for s in must):
        return None
    milli, mib = milli - sum(s.milli for s in must), mib - sum(s.mib for s in must)
    asked = [s for s in card.seats if s not in must and s.priority < priority and companions(s.uid) is not None]
    more = _enough(asked, milli, mib)
    return None if more is None else (*must, *more)


def _keeping_away(card: CardLoad, shape: Shape) -> tuple[Seat, ...]:
    """Who must leave whatever room there is: everybody, where nobody carries the tag that it wants to be beside."""
    tag = shape.locality.affinity
    if tag is not None and all(seat.tags.affinity != tag for seat in card.seats):
        return card.seats
    return tuple(seat for seat in card.seats if rivals(shape.locality, seat.tags))


def _enough(asked: list[Seat], milli: int, mib: int) -> tuple[Seat, ...] | None:
    """The fewest of these whose leaving makes so much room, in the order of being asked; None: all are not enough."""
    if milli <= 0 and mib <= 0:
        return ()
    for seat in asked:
        if seat.milli >= milli and seat.mib >= mib:
            return (seat,)
    if sum(s.milli for s in asked) < milli or sum(s.mib for s in asked) < mib:
        return None
    for pair in combinations(asked, 2):
        if pair[0].milli + pair[1].milli >= milli and pair[0].mib + pair[1].mib >= mib:
            return pair
    return _many(asked, milli, mib)


def _many(asked: list[Seat], milli: int, mib: int) -> tuple[Seat, ...]:
    """Largest first until it is enough, then without those that are not needed, the last asked first."""
    taken: list[Seat] = []
    left_milli, left_mib = milli, mib
    for seat in sorted(asked, key=lambda seat: (-seat.milli, -seat.mib, seat.asked)):
        if left_milli <= 0 and left_mib <= 0:
            break
        taken.append(seat)
        left_milli, left_mib = left_milli - seat.milli, left_mib - seat.mib
    for seat in sorted(taken, key=lambda seat: seat.asked, reverse=True):
        if left_milli + seat.milli <= 0 and left_mib + seat.mib <= 0:
            taken.remove(seat)
            left_milli, left_mib = left_milli + seat.milli, left_mib + seat.mib
    return tuple(sorted(taken, key=lambda seat: seat.asked))


def _for_the_node(
    load: NodeLoad,
    shape: Shape,
    priority: int | None,
    companions: Companions,
    victims: dict[RequestUid, None],
) -> dict[RequestUid, None] | None:
    """More victims until CPU and host memory are enough; None when they never are."""
    gone = [seat for seat in load.seats if seat.uid in victims]
    cpu = shape.cpu_milli - load.cpu_milli - sum(seat.cpu_milli for seat in gone)
    memory = shape.host_memory_mib - load.memory_mib - sum(seat.memory_mib for seat in gone)
    cpu, memory = (cpu if shape.cpu_milli else 0), (memory if shape.host_memory_mib else 0)
    if cpu <= 0 and memory <= 0:
        return victims
    if priority is None:
        return None
    asked = [s for s in load.seats if s.priority < priority and s.uid not in victims and companions(s.uid) is not None]
    if sum(s.cpu_milli for s in asked) < cpu or sum(s.memory_mib for s in asked) < memory:
        return None
    more = dict(victims)
    for seat in sorted(asked, key=lambda s: (-min(s.cpu_milli, max(cpu, 0)), -s.memory_mib, s.asked)):
        if cpu <= 0 and memory <= 0:
            break
        more.update(dict.fromkeys(companions(seat.uid) or (seat.uid,)))
        cpu, memory = cpu - seat.cpu_milli, memory - seat.memory_mib
    return more
