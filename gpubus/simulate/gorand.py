"""Go's `math/rand`, draw for draw: what the publishers of the openb figures shuffled and drew with. Pure.

In: a seed. Out: the numbers that a Go program of that seed sees, so that its order of arrival can be drawn again.

The generator is an additive lagged Fibonacci one (Mitchell and Moore; Knuth, TAOCP 2, 3.2.2) modulo 2^64:

    y(t) = y(t - 607) + y(t - 273)

A seed fills the 607 places with numbers of a small generator, each xor-ed with a constant of its place. These constants
are what the same recurrence holds after 7.8 x 10^12 steps from seed 1. They are worked out here, not listed: a step
is a multiplication by x modulo x^607 - x^334 - 1, so 43 squarings get as far as the steps would (0.1 s, once).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice, pairwise
from typing import TypeVar

PLACES = 607
LAG = 273
STEPS = 7_800_000_000_000

_WORD = (1 << 64) - 1
_PRIME = (1 << 31) - 1
_SLOT = 18
"""Bytes of one coefficient in a product of polynomials: 607 x 2^128 is below 2^138."""

T = TypeVar("T")


class GoRandom:
    """`rand.New(rand.NewSource(seed))`."""

    def __init__(self, seed: int) -> None:
        fresh = _seeded(seed, (40, 20, 0))
        self._places = [own ^ constant for own, constant in zip(fresh, _constants(), strict=True)]
        self._at = 0

    def bits(self) -> int:
        """63 bits: `Int63`, and what one `Int` or one `Float64` takes."""
        self._at = (self._at - 1) % PLACES
        feed = (self._at + PLACES - LAG) % PLACES
        self._places[feed] = (self._places[feed] + self._places[self._at]) & _WORD
        return self._places[feed] & (_WORD >> 1)

    def below(self, n: int) -> int:
        """`Intn`, 1 <= n < 2^31: the remainder of 31 bits, drawn again where it would favour small numbers."""
        most = (1 << 31) - 1 - (1 << 31) % n
        drawn = self.bits() >> 32
        while drawn > most:
            drawn = self.bits() >> 32
        return drawn % n

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """`Shuffle`: from the last place down, each changes with one at or before it."""
        order = list(things)
        for i in range(len(order) - 1, 0, -1):
            j = self._scaled(i + 1)
            order[i], order[j] = order[j], order[i]
        return order

    def permutation(self, n: int) -> list[int]:
        """`Perm`."""
        order: list[int] = []
        for i in range(n):
            j = self.below(i + 1)
            order.append(i)
            order[i], order[j] = order[j], i
        return order

    def _scaled(self, n: int) -> int:
        """32 bits x n / 2^32, drawn again where some numbers would come more often (Lemire, 2016)."""
        product = (self.bits() >> 31) * n
        while product & 0xFFFFFFFF < (1 << 32) % n:
            product = (self.bits() >> 31) * n
        return product >> 32


def _seeded(seed: int, shifts: tuple[int, int, int]) -> list[int]:
    """The places of a seed: of x -> 48271 x modulo 2^31 - 1, after 20 steps, three numbers each."""
    x = seed % _PRIME or 89_482_311
    for _ in range(20):
        x = x * 48_271 % _PRIME
    places = []
    for _ in range(PLACES):
        place = 0
        for shift in shifts:
            x = x * 48_271 % _PRIME
            place ^= x << shift
        places.append(place)
    return places


@cache
def _constants() -> tuple[int, ...]:
    """What the places hold after all the steps from seed 1.

    In order of time, place (334 - t) modulo 607 is written at step t; t from -606 to 0 is the seed's.
    """
    first = _seeded(1, (20, 10, 0))
    told = [first[(PLACES - LAG - t) % PLACES] for t in range(1 - PLACES, 1)]
    while len(told) < 2 * PLACES:
        told.append((told[-PLACES] + told[-LAG]) & _WORD)
    far = _power(STEPS)
    places = [0] * PLACES
    for k in range(PLACES):
        t = STEPS + 1 - PLACES + k
        places[(PLACES - LAG - t) % PLACES] = (
            sum(a * b for a, b in zip(far, islice(told, k, None), strict=False)) & _WORD
        )
    return tuple(places)


def _power(steps: int) -> list[int]:
    """x^steps modulo x^607 - x^334 - 1, lowest coefficient first, modulo 2^64."""
    found = [1] + [0] * (PLACES - 1)
    for bit in f"{steps:b}":
        found = _squared(found)
        if bit == "1":
            found = _folded([0, *found])
    return found


def _squared(polynomial: Sequence[int]) -> list[int]:
    """All coefficients at once, as digits of one large number."""
    number = int.from_bytes(b"".join(each.to_bytes(_SLOT, "little") for each in polynomial), "little")
    square = (number * number).to_bytes(2 * PLACES * _SLOT, "little")
    bounds = range(0, len(square) + 1, _SLOT)
    return _folded([int.from_bytes(square[a:b], "little") for a, b in pairwise(bounds)])


def _folded(coefficients: list[int]) -> list[int]:
    """The remainder: x^d = x^(d - 273) + x^(d - 607)."""
    for d in range(len(coefficients) - 1, PLACES - 1, -1):
        coefficients[d - LAG] += coefficients[d]
        coefficients[d - PLACES] += coefficients[d]
    return [each & _WORD for each in coefficients[:PLACES]]
