"""Pods as the checker sees them: one per decision for ever, where the ledger says, no card sold twice by them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.servers.checker_records import WHOLE, Finding, Life

UID = "gpubus.dev/uid"
SEQUENCE = "gpubus.dev/sequence"
CARDS = "gpubus.dev/cards"
SHARES = "gpubus.dev/shares"
OVER = ("Succeeded", "Failed")

Decision = tuple[str, int]
"""A request, and the commit that placed it."""


class PodChange(NamedTuple):
    """One event of a watch: ADDED, MODIFIED or DELETED, and the pod."""

    kind: str
    pod: dict[str, Any]


class Pod(NamedTuple):
    """What matters of one state of a pod."""

    uid: str
    request: str
    name: str
    node: str
    cards: str
    shares: tuple[tuple[str, int], ...]
    over: bool
    sequence: int
    """Of the commit that decided; 0 = it does not tell."""


class PodsJudge:
    """Replays the changes beside the lives that the ledger tells of."""

    def __init__(self, lives: Mapping[str, Life]) -> None:
        self._lives = lives
        self._present: dict[str, Pod] = {}
        self._seen: dict[Decision, set[str]] = defaultdict(set)
        self._over: set[Decision] = set()

    def judge(self, changes: Sequence[PodChange]) -> Iterable[Finding]:
        """All findings, with the last state of everything compared at the end."""
        for change in changes:
            pod = read(change.pod)
            if pod is None:
                continue
            yield from self._change(change.kind, pod)
        yield from self._at_the_end()

    def _change(self, kind: str, pod: Pod) -> Iterable[Finding]:
        decision = self._decision(pod)
        if pod.uid not in self._seen[decision]:
            self._seen[decision].add(pod.uid)
            if len(self._seen[decision]) > 1:
                yield Finding("pods", f"{pod.request} has had {len(self._seen[decision])} pods: {pod.name}")
        if kind == "DELETED" or pod.over:
            self._over.add(decision)
        if kind == "DELETED":
            self._present.pop(pod.uid, None)
            return
        self._present[pod.uid] = pod
        yield from self._as_decided(pod)
        yield from self._sums(pod)

    def _decision(self, pod: Pod) -> Decision:
        """What the pod carries; of one that does not tell, the last of its request."""
        life = self._lives.get(pod.request)
        last = max(life.decisions, default=0) if life is not None else 0
        return pod.request, pod.sequence or last

    def _as_decided(self, pod: Pod) -> Iterable[Finding]:
        life = self._lives.get(pod.request)
        placement = life.decisions.get(self._decision(pod)[1]) if life is not None else None
        if placement is None:
            yield Finding("pods", f"{pod.name} is of {pod.request}, which the ledger has not placed")
        elif pod.node:
            there = placement["node"], {piece["card"] for piece in placement.get("slices", [])}
            if there != (pod.node, set(filter(None, pod.cards.split(",")))):
                yield Finding("pods", f"{pod.name} is on {pod.node} with {pod.cards}, the ledger says {there}")

    def _sums(self, pod: Pod) -> Iterable[Finding]:
        """Kubernetes alone: what the living pods of a node say they hold of its cards."""
        sold: dict[str, int] = defaultdict(int)
        for other in self._present.values():
            if other.node == pod.node and not other.over:
                for card, milli in other.shares:
                    sold[card] += milli
        for card, _ in pod.shares:
            if sold[card] > WHOLE:
                yield Finding("pods", f"pods hold {sold[card]} thousandths of {card} when {pod.name} changes")

    def _at_the_end(self) -> Iterable[Finding]:
        living = {self._decision(pod) for pod in self._present.values() if not pod.over}
        holding = {(uid, life.decided_at) for uid, life in self._lives.items() if life.holds and life.decided_at}
        for uid, at in sorted(holding - living):
            yield Finding("pods", f"{uid} ({self._lives[uid].key}) holds a slice since {at} and has no living pod")
        for uid, at in sorted(living - holding):
            yield Finding("pods", f"a pod of {uid} as decided at {at} lives and holds nothing in the ledger")
        for uid, life in self._lives.items():
            for at, evidence in life.ends.items():
                unseen = evidence in ("rejected", "never-created", "gone") and (uid, at) not in self._seen
                if (uid, at) not in self._over and not unseen:
                    yield Finding("release", f"{uid} was released as {evidence}, and its pod was not seen to end")


def read(raw: Mapping[str, Any]) -> Pod | None:
    """The pod, None when it is not ours."""
    meta, spec = raw["metadata"], raw["spec"]
    annotations = meta.get("annotations") or {}
    if UID not in annotations:
        return None
    pieces = [piece.partition("=") for piece in annotations.get(SHARES, "").split(",") if piece]
    return Pod(
        uid=meta["uid"],
        request=annotations[UID],
        name=f"{meta['namespace']}/{meta['name']}",
        node=spec.get("nodeName", ""),
        cards=annotations.get(CARDS, ""),
        shares=tuple((card, int(sizes.partition(":")[0])) for card, _, sizes in pieces),
        sequence=int(annotations.get(SEQUENCE, 0)),
        over=(raw.get("status") or {}).get("phase") in OVER,
    )
