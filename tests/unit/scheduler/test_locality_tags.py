"""Affinity, anti-affinity and exclusion: which cards are open to whom, and where a group gathers."""

from __future__ import annotations

import pytest

from scheduler.core.decide import Placed, decide
from scheduler.core.policies import POLICIES
from tests.builders.ledger import Cluster, Request, cluster, node, request

PLAIN = "plain"


def tagged(name: str, kind: str, tag: str = "") -> Request:
    """A tenth of a card with one tag."""
    asked = request(name).share(100)
    if kind != PLAIN:
        getattr(asked, kind)(tag)
    return asked


def drawn(*residents: Request, cards: int = 1) -> Cluster:
    """One node; all residents on its first card."""
    made = cluster(node("n1").gpus(cards))
    for resident in residents:
        made.hold(resident, "n1", 0)
    return made


def card_of(made: Cluster, asked: Request, policy: str = "packing") -> str | None:
    """The card it would get."""
    decision = decide(made.state, made.accept(asked), POLICIES[policy])
    return decision.placement.slices[0].card if isinstance(decision, Placed) else None


CASES = [
    # (resident kind and tag) or none, (request kind and tag), open?, code when it is not
    (None, ("affinity", "x"), True, ""),
    (None, ("anti_affinity", "x"), True, ""),
    (None, ("exclusion", "x"), True, ""),
    (("affinity", "x"), ("affinity", "x"), True, ""),
    (("affinity", "y"), ("affinity", "x"), False, "card-affinity"),
    ((PLAIN, ""), ("affinity", "x"), False, "card-affinity"),
    (("affinity", "x"), (PLAIN, ""), True, ""),
    (("anti_affinity", "x"), ("anti_affinity", "x"), False, "card-anti-affinity"),
    (("anti_affinity", "y"), ("anti_affinity", "x"), True, ""),
    (("anti_affinity", "x"), (PLAIN, ""), True, ""),
    (("exclusion", "x"), ("exclusion", "x"), True, ""),
    (("exclusion", "y"), ("exclusion", "x"), False, "card-exclusion"),
    ((PLAIN, ""), ("exclusion", "x"), False, "card-exclusion"),
    (("exclusion", "x"), (PLAIN, ""), False, "card-exclusion"),
    (("exclusion", "x"), ("affinity", "x"), False, "card-affinity"),
]


@pytest.mark.parametrize(("resident", "asked", "is_open", "code"), CASES)
def test_a_card_is_open_or_not(
    resident: tuple[str, str] | None, asked: tuple[str, str], is_open: bool, code: str
) -> None:
    """Each pair of a resident's tag and a request's; a card without residents is open to any."""
    made = drawn(tagged("resident", *resident)) if resident else drawn()
    decision = decide(made.state, made.accept(tagged("r", *asked)))

    assert isinstance(decision, Placed) is is_open
    if not isinstance(decision, Placed):
        assert [reason.code for reason in decision.reasons] == [code]


def test_a_card_that_was_emptied_is_open_to_any_tag() -> None:
    """Tags are those of residents, and leave with them."""
    made = drawn()
    last = made.hold(tagged("last", "exclusion", "y"), "n1", 0)
    refused = card_of(made, tagged("r", "exclusion", "x"))
    made.release(last.uid)

    assert refused is None
    assert card_of(made, tagged("s", "exclusion", "x")) == "n1-gpu0"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_group_gathers_whatever_the_policy(policy: str) -> None:
    """The card of the group before an empty one, on another node if need be, under spreading as well."""
    made = cluster(*(node(f"n{i}").gpus(2) for i in range(5)))
    made.hold(tagged("first", "affinity", "x"), "n3", 1)
    made.hold(request("other").share(500), "n2", 0)

    assert card_of(made, tagged("second", "affinity", "x"), policy) == "n3-gpu1"


def test_a_group_opens_another_card_when_its_own_is_full() -> None:
    """Not rejected: an empty card is open."""
    made = drawn(tagged("first", "affinity", "x").share(950), cards=2)

    assert card_of(made, tagged("second", "affinity", "x")) == "n1-gpu1"


def test_one_resident_of_many_is_enough_for_affinity_and_against_exclusion() -> None:
    """Affinity asks for some resident, exclusion for every one."""
    made = drawn(request("plain").share(100), tagged("first", "affinity", "x"))

    assert card_of(made, tagged("r", "affinity", "x")) == "n1-gpu0"
    assert card_of(made, tagged("s", "exclusion", "x")) is None


def test_all_cards_of_a_node_are_filtered() -> None:
    """The right card is found wherever it stands; an untagged one before it does not end the search."""
    made = cluster(node("n1").gpus(3))
    made.hold(request("plain").share(100), "n1", 0)
    made.hold(tagged("own", "exclusion", "x"), "n1", 2)

    assert card_of(made, tagged("r", "exclusion", "x")) == "n1-gpu2"


def test_several_cards_with_an_affinity_tag_take_the_group_and_then_empty_ones() -> None:
    """Two cards: the one of the group and an empty one, not the foreign one."""
    made = cluster(node("n1").gpus(3))
    made.hold(request("plain").share(100), "n1", 0)
    made.hold(tagged("own", "affinity", "x"), "n1", 2)
    decision = decide(made.state, made.accept(tagged("r", "affinity", "x").cards(2)))

    assert isinstance(decision, Placed)
    assert [piece.card for piece in decision.placement.slices] == ["n1-gpu1", "n1-gpu2"]
