"""How many pods a SharePod makes now, and which go: scaling, and replacing them when template or share changed. Pure.

In: the pods that neither ended nor end, the spec, and the revision that pods are made of now. Out: how many to make,
which to end. Asked again after each change, with nothing remembered: a crash in the middle goes on where it was, and a
template that is changed back takes the old pods for new ones.

While there are pods of another revision, so many may go that `replicas - maxUnavailable` stay ready whatever becomes of
the new ones, and so many may be made that there are at most `replicas + maxSurge`; the rule of a Deployment. The
defaults are one and none, because a surge needs cards that are free: with all of them sold, an update that must first
make a pod would wait for ever. A template whose pods never become ready takes `maxUnavailable` pods and stops there:

    replicas 3, old ready 3            one goes, the next step makes its successor
    new 1 not ready, old ready 2       nothing goes
    new 1 ready, old ready 2           another one goes

What goes first is worth least: not bound before bound, not running, not ready, the lower deletion cost, the fuller
node, the younger, then by name; the order of a ReplicaSet. A pod without a revision, made before there were any, is let
be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from reconciler import marks
from reconciler.objects import Pod, SharePodSpec

COST = "controller.kubernetes.io/pod-deletion-cost"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What is due now."""

    make: int
    over: list[Pod]


def turn(active: Sequence[Pod], spec: SharePodSpec, revision: str) -> Turn:
    """What brings the pods closer to the spec; nothing once they are there."""
    new = [pod for pod in active if is_of(pod, revision)]
    old = [pod for pod in active if not is_of(pod, revision)]
    most = spec.replicas + (spec.update.max_surge if old else 0)
    fewest = max(0, spec.replicas - spec.update.max_unavailable)
    coming = sum(not is_ready(pod) for pod in new)
    spare = max(0, len(active) - fewest - coming)
    return Turn(
        make=max(0, min(spec.replicas - len(new), most - len(active))),
        over=[*_least(old, spare), *_least(new, len(new) - spec.replicas)],
    )


def is_of(pod: Pod, revision: str) -> bool:
    """Whether it is made of this template and share."""
    return (pod.metadata.labels or {}).get(marks.REVISION, revision) == revision


def is_active(pod: Pod) -> bool:
    """Neither ended nor ending."""
    return pod.metadata.deletion_timestamp is None and not has_ended(pod)


def has_ended(pod: Pod) -> bool:
    """Its containers will not run again."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_ready(pod: Pod) -> bool:
    """Its condition says so."""
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())


def age(pod: Pod) -> str:
    """RFC 3339 of the API server: always the same form, so text compares like time."""
    return pod.metadata.creation_timestamp


def _least(pods: Sequence[Pod], how_many: int) -> list[Pod]:
    """The pods that go first."""
    if how_many <= 0:
        return []
    crowd = Counter(pod.spec.node_name for pod in pods)

    def worth(pod: Pod) -> tuple[Any, ...]:
        bound, runs = pod.spec.node_name != "", pod.status.phase == "Running"
        return bound, runs, is_ready(pod), _cost(pod), -crowd[pod.spec.node_name]

    youngest_first = sorted(sorted(pods, key=lambda pod: pod.metadata.name), key=age, reverse=True)
    return sorted(youngest_first, key=worth)[:how_many]


def _cost(pod: Pod) -> int:
    text = (pod.metadata.annotations or {}).get(COST, "0")
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() else 0
