"""The fast answer: which cards of this node would it take? No reasons, no objects, about a microsecond.

    fits(shape, view, order, mix) -> the cards in the order they were taken; () when none are needed
                                     None when it does not fit

It says the same as the explaining rules beside it; a property test holds them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from contracts.units import WHOLE_CARD
from scheduler.core.feasibility.card_links import linked
from scheduler.core.feasibility.card_modes import ONE_CARD, by_mode
from scheduler.core.feasibility.card_size import big_enough
from scheduler.core.feasibility.node_affinity import affine_to
from scheduler.core.feasibility.selector import selected
from scheduler.core.feasibility.taints import tolerated
from scheduler.core.locality import open_to
from scheduler.core.mix import Mix
from scheduler.core.request import Shape, memory_on, whole_memory
from scheduler.core.view import CardView, NodeView

Choice = tuple[CardView, ...]
"""Cards of one node, as a policy took them."""

Order = Callable[[Shape, NodeView, Mix], Iterable[CardView]]
"""Which cards of a node to try first. It may leave out cards whose free share is too small, and no others."""


def fits(shape: Shape, view: NodeView, order: Order, mix: Mix) -> Choice | None:
    """The first `shape.cards` cards in `order` that can take the shape, if the node can.

    A shape with an affinity tag tries the cards of its group before empty ones, whatever the order says.
    """
    if (
        not view.admits
        or shape.cpu_milli > view.cpu_milli
        or shape.host_memory_mib > view.memory_mib
        or view.pods < 1
        or len(view.cards) < shape.cards
    ):
        return None
    if (view.tainted or shape.node_selector or shape.node_terms) and not _welcome(shape, view):
        return None
    if not shape.cards:
        return ()
    candidates = order(shape, view, mix)
    if view.plain and not shape.special:
        return _take_plain(shape, candidates)
    return _take(shape, candidates)


def _welcome(shape: Shape, view: NodeView) -> bool:
    """Taints, labels and node affinity."""
    facts = view.facts
    return (
        facts is not None and tolerated(shape, facts) and selected(shape, facts) and affine_to(shape.node_terms, facts)
    )


def _take(shape: Shape, candidates: Iterable[CardView]) -> Choice | None:
    """The first cards of `candidates`, shared in one way, that are open to the shape; None when there are too few."""
    wanted = shape.locality.affinity
    if wanted is not None:
        candidates = sorted(candidates, key=lambda card: wanted not in card.tags.affinity)
    if shape.nvlink != "any":
        return _take_linked(shape, candidates)
    alike: dict[str, list[CardView]] = {}
    for card in candidates:
        if open_card(shape, card):
            chosen = alike.setdefault(card.card.isolation, [])
            chosen.append(card)
            if len(chosen) == shape.cards:
                return tuple(chosen)
    return None


def _take_linked(shape: Shape, candidates: Iterable[CardView]) -> Choice | None:
    """The same, of one NVLink group, of those that are shared in one way."""
    able = (card for card in candidates if open_card(shape, card))
    for alike in by_mode(able, lambda card: card.card.isolation):
        found = linked(alike, shape.cards, lambda card: card.card.nvlink_group, required=shape.nvlink == "require")
        if found is not None:
            return tuple(found)
    return None


def _take_plain(shape: Shape, candidates: Iterable[CardView]) -> Choice | None:
    """The same where numbers alone decide."""
    wanted, share, asked = shape.cards, shape.share_milli, shape.memory_mib
    chosen: list[CardView] = []
    for card in candidates:
        if card.free_milli < share:
            continue
        if (card.capacity_mib * share // WHOLE_CARD or 1 if asked is None else asked) > card.free_mib:
            continue
        if wanted == 1:
            return (card,)
        chosen.append(card)
        if len(chosen) == wanted:
            return tuple(chosen)
    return None


def open_card(shape: Shape, card: CardView) -> bool:
    """One card, every rule."""
    return (
        card.free_milli >= shape.share_milli
        and memory_on(card.capacity_mib, shape, known=card.known) <= card.free_mib
        and (not shape.models or card.model in shape.models)
        and (card.known or whole_memory(shape))
        and big_enough(shape, card.card)
        and (not card.whole_only or shape.share_milli == WHOLE_CARD)
        and (shape.cards < 2 or card.card.isolation != ONE_CARD)  # noqa: PLR2004 - several
        and open_to(shape.locality, card.tags)
    )
