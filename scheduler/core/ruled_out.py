"""Why the surroundings rule out a node that would fit by itself: which domain, which pods, and how many.

In: a ranking of nodes that fit, and the surroundings of one decision. Out: one refusal a node, by the first condition
that closes it, with its place in the order of "closest": further than every rule of the node and its cards, because
all of those let the request in.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.outcomes import Reason
from scheduler.core.around import Hard, Surroundings
from scheduler.core.ranking import Ranking, Rankings
from scheduler.core.reasons import AROUND_STAGE, Refusal, closeness


def ruled_out(ranking: Ranking, rankings: Rankings, around: Surroundings) -> Iterator[Refusal]:
    """The refusals of all nodes of the ranking that a condition closes."""
    for key in ranking.order:
        node, _ = rankings.read(key)
        reason = reason_of(node, around)
        if reason is not None:
            yield closeness((AROUND_STAGE, reason)), reason


def reason_of(node: str, around: Surroundings) -> Reason | None:
    """The first condition that closes the node, in words; None when none does."""
    for hard in around.hard:
        if not hard.admits(node):
            return _WORDS[hard.code](node, hard) if node in hard.domains else _homeless(node, hard)
    return None


def _homeless(node: str, hard: Hard) -> Reason:
    text = f"{node}: has no label {hard.key}, so it is in no domain of it"
    return Reason(code="no-domain", text=text, node=node)


def _where(hard: Hard, node: str) -> tuple[str, int]:
    """The domain of the node in words, and the pods that count there."""
    domain = hard.domains[node]
    return f"{hard.key}={domain}", hard.counts.get(domain, 0)


def _spread(node: str, hard: Hard) -> Reason:
    where, count = _where(hard, node)
    least = min(hard.counts.values(), default=0)
    skew = count - hard.base
    text = (
        f"{node}: {where} has {count} pods of {hard.words}, the domain with fewest has {least}; one more would make "
        f"the skew {skew}, at most {hard.skew} is allowed"
    )
    return Reason(code=hard.code, text=text[:1024], needed=skew, free=hard.skew, unit="pods of skew", node=node)


def _near(node: str, hard: Hard) -> Reason:
    where, _ = _where(hard, node)
    there = sorted((domain for domain, count in hard.counts.items() if count), key=lambda d: (-hard.counts[d], d))
    others = f"; {hard.counts[there[0]]} in {there[0]}" if there else "; nowhere"
    text = f"{node}: needs a pod of {hard.words} in {where}, 0 there{others}"
    return Reason(code=hard.code, text=text[:1024], needed=1, free=0, unit="pods near", node=node)


def _apart(node: str, hard: Hard) -> Reason:
    where, count = _where(hard, node)
    text = f"{node}: must not be in {where} with a pod of {hard.words}, {count} there"
    return Reason(code=hard.code, text=text[:1024], node=node)


def _repelled(node: str, hard: Hard) -> Reason:
    where, count = _where(hard, node)
    text = f"{node}: {count} pods in {where} must not be with a pod of {hard.words}, as this one is"
    return Reason(code=hard.code, text=text[:1024], node=node)


_WORDS = {"topology-spread": _spread, "pod-affinity": _near, "pod-anti-affinity": _apart, "pod-repelled": _repelled}
