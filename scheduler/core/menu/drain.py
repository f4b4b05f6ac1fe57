"""Who leaves when: the chance that a node empties soon.

    q_i    = H / (H + L_i)       chance that a pod of class i leaves within an exponential time of mean H
    psi(n) = product of q_i over the pods with cards on n; 1 when there are none
    price  = d x psi(n) x (1 - q_j), paid by pod j: dear where only short-lived pods are left, nothing where a
             long-lived one holds the node anyway, little for a pod that will be gone itself

A product would depend on the order of its roundings, so the sum of -ln q_i is kept, in whole 1/65536, exact in any
order; psi is read from a table.
"""

from __future__ import annotations

from decimal import Decimal

LN_ONE = 1 << 16
"""One unit of the natural logarithm."""

LN_NEVER = 1 << 24
"""-ln q of a pod that never leaves: psi is 0."""

PSI_ONE = 1 << 20
"""psi = 1."""

_PER_STEP = LN_ONE // 256
_REACH = 14 * LN_ONE // _PER_STEP
"""exp(-14) x 2^20 is below one."""


def minus_ln_q(lifetime_ms: int | None, horizon_ms: int) -> int:
    """-ln q in 1/65536; a lifetime that is not known is for ever."""
    if lifetime_ms is None:
        return LN_NEVER
    odds = Decimal(horizon_ms + lifetime_ms) / Decimal(horizon_ms)
    return min(LN_NEVER, round(odds.ln() * LN_ONE))


def stays(lifetime_ms: int | None, horizon_ms: int) -> int:
    """1 - q in 1/2^20."""
    return PSI_ONE if lifetime_ms is None else PSI_ONE * lifetime_ms // (horizon_ms + lifetime_ms)


def _table() -> tuple[int, ...]:
    """exp(-step / 256): one Decimal exponential, then whole multiplications with 40 bits."""
    factor = round((Decimal(-1) / 256).exp() * (1 << 40))
    values, now = [], 1 << 40
    for _ in range(_REACH + 1):
        values.append(now >> 20)
        now = now * factor >> 40
    values[-1] = 0
    return tuple(values)


PSI = _table()
"""psi by -ln psi in steps of 1/256, 2^20 = 1: right within 0.4 %, 32 milli of the dearest price, less than a step of
the rounding."""


def psi(minus_ln: int) -> int:
    """The product in 1/2^20, of a sum of -ln q."""
    return PSI[min(minus_ln // _PER_STEP, _REACH)]
