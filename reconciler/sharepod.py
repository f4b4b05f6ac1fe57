"""SharePods: replicas of one pod, each on a share of a card. What to do about one of them: steps. Pure.

In: the SharePod and the pods that it owns. Out: pods to make, pods to end, the status to write. The pods are pods of
anybody that name our scheduler: where they go, what they are counted for and why they wait is decided where it is for
all such pods.

A pod's name is the SharePod's with five characters of a digest of its uid and a number, the lowest that is not taken:
whoever makes a pod twice finds it there, so nothing needs to be remembered about what was made and not seen yet.
Scaling down ends first what is worth least: not bound before bound, not ready before ready, the lower deletion cost,
the fuller node, the younger, then by name. Template and share count for pods made from now on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import msgspec
from msgspec.structs import replace

from contracts.units import pod_name
from reconciler import marks
from reconciler.foreign import SCHEDULER
from reconciler.objects import Owner, Pod, Share, SharePod, SharePodCondition, SharePodStatus

API_VERSION, KIND = "gpubus.dev/v1alpha1", "SharePod"
AT_ONCE = 16
"""Pods made in one go; a refusal ends it, so a template that nobody admits costs one call, not a hundred."""
ENDED_KEPT = 3
"""Pods that ended and are kept for their logs, the youngest."""
COST = "controller.kubernetes.io/pod-deletion-cost"


class MakePod(msgspec.Struct, frozen=True, kw_only=True):
    """Make a pod; that it is there already is as good."""

    name: str
    body: dict[str, Any]


class EndPod(msgspec.Struct, frozen=True, kw_only=True):
    """End this life of a pod, gracefully."""

    name: str
    uid: str
    grace_s: int


Step = MakePod | EndPod


def steps(shared: SharePod, pods: Sequence[Pod]) -> list[Step]:
    """What brings the pods to what the spec says; nothing once they are there, or when it is being deleted."""
    if shared.metadata.deletion_timestamp is not None:
        return []
    active = [pod for pod in pods if is_active(pod)]
    missing = shared.spec.replicas - len(active)
    ended = sorted((pod for pod in pods if _ended(pod)), key=_age, reverse=True)
    over = [*_least(active, -missing), *ended[ENDED_KEPT:]]
    made = islice(_free_names(shared, {pod.metadata.name for pod in pods}), min(max(missing, 0), AT_ONCE))
    return [*map(_end, over), *(MakePod(name=name, body=pod_body(shared, name)) for name in made)]


def is_active(pod: Pod) -> bool:
    """Neither ended nor ending."""
    return pod.metadata.deletion_timestamp is None and not _ended(pod)


def owned(pod: Pod) -> Owner | None:
    """The SharePod that made it."""
    owners = pod.metadata.owner_references or ()
    return next((owner for owner in owners if owner.controller and owner.kind == KIND), None)


# --- making ----------------------------------------------------------------------------------------------------------


def _free_names(shared: SharePod, taken: set[str]) -> Iterator[str]:
    names = (pod_name(shared.metadata.name, f"{shared.metadata.uid}.{number}") for number in count())
    return (name for name in names if name not in taken)


def pod_body(shared: SharePod, name: str) -> dict[str, Any]:
    """A pod of it, as JSON for a create: every field of the template's spec is kept."""
    template = shared.spec.template
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": shared.metadata.name,
        "uid": shared.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": shared.metadata.namespace,
            "labels": {**(template.metadata.labels or {}), marks.SHAREPOD: shared.metadata.name},
            "annotations": {**(template.metadata.annotations or {}), **_asked(shared.spec.share)},
            "ownerReferences": [owner],
        },
        "spec": {**template.spec, "schedulerName": SCHEDULER},
    }


def _asked(share: Share) -> dict[str, str]:
    """The share in the words that any pod may ask in."""
    if share.cards == 0:
        return {f"{marks.DOMAIN}card-count": "0"}
    found = {
        "card-count": str(share.cards),
        "share-milli": str(share.share_milli),
        "memory-mib": "" if share.memory_mib is None else str(share.memory_mib),
        "memory-milli": "" if share.memory_milli is None else str(share.memory_milli),
        "models": ",".join(share.models),
        "affinity": share.affinity,
        "anti-affinity": share.anti_affinity,
        "exclusion": share.exclusion,
        "priority-class": share.priority_class,
    }
    return {f"{marks.DOMAIN}{key}": value for key, value in found.items() if value}


# --- ending ----------------------------------------------------------------------------------------------------------


def _least(active: Sequence[Pod], how_many: int) -> list[Pod]:
    """The pods that go first. The order of Kubernetes' ReplicaSet, with the name as its end."""
    if how_many <= 0:
        return []
    crowd = Counter(pod.spec.node_name for pod in active)

    def worth(pod: Pod) -> tuple[Any, ...]:
        bound, runs = pod.spec.node_name != "", pod.status.phase == "Running"
        return bound, runs, _ready(pod), _cost(pod), -crowd[pod.spec.node_name]

    youngest_first = sorted(sorted(active, key=lambda pod: pod.metadata.name), key=_age, reverse=True)
    return sorted(youngest_first, key=worth)[:how_many]


def _end(pod: Pod) -> EndPod:
    grace_s = pod.spec.termination_grace_period_seconds
    return EndPod(name=pod.metadata.name, uid=pod.metadata.uid, grace_s=max(1, 30 if grace_s is None else grace_s))


def _cost(pod: Pod) -> int:
    text = (pod.metadata.annotations or {}).get(COST, "0")
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() else 0


def _age(pod: Pod) -> str:
    """RFC 3339 of the API server: always the same form, so text compares like time."""
    return pod.metadata.creation_timestamp


def _ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ())


# --- telling ---------------------------------------------------------------------------------------------------------


def status(shared: SharePod, pods: Iterable[Pod], *, refused: str = "", now: str) -> SharePodStatus:
    """What there is. `refused`: why its pods cannot be made; `now`: for a condition that turns, RFC 3339."""
    active = sorted((pod for pod in pods if is_active(pod)), key=lambda pod: pod.metadata.name)
    ready, wanted = sum(map(_ready, active)), shared.spec.replicas
    why = refused or next(filter(None, map(_waits, active)), "")
    cards = [
        card for pod in active for card in (pod.metadata.annotations or {}).get(marks.CARDS, "").split(",") if card
    ]
    return SharePodStatus(
        observed_generation=shared.metadata.generation,
        replicas=len(active),
        ready_replicas=ready,
        selector=f"{marks.SHAREPOD}={shared.metadata.name}",
        ready=f"{ready}/{wanted}",
        card=_first(list(dict.fromkeys(cards))),
        reason="" if ready >= wanted else why[:1024],
        conditions=(_condition(shared, ready >= wanted, refused=refused, why=why, now=now),),
    )


def _condition(shared: SharePod, ready: bool, *, refused: str, why: str, now: str) -> SharePodCondition:
    before = next((c for c in shared.status.conditions if c.type == "Ready"), SharePodCondition())
    found = SharePodCondition(
        type="Ready",
        status="True" if ready else "False",
        observed_generation=shared.metadata.generation,
        last_transition_time=now,
        reason="AllReady" if ready else "Refused" if refused else "Waiting",
        message="" if ready else why[:1024] or "its pods are on their way",
    )
    turned = before.status != found.status or not before.last_transition_time
    return found if turned else replace(found, last_transition_time=before.last_transition_time)


def _waits(pod: Pod) -> str:
    """Why a pod is not bound, as its condition says."""
    if pod.spec.node_name:
        return ""
    found = next((c for c in pod.status.conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
    return found.message if found else ""


def _cards(pod: Pod) -> list[str]:
    return list(filter(None, (pod.metadata.annotations or {}).get(marks.CARDS, "").split(",")))


def _first(cards: list[str]) -> str:
    return cards[0] + (f" +{len(cards) - 1}" if len(cards) > 1 else "") if cards else ""
