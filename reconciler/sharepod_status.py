"""What is told of a SharePod in its status. Pure.

In: the SharePod, the pods that it owns, why its pods cannot be made. Out: the status, whole. Two conditions: `Ready`,
as many pods are ready as are wanted, whatever they are made of; and `Updated`, as many are of the template and the
share that the spec has now, and no other is left. Each keeps the time of its last turn, so that a status that says the
same is the same and is not written again.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from reconciler import marks
from reconciler.objects import Pod, SharePod, SharePodCondition, SharePodStatus
from reconciler.sharepod import revision
from reconciler.sharepod_rollout import is_active, is_of, is_ready


def status(shared: SharePod, pods: Iterable[Pod], *, refused: str = "", now: str) -> SharePodStatus:
    """What there is. `refused`: why its pods cannot be made; `now`: for a condition that turns, RFC 3339."""
    active = sorted((pod for pod in pods if is_active(pod)), key=lambda pod: pod.metadata.name)
    wanted, made_of = shared.spec.replicas, revision(shared)
    ready, updated = sum(map(is_ready, active)), sum(is_of(pod, made_of) for pod in active)
    why = refused or next(filter(None, map(_waits, active)), "")
    return SharePodStatus(
        observed_generation=shared.metadata.generation,
        replicas=len(active),
        ready_replicas=ready,
        updated_replicas=updated,
        selector=f"{marks.SHAREPOD}={shared.metadata.name}",
        ready=f"{ready}/{wanted}",
        card=_first(_cards(active)),
        reason="" if ready >= wanted else why[:1024],
        conditions=(
            _ready(shared, ready >= wanted, refused=refused, why=why, now=now),
            _updated(shared, updated, len(active) - updated, now=now),
        ),
    )


def _ready(shared: SharePod, ready: bool, *, refused: str, why: str, now: str) -> SharePodCondition:
    reason = "AllReady" if ready else "Refused" if refused else "Waiting"
    message = "" if ready else why[:1024] or "its pods are on their way"
    found = SharePodCondition(type="Ready", status=_word(ready), reason=reason, message=message)
    return _dated(shared, found, now)


def _updated(shared: SharePod, updated: int, old: int, *, now: str) -> SharePodCondition:
    done = not old and updated >= shared.spec.replicas
    message = (
        "" if done else f"{updated} of {shared.spec.replicas} are of this template and share, {old} are of another"
    )
    reason = "AllUpdated" if done else "Updating"
    return _dated(shared, SharePodCondition(type="Updated", status=_word(done), reason=reason, message=message), now)


def _word(holds: bool) -> str:
    return "True" if holds else "False"


def _dated(shared: SharePod, found: SharePodCondition, now: str) -> SharePodCondition:
    """With the time of its last turn."""
    before = next((c for c in shared.status.conditions if c.type == found.type), SharePodCondition())
    stays = before.status == found.status and before.last_transition_time
    since = before.last_transition_time if stays else now
    return replace(found, observed_generation=shared.metadata.generation, last_transition_time=since)


def _waits(pod: Pod) -> str:
    """Why a pod is not bound, as its condition says."""
    if pod.spec.node_name:
        return ""
    found = next((c for c in pod.status.conditions or () if c.type == "PodScheduled" and c.status == "False"), None)
    return found.message if found else ""


def _cards(pods: Iterable[Pod]) -> list[str]:
    """Each once."""
    texts = ((pod.metadata.annotations or {}).get(marks.CARDS, "") for pod in pods)
    return list(dict.fromkeys(card for text in texts for card in text.split(",") if card))


def _first(cards: list[str]) -> str:
    return cards[0] + (f" +{len(cards) - 1}" if len(cards) > 1 else "") if cards else ""
