"""What must become true, and what it costs: the words and prices of `nearest`.

Cost of a change, in thousandths, so that different kinds can be compared:
    less of something       what is given up, relative to what was asked, rounded up (card share, card memory, size of
                            the card, CPU, host memory, number of cards; each counts by itself)
    waiting                 300 for each thing to wait for: a silent, unready or cordoned node, a card that is not
                            healthy or is cordoned. The ask stays as it is, but nobody knows how long
                            Likewise neighbours that must come or go
    another condition       1000 each: a taint to tolerate, a label, a model, a tag, a pod slot, links, more skew
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.outcomes import Reason
from scheduler.core.reasons import missing

WAIT = 300
CONDITION = 1000

WAITS = {
    "node-unknown": "once Kubernetes has reported the node",
    "node-not-ready": "once the node is Ready",
    "node-unschedulable": "once the node is uncordoned",
    "stale": "once its monitor is heard again",
    "card-health": "once the card is healthy",
    "card-cordoned": "once the card is uncordoned",
    "card-not-acquired": "once a placeholder holds the card",
    "pod-affinity": "once a pod that it must be near to is there",
    "pod-anti-affinity": "once the pods that it must be apart from are gone",
    "pod-repelled": "once the pods that keep it away are gone",
}
CONDITIONS = {
    "taint": "if the taint is tolerated",
    "node-selector": "without the node selector",
    "node-affinity": "without that condition of the node affinity",
    "no-domain": "once the node has the label",
    "node-pods": "once a pod there has ended",
    "card-model": "if the model is allowed",
    "card-affinity": "without the affinity tag",
    "card-anti-affinity": "without the anti-affinity tag",
    "card-exclusion": "with another exclusion tag",
}
NUMBERS = frozenset({"node-cpu", "node-memory", "card-share", "card-memory", "card-size"})
UNLINKED = "if the cards need not be linked"
"""Of several cards: enough would do, and too few of one NVLink group."""


def conditions_of(reasons: Iterable[Reason]) -> tuple[str, ...] | None:
    """What must become true, besides smaller numbers; None when nothing helps."""
    texts: list[str] = []
    for reason in reasons:
        text = WAITS.get(reason.code) or CONDITIONS.get(reason.code) or _numbered(reason)
        if text is not None:
            texts.append(text)
        elif reason.code not in NUMBERS:
            return None
    return tuple(texts)


def _numbered(reason: Reason) -> str | None:
    """A bound that is no part of the shape."""
    if reason.code == "topology-spread":
        return f"with a max_skew of {reason.needed} instead of {reason.free}"
    return None


def price_of(conditions: Iterable[str]) -> int:
    """What the conditions cost."""
    return sum(WAIT if text in _WAIT_TEXTS else CONDITION for text in conditions)


def lacking(reasons: Iterable[Reason]) -> int:
    """What the numbers lack, in thousandths of what is needed."""
    return sum(missing(reason) for reason in reasons if reason.code in NUMBERS)


def given_up(asked: int, given: int) -> int:
    """Thousandths of `asked` that are missing, rounded up."""
    return -(-1000 * (asked - given) // asked) if asked else 0


_WAIT_TEXTS = frozenset(WAITS.values())
