"""The part of a request that decides where it can go: equal shapes get equal answers, so one ranking serves them all.

In: a `PodRequest`. Out: a `Shape`, frozen, hashable, its hash kept. Name, priority, image and gang are left out: they
decide who goes first and what runs, not where it fits.

Rounding: memory that is not asked for in MiB follows the share, floor(sellable x share / 1000), never below 1 MiB. It
is rounded against the requester so that shares which add up to a card always fit it: two halves of 46,067 MiB get
23,033 each. Rounding up would give 23,034 twice, one MiB more than there is, and the second half would never be
placed. Memory asked for as a fraction of its own follows `memory_milli` in the same way.

Beside the shape proper stand its `terms`: what it asks of its surroundings. `bare` is the shape without them, which
ranks nodes.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from bus.ledger.state import RequestState
from contracts.requests import GpuAsk, Locality, PodRequest, Toleration
from contracts.units import WHOLE_CARD
from scheduler.core.labels import Selection, of_nodes
from scheduler.core.terms import Terms, looks_around, terms_of

NOT_TAGGED = Locality()
"""The locality of a request without tags."""

REMEMBERED = 16_384
"""Shapes of requests that ask for numbers, models and tags only."""


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

    memory_milli: int | None = None
    """Thousandths of a card's memory where they are not those of its compute."""
    min_card_mib: int = 0
    nvlink: str = "any"
    node_terms: tuple[Selection, ...] = ()
    """Required node affinity: one of them must hold; none = every node will do."""

    special: bool = False
    """Something narrows what it may take besides numbers, node selector and tolerations: models, tags, a card's size,
    links, a fraction of memory, node affinity. Whoever is fast by numbers alone leaves such a shape to `fits`."""
    terms: Terms | None = None

    @property
    def bare(self) -> Shape:
        """The shape without its terms."""
        return self if self.terms is None else msgspec.structs.replace(self, terms=None)

    @property
    def memory_share(self) -> int:
        """Thousandths of a card's memory that a slice without MiB takes."""
        return self.share_milli if self.memory_milli is None else self.memory_milli


def shape_of(request: PodRequest, namespace: str = "") -> Shape:
    """The shape of a request. A request without cards has share 0, so that its unused fields do not split shapes.

    Raises:
        ValueError: the request has terms over pods, and no namespace is given.
    """
    pod, required = request.pod, request.node_affinity.required
    shape = _by_numbers(request.gpu, request.locality, pod.cpu_milli, pod.memory_mib, request.policy)
    narrow = request.node_selector or request.tolerations or required
    if not narrow and not request.topology_spread and not looks_around(request):
        return shape
    return msgspec.structs.replace(
        shape,
        node_selector=tuple(sorted(request.node_selector.items())) if request.node_selector else (),
        tolerations=request.tolerations,
        node_terms=tuple(map(of_nodes, required)) if required else (),
        special=shape.special or bool(required),
        terms=terms_of(request, namespace),
    )


@lru_cache(maxsize=REMEMBERED)
def _by_numbers(gpu: GpuAsk, locality: Locality, cpu_milli: int, memory_mib: int, policy: str | None) -> Shape:
    """One object for all requests that ask alike: it is found again by identity, and its hash is made once."""
    cards = gpu.cards
    memory_milli = gpu.memory_milli if cards and gpu.memory_milli != gpu.share_milli else None
    nvlink = gpu.nvlink if cards > 1 else "any"
    size = gpu.min_card_memory_mib if cards else 0
    locality = locality if cards else NOT_TAGGED
    models = tuple(sorted(set(gpu.models))) if cards and gpu.models else ()
    return Shape(
        cards=cards,
        share_milli=gpu.share_milli if cards else 0,
        memory_mib=gpu.memory_mib if cards else None,
        models=models,
        cpu_milli=cpu_milli,
        host_memory_mib=memory_mib,
        locality=locality,
        policy=policy,
        memory_milli=memory_milli,
        min_card_mib=size,
        nvlink=nvlink,
        special=bool(models or size or memory_milli) or locality != NOT_TAGGED or nvlink != "any",
    )


def shape_for(request: RequestState) -> Shape:
    """The shape of a request that the ledger has accepted."""
    return shape_of(request.request, request.accepted.namespace)


def memory_on(capacity_mib: int, shape: Shape, *, known: bool = True) -> int:
    """MiB that `shape` takes on a card with `capacity_mib` sellable.

    A card whose driver cannot tell its memory (`known` is false) is sold whole only; nothing is counted then: 0.
    """
    if shape.memory_mib is not None:
        return shape.memory_mib
    if not known:
        return 0
    return max(1, capacity_mib * shape.memory_share // WHOLE_CARD)


def whole_memory(shape: Shape) -> bool:
    """The whole card, compute and memory: all that can be asked of a card whose memory is unknown."""
    return shape.share_milli == WHOLE_CARD and shape.memory_mib is None and shape.memory_share == WHOLE_CARD
