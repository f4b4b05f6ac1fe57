"""A small random generator of whole numbers that is the same in any language: splitmix64 (Steele et al., OOPSLA 2014).

The stream is a pure function of seed and position, so a draw can be repeated from the log alone.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def splitmix(seed: int, position: int) -> int:
    """The number at `position` (from 0) of the stream of `seed`, 0 to 2^64 - 1."""
    z = (seed + (position + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def permutation(seed: int, size: int) -> list[int]:
    """0 .. size - 1 shuffled (Fisher and Yates, from the end)."""
    order = list(range(size))
    for place in range(size - 1, 0, -1):
        other = splitmix(seed, place) % (place + 1)
        order[place], order[other] = order[other], order[place]
    return order
