"""Classes of pods with their weights and lifetimes, out of what the ledger has learned.

In: counts by class (`cpu|cards|share|models`), and per class the time in service and the number that ended. Out:
classes in a total order: greatest weight first, then by key.

Mean lifetime of class i: L_i = (time in service, running pods included + 3 overall means) / (ended + 3). A class with
few ends is drawn to the overall mean; pods that still run count with what they have run, so that long ones are not
overlooked because they have not ended. Nothing has ended yet: no lifetimes, as if pods stayed for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from contracts.units import WHOLE_CARD
from scheduler.core.mix import Class
from scheduler.core.request import Shape

PRIOR = 3
"""Ends at the overall mean that every class begins with."""

COVERED_PERCENT = 95
"""Typical classes cover so much; the rare rest would only smear the fragment."""

MAX_TYPICAL = 128
"""And are at most so many: tables of fragments grow with their distinct CPU sizes."""


class PodClass(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are alike to placement. A pod that asks for parts of several cards counts as so many pods of one."""

    key: str
    cpu_milli: int
    cards: int
    share_milli: int
    models: frozenset[str]
    weight: int
    """Arrivals, or arrivals x lifetime in seconds."""
    lifetime_ms: int | None
    """Mean; None = not known."""

    @property
    def demand(self) -> int:
        """Weighted milli of cards."""
        return self.weight * self.cards * self.share_milli


def class_key(shape: Shape) -> str:
    """The class of a shape, spelt as the ledger counts it."""
    return f"{shape.cpu_milli}|{shape.cards}|{shape.share_milli}|{','.join(shape.models)}"


def pod_classes(
    counts: Mapping[str, int], service: Mapping[str, tuple[int, int]], *, by_lifetime: bool
) -> tuple[PodClass, ...]:
    """All classes, heaviest first."""
    overall = mean_lifetime(service)
    found = [_class(key, count, lifetime(service.get(key), overall), by_lifetime) for key, count in counts.items()]
    return tuple(sorted(found, key=lambda each: (-each.weight, each.key)))


def mean_lifetime(service: Mapping[str, tuple[int, int]]) -> int | None:
    """Over all classes, in milliseconds, at least 1; None: nothing has ended."""
    ended = sum(count for _, count in service.values())
    return max(1, sum(time for time, _ in service.values()) // ended) if ended else None


def lifetime(spent: tuple[int, int] | None, overall: int | None) -> int | None:
    """L_i, in milliseconds, at least 1."""
    if overall is None:
        return None
    time, ended = spent or (0, 0)
    return max(1, (time + PRIOR * overall) // (ended + PRIOR))


def _class(key: str, count: int, lifetime_ms: int | None, by_lifetime: bool) -> PodClass:
    cpu, cards, share, models = key.split("|", 3)
    weight = count if lifetime_ms is None or not by_lifetime else count * max(1, lifetime_ms // 1000)
    parts = int(cards) if int(cards) > 1 and int(share) < WHOLE_CARD else 1
    return PodClass(
        key=key,
        cpu_milli=int(cpu) // parts,
        cards=int(cards) // parts,
        share_milli=int(share),
        models=frozenset(models.split(",")) if models else frozenset(),
        weight=weight * parts,
        lifetime_ms=lifetime_ms,
    )


def typical(classes: Sequence[PodClass]) -> tuple[PodClass, ...]:
    """The heaviest until `COVERED_PERCENT` of the weight is covered."""
    chosen: list[PodClass] = []
    left = sum(each.weight for each in classes) * COVERED_PERCENT
    for each in classes[:MAX_TYPICAL]:
        if left <= 0:
            break
        left -= each.weight * 100
        chosen.append(each)
    return tuple(chosen)


def typical_by_lifetime(counts: Mapping[str, int], service: Mapping[str, tuple[int, int]]) -> tuple[Class, ...]:
    """The typical classes as a `Mix` takes them, weighted by arrivals x mean lifetime in seconds."""
    found = typical(pod_classes(counts, service, by_lifetime=True))
    return tuple(Class(each.cpu_milli, each.cards, each.share_milli, each.models, each.weight) for each in found)
