"""The inner loops: what a node is worth, what a pod would cost there, and which node is cheapest. Whole numbers only.

In and out: arrays, laid out as the constants below say. Formulas stand in `scheduler.core.menu`; where a loop here does
the same in another order, the sum is the same because nothing is rounded before the end.

    fill_menu    one menu into the tables v and w                                      (menu.value)
    fill_cpu     CPU values X                                                          (menu.cpu_value)
    settle       nodes that changed: their value, fragment and slots, sums of the cluster, prices     (menu.demand),
                 the nodes that one shape has not seen: their cost; then its best two nodes

Tables lie [step][price x menu]: a node's value is a few additions of long rows, then a minimum over prices, which
compilers turn into vector instructions. `settle` keeps the smallest key of each block of 64 nodes, so that a decision
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
SEEN, FIXED, SPOILT, CARD, LESS_SLOTS, LESS_CPU, PSI_HERE, BEYOND, CELL = 0, 1, 2, 3, 4, 7, 8, 9, 10

# --- of the constants of a form and a mix --------------------------------------------------------------------------
MENUS, ROUNDING, FRAGMENT, SLOT_CPU, SLOT_SHARE, CPU_PER_MILLI = 0, 1, 2, 3, 6, 9
TIE_W, TIE_T, SLOT_W, SLOT_T, CPU_W, CPU_T, DRAIN_W, DRAIN_T = range(10, 18)
BY_SHAPE, TIE_STANDING, TIE_FLOOR, CONSTANTS = range(18, 22)

# --- of the sums: idle, CPU, slots of 2, 4, 8, then by group, the rest last: idle, cards; of the prices: slots, drain,
# --- CPU, then by group: ties, floors
T_IDLE, T_CPU, T_SLOTS, T_GROUPS = 0, 1, 2, 5
P_SLOT, P_DRAIN, P_CPU, P_GROUPS = 0, 3, 6, 7

# --- of what is kept by group to price ties: sums that it was made from, and steps of the ramp that no pod changes
M_CARDS, M_IDLE, M_STEPS, MEMO = range(4)

# --- of a shape, and of a board's own state ------------------------------------------------------------------------
S_CARDS, S_SHARE, S_MEMORY, S_CPU, S_HOST, S_STAYS, S_KINDS, SHAPE = range(8)
B_FEASIBLE, B_PRICES = 0, 1

# --- of an answer ---------------------------------------------------------------------------------------------------
OUT_BEST, OUT_NEXT, OUT_NODE, OUT_CARD, OUT_FEASIBLE = range(5)
OUT_DROP, OUT_SPOILT, OUT_TIE, OUT_SLOTS, OUT_CPU, OUT_DRAIN, OUT = range(5, 12)

WHOLE = 1000
MICRO = 1000
ONE = 1 << 16
MOST = 1000 * ONE
STEP = 10
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
def fill_menu(  # noqa: PLR0917 - arrays by position
    v: Array, w: Array, menu: int, menus: int, items: Array, prices: Array
) -> None:
    """One menu at all prices of CPU. items[i] = cards, steps, cpu, worth."""
    one, many = np.zeros(v.shape[0], np.int64), np.zeros(w.shape[0], np.int64)
    for p in range(prices.shape[0]):
        for r in range(1, v.shape[0]):
            best = one[r - 1]
            for i in range(items.shape[0]):
                if items[i, 0] == 1 and items[i, 1] <= r:
                    best = max(best, max(0, items[i, 3] - prices[p] * items[i, 2]) + one[r - items[i, 1]])
            one[r] = best
        for f in range(1, w.shape[0]):
            best = many[f - 1] + one[v.shape[0] - 1]
            for i in range(items.shape[0]):
                if items[i, 0] > 1 and items[i, 0] <= f:
                    best = max(best, max(0, items[i, 3] - prices[p] * items[i, 2]) + many[f - items[i, 0]])
            many[f] = best
        for r in range(v.shape[0]):
            v[r, p * menus + menu] = one[r]
        for f in range(w.shape[0]):
            w[f, p * menus + menu] = many[f]


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
def _fill_base(  # noqa: PLR0917 - arrays by position
    base: Array, price: int, menus: int, row: Array, v: Array, w: Array
) -> None:
    """The node's cards at one price and every menu, CPU left out."""
    at, until = price * menus, (price + 1) * menus
    whole = w[min(row[WHOLES], w.shape[0] - 1)]
    for j in range(at, until):
        base[j] = whole[j]
    for card in range(row[CARDS]):
        idle = row[FREE + card]
        if STEP <= idle < WHOLE:
            part = v[idle // STEP]
            for j in range(at, until):
                base[j] += part[j]


@compiled
def _value(  # noqa: PLR0917 - arrays by position
    row: Array,
    v: Array,
    w: Array,
    prices: Array,
    cpu: int,
    out: Array,
    into: Array,
    base: Array,
    ready: int,
    best: Array,
) -> tuple[int, int]:
    """Sum over menus of the least over prices of base - out + into + price x cpu; and how far `base` is filled.

    For each menu that is convex in the price: a largest sum of terms max(0, worth - price x cpu), plus a line. So when
    no menu got less from one price to the next, none will: mostly after two or three of the prices.
    """
    menus = best.shape[0]
    for b in range(menus):
        best[b] = np.int32(2147483647)
    for p in range(prices.shape[0]):
        if p == ready:
            _fill_base(base, p, menus, row, v, w)
            ready += 1
        paid = np.int32(min(prices[p] * cpu, ENOUGH))
        at, less = p * menus, 0
        for b in range(menus):
            here = np.int32(base[at + b] - out[at + b] + into[at + b] + paid)
            less += int(here < best[b])
            best[b] = min(best[b], here)
        if less == 0:
            break
    total = 0
    for b in range(menus):
        total += best[b]
    return total, ready


@compiled
def value_of(row: Array, v: Array, w: Array, prices: Array, menus: int) -> int:
    """V of a row as it stands, summed over the menus."""
    base, best = np.empty(v.shape[1], np.int32), np.empty(menus, np.int32)
    total, _ = _value(row, v, w, prices, row[CPU], v[0], v[0], base, 0, best)
    return total


@compiled
def _level(levels: Array, cpu: int) -> int:
    """How many levels are at most `cpu`."""
    low, high = 0, levels.shape[0]
    while low < high:
        middle = (low + high) // 2
        if levels[middle] <= cpu:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _usable(row: Array, parts: Array, several: Array) -> int:
    """U of a node, with the tables of its kind and CPU level."""
    total = int(several[min(row[WHOLES], several.shape[0] - 1)])
    for card in range(row[CARDS]):
        idle = row[FREE + card]
        if idle > 0:
            total += parts[idle]
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
def _needed(row: Array, card: int, shape: Array) -> int:
    """MiB that the shape takes of this card."""
    if shape[S_MEMORY] >= 0:
        return int(shape[S_MEMORY])
    return int(max(1, row[CAPACITY + card] * shape[S_SHARE] // WHOLE))


@compiled
def _enough_wholes(row: Array, shape: Array) -> int:
    """The first of the whole cards that it would take, lowest positions first; -1: too few."""
    first, found = -1, 0
    for card in range(row[CARDS]):
        if row[FREE + card] == WHOLE and _needed(row, card, shape) <= row[MIB + card]:
            found += 1
            first = card if first < 0 else first
            if found == shape[S_CARDS]:
                return first
    return -1


@compiled
def _admits(row: Array, shape: Array) -> bool:
    return bool(
        row[ADMITS] != 0
        and shape[S_CPU] <= row[CPU]
        and shape[S_HOST] <= row[MEMORY]
        and row[PODS] >= 1
        and shape[S_CARDS] <= row[GPUS]
        and (shape[S_CARDS] == 0 or shape[S_KINDS] >> row[KIND] & 1 != 0)
    )


@compiled
def _takes(row: Array, card: int, shape: Array) -> bool:
    """A part of the card is free, and no card before it has the same idle share: that one would cost the same."""
    if row[FREE + card] < shape[S_SHARE] or _needed(row, card, shape) > row[MIB + card]:
        return False
    for other in range(card):
        if row[FREE + other] == row[FREE + card] and _needed(row, other, shape) <= row[MIB + other]:
            return False
    return True


@compiled
def _after(  # noqa: PLR0917 - arrays by position
    card: int,
    row: Array,
    shape: Array,
    cpu: int,
    v: Array,
    w: Array,
    grid: Array,
    terms: Array,
    more: Array,
    base: Array,
    ready: int,
    best: Array,
    other: Array,
) -> tuple[int, int, int]:
    """The node with the pod on this card: value, what usable share gains beside CPU, and how far `base` is filled."""
    cards, share, idle = shape[S_CARDS], shape[S_SHARE], row[FREE + card]
    tables, fullest = w.shape[0] - 1, more.shape[0] - 1
    if cards == 0:
        value, ready = _value(row, v, w, grid, cpu, v[0], v[0], base, ready, best)
        return value, 0, ready
    if idle < WHOLE:
        value, ready = _value(row, v, w, grid, cpu, v[idle // STEP], v[(idle - share) // STEP], base, ready, best)
        return value, terms[idle - share] - terms[idle], ready
    wholes, left = row[WHOLES], row[WHOLES] - cards
    gain = more[min(left, fullest)] - more[min(wholes, fullest)]
    if share == WHOLE:
        value, ready = _value(row, v, w, grid, cpu, w[min(wholes, tables)], w[min(left, tables)], base, ready, best)
        return value, gain - cards * terms[WHOLE], ready
    rest, fewer = v[(WHOLE - share) // STEP], w[min(left, tables)]
    for j in range(other.shape[0]):
        other[j] = rest[j] + fewer[j]
    value, ready = _value(row, v, w, grid, cpu, w[min(wholes, tables)], other, base, ready, best)
    return value, gain + terms[WHOLE - share] - terms[WHOLE], ready


@compiled
def _fill_cell(  # noqa: PLR0917 - arrays by position
    cell: Array,
    row: Array,
    shape: Array,
    v: Array,
    w: Array,
    grid: Array,
    parts: Array,
    several: Array,
    levels: Array,
    constants: Array,
    base: Array,
    best: Array,
    other: Array,
) -> bool:
    """Score one node: its card, and the part of the cost that has no price. False: there is no room."""
    if not _admits(row, shape):
        return False
    cards, share, cpu = shape[S_CARDS], shape[S_SHARE], row[CPU] - shape[S_CPU]
    part, first, last = 0 < share < WHOLE, 0, row[CARDS]
    if not part:
        first = _enough_wholes(row, shape) if cards > 0 else 0
        last = first + 1
    level = _level(levels, cpu)
    terms, more = parts[row[KIND], level], several[row[KIND], level]
    usable, q = _usable(row, terms, more), constants[ROUNDING]
    lowest, ready = NOWHERE, 0
    for card in range(max(0, first), last):
        if part and not _takes(row, card, shape):
            continue
        value, gain, ready = _after(card, row, shape, cpu, v, w, grid, terms, more, base, ready, best, other)
        spoilt = constants[FRAGMENT] * (row[USABLE] - usable - gain - cards * share * MICRO) // 1000
        fixed = (row[VALUE] - value) // constants[MENUS] + spoilt
        if (fixed + q // 2) // q < lowest:
            lowest = (fixed + q // 2) // q
            cell[FIXED], cell[SPOILT], cell[CARD] = fixed, spoilt, card
    return bool(lowest != NOWHERE)


@compiled
def _fill_rest(  # noqa: PLR0917 - arrays by position
    cell: Array, row: Array, shape: Array, chassis: Array, cpu_values: Array, psi: Array, constants: Array
) -> None:
    """What prices will be put on."""
    wholes, cpu, most = row[WHOLES], row[CPU] - shape[S_CPU], cpu_values.shape[0] - 1
    if shape[S_CARDS] > 0 and row[FREE + cell[CARD]] == WHOLE:
        wholes -= shape[S_CARDS]
    for k in range(3):
        cell[LESS_SLOTS + k] = row[SLOTS + k] - _slots(wholes, cpu, 2 << k, constants[SLOT_CPU + k])
    cell[LESS_CPU] = cpu_values[min(row[CPU] // CPU_STEP, most)] - cpu_values[min(cpu // CPU_STEP, most)]
    cell[PSI_HERE] = psi[min(row[LN_PSI] // PSI_STEP, psi.shape[0] - 1)]
    size = max(1, chassis[row[CHASSIS], C_CPU])
    cell[BEYOND] = max(0, WHOLE * row[GPUS] * shape[S_CPU] // size - shape[S_CARDS] * shape[S_SHARE])


@compiled
def _priced(cell: Array, row: Array, shape: Array, prices: Array, out: Array) -> int:
    """What the cell costs now; the parts that prices add are left in `out`."""
    cards, group = shape[S_CARDS], P_GROUPS + row[SUM_GROUP]
    floor = prices[group + (prices.shape[0] - P_GROUPS) // 2]
    out[OUT_TIE] = cards * shape[S_SHARE] * prices[group] + floor * cell[BEYOND]
    out[OUT_SLOTS] = 0
    out[OUT_DRAIN] = 0
    for k in range(3):
        out[OUT_SLOTS] += prices[P_SLOT + k] * cell[LESS_SLOTS + k]
        if cards > 0 and row[GPUS] == 2 << k:
            out[OUT_DRAIN] = (prices[P_DRAIN + k] * cell[PSI_HERE] >> PSI_BITS) * shape[S_STAYS] >> PSI_BITS
    out[OUT_CPU] = prices[P_CPU] * cell[LESS_CPU] // (64 * 64)
    return int(cell[FIXED] + out[OUT_TIE] + out[OUT_SLOTS] + out[OUT_CPU] + out[OUT_DRAIN])


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
    rows: Array,
    seats: Array,
    shape: Array,
    prices: Array,
    rounding: int,
    keys: Array,
    cells: Array,
    blocks: Array,
    board: Array,
    out: Array,
) -> None:
    """Prices have moved: every key of the shape, from the cells as they are."""
    for n in range(keys.shape[0]):
        if keys[n] != NOWHERE and not rows[n, ODD]:
            keys[n] = _key(_priced(cells[n], rows[n], shape, prices, out), rounding, seats[n])
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
    rows: Array,
    seats: Array,
    shape: Array,
    prices: Array,
    rounding: int,
    keys: Array,
    cells: Array,
    blocks: Array,
    board: Array,
    out: Array,
) -> None:
    """The best node of one board, with the parts of its cost."""
    for p in range(prices.shape[0]):
        if board[B_PRICES + p] != prices[p]:
            _price_anew(rows, seats, shape, prices, rounding, keys, cells, blocks, board, out)
            break
    n = _best_two(keys, blocks, out)
    out[OUT_NODE], out[OUT_CARD], out[OUT_FEASIBLE] = n, cells[n, CARD], board[B_FEASIBLE]
    _priced(cells[n], rows[n], shape, prices, out)
    out[OUT_SPOILT] = cells[n, SPOILT]
    out[OUT_DROP] = cells[n, FIXED] - cells[n, SPOILT]


@compiled
def _alike(row: Array, other: Array) -> bool:
    """Two nodes on which everything costs the same: empty ones of one kind, mostly."""
    for column in range(ADMITS, FREE):
        if row[column] != other[column]:
            return False
    for card in range(row[CARDS]):
        if row[FREE + card] != other[FREE + card] or row[MIB + card] != other[MIB + card]:
            return False
        if row[CAPACITY + card] != other[CAPACITY + card]:
            return False
    return True


@compiled
def _absorb(  # noqa: PLR0917 - arrays by position
    rows: Array,
    changed: Array,
    v: Array,
    w: Array,
    grid: Array,
    parts: Array,
    several: Array,
    levels: Array,
    chassis: Array,
    constants: Array,
    totals: Array,
    base: Array,
    best: Array,
) -> None:
    """Each changed node: its value, usable share and slots, and the sums of the cluster."""
    before = -1
    for i in range(changed.shape[0]):
        row = rows[changed[i]]
        if row[BASED] == row[VERSION]:
            continue
        row[BASED] = row[VERSION]
        _take_out(row, totals)
        if not row[ADMITS]:
            continue
        _put_in(row, totals, chassis, constants)
        if before >= 0 and _alike(row, rows[before]):
            row[USABLE], row[VALUE] = rows[before, USABLE], rows[before, VALUE]
            continue
        before = changed[i]
        level, kind = _level(levels, row[CPU]), row[KIND]
        row[USABLE] = _usable(row, parts[kind, level], several[kind, level])
        row[VALUE], _ = _value(row, v, w, grid, row[CPU], v[0], v[0], base, 0, best)


@compiled
def settle(  # noqa: PLR0917 - arrays by position
    rows: Array,
    seats: Array,
    changed: Array,
    late: Array,
    which: int,
    shapes: Array,
    welcome: Array,
    v: Array,
    w: Array,
    grid: Array,
    parts: Array,
    several: Array,
    levels: Array,
    cpu_values: Array,
    psi: Array,
    tied: Array,
    chassis: Array,
    constants: Array,
    totals: Array,
    prices: Array,
    memo: Array,
    inside: Array,
    keys: Array,
    cells: Array,
    blocks: Array,
    boards: Array,
    out: Array,
) -> None:
    """Take in the nodes in `changed`; then, if `which` is a board, name the best node of its shape and the next one.

    1. each changed node: its value, usable share and slots, and the sums of the cluster
    2. the board: the nodes in `late`, which it has not seen yet
    3. prices, from the sums; all keys of the board again if these are not the prices they were made with; the least key
    """
    base, other = np.empty(v.shape[1], np.int32), np.empty(v.shape[1], np.int32)
    best, rounding = np.empty(constants[MENUS], np.int32), constants[ROUNDING]
    _absorb(rows, changed, v, w, grid, parts, several, levels, chassis, constants, totals, base, best)
    before = -1
    for i in range(late.shape[0]):
        n = late[i]
        row, cell, shape = rows[n], cells[n, which], shapes[which]
        if cell[SEEN] == row[VERSION] or row[ODD]:
            continue
        cell[SEEN] = row[VERSION]
        key, fits = NOWHERE, welcome[n, which] != 0
        if fits and before >= 0 and _alike(row, rows[before]):
            fits = keys[which, before] != NOWHERE
            cell[FIXED:] = cells[before, which, FIXED:]
        elif fits:
            before = n
            fits = _fill_cell(cell, row, shape, v, w, grid, parts, several, levels, constants, base, best, other)
            if fits:
                _fill_rest(cell, row, shape, chassis, cpu_values, psi, constants)
        if fits:
            key = _key(_priced(cell, row, shape, boards[which, B_PRICES:], out), rounding, seats[n])
        put_key(keys[which], blocks[which], boards[which], n, key)
    _price(totals, constants, tied, prices, memo, inside)
    if which >= 0:
        _answer(
            rows,
            seats,
            shapes[which],
            prices,
            rounding,
            keys[which],
            cells[:, which],
            blocks[which],
            boards[which],
            out,
        )
