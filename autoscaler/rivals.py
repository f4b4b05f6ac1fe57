"""Numbers of replicas that somebody else wrote: who withdrew a replica that we did not give up. Pure but for memory.

In: the replicas as we saw them last, the ledger now, what we gave back ourselves. Out: the number that somebody made of
them, and whether he does so again and again. Replicas are requests that the autoscaler makes itself, so a foreign
number is a replica that somebody else withdrew. One that was evicted, or lost with its node, is nobody's number.

What is done about it is the function's `by_hand`, and after `ownership.PATIENCE` such writes within one window nothing
at all, until the function is published again.
"""

from __future__ import annotations

from autoscaler.core.ownership import answer_to_rival
from autoscaler.core.replicas import is_hot
from autoscaler.roster import Roster
from bus.ledger.state import LedgerState
from contracts.units import RequestUid
from contracts.workloads import Function


class Rivals:
    """One function's."""

    def __init__(self) -> None:
        self.stands_back = False
        self._known: frozenset[str] = frozenset()
        """Uids of hot replicas at the last look."""
        self._ours: set[str] = set()
        """Uids that we gave back."""
        self._writes_ms: list[int] = []

    def gave_back(self, uid: str) -> None:
        """We withdraw it ourselves."""
        self._ours.add(uid)

    def settled(self) -> None:
        """Its owner has published the function: whatever it was, it is settled."""
        self.stands_back = False
        self._writes_ms.clear()

    def look(self, state: LedgerState, roster: Roster, function: Function, now_ms: int) -> int | None:
        """How many serve or start since somebody withdrew others; None = nobody did since the last look."""
        hot = [replica for replica in roster.replicas if is_hot(replica)]
        taken = [uid for uid in self._known if uid not in self._ours and _withdrawn(state, uid)]
        self._known = frozenset(replica.uid for replica in hot if replica.uid)
        self._ours &= {replica.uid for replica in roster.replicas}
        if not taken:
            return None
        window_ms = function.scaling.stable_s * 1000
        self._writes_ms = [at_ms for at_ms in self._writes_ms if now_ms - at_ms < window_ms] + [now_ms]
        answer = answer_to_rival(self._writes_ms, now_ms, window_ms, function.scaling.by_hand)
        self.stands_back = self.stands_back or answer == "stand-back"
        return len(hot)


def _withdrawn(state: LedgerState, uid: str) -> bool:
    request = state.get(RequestUid(uid))
    return request is not None and request.withdrawn
