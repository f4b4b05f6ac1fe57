"""What surrounds the nodes at one decision: conditions that rule nodes out and preferences that lift them. Values only.

Each looks a node up by its domain, a value of one label. How they are worked out: `scheduler.core.surroundings`.
If preferences can add up to more than `POINTS`, each kind is scaled to that sum, rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

POINTS = 255
"""The most that preferences can count together: with `PREFERENCE` it stays below the weight of an affinity tag."""

PREFERENCE = 1 << 32
"""One point outweighs all that a policy can say of a node (below 2^32): what was asked for goes before what is tidy."""


class Hard(msgspec.Struct, frozen=True):
    """A condition: which domains are open."""

    code: str
    key: str
    domains: Mapping[str, str]
    closed: frozenset[str | None]
    """Domains that are ruled out; None among them: nodes without a domain are."""
    words: str
    counts: Mapping[str, int]
    skew: int = 0
    """Of a spread: the most that is allowed."""
    base: int = 0
    """Of a spread: what the count of a domain is compared with: pods of the least domain, less the asker itself."""

    def admits(self, name: str) -> bool:
        """Whether the node is open."""
        return self.domains.get(name) not in self.closed


class Soft(msgspec.Struct, frozen=True):
    """A preference: points by domain."""

    kind: str
    domains: Mapping[str, str]
    points: Mapping[str, int]
    homeless: int
    """Points of a node without a domain."""
    most: int

    def of(self, name: str) -> int:
        """Points of the node."""
        domain = self.domains.get(name)
        return self.homeless if domain is None else self.points.get(domain, 0)


class Surroundings(msgspec.Struct, frozen=True):
    """All that counts for one decision; empty for nearly all."""

    hard: tuple[Hard, ...] = ()
    soft: tuple[Soft, ...] = ()

    @property
    def top(self) -> int:
        """The most points that a node can have."""
        return min(POINTS, sum(soft.most for soft in self.soft))

    def admits(self, name: str) -> bool:
        """Every condition lets the node in."""
        return all(hard.admits(name) for hard in self.hard)

    def parts(self, name: str) -> dict[str, int]:
        """Points of the node by kind."""
        kinds: dict[str, int] = {}
        for soft in self.soft:
            kinds[soft.kind] = kinds.get(soft.kind, 0) + soft.of(name)
        total = sum(soft.most for soft in self.soft)
        if total <= POINTS:
            return kinds
        return {kind: points * POINTS // total for kind, points in kinds.items()}

    def points(self, name: str) -> int:
        """Points of the node."""
        return sum(self.parts(name).values())


NONE = Surroundings()
