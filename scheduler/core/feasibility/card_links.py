"""Several cards that reach each other over NVLink: which of the cards that would do belong together.

A group is a number that the inventory gives (`Card.nvlink_group`); a card without one is linked to nobody. Where no
group is known, `prefer` is the policy's choice and `require` fits nowhere: unknown is never yes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from bus.ledger.state import NodeState
from contracts.outcomes import Reason
from scheduler.core.request import Shape

T = TypeVar("T")


def groups_of(cards: Iterable[T], group: Callable[[T], int | None]) -> list[list[T]]:
    """Cards by group, each in the order given, the groups by their first card; an unlinked card is a group of one."""
    groups: dict[int, list[T]] = {}
    found: list[list[T]] = []
    for card in cards:
        number = group(card)
        if number is None:
            found.append([card])
        elif number in groups:
            groups[number].append(card)
        else:
            groups[number] = [card]
            found.append(groups[number])
    return found


def linked(cards: Iterable[T], count: int, group: Callable[[T], int | None], *, required: bool) -> list[T] | None:
    """`count` of the cards, of one group if there is one that has them; None when there is no such choice.

    1. the group with fewest cards that has enough: large groups stay whole for those who need them
    2. else, if not required, the fewest groups: the largest first
    Equals: the group whose first card comes first.
    """
    groups = groups_of(cards, group)
    enough = [g for g in groups if len(g) >= count]
    if enough:
        return min(enough, key=len)[:count]
    if required:
        return None
    taken = [card for g in sorted(groups, key=len, reverse=True) for card in g][:count]
    return taken if len(taken) == count else None


def links_reason(shape: Shape, node: NodeState, cards: list[int | None]) -> Reason | None:
    """Refuses a node where enough cards would do, and too few of one group; `cards` are the groups of those."""
    if shape.nvlink != "require" or linked(cards, shape.cards, lambda number: number, required=True) is not None:
        return None
    most = max(map(len, groups_of(cards, lambda number: number)), default=0)
    return Reason(
        code="card-links",
        text=f"{node.name}: needs {shape.cards} cards of one NVLink group, {len(cards)} would do, at most {most} of "
        "them linked",
        needed=shape.cards,
        free=most,
        unit="linked cards",
        node=node.name,
    )
