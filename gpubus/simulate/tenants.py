"""What the namespaces of a trace came to, beside each other. Pure.

In: pods as they arrive, with what they ask for and whether they got it; what was lost later. Out: a `Tenant` for each
namespace. What is asked for is counted in thousandths of cards without departures, and in thousandths x milliseconds
with them.
"""

from __future__ import annotations

import msgspec

from contracts.messages import Value


class Tenant(Value, frozen=True, kw_only=True):
    """One namespace in one run."""

    namespace: str
    arrived: int
    refused: int
    """For want of room, or by the quota."""
    over_quota: int
    """By the quota."""
    asked: int
    lost: int
    """Of what was asked for."""


class _Sums(msgspec.Struct):
    arrived: int = 0
    refused: int = 0
    over_quota: int = 0
    asked: int = 0
    lost: int = 0


class Tenants:
    """Sums of one run, by namespace."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def arrived(self, namespace: str, asked: int, *, placed: bool, over_quota: bool) -> None:
        """A pod arrived."""
        sums = self._sums.setdefault(namespace, _Sums())
        sums.arrived += 1
        sums.refused += not placed
        sums.over_quota += over_quota
        sums.asked += asked
        sums.lost += 0 if placed else asked

    def lost(self, namespace: str, rest: int) -> None:
        """One that was placed did not come to its end."""
        self._sums[namespace].lost += rest

    def told(self) -> tuple[Tenant, ...]:
        """In the order of their names."""
        return tuple(
            Tenant(
                namespace=name,
                arrived=sums.arrived,
                refused=sums.refused,
                over_quota=sums.over_quota,
                asked=sums.asked,
                lost=sums.lost,
            )
            for name, sums in sorted(self._sums.items())
        )
