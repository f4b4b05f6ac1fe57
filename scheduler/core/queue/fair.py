"""Fair share between namespaces: dominant resource share over weight, compared in whole numbers.

In: what each namespace holds, what all cards have together, the weights. Out: who has less of what is due to it.

    dominant share = max(thousandths held / thousandths of all cards, MiB held / MiB of all cards)     (Ghodsi 2011)

and the namespace with the least share / weight is served first. Shares are compared by cross-multiplication: with M
thousandths and C MiB in the cluster, share = max(m x C, c x M) / (M x C), and all shares have one denominator, so

    a / weight_a < b / weight_b    <=>    a x weight_b < b x weight_a

exactly, with integers of some 60 bits. Equal shares are ordered by the age of the request, and at last by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bus.ledger.state import LedgerState, Use
from contracts.messages import Value
from contracts.quotas import NamespaceQuota
from contracts.units import WHOLE_CARD

NOTHING = Use()
PPM = 1_000_000


class Capacity(Value, frozen=True, kw_only=True):
    """All cards together, held or not."""

    share_milli: int = 0
    memory_mib: int = 0


def capacity_of(state: LedgerState) -> Capacity:
    """Of every card that is there. A card that is cordoned or unwell counts: it does not change what is fair."""
    cards = [card for node in state.nodes.values() for card in node.cards.values() if card.present and not card.rival]
    return Capacity(share_milli=WHOLE_CARD * len(cards), memory_mib=sum(card.capacity_mib for card in cards))


def dominant(use: Use, capacity: Capacity) -> int:
    """The numerator of its dominant share; the denominator is `denominator(capacity)` for everybody."""
    if not capacity.share_milli or not capacity.memory_mib:
        return use.share_milli
    return max(use.share_milli * capacity.memory_mib, use.memory_mib * capacity.share_milli)


def denominator(capacity: Capacity) -> int:
    """Of all dominant shares; at least 1."""
    return max(1, capacity.share_milli * capacity.memory_mib)


def weight_of(quotas: Mapping[str, NamespaceQuota], namespace: str) -> int:
    """1 unless an operator said otherwise."""
    quota = quotas.get(namespace)
    return 1 if quota is None else quota.weight


class Fairness:
    """Shares at one moment; `forget` a namespace after each placement of it.

    Args:
        state: read only here.
        capacity: of the same state.
    """

    def __init__(self, state: LedgerState, capacity: Capacity) -> None:
        self.state = state
        self.capacity = capacity
        self._shares: dict[str, tuple[int, int]] = {}

    def share(self, namespace: str) -> int:
        """Numerator of its dominant share."""
        return dominant(self.state.usage.get(namespace, NOTHING), self.capacity)

    def forget(self, namespace: str) -> None:
        """It holds more, or less, than when it was last compared."""
        self._shares.pop(namespace, None)

    def _known(self, namespace: str) -> tuple[int, int]:
        known = self._shares.get(namespace)
        if known is None:
            known = self._shares[namespace] = (self.share(namespace), weight_of(self.state.quotas, namespace))
        return known

    def ppm(self, namespace: str) -> int:
        """The dominant share in millionths, for people."""
        return self.share(namespace) * PPM // denominator(self.capacity)

    def before(self, one: str, other: str) -> bool:
        """Whether `one` has strictly less of what is due to it."""
        (ours, weight), (theirs, their_weight) = self._known(one), self._known(other)
        return ours * their_weight < theirs * weight

    def least(self, namespaces: Iterable[str]) -> list[str]:
        """Those that have the least of what is due to them: one, or several that are equal."""
        best: list[str] = []
        for namespace in namespaces:
            if not best or self.before(namespace, best[0]):
                best = [namespace]
            elif not self.before(best[0], namespace):
                best.append(namespace)
        return best
