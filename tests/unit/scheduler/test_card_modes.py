"""Cards of one pod are shared in one way, and a backend that serves one card a pod gets no pod with several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contracts.inventory import Card, IsolationMode
from contracts.units import CardUuid
from scheduler.core.placer import Placer
from scheduler.core.reasons import node_reason
from scheduler.core.request import shape_for
from tests.builders.ledger import Node, Request, cluster, node, request


def shared(*modes: IsolationMode, nvlink: Sequence[int | None] = ()) -> Node:
    """A node with one card a mode."""
    groups = [*nvlink, *([None] * len(modes))]
    return node("n1").with_cards(
        Card(
            uuid=CardUuid(f"n1-gpu{index}"),
            index=index,
            model="A100",
            memory_total_mib=81_920,
            isolation=mode,
            nvlink_group=groups[index],
        )
        for index, mode in enumerate(modes)
    )


@pytest.mark.parametrize("policy", ["packing", "fgd", "menu-value"])
@pytest.mark.parametrize(
    ("modes", "asked", "cards"),
    [
        (("mps", "none", "none"), request("r").cards(2), [1, 2]),
        (("none", "mps", "hami-core", "mps"), request("r").cards(2).share(500), [1, 3]),
        (("mps", "none"), request("r").cards(2), None),
        (("gemini", "gemini", "none", "none"), request("r").cards(2).share(500), [2, 3]),
        (("gemini", "gemini"), request("r").cards(2), None),
        (("gemini",), request("r").share(500), [0]),
        (("mps", "none"), request("r").cards(1), [0, 1]),
    ],
)
def test_several_cards_are_of_one_mode(
    policy: str, modes: tuple[IsolationMode, ...], asked: Request, cards: list[int] | None
) -> None:
    """The same answer by the fast way and by the rules; for one card, any of them."""
    drawn = cluster(shared(*modes))
    pending = drawn.accept(asked)
    found = Placer(drawn.state, policy).place(pending)
    reason = node_reason(shape_for(pending), drawn.state.nodes["n1"], drawn.state.requests)
    assert (found is None) == (reason is not None) == (cards is None)
    if found is not None and cards is not None:
        chosen = {int(piece.card[-1]) for piece in found.placement.slices}
        assert chosen == set(cards) or (pending.request.gpu.cards == 1 and chosen <= set(cards))


@pytest.mark.parametrize(
    ("modes", "numbers", "words"),
    [
        (("mps", "none", "none"), (3, 2), "3 would do, at most 2 of them alike"),
        (("gemini", "gemini", "gemini"), (3, 1), "gemini serves one card a pod, 3 are asked for"),
    ],
)
def test_the_reason_names_how_many_would_do(modes: tuple[IsolationMode, ...], numbers: object, words: str) -> None:
    """With the code that machines read, and both numbers."""
    drawn = cluster(shared(*modes))
    (reason, *_) = Placer(drawn.state, "packing").reasons(drawn.accept(request("r").cards(3)))
    assert (reason.code, reason.needed, reason.free) == ("card-isolation", *numbers)  # type: ignore[misc]  # a pair
    assert words in reason.text


def test_links_count_within_one_mode() -> None:
    """Two linked cards are shared in two ways, two others are linked and alike."""
    drawn = cluster(shared("mps", "none", "none", "mps", nvlink=(0, 0, 1, None)))
    asked = request("r").cards(2).gpu(nvlink="require")
    assert Placer(drawn.state, "packing").place(drawn.accept(asked)) is None
    (reason, *_) = Placer(drawn.state, "packing").reasons(drawn.accept(request("s").cards(2).gpu(nvlink="require")))
    assert reason.code == "card-links"

    linked = cluster(shared("mps", "none", "none", nvlink=(0, 1, 1)))
    found = Placer(linked.state, "packing").place(linked.accept(asked))
    assert found is not None
    assert [piece.card for piece in found.placement.slices] == ["n1-gpu1", "n1-gpu2"]
