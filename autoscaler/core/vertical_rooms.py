"""Who gets how much of one card, or of a node's CPUs, when the limits that are wanted add up to more than it has. Pure.

In: claims in thousandths, what each is owed and what it wants; the capacity. Out: a grant for each. First everybody
gets what it is owed: of what it was sold, as much as it uses and a little more. What is then left, the sold part of
those who sleep included, is lent: the smallest wishes first, the others evenly.

    card of 1000: A was sold 500 and sleeps (is owed 100, wants 600), B was sold 500 and uses it (wants 1000)
        100 and 500 are owed, 400 are left and divided: A 300, B 700
    A wakes, is owed 500: A gets 500, B is back at 500, both in the same answer

Only whole numbers, and ties by uid: the sum of all grants never exceeds the capacity, or what is owed where that is
more (a card that shrank), and everybody computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.messages import Value


class Claim(Value, frozen=True, kw_only=True):
    """One pod's, in thousandths. It is owed no more than it wants."""

    uid: str
    owed: int
    wanted: int


def share_out(capacity: int, claims: Sequence[Claim]) -> dict[str, int]:
    """The grants by uid; each uid once."""
    grants = {claim.uid: min(claim.owed, claim.wanted) for claim in claims}
    left = max(0, capacity - sum(grants.values()))
    wishes = sorted((claim.wanted - grants[claim.uid], claim.uid) for claim in claims)
    for place, (wish, uid) in enumerate(wishes):
        lent = min(wish, left // (len(wishes) - place))
        grants[uid] += lent
        left -= lent
    return grants
