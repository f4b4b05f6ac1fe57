"""One placeholder pod as it is seen. Pure.

In: the pod, the boot of its node. Out: a `Placeholder`. Which card it holds is what the kubelet says in the pod's
status (`allocatedResourcesStatus`, Kubernetes 1.36). Two things make that worthless for a while, and are told by what
was written down when it was last true:

    the node booted   the API server shows `Running` and the old card for ten seconds more, while the kubelet may
                      already have refused the pod for good: another boot with the same container proves nothing
    it ended          in any way; an evicted pause program reads `Succeeded`, and its card is free at once
"""

from __future__ import annotations

from reconciler.objects import ContainerStatus, Device, Pod
from reconciler.placeholders.values import HOLDS, LABEL, PROOF, RELEASING, Placeholder, Rules, State

REPLICA = "::"
"""In the name of a device that the plugin gives out several times: holding one of them holds no card."""
NO_CARD = (
    "it runs, and its pod status names no card: that takes Kubernetes 1.36 (allocatedResourcesStatus) and a device "
    "plugin that gives out whole cards"
)


def is_placeholder(pod: Pod, rules: Rules) -> bool:
    """Only in our own namespace: what others write into their pods means nothing here."""
    return pod.metadata.namespace == rules.namespace and LABEL in (pod.metadata.labels or {})


def look(pod: Pod, boot: str, rules: Rules) -> Placeholder:
    """What there is to see."""
    notes, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    status = next(iter(pod.status.container_statuses or ()), ContainerStatus())
    device = _device(status, rules.resource)
    card = device.resource_id if device is not None and REPLICA not in device.resource_id else ""
    proof = f"{boot}/{status.container_id.rpartition('//')[2]}"
    slot = labels.get(LABEL, "")
    return Placeholder(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        version=pod.metadata.resource_version,
        slot=int(slot) if slot.isdecimal() else -1,
        state=_state(pod, card, proof),
        card=card,
        proof=proof,
        releasing=RELEASING in notes,
        ill=device is not None and device.health == "Unhealthy",
        why=_why(pod, status, card),
    )


def _device(status: ContainerStatus, resource: str) -> Device | None:
    """Of its one container; it asks for one."""
    for allocated in status.allocated_resources_status or ():
        if allocated.name == resource and len(allocated.resources or ()) == 1:
            return (allocated.resources or ())[0]
    return None


def devices(pod: Pod, resource: str) -> list[str]:
    """The cards that any pod holds, as far as its status says."""
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    given = (one for status in statuses for one in status.allocated_resources_status or () if one.name == resource)
    return [device.resource_id for one in given for device in one.resources or ()]


def _state(pod: Pod, card: str, proof: str) -> State:
    if pod.metadata.deletion_timestamp is not None:
        return "leaving"
    if pod.status.phase in ("Succeeded", "Failed"):
        return "lost"
    if pod.status.phase != "Running" or not card:
        return "starting"
    notes = pod.metadata.annotations or {}
    return _proven(card, proof, notes.get(HOLDS, ""), notes.get(PROOF, ""))


def _proven(card: str, proof: str, promised: str, proven: str) -> State:
    """A container that starts again in the same boot keeps its card; in another boot it has to be another container."""
    if not promised or not proven:
        return "new"
    (boot, _, container), (boot_then, _, container_then) = proof.partition("/"), proven.partition("/")
    if boot == boot_then:
        return "held" if promised == card else "new"
    return "unproven" if container == container_then else "new"


def _why(pod: Pod, status: ContainerStatus, card: str) -> str:
    """In the kubelet's words, what is missing; a pod without any container status never got its sandbox."""
    ended = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
    if pod.status.phase in ("Succeeded", "Failed"):
        return ended or _disrupted(pod) or f"it ended ({pod.status.phase})"
    if pod.status.phase == "Running":
        return "" if card else NO_CARD
    waiting = status.state.waiting
    if waiting is not None and (waiting.reason or waiting.message):
        return ": ".join(filter(None, (waiting.reason, waiting.message)))
    return ended or "the kubelet says nothing of it"


def _disrupted(pod: Pod) -> str:
    """An eviction whose program ended well leaves nothing else."""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return ": ".join(filter(None, (condition.reason, condition.message)))
    return ""
