"""The ledger by pod: which request a pod's name belongs to, and which pods a commit concerns. Pure.

What flows in: the folded state and each commit that was folded into it. What flows out: keys (`namespace/pod`) to look
at, and the request behind a key.
"""

from __future__ import annotations

from collections.abc import Iterator

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Adopted, Commit, EpochStarted, Nominated, Record, Released, Reserved, Resized, Withdrawn
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
        self._pods: dict[RequestUid, str] = {}
        self._next: dict[str, list[RequestUid]] = {}
        """Live placed requests whose pod name another one owns; only requests of pods of others can meet so."""
        self._index()

    def __contains__(self, key: str) -> bool:
        """Whether a live placed request owns this pod name."""
        return key in self._by_pod

    def keys(self) -> set[str]:
        """The pods of every live placed request."""
        return set(self._by_pod)

    def request(self, key: str, uid: str | None) -> RequestState | None:
        """The live request that owns this pod name, else the one that the pod says it is of."""
        owner = self._by_pod.get(key)
        if owner is not None or not uid:
            return self.state.get(owner) if owner is not None else None
        named = self.state.get(RequestUid(uid))
        earlier = named is not None and named.live and named.attempt > 0
        return None if earlier else named  # the pod of an attempt that is over belongs to nobody

    def counted(self, uid: str, node: str) -> bool:
        """Whether the ledger counts this request on this node."""
        placed = self.state.nodes.get(node)
        return placed is not None and uid in placed.residents

    def pods_on(self, node: str) -> set[str]:
        """The pods of the live requests that the ledger counts on a node."""
        placed = self.state.nodes.get(node)
        requests = (self.state.requests.get(uid) for uid in (placed.residents if placed else ()))
        return {pod_key(request) for request in requests if request is not None}

    def nodes_of(self, commit: Commit, kinds: tuple[type, ...]) -> set[str]:
        """Nodes of the requests that records of these kinds speak of."""
        requests = (
            self.state.get(uid) for record in commit.records if isinstance(record, kinds) for uid in _uid(record)
        )
        nodes = (r.placement.node if r.placement else r.last_node for r in requests if r is not None)
        return {node for node in nodes if node}

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
        self._by_pod, self._pods, self._next = {}, {}, {}
        for request in self.state.requests.values():
            if request.placement is not None and request.live:
                self._own(pod_key(request), request.uid)

    def _moved(self, uid: RequestUid) -> Iterator[str]:
        request, before = self.state.get(uid), self._pods.pop(uid, None)
        key = pod_key(request) if request is not None and request.placement is not None else None
        for known in dict.fromkeys(filter(None, (before, key))):
            self._disown(known, uid)
            yield known
        if key is not None and request is not None and request.live:
            self._own(key, uid)

    def _own(self, key: str, uid: RequestUid) -> None:
        """The first one keeps the name until it is over: its pod may run."""
        self._pods[uid] = key
        if self._by_pod.setdefault(key, uid) != uid:
            self._next.setdefault(key, []).append(uid)

    def _disown(self, key: str, uid: RequestUid) -> None:
        behind = self._next.pop(key, [])
        if self._by_pod.get(key) == uid:
            del self._by_pod[key]
        waiting = [other for other in behind if other != uid]
        if key not in self._by_pod and waiting:
            self._by_pod[key] = waiting.pop(0)
        if waiting:
            self._next[key] = waiting


def _uid(record: Record) -> tuple[RequestUid, ...]:
    """The requests whose pods a record concerns; none for the others."""
    if isinstance(record, Nominated):
        return record.victims
    return (record.uid,) if isinstance(record, Reserved | Adopted | Withdrawn | Resized | Released) else ()
