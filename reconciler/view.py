"""The ledger by pod: which request a pod's name belongs to, and which pods a commit concerns. Pure.

What flows in: the folded state and each commit that was folded into it. What flows out: keys (`namespace/pod`) to look
at, and the request behind a key.
"""

from __future__ import annotations

from collections.abc import Iterator

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Adopted, Commit, EpochStarted, Record, Released, Reserved, Resized, Withdrawn
from contracts.units import RequestUid
from reconciler.plan import pod_of


def pod_key(request: RequestState) -> str:
    """`<namespace>/<pod>` of a request."""
    return f"{request.accepted.namespace}/{pod_of(request)}"


class View:
    """An index over a state that somebody else folds."""

    def __init__(self, state: LedgerState) -> None:
        self.state = state
        self._by_pod: dict[str, RequestUid] = {}
        self._index()

    def __contains__(self, key: str) -> bool:
        """Whether a live placed request owns this pod name."""
        return key in self._by_pod

    def keys(self) -> set[str]:
        """The pods of every live placed request."""
        return set(self._by_pod)

    def request(self, key: str, uid: str | None) -> RequestState | None:
        """The live request that owns this pod name, else the one that the pod says it is of."""
        owner = self._by_pod.get(key) or uid
        return self.state.get(RequestUid(owner)) if owner else None

    def counted(self, uid: str, node: str) -> bool:
        """Whether the ledger counts this request on this node."""
        placed = self.state.nodes.get(node)
        return placed is not None and uid in placed.residents

    def nodes_of(self, commit: Commit, kinds: tuple[type, ...]) -> set[str]:
        """Nodes of the requests that records of these kinds speak of."""
        requests = (
            self.state.get(uid) for record in commit.records if isinstance(record, kinds) for uid in _uid(record)
        )
        return {request.placement.node for request in requests if request and request.placement}

    def folded(self, commit: Commit) -> set[str]:
        """Keys that a commit concerns, once it is folded."""
        keys: set[str] = set()
        for record in commit.records:
            if isinstance(record, EpochStarted):
                keys |= self.keys()
                self._index()
                keys |= self.keys()
            for uid in _uid(record):
                keys |= set(self._moved(uid))
        return keys

    def _index(self) -> None:
        self._by_pod = {pod_key(r): r.uid for r in self.state.requests.values() if r.placement is not None}

    def _moved(self, uid: RequestUid) -> Iterator[str]:
        request = self.state.get(uid)
        if request is None or request.placement is None:
            return
        key = pod_key(request)
        if request.live:
            self._by_pod[key] = uid
        elif self._by_pod.get(key) == uid:
            del self._by_pod[key]
        yield key


def _uid(record: Record) -> tuple[RequestUid, ...]:
    """The request whose pod a record concerns; none for the others."""
    return (record.uid,) if isinstance(record, Reserved | Adopted | Withdrawn | Resized | Released) else ()
