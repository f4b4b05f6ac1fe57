"""The part of a request that decides where it can go: equal shapes get equal answers, so one ranking serves them all.

In: a `PodRequest`. Out: a `Shape`, frozen, hashable, its hash kept. Name, priority, image and gang are left out: they
decide who goes first and what runs, not where it fits.

Rounding: memory that is not asked for in MiB follows the share, floor(sellable x share / 1000), never below 1 MiB. It
is rounded against the requester so that shares which add up to a card always fit it: two halves of 46,067 MiB get
23,033 each. Rounding up would give 23,034 twice, one MiB more than there is, and the second half would never be
placed.
"""

from __future__ import annotations

import msgspec

from contracts.requests import Locality, PodRequest, Toleration
from contracts.units import WHOLE_CARD

NOT_TAGGED = Locality()
"""The locality of a request without tags."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What feasibility and scores depend on. `memory_mib` is per card, `host_memory_mib` of the pod."""

    cards: int
    share_milli: int
    memory_mib: int | None
    models: tuple[str, ...] = ()
    cpu_milli: int = 0
    host_memory_mib: int = 0
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    locality: Locality = NOT_TAGGED
    policy: str | None = None
    """By name; None = the default of the service."""

    special: bool = False
    """Models or tags narrow the cards that it may take; else numbers alone decide."""


def shape_of(request: PodRequest) -> Shape:
    """The shape of a request. A request without cards has share 0, so that its unused fields do not split shapes."""
    gpu, pod = request.gpu, request.pod
    cards = gpu.cards
    locality = request.locality if cards else NOT_TAGGED
    models = tuple(sorted(set(gpu.models))) if cards and gpu.models else ()
    return Shape(
        cards=cards,
        share_milli=gpu.share_milli if cards else 0,
        memory_mib=gpu.memory_mib if cards else None,
        models=models,
        cpu_milli=pod.cpu_milli,
        host_memory_mib=pod.memory_mib,
        node_selector=tuple(sorted(request.node_selector.items())) if request.node_selector else (),
        tolerations=request.tolerations,
        locality=locality,
        policy=request.policy,
        special=bool(models) or locality != NOT_TAGGED,
    )


def memory_on(capacity_mib: int, shape: Shape, *, known: bool = True) -> int:
    """MiB that `shape` takes on a card with `capacity_mib` sellable.

    A card whose driver cannot tell its memory (`known` is false) is sold whole only; nothing is counted then: 0.
    """
    if shape.memory_mib is not None:
        return shape.memory_mib
    if not known:
        return 0
    return max(1, capacity_mib * shape.share_milli // WHOLE_CARD)
