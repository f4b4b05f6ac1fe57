"""Names of replicas: `<function>-<n>`, so that whoever asks twice asks for the same one.

In: the function's name, the names that live. Out: names for new replicas. A name that was asked for and not confirmed
is *reserved*: the next creation takes it again, the last reserved first, so that a retry never makes a second replica
on a second card.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from itertools import count as count_up
from itertools import islice

MAX_LENGTH = 50
"""Of a request's name."""
DIGITS = 5
"""Enough for the index of 10,000 replicas, and the 10,000 names that may be taken besides."""
ROOM = MAX_LENGTH - DIGITS - 1
DIGEST = 6


def stem(function: str) -> str:
    """The function's name, cut where an index would not fit behind it, with six characters of its digest instead."""
    if len(function) <= ROOM:
        return function
    digest = hashlib.sha256(function.encode()).hexdigest()[:DIGEST]
    return f"{function[: ROOM - DIGEST - 1].rstrip('-')}-{digest}"


def replica_name(function: str, index: int) -> str:
    """The name of one replica, at most 50 characters."""
    return f"{stem(function)}-{index}"


def replica_index(function: str, name: str) -> int | None:
    """Which replica of the function a name means; None = of another function, or no replica's.

    `web-1` is replica 1 of `web`; `web-1-2` is none of `web`, it is of `web-1`.
    """
    head, dash, tail = name.rpartition("-")
    plain = tail.isascii() and tail.isdigit() and len(tail) <= DIGITS and (tail == "0" or tail[0] != "0")
    return int(tail) if dash and plain and head == stem(function) else None


def free_names(function: str, taken: Collection[str], count: int, reserved: Collection[str] = ()) -> tuple[str, ...]:
    """Names for `count` new replicas: the reserved ones, last first, then the smallest free indexes."""
    again = [name for name in reversed(tuple(reserved)) if name not in taken]
    return tuple(islice((*again, *islice(_fresh(function, {*taken, *reserved}), count)), max(0, count)))


def _fresh(function: str, taken: Collection[str]) -> Iterator[str]:
    return (name for index in count_up() if (name := replica_name(function, index)) not in taken)
