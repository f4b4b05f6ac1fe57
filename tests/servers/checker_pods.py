"""Pods as the checker sees them: one per request for ever, where the ledger says, no card sold twice by them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.servers.checker_records import WHOLE, Finding, Life

UID = "gpubus.dev/uid"
CARDS = "gpubus.dev/cards"
SHARES = "gpubus.dev/shares"
OVER = ("Succeeded", "Failed")


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


class PodsJudge:
    """Replays the changes beside the lives that the ledger tells of."""

    def __init__(self, lives: Mapping[str, Life]) -> None:
        self._lives = lives
        self._present: dict[str, Pod] = {}
        self._seen: dict[str, set[str]] = defaultdict(set)
        self._over: set[str] = set()

    def judge(self, changes: Sequence[PodChange]) -> Iterable[Finding]:
        """All findings, with the last state of everything compared at the end."""
        for change in changes:
            pod = read(change.pod)
            if pod is None:
                continue
            yield from self._change(change.kind, pod)
        yield from self._at_the_end()

    def _change(self, kind: str, pod: Pod) -> Iterable[Finding]:
        if pod.uid not in self._seen[pod.request]:
            self._seen[pod.request].add(pod.uid)
            if len(self._seen[pod.request]) > 1:
                yield Finding("pods", f"{pod.request} has had {len(self._seen[pod.request])} pods: {pod.name}")
        if kind == "DELETED" or pod.over:
            self._over.add(pod.request)
        if kind == "DELETED":
            self._present.pop(pod.uid, None)
            return
        self._present[pod.uid] = pod
        yield from self._as_decided(pod)
        yield from self._sums(pod)

    def _as_decided(self, pod: Pod) -> Iterable[Finding]:
        life = self._lives.get(pod.request)
        if life is None or life.placement is None:
            yield Finding("pods", f"{pod.name} is of {pod.request}, which the ledger has not placed")
        elif pod.node:
            there = life.placement["node"], {piece["card"] for piece in life.placement.get("slices", [])}
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
        living = {pod.request for pod in self._present.values() if not pod.over}
        holding = {uid for uid, life in self._lives.items() if life.holds}
        for uid in sorted(holding - living):
            yield Finding("pods", f"{uid} ({self._lives[uid].key}) holds a slice and has no living pod")
        for uid in sorted(living - holding):
            yield Finding("pods", f"a pod of {uid} lives and holds nothing in the ledger")
        for uid, life in self._lives.items():
            unseen = life.evidence in ("rejected", "never-created", "gone") and uid not in self._seen
            if life.released_at is not None and uid not in self._over and not unseen:
                yield Finding("release", f"{uid} was released as {life.evidence}, and its pod was not seen to end")


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
        over=(raw.get("status") or {}).get("phase") in OVER,
    )
