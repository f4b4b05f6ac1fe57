"""SharePods: replicas of one pod, each on a share of a card. What to do about one of them: steps. Pure.

In: the SharePod and the pods that it owns. Out: pods to make, pods to end; which, says `sharepod_rollout`, and what the
status says `sharepod_status`. The pods are pods of anybody that name our scheduler: where they go, what they are
counted for and why they wait is decided where it is for all such pods.

A pod's name is the SharePod's with five characters of a digest of its uid and a number, the lowest that is not taken:
whoever makes a pod twice finds it there, so nothing needs to be remembered about what was made and not seen yet.
A label says which template and share it was made from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import msgspec

from contracts.units import pod_name
from reconciler import marks
from reconciler.foreign import SCHEDULER
from reconciler.objects import Owner, Pod, Share, SharePod
from reconciler.sharepod_rollout import age, has_ended, is_active, turn

API_VERSION, KIND = "gpubus.dev/v1alpha1", "SharePod"
AT_ONCE = 16
"""Pods made in one go; a refusal ends it, so a template that nobody admits costs one call, not a hundred."""
ENDED_KEPT = 3
"""Pods that ended and are kept for their logs, the youngest."""


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
    now = turn(active, shared.spec, revision(shared))
    ended = sorted((pod for pod in pods if has_ended(pod)), key=age, reverse=True)
    made = islice(_free_names(shared, {pod.metadata.name for pod in pods}), min(now.make, AT_ONCE))
    over = map(_end, (*now.over, *ended[ENDED_KEPT:]))
    return [*over, *(MakePod(name=name, body=pod_body(shared, name)) for name in made)]


def owned(pod: Pod) -> Owner | None:
    """The SharePod that made it."""
    owners = pod.metadata.owner_references or ()
    return next((owner for owner in owners if owner.controller and owner.kind == KIND), None)


# --- making ----------------------------------------------------------------------------------------------------------


def _free_names(shared: SharePod, taken: set[str]) -> Iterator[str]:
    names = (pod_name(shared.metadata.name, f"{shared.metadata.uid}.{number}") for number in count())
    return (name for name in names if name not in taken)


def revision(shared: SharePod) -> str:
    """Ten digits of a digest of all that its pods are made from. In another form it replaces every pod there is."""
    template = shared.spec.template
    whole = {
        "labels": template.metadata.labels or {},
        "annotations": template.metadata.annotations or {},
        "spec": template.spec,
        "asked": _asked(shared.spec.share),
    }
    return hashlib.sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()[:10]


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
            "labels": {
                **(template.metadata.labels or {}),
                marks.SHAREPOD: shared.metadata.name,
                marks.REVISION: revision(shared),
            },
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


def _end(pod: Pod) -> EndPod:
    grace_s = pod.spec.termination_grace_period_seconds
    return EndPod(name=pod.metadata.name, uid=pod.metadata.uid, grace_s=max(1, 30 if grace_s is None else grace_s))
