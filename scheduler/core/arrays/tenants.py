"""Who lives where, as far as rows need it: how long each pod is likely to stay, and whether it carries tags.

A node's row needs the sum of -ln q over its residents at every change of the node. So each uid is looked at once, and
remembered as the number of its class; other lifetimes are one short list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bus.ledger.learning import mix_key
from bus.ledger.state import RequestState
from contracts.units import RequestUid
from scheduler.core.locality import Requests, any_tagged

SLACK = 4096
MOST = 1 << 30
"""Of one node: a row holds 32 bits."""
LONG = 14 << 16
"""Of one resident: psi is 0 from here on, so that more makes no difference; and sums of what is cut can be taken apart
again when somebody leaves."""


class Tenants:
    """All residents that were met."""

    def __init__(self) -> None:
        self._leaves: Callable[[str], int] = _unknown
        self._numbers: dict[str, int] = {}
        """Of classes."""
        self._minus_ln: list[int] = []
        """By number."""
        self._of: dict[RequestUid, int] = {}
        self._tagged: set[RequestUid] = set()
        self._repelling: set[RequestUid] = set()

    def minus_ln(self, residents: Collection[RequestUid], requests: Requests) -> int:
        """Sum of -ln q, no more than a row holds: the chance that all leave is zero long before that."""
        of, minus_ln = self._of.__getitem__, self._minus_ln.__getitem__
        try:
            return min(MOST, sum(map(minus_ln, map(of, residents))))
        except KeyError:
            for uid in residents:
                if uid not in self._of:
                    self._meet(requests[uid], requests)
            return min(MOST, sum(map(minus_ln, map(of, residents))))

    def expect(self, uid: RequestUid, key: str) -> None:
        """A pod without tags or terms that will live somewhere: it need not be looked at any more."""
        self._of[uid] = self.number(key)

    def settle(self, uid: RequestUid, number: int) -> None:
        """The same for a class whose number is known."""
        self._of[uid] = number

    def number(self, key: str) -> int:
        """The number of a class, new or not."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._minus_ln)
            self._minus_ln.append(min(LONG, self._leaves(key)))
        return number

    def _meet(self, request: RequestState, requests: Requests) -> None:
        self.expect(request.uid, mix_key(request.request))
        if any_tagged((request.uid,), requests):
            self._tagged.add(request.uid)
        if request.request.pod_anti_affinity.required:
            self._repelling.add(request.uid)

    def sums(
        self, groups: Sequence[Collection[RequestUid]], requests: Requests, leaves: Callable[[str], int]
    ) -> NDArray[Any]:
        """`minus_ln` of many nodes at once with other lifetimes: 0.1 us a resident."""
        for uid in [uid for uids in groups for uid in uids if uid not in self._of]:
            self._meet(requests[uid], requests)
        counts = np.fromiter(map(len, groups), np.int64, len(groups))
        numbers = np.fromiter(map(self._of.__getitem__, chain.from_iterable(groups)), np.int64, int(counts.sum()))
        minus_ln = np.array([min(LONG, leaves(key)) for key in self._numbers], np.int64)
        running = np.concatenate([[0], minus_ln[numbers].cumsum()])
        ends = counts.cumsum()
        found: NDArray[Any] = np.minimum(MOST, running[ends] - running[ends - counts])
        return found

    def minus_ln_of(self, uid: RequestUid, requests: Requests) -> int | None:
        """-ln q of one; None: it is not known and gone, or somebody carries tags."""
        number = self._of.get(uid)
        if number is None and uid in requests:
            self._meet(requests[uid], requests)
            number = self._of[uid]
        return None if number is None or self._tagged else self._minus_ln[number]

    def any_tagged(self, residents: Collection[RequestUid]) -> bool:
        """Whether some of them carry tags."""
        return bool(self._tagged) and not self._tagged.isdisjoint(residents)

    def any_repels(self, living: Requests) -> bool:
        """Whether somebody lives who keeps others out of a domain."""
        if self._repelling:
            self._repelling = {uid for uid in self._repelling if uid in living}
        return bool(self._repelling)

    def learn(self, leaves: Callable[[str], int], living: Requests) -> None:
        """Other lifetimes; those that are gone are forgotten once they are many."""
        self._leaves = leaves
        self._minus_ln = [min(LONG, leaves(key)) for key in self._numbers]
        if len(self._of) > 2 * len(living) + SLACK:
            self._of = {uid: number for uid, number in self._of.items() if uid in living}
            self._tagged = {uid for uid in self._tagged if uid in living}


def _unknown(_key: str) -> int:
    return 0
