"""The inner loops: what a node is worth, what a pod would cost there, and which node is cheapest. Whole numbers only.

In and out: arrays, laid out as the constants below say. Formulas stand in `scheduler.core.menu`; where a loop here does
the same in another order, the sum is the same because nothing is rounded before the end.

    fill_menu    one menu into the table t: v, then w                                  (menu.value)
    fill_cpu     CPU values X                                                          (menu.cpu_value)
    settle       nodes that changed: their value, fragment and slots, sums of the cluster, prices     (menu.demand),
                 the nodes that one shape has not seen: their cost; then its best two nodes

t lies [row][price][menu]: a node's value is a few additions of rows, then a minimum over prices, which compilers turn
into vector instructions. Inner loops take whole arrays and numbers, no slices of them: a slice costs 10 to 20 ns, and a
cell has 200 in all. `settle` keeps the smallest key of each block of 64 nodes, so that a decision
looks at the blocks that changed and at one number of each other one.

A key is one number: cost in rounding steps, then the seat of the node in the fixed order: smallest is best.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler.core.arrays.compiled import compiled

Array = Any
"""An integer array; numba has no types for mypy to see."""

# --- layout of one row of a node: what `rows` writes at every change, what it writes now and then, what `settle` keeps
VERSION, ADMITS, ODD, CPU, MEMORY, PODS, KIND, CHASSIS, GPUS, CARDS, WHOLES, IDLE, LN_PSI = range(13)
MAX_CARDS = 16
FREE, MIB, CAPACITY, BASED = 13, 13 + MAX_CARDS, 13 + 2 * MAX_CARDS, 13 + 3 * MAX_CARDS
VALUE, USABLE, SLOTS = BASED + 1, BASED + 2, BASED + 3
SUMMED, SUM_IDLE, SUM_CPU, SUM_GROUP, SUM_CARDS, ROW = range(BASED + 6, BASED + 12)

# --- of one chassis: its group, and its CPU ----------------------------------------------------------------------
C_GROUP, C_CPU = 0, 1

# --- of one cell: a shape on a node --------------------------------------------------------------------------------
SEEN, SHUT_OUT, FIXED, SPOILT, CARD, LESS_SLOTS, LESS_CPU, PSI_HERE, BEYOND, GROUP, LARGE, CELL = (
    0,
    1,
    2,
    3,
    4,
    5,
    *range(8, 14),
)

# --- of a mix: the constants of a form, then grid of prices, psi, CPU values, CPU levels, one after the other --------
MENUS, ROUNDING, FRAGMENT, SLOT_CPU, SLOT_SHARE, CPU_PER_MILLI = 0, 1, 2, 3, 6, 9
TIE_W, TIE_T, SLOT_W, SLOT_T, CPU_W, CPU_T, DRAIN_W, DRAIN_T = range(10, 18)
BY_SHAPE, TIE_STANDING, TIE_FLOOR, PSI_AT, VALUES_AT, LEVELS_AT, CONSTANTS = range(18, 25)
GRID_AT = CONSTANTS

# --- of the sums: idle, CPU, slots of 2, 4, 8, then by group, the rest last: idle, cards; of the prices: slots, drain,
# --- CPU, then by group: ties, floors
T_IDLE, T_CPU, T_SLOTS, T_GROUPS = 0, 1, 2, 5
P_SLOT, P_DRAIN, P_CPU, P_GROUPS = 0, 3, 6, 7

# --- of what is kept by group to price ties: sums that it was made from, and steps of the ramp that no pod changes
M_CARDS, M_IDLE, M_STEPS, MEMO = range(4)

# --- of a board: its shape, nodes with room, and the prices that its keys were made with
S_CARDS, S_SHARE, S_MEMORY, S_CPU, S_HOST, S_STAYS, S_KINDS, B_FEASIBLE, B_PRICES = range(9)
SHAPE = B_FEASIBLE

# --- of an answer ---------------------------------------------------------------------------------------------------
OUT_BEST, OUT_NEXT, OUT_NODE, OUT_CARD, OUT_FEASIBLE = range(5)
OUT_DROP, OUT_SPOILT, OUT_TIE, OUT_SLOTS, OUT_CPU, OUT_DRAIN, OUT = range(5, 12)

NOT_LARGE = 3
"""Of a cell: the node has not 2, 4 or 8 cards, or the shape takes none. The others are told by 0, 1, 2."""
WHOLE = 1000
MICRO = 1000
ONE = 1 << 16
MOST = 1000 * ONE
STEP = 10
STEPS = 101
"""Rows of `t` for begun cards; those for so many whole cards follow."""
CPU_STEP = 100
PSI_BITS = 20
PSI_STEP = ONE // 256
BLOCK = 64
SEAT_BITS = 44
NOWHERE = (1 << 63) - 1
FAR = 1 << 18
ENOUGH = 1 << 30
"""Above the value of any node: CPU x price is cut to it, so that rows stay 32 bits wide. The minimum over prices never
lies there, because at price 0 a node of 16 cards is worth 16,000,000."""


@compiled
def fill_menu(t: Array, menu: int, items: Array, prices: Array) -> None:
    """One menu at all prices of CPU. items[i] = cards, steps, cpu, worth."""
    one, many = np.zeros(STEPS, np.int64), np.zeros(t.shape[0] - STEPS, np.int64)
    for p in range(prices.shape[0]):
        for r in range(1, STEPS):
            best = one[r - 1]
            for i in range(items.shape[0]):
                if items[i, 0] == 1 and items[i, 1] <= r:
                    best = max(best, max(0, items[i, 3] - prices[p] * items[i, 2]) + one[r - items[i, 1]])
            one[r] = best
        for f in range(1, many.shape[0]):
            best = many[f - 1] + one[STEPS - 1]
            for i in range(items.shape[0]):
                if items[i, 0] > 1 and items[i, 0] <= f:
                    best = max(best, max(0, items[i, 3] - prices[p] * items[i, 2]) + many[f - items[i, 0]])
            many[f] = best
        for r in range(STEPS):
            t[r, p, menu] = one[r]
        for f in range(many.shape[0]):
            t[STEPS + f, p, menu] = many[f]


@compiled
def fill_cpu(sums: Array, sizes: Array) -> None:
    """X x 64, in milli-cores."""
    best = np.zeros(sums.shape[0], np.int64)
    for m in range(sizes.shape[0]):
        one, other = sizes[m, 0], sizes[m, 1]
        for c in range(1, sums.shape[0]):
            here = best[c - 1]
            if one <= c:
                here = max(here, best[c - one] + one)
            if other <= c:
                here = max(here, best[c - other] + other)
            best[c] = here
            sums[c] += CPU_STEP * here


@compiled
def _fill_base(rows: Array, n: int, t: Array, p: int, base: Array) -> None:
    """A node's cards at one price and every menu, CPU left out."""
    menus = base.shape[1]
    whole = STEPS + min(rows[n, WHOLES], t.shape[0] - STEPS - 1)
    for b in range(menus):
        base[p, b] = t[whole, p, b]
    for card in range(rows[n, CARDS]):
        idle = rows[n, FREE + card]
        if STEP <= idle < WHOLE:
            step = idle // STEP
            for b in range(menus):
                base[p, b] += t[step, p, b]


@compiled
def _value(  # noqa: PLR0917 - arrays by position
    rows: Array,
    n: int,
    t: Array,
    mix: Array,
    cpu: int,
    out: int,
    into: int,
    rest: int,
    base: Array,
    ready: int,
    best: Array,
) -> tuple[int, int]:
    """Sum over menus of the least over prices of base - t[out] + t[into] + t[rest] + price x cpu; prices in `base`.

    For each menu that is convex in the price: a largest sum of terms max(0, worth - price x cpu), plus a line. So when
    no menu got less from one price to the next, none will: mostly after two or three of the prices. A sum of 32 bits
    holds 134 menus of 16 cards.
    """
    menus, total = best.shape[0], 0
    for p in range(t.shape[1]):
        if p == ready:
            _fill_base(rows, n, t, p, base)
            ready += 1
        paid = np.int32(min(mix[GRID_AT + p] * cpu, ENOUGH))
        least = np.int32(0)
        if p == 0:
            for b in range(menus):
                best[b] = np.int32(base[p, b] - t[out, p, b] + t[into, p, b] + t[rest, p, b] + paid)
                least = np.int32(least + best[b])
        else:
            for b in range(menus):
                best[b] = min(best[b], np.int32(base[p, b] - t[out, p, b] + t[into, p, b] + t[rest, p, b] + paid))
                least = np.int32(least + best[b])
            if least == total:
                break
        total = int(least)
    return total, ready


@compiled
def value_of(rows: Array, n: int, t: Array, mix: Array) -> int:
    """V of a row as it stands, summed over the menus."""
    base, best = np.empty(t.shape[1:], np.int32), np.empty(t.shape[2], np.int32)
    total, _ = _value(rows, n, t, mix, rows[n, CPU], 0, 0, 0, base, 0, best)
    return total


@compiled
def _level(mix: Array, cpu: int) -> int:
    """How many levels of CPU are at most `cpu`."""
    low, high = mix[LEVELS_AT], mix.shape[0]
    while low < high:
        middle = (low + high) // 2
        if mix[middle] <= cpu:
            low = middle + 1
        else:
            high = middle
    return int(low - mix[LEVELS_AT])


@compiled
def _usable(rows: Array, n: int, parts: Array, several: Array, level: int) -> int:
    """U of a node, with the tables of its kind at a CPU level."""
    kind = rows[n, KIND]
    total = int(several[kind, level, min(rows[n, WHOLES], several.shape[2] - 1)])
    for card in range(rows[n, CARDS]):
        idle = rows[n, FREE + card]
        if idle > 0:
            total += parts[kind, level, idle]
    return total


@compiled
def _slots(wholes: int, cpu: int, size: int, mean: int) -> int:
    return min(wholes // size, cpu // mean) if mean > 0 else wholes // size


@compiled
def _cards_at(totals: Array) -> int:
    """Where the sums of cards by group begin."""
    return int(T_GROUPS + (totals.shape[0] - T_GROUPS) // 2)


@compiled
def _take_out(row: Array, totals: Array) -> None:
    if row[SUMMED]:
        totals[T_IDLE] -= row[SUM_IDLE]
        totals[T_CPU] -= row[SUM_CPU]
        for k in range(3):
            totals[T_SLOTS + k] -= row[SLOTS + k]
        totals[T_GROUPS + row[SUM_GROUP]] -= row[SUM_IDLE]
        totals[_cards_at(totals) + row[SUM_GROUP]] -= row[SUM_CARDS]
        row[SUMMED] = 0


@compiled
def _put_in(row: Array, totals: Array, chassis: Array, constants: Array) -> None:
    row[SUMMED], row[SUM_IDLE], row[SUM_CPU] = 1, row[IDLE], row[CPU]
    row[SUM_GROUP], row[SUM_CARDS] = chassis[row[CHASSIS], C_GROUP], WHOLE * row[GPUS]
    totals[T_IDLE] += row[IDLE]
    totals[T_CPU] += row[CPU]
    totals[T_GROUPS + row[SUM_GROUP]] += row[IDLE]
    totals[_cards_at(totals) + row[SUM_GROUP]] += row[SUM_CARDS]
    for k in range(3):
        row[SLOTS + k] = _slots(row[WHOLES], row[CPU], 2 << k, constants[SLOT_CPU + k])
        totals[T_SLOTS + k] += row[SLOTS + k]


@compiled
def _ramp(pressure: int, threshold: int) -> int:
    top = (1000 - threshold) * ONE
    return min(64, max(0, (pressure * 1000 - threshold * ONE) * 64 // top))


@compiled
def _stand(  # noqa: PLR0917 - arrays by position
    totals: Array, constants: Array, tied: Array, prices: Array, memo: Array, inside: Array
) -> None:
    """Other cards, or the first time: what of the ties' prices depends on no pod, and the idle sums of all sets."""
    groups, cards_at = memo.shape[1], _cards_at(totals)
    whole, floors = totals[cards_at:].sum(), P_GROUPS + memo.shape[1]
    memo[M_CARDS], memo[M_IDLE] = totals[cards_at:], totals[T_GROUPS:cards_at]
    memo[M_STEPS], prices[floors:] = 0, 0
    for s in range(tied.shape[0]):
        cards, standing, floor = 0, 0, 0
        inside[s] = 0
        for g in range(groups - 1):
            if tied[s, 0] >> g & 1:
                inside[s] += memo[M_IDLE, g]
                cards += memo[M_CARDS, g]
        if constants[BY_SHAPE]:
            standing = min(MOST, tied[s, 1] * (whole - cards) // cards) if cards > 0 else MOST
        floor = min(constants[TIE_FLOOR], standing * 1000 // ONE)
        steps = _ramp(standing * constants[TIE_STANDING] // 1000, constants[TIE_T])
        for g in range(groups - 1):
            if tied[s, 0] >> g & 1:
                memo[M_STEPS, g] = max(memo[M_STEPS, g], steps)
                prices[floors + g] = max(prices[floors + g], floor)


@compiled
def _follow_idle(totals: Array, tied: Array, memo: Array, inside: Array) -> None:
    """The idle sums of the sets that hold a group whose idle sum has changed: after a decision, mostly one."""
    for g in range(memo.shape[1] - 1):
        more = totals[T_GROUPS + g] - memo[M_IDLE, g]
        if more != 0:
            memo[M_IDLE, g] += more
            for s in range(tied.shape[0]):
                inside[s] += more * (tied[s, 0] >> g & 1)


@compiled
def _price_ties(  # noqa: PLR0917 - arrays by position
    totals: Array, constants: Array, tied: Array, prices: Array, memo: Array, inside: Array
) -> None:
    """`menu.demand.tie_prices`. A ramp is flat outside threshold .. 1: most sets are told by a product, undivided."""
    groups, cards_at, threshold = memo.shape[1], _cards_at(totals), constants[TIE_T]
    stands = True
    for g in range(groups):
        stands = stands and memo[M_CARDS, g] == totals[cards_at + g]
    if stands:
        _follow_idle(totals, tied, memo, inside)
    else:
        _stand(totals, constants, tied, prices, memo, inside)
    prices[P_GROUPS : P_GROUPS + groups] = memo[M_STEPS]
    full, low = 0, threshold * ONE // 1000
    for s in range(tied.shape[0]):
        mask, room, weight = tied[s, 0], inside[s], tied[s, 1] * totals[T_IDLE]
        if constants[BY_SHAPE]:
            weight = tied[s, 1] * (totals[T_IDLE] - room)  # room 0: 0 x 65,536 is not more, so in full
        else:
            room = max(1, room)
        if weight >= ONE * room:
            full |= mask
        elif weight > low * room and mask & ~full != 0:
            steps = _ramp(weight // room, threshold)
            for g in range(groups - 1):
                if mask >> g & 1:
                    prices[P_GROUPS + g] = max(prices[P_GROUPS + g], steps)
    for g in range(groups):
        steps = 64 if full >> g & 1 else prices[P_GROUPS + g]
        prices[P_GROUPS + g] = max(prices[P_GROUPS + groups + g], constants[TIE_W] * steps // 64)


@compiled
def _price(  # noqa: PLR0917 - arrays by position
    totals: Array, constants: Array, tied: Array, prices: Array, memo: Array, inside: Array
) -> None:
    """`menu.demand.prices_of`."""
    idle = totals[T_IDLE]
    for k in range(3):
        size = 2 << k
        room = max(WHOLE * size * totals[T_SLOTS + k], 1)
        if totals[T_SLOTS + k] == 0:
            room = WHOLE * size // 2
        pressure = constants[SLOT_SHARE + k] * idle // room
        prices[P_SLOT + k] = constants[SLOT_W] * WHOLE * size * _ramp(pressure, constants[SLOT_T]) // 64
        prices[P_DRAIN + k] = constants[DRAIN_W] * WHOLE * size * _ramp(pressure, constants[DRAIN_T]) // 64
    pressure = constants[CPU_PER_MILLI] * idle // max(1, totals[T_CPU])
    prices[P_CPU] = constants[CPU_W] * _ramp(pressure, constants[CPU_T])
    _price_ties(totals, constants, tied, prices, memo, inside)


@compiled
def _needed(rows: Array, n: int, card: int, board: Array) -> int:
    """MiB that the shape takes of this card."""
    if board[S_MEMORY] >= 0:
        return int(board[S_MEMORY])
    return int(max(1, rows[n, CAPACITY + card] * board[S_SHARE] // WHOLE))


@compiled
def _enough_wholes(rows: Array, n: int, board: Array) -> int:
    """The first of the whole cards that it would take, lowest positions first; -1: too few."""
    first, found = -1, 0
    for card in range(rows[n, CARDS]):
        if rows[n, FREE + card] == WHOLE and _needed(rows, n, card, board) <= rows[n, MIB + card]:
            found += 1
            first = card if first < 0 else first
            if found == board[S_CARDS]:
                return first
    return -1


@compiled
def _admits(rows: Array, n: int, board: Array) -> bool:
    return bool(
        rows[n, ADMITS] != 0
        and board[S_CPU] <= rows[n, CPU]
        and board[S_HOST] <= rows[n, MEMORY]
        and rows[n, PODS] >= 1
        and board[S_CARDS] <= rows[n, GPUS]
        and (board[S_CARDS] == 0 or board[S_KINDS] >> rows[n, KIND] & 1 != 0)
    )


@compiled
def _takes(rows: Array, n: int, card: int, board: Array) -> bool:
    """A part of the card is free, and no card before it has the same idle share: that one would cost the same."""
    idle = rows[n, FREE + card]
    if idle < board[S_SHARE] or _needed(rows, n, card, board) > rows[n, MIB + card]:
        return False
    for other in range(card):
        if rows[n, FREE + other] == idle and _needed(rows, n, other, board) <= rows[n, MIB + other]:
            return False
    return True


@compiled
def _fill_cell(  # noqa: PLR0917 - arrays by position
    cells: Array,
    rows: Array,
    n: int,
    board: Array,
    t: Array,
    parts: Array,
    several: Array,
    mix: Array,
    base: Array,
    best: Array,
) -> bool:
    """Score one node: its card, and the part of the cost that has no price. False: there is no room.

    The pod's card goes from one row of `t` to another: a begun card to what is left of it; whole cards to fewer, and
    what is left of the one that is begun stands in `rest`.
    """
    if not _admits(rows, n, board):
        return False
    cards, share, cpu, kind = board[S_CARDS], board[S_SHARE], rows[n, CPU] - board[S_CPU], rows[n, KIND]
    part, first, last, wholes = 0 < share < WHOLE, 0, rows[n, CARDS], rows[n, WHOLES]
    if not part:
        first = _enough_wholes(rows, n, board) if cards > 0 else 0
        last = first + 1
    level, q, left = _level(mix, cpu), mix[ROUNDING], wholes - cards
    tables, most = t.shape[0] - STEPS - 1, several.shape[2] - 1
    usable, lowest, ready = -1, NOWHERE, 0
    for card in range(max(0, first), last):
        if part and not _takes(rows, n, card, board):
            continue
        if usable < 0:
            usable = _usable(rows, n, parts, several, level)
        idle, out, into, rest, gain = 0, 0, 0, 0, 0
        if cards > 0:
            idle = rows[n, FREE + card]
            if idle < WHOLE:
                out, into = idle // STEP, (idle - share) // STEP
                gain = parts[kind, level, idle - share] - parts[kind, level, idle]
            else:
                out, into, rest = STEPS + min(wholes, tables), STEPS + min(left, tables), 0
                gain = several[kind, level, min(left, most)] - several[kind, level, min(wholes, most)]
                if share == WHOLE:
                    gain -= cards * parts[kind, level, WHOLE]
                else:
                    rest = (WHOLE - share) // STEP
                    gain += parts[kind, level, WHOLE - share] - parts[kind, level, WHOLE]
        value, ready = _value(rows, n, t, mix, cpu, out, into, rest, base, ready, best)
        spoilt = mix[FRAGMENT] * (rows[n, USABLE] - usable - gain - cards * share * MICRO) // 1000
        fixed = (rows[n, VALUE] - value) // mix[MENUS] + spoilt
        if (fixed + q // 2) // q < lowest:
            lowest = (fixed + q // 2) // q
            cells[n, FIXED], cells[n, SPOILT], cells[n, CARD] = fixed, spoilt, card
    return bool(lowest != NOWHERE)


@compiled
def _fill_rest(  # noqa: PLR0917 - arrays by position
    cells: Array, rows: Array, n: int, board: Array, chassis: Array, mix: Array
) -> None:
    """What prices will be put on."""
    wholes, cpu, most = rows[n, WHOLES], rows[n, CPU] - board[S_CPU], mix[LEVELS_AT] - mix[VALUES_AT] - 1
    if board[S_CARDS] > 0 and rows[n, FREE + cells[n, CARD]] == WHOLE:
        wholes -= board[S_CARDS]
    for k in range(3):
        cells[n, LESS_SLOTS + k] = rows[n, SLOTS + k] - _slots(wholes, cpu, 2 << k, mix[SLOT_CPU + k])
    values = mix[VALUES_AT]
    cells[n, LESS_CPU] = mix[values + min(rows[n, CPU] // CPU_STEP, most)] - mix[values + min(cpu // CPU_STEP, most)]
    psi = mix[PSI_AT]
    cells[n, PSI_HERE] = mix[psi + min(rows[n, LN_PSI] // PSI_STEP, mix[VALUES_AT] - psi - 1)]
    size = max(1, chassis[rows[n, CHASSIS], C_CPU])
    cells[n, GROUP], cells[n, LARGE] = rows[n, SUM_GROUP], NOT_LARGE
    for k in range(3):
        if board[S_CARDS] > 0 and rows[n, GPUS] == 2 << k:
            cells[n, LARGE] = k
    cells[n, BEYOND] = max(0, WHOLE * rows[n, GPUS] * board[S_CPU] // size - board[S_CARDS] * board[S_SHARE])


@compiled
def _priced(  # noqa: PLR0917 - arrays by position
    cells: Array, n: int, board: Array, prices: Array, at: int, out: Array
) -> int:
    """What the cell costs at prices from `at` on; the parts that prices add are left in `out`."""
    cards, group, large = board[S_CARDS], at + P_GROUPS + cells[n, GROUP], cells[n, LARGE]
    floor = prices[group + (prices.shape[0] - at - P_GROUPS) // 2]
    out[OUT_TIE] = cards * board[S_SHARE] * prices[group] + floor * cells[n, BEYOND]
    out[OUT_SLOTS] = 0
    out[OUT_DRAIN] = 0
    for k in range(3):
        out[OUT_SLOTS] += prices[at + P_SLOT + k] * cells[n, LESS_SLOTS + k]
    if large != NOT_LARGE:
        drain = prices[at + P_DRAIN + large] * cells[n, PSI_HERE] >> PSI_BITS
        out[OUT_DRAIN] = drain * board[S_STAYS] >> PSI_BITS
    out[OUT_CPU] = prices[at + P_CPU] * cells[n, LESS_CPU] // (64 * 64)
    return int(cells[n, FIXED] + out[OUT_TIE] + out[OUT_SLOTS] + out[OUT_CPU] + out[OUT_DRAIN])


@compiled
def _key(cost: int, rounding: int, seat: int) -> int:
    steps = (cost + rounding // 2) // rounding
    return (min(FAR, max(-FAR, steps)) << SEAT_BITS) + seat


@compiled
def _least_of(keys: Array, block: int) -> int:
    least = NOWHERE
    for n in range(block * BLOCK, min(keys.shape[0], (block + 1) * BLOCK)):
        least = min(least, keys[n])
    return least


@compiled
def put_key(keys: Array, blocks: Array, board: Array, node: int, key: int) -> None:
    """The key of one node, and the smallest of its block."""
    before, block = keys[node], node // BLOCK
    if key == before:
        return
    board[B_FEASIBLE] += int(key != NOWHERE) - int(before != NOWHERE)
    keys[node] = key
    if key < blocks[block]:
        blocks[block] = key
    elif before == blocks[block]:
        blocks[block] = _least_of(keys, block)


@compiled
def _price_anew(  # noqa: PLR0917 - arrays by position
    seats: Array,
    board: Array,
    prices: Array,
    rounding: int,
    keys: Array,
    cells: Array,
    blocks: Array,
    out: Array,
) -> None:
    """Prices have moved: every key of the shape, from the cells as they are. Those of odd nodes have not been seen."""
    for n in range(keys.shape[0]):
        if keys[n] != NOWHERE and cells[n, SEEN] != 0:
            keys[n] = _key(_priced(cells, n, board, prices, 0, out), rounding, seats[n])
    for b in range(blocks.shape[0]):
        blocks[b] = _least_of(keys, b)
    for p in range(prices.shape[0]):
        board[B_PRICES + p] = prices[p]


@compiled
def _best_two(keys: Array, blocks: Array, out: Array) -> int:
    """The smallest key and the next; the node of the smallest."""
    first, second, where = NOWHERE, NOWHERE, 0
    for b in range(blocks.shape[0]):
        if blocks[b] < first:
            first, second, where = blocks[b], first, b
        elif blocks[b] < second:
            second = blocks[b]
    best = where * BLOCK
    for n in range(where * BLOCK, min(keys.shape[0], (where + 1) * BLOCK)):
        if keys[n] == first:
            best = n
        elif keys[n] < second:
            second = keys[n]
    out[OUT_BEST], out[OUT_NEXT] = first, second
    return best


@compiled
def _answer(  # noqa: PLR0917 - arrays by position
    seats: Array,
    board: Array,
    prices: Array,
    rounding: int,
    keys: Array,
    cells: Array,
    blocks: Array,
    out: Array,
) -> None:
    """The best node of one board, with the parts of its cost."""
    for p in range(prices.shape[0]):
        if board[B_PRICES + p] != prices[p]:
            _price_anew(seats, board, prices, rounding, keys, cells, blocks, out)
            break
    n = _best_two(keys, blocks, out)
    out[OUT_NODE], out[OUT_CARD], out[OUT_FEASIBLE] = n, cells[n, CARD], board[B_FEASIBLE]
    _priced(cells, n, board, prices, 0, out)
    out[OUT_SPOILT] = cells[n, SPOILT]
    out[OUT_DROP] = cells[n, FIXED] - cells[n, SPOILT]


@compiled
def _alike(rows: Array, one: int, other: int) -> bool:
    """Two nodes on which everything costs the same: empty ones of one kind, mostly."""
    for column in range(ADMITS, FREE):
        if rows[one, column] != rows[other, column]:
            return False
    for card in range(rows[one, CARDS]):
        if rows[one, FREE + card] != rows[other, FREE + card] or rows[one, MIB + card] != rows[other, MIB + card]:
            return False
        if rows[one, CAPACITY + card] != rows[other, CAPACITY + card]:
            return False
    return True


@compiled
def _absorb(  # noqa: PLR0917 - arrays by position
    rows: Array,
    log: Array,
    first: int,
    last: int,
    t: Array,
    parts: Array,
    several: Array,
    chassis: Array,
    mix: Array,
    totals: Array,
    base: Array,
    best: Array,
) -> None:
    """Each changed node: its value, usable share and slots, and the sums of the cluster."""
    before = -1
    for i in range(max(0, first), last):
        n = int(log[i]) if first >= 0 else i
        if rows[n, BASED] == rows[n, VERSION]:
            continue
        rows[n, BASED] = rows[n, VERSION]
        _take_out(rows[n], totals)
        if not rows[n, ADMITS]:
            continue
        _put_in(rows[n], totals, chassis, mix)
        if before >= 0 and _alike(rows, n, before):
            rows[n, USABLE], rows[n, VALUE] = rows[before, USABLE], rows[before, VALUE]
            continue
        before = n
        rows[n, USABLE] = _usable(rows, n, parts, several, _level(mix, rows[n, CPU]))
        rows[n, VALUE], _ = _value(rows, n, t, mix, rows[n, CPU], 0, 0, 0, base, 0, best)


@compiled
def _catch_up(  # noqa: PLR0917 - arrays by position
    rows: Array,
    seats: Array,
    log: Array,
    first: int,
    last: int,
    cells: Array,
    keys: Array,
    blocks: Array,
    board: Array,
    out: Array,
    t: Array,
    parts: Array,
    several: Array,
    chassis: Array,
    mix: Array,
    base: Array,
    best: Array,
) -> None:
    """One board: the keys of the nodes that it has not seen as they are."""
    before = -1
    for i in range(max(0, first), last):
        n = int(log[i]) if first >= 0 else i
        if cells[n, SEEN] == rows[n, VERSION] or rows[n, ODD]:
            continue
        cells[n, SEEN] = rows[n, VERSION]
        key, fits = NOWHERE, cells[n, SHUT_OUT] == 0
        if fits and before >= 0 and _alike(rows, n, before):
            fits = keys[before] != NOWHERE
            for column in range(FIXED, CELL):
                cells[n, column] = cells[before, column]
        elif fits:
            before = n
            fits = _fill_cell(cells, rows, n, board, t, parts, several, mix, base, best)
            if fits:
                _fill_rest(cells, rows, n, board, chassis, mix)
        if fits:
            key = _key(_priced(cells, n, board, board, B_PRICES, out), mix[ROUNDING], seats[n])
        put_key(keys, blocks, board, n, key)


@compiled
def settle(  # noqa: PLR0917 - arrays by position
    rows: Array,
    seats: Array,
    log: Array,
    changed: int,
    late: int,
    last: int,
    which: int,
    size: int,
    cells: Array,
    keys: Array,
    blocks: Array,
    boards: Array,
    out: Array,
    t: Array,
    parts: Array,
    several: Array,
    mix: Array,
    tied: Array,
    chassis: Array,
    totals: Array,
    prices: Array,
    memo: Array,
    inside: Array,
) -> None:
    """Take in the nodes that changed; then, if `which` is a board, name the best node of its shape and the next one.

    `changed` and `late` are places in `log`, up to `last`; -1 is every one of the `size` nodes.

    1. the nodes from `changed` on: their value, usable share and slots, and the sums of the cluster
    2. the board: the nodes from `late` on, which it has not seen yet
    3. prices, from the sums; all keys of the board again if these are not the prices they were made with; the least key
    """
    base, best = np.empty(t.shape[1:], np.int32), np.empty(t.shape[2], np.int32)
    until = last if changed >= 0 else size
    _absorb(rows, log, changed, until, t, parts, several, chassis, mix, totals, base, best)
    if which >= 0:
        until = last if late >= 0 else size
        _catch_up(
            rows,
            seats,
            log,
            late,
            until,
            cells[which],
            keys[which],
            blocks[which],
            boards[which],
            out,
            t,
            parts,
            several,
            chassis,
            mix,
            base,
            best,
        )
    _price(totals, mix, tied, prices, memo, inside)
    if which >= 0:
        _answer(seats, boards[which], prices, mix[ROUNDING], keys[which], cells[which], blocks[which], out)
