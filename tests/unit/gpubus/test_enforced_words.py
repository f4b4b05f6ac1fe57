"""What is said to be enforced on a card: what was found, never what a setting promises."""

from __future__ import annotations

import pytest

from contracts.answers import CardView
from contracts.inventory import Card, IsolationMode
from contracts.shares import CardEnforcement, Enforced, NodeEnforcement, PodEnforcement
from contracts.units import CardUuid, NodeName, RequestUid
from gpubus.render.enforced import by_card, of_card, of_request
from gpubus.render.words import UNKNOWN


def view(mode: IsolationMode) -> CardView:
    card = Card(uuid=CardUuid("GPU-a"), index=0, model="T4", memory_total_mib=1, isolation=mode)
    return CardView(node="n1", card=card, used_milli=0, used_mib=0, sellable_mib=1)


def report(mode: IsolationMode, enforced: Enforced, reason: str = "", *pods: PodEnforcement) -> NodeEnforcement:
    declared: Enforced = "none" if mode == "none" else "both"
    card = CardEnforcement(
        card=CardUuid("GPU-a"), mode=mode, declared=declared, enforced=enforced, reason=reason, note="beware"
    )
    return NodeEnforcement(node=NodeName("n1"), incarnation="i", cards=(card,), pods=pods)


@pytest.mark.parametrize(
    ("mode", "told", "words"),
    [
        ("none", None, "none"),
        ("mps", None, UNKNOWN),
        ("none", report("none", "none"), "none"),
        ("mps", report("mps", "both"), "both"),
        ("mps", report("mps", "none", "no daemon"), "none of both"),
        ("gemini", report("mps", "both"), UNKNOWN),  # a word from before the card's mode was changed
    ],
)
def test_a_card_shows_what_was_found_to_hold(mode: IsolationMode, told: NodeEnforcement | None, words: str) -> None:
    """No report is no claim; a mode that does not hold is not hidden."""
    assert of_card(view(mode), by_card([told] if told else [])) == words


def test_a_request_is_told_what_holds_it_and_what_it_waits_for() -> None:
    """The card's line with its caveat, each part that is not applied with its reason, its CPU limit."""
    uid = RequestUid("e-1-0")
    told = report(
        "mps",
        "none",
        "no daemon",
        PodEnforcement(uid=uid, what="GPU-a", state="waiting", reason="no daemon"),
        PodEnforcement(uid=uid, what="cpu", state="applied", limit_milli=500),
        PodEnforcement(uid=RequestUid("other"), what="GPU-a", state="failed", reason="not this one"),
    )

    assert list(of_request(uid, ["GPU-a", "GPU-b"], told)) == [
        "none by mps on GPU-a: no daemon (beware)",
        "waiting: no daemon",
        "CPU at most 500m",
    ]
    assert list(of_request(uid, ["GPU-a"], None)) == []
