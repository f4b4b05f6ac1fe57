"""The parts of the menu value's cost, each by its name, in micro (millionths of a card) and negative: less is worse.

Formulas: `scheduler.core.menu`. Nothing is learned yet: all are 0, and the fixed order of nodes decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from bus.ledger.learning import mix_key
from scheduler.core.feasibility.fast import Choice
from scheduler.core.menu.classes import class_key
from scheduler.core.menu.demand import slots_of
from scheduler.core.menu.drain import PSI_ONE, psi
from scheduler.core.menu.outlook import Outlook, chassis_of, wholes_of
from scheduler.core.menu.terms import MICRO, SLOT_SIZES
from scheduler.core.menu.ties import beyond
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import CardView, NodeView


def value_drop(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """-(V before - V after)."""
    if not isinstance(mix, Outlook):
        return 0
    before, after = (
        mix.value(view.cpu_milli, idle_of(view)),
        mix.value(left(shape, view), idle_after(shape, view, chosen)),
    )
    return -((before - after) // mix.tables.terms.menus)


def fragment_rise(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """-weight x (F after - F before)."""
    if not isinstance(mix, Outlook):
        return 0
    kind, taken = mix.kind(view), shape.share_milli * len(chosen) * MICRO
    before = mix.usable(kind, view.cpu_milli, idle_of(view))
    after = mix.usable(kind, left(shape, view), idle_after(shape, view, chosen))
    return -(mix.reach.fragment_weight * (before - after - taken) // 1000)


def tie_price(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """-(milli asked x price of the node + what the pod takes of its CPU beyond them x floor)."""
    if not isinstance(mix, Outlook):
        return 0
    price, floor = mix.tie(view)
    more = beyond(len(chosen), shape.share_milli, shape.cpu_milli, chassis_of(view)) if floor else 0
    return -(shape.share_milli * len(chosen) * price + floor * more)


def slot_price(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """-price of the slots for 2, 4 and 8 cards that are destroyed."""
    if not isinstance(mix, Outlook):
        return 0
    before = slots_of(wholes_of(idle_of(view)), view.cpu_milli, mix.reach.demand)
    after = slots_of(wholes_of(idle_after(shape, view, chosen)), left(shape, view), mix.reach.demand)
    return -sum(price * (b - a) for price, b, a in zip(mix.prices.slot, before, after, strict=True))


def cpu_price(shape: Shape, view: NodeView, _chosen: Choice, mix: Mix) -> int:
    """-price x CPU value lost."""
    if not isinstance(mix, Outlook):
        return 0
    lost = mix.cpu_value(view.cpu_milli) - mix.cpu_value(left(shape, view))
    return -(mix.prices.cpu * lost // (64 * 64))


def drain_price(shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
    """-d x psi x (1 - q): what it costs to stay on a node that is about to be empty."""
    if not isinstance(mix, Outlook) or not chosen or len(view.cards) not in SLOT_SIZES:
        return 0
    price = mix.prices.drain[SLOT_SIZES.index(len(view.cards))]
    minus_ln = sum(mix.tables.leaves(key) for key in _classes(view))
    return -((price * psi(minus_ln) // PSI_ONE) * mix.tables.remains(class_key(shape)) // PSI_ONE)


def left(shape: Shape, view: NodeView) -> int:
    """CPU that stays free."""
    return view.cpu_milli - shape.cpu_milli


def idle_of(view: NodeView) -> list[int]:
    """Idle share of each card, in position order."""
    return [card.free_milli for card in view.cards]


def idle_after(shape: Shape, view: NodeView, chosen: Sequence[CardView]) -> list[int]:
    """The same with the pod on the chosen cards."""
    taken = {card.position for card in chosen}
    return [card.free_milli - shape.share_milli * (card.position in taken) for card in view.cards]


def _classes(view: NodeView) -> list[str]:
    """The class of each pod on the node."""
    return [mix_key(tenant.request) for tenant in view.tenants]
