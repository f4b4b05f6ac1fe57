"""V: what a node is worth to the menus, in plain Python. The reference that the compiled tables are held to.

For a menu and a price u of CPU, in micro:

    v[r]  best filling of one card with 10 r thousandths idle: unbounded knapsack, item i of size s_i worth
          max(0, worth_i - u cpu_i); v[r] >= v[r - 1]
    w[f]  the same of f whole free cards: max(w[f-1] + v[100], max over items of k_i <= f cards of
          max(0, worth_i - u cpu_i) + w[f - k_i])

    V(n) = mean over menus of min over u of ( u x free CPU + w[whole free cards] + sum over the other cards of v[idle] )

u x free CPU makes CPU a resource that is bought at u: the minimum over u is the Lagrangian bound of the knapsack with a
limit on CPU (so V never underestimates it).
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.units import WHOLE_CARD
from scheduler.core.menu.draw import Menu
from scheduler.core.menu.terms import CPU_PRICES, STEP_MILLI, STEPS

MAX_WHOLES = 16
"""Cards of a node that tables reach to; more are counted as so many."""


def worth_at(worth_micro: int, cpu_milli: int, price: int) -> int:
    """An item after its CPU is paid for."""
    return max(0, worth_micro - price * cpu_milli)


def one_card(menu: Menu, price: int) -> list[int]:
    """v[0..100]."""
    items = [(i.steps, worth_at(i.worth_micro, i.cpu_milli, price)) for i in menu if i.cards == 1]
    v = [0] * STEPS
    for r in range(1, STEPS):
        v[r] = max([v[r - 1], *(worth + v[r - steps] for steps, worth in items if steps <= r)])
    return v


def whole_cards(menu: Menu, price: int, v: Sequence[int]) -> list[int]:
    """w[0..16]."""
    items = [(i.cards, worth_at(i.worth_micro, i.cpu_milli, price)) for i in menu if i.cards > 1]
    w = [0] * (MAX_WHOLES + 1)
    for f in range(1, MAX_WHOLES + 1):
        w[f] = max([w[f - 1] + v[STEPS - 1], *(worth + w[f - cards] for cards, worth in items if cards <= f)])
    return w


def node_value(menus: Sequence[Menu], cpu_milli: int, idle_milli: Sequence[int]) -> int:
    """V of a node with so much free CPU and so much idle on each card, summed over the menus: to be divided by them."""
    wholes = min(MAX_WHOLES, sum(idle == WHOLE_CARD for idle in idle_milli))
    parts = [idle // STEP_MILLI for idle in idle_milli if idle < WHOLE_CARD]
    total = 0
    for menu in menus:
        best = None
        for price in CPU_PRICES:
            v = one_card(menu, price)
            here = price * cpu_milli + whole_cards(menu, price, v)[wholes] + sum(v[r] for r in parts)
            best = here if best is None else min(best, here)
        total += best or 0
    return total
