"""One pod, one way of sharing: its cards are all shared by the same isolation backend, as far as the inventory tells.

A pod takes what its backend needs (variables, mounts, a manager) once, so cards of two backends cannot be in one
placement. Gemini serves one card a pod. Both would be found out only when the pod is made, and rejected then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from bus.ledger.state import CardState, NodeState
from contracts.inventory import IsolationMode
from contracts.outcomes import Reason
from scheduler.core.locality import Tags
from scheduler.core.request import Shape

T = TypeVar("T")
ONE_CARD: IsolationMode = "gemini"


def one_card_only(shape: Shape, node: NodeState, card: CardState, _tags: Tags) -> Reason | None:
    """Refuses a card whose backend serves one card a pod, to those who ask for several."""
    if shape.cards < 2 or card.card.isolation != ONE_CARD:  # noqa: PLR2004 - several
        return None
    return Reason(
        code="card-isolation",
        text=f"{node.name} card {card.card.uuid}: {ONE_CARD} serves one card a pod, {shape.cards} are asked for",
        needed=shape.cards,
        free=1,
        unit="cards of a pod",
        node=node.name,
        card=card.card.uuid,
    )


def by_mode(cards: Iterable[T], mode: Callable[[T], IsolationMode]) -> list[list[T]]:
    """Cards by backend, each in the order given, the backends by their first card."""
    groups: dict[IsolationMode, list[T]] = {}
    for card in cards:
        groups.setdefault(mode(card), []).append(card)
    return list(groups.values())


def modes_reason(shape: Shape, node: NodeState, groups: Sequence[Sequence[object]]) -> Reason | None:
    """Refuses a node where enough cards would do, and too few of one backend; `groups`: those, by backend."""
    most = max(map(len, groups), default=0)
    if most >= shape.cards:
        return None
    return Reason(
        code="card-isolation",
        text=f"{node.name}: needs {shape.cards} cards that are shared in one way, {sum(map(len, groups))} would do, at "
        f"most {most} of them alike",
        needed=shape.cards,
        free=most,
        unit="cards shared in one way",
        node=node.name,
    )
