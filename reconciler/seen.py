"""A pod as decisions see it: a small value, taken from the object once, with everything that a plan asks about.

It tells what is there, not what should be: a pod that somebody forged, bound elsewhere or left half-marked is seen as
exactly that.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from reconciler import marks
from reconciler.objects import CONTAINER, ContainerStatus, Pod, PodCondition
from reconciler.quantity import MILLI, BadQuantity, ceil_in, parse

SeenPhase = Literal["unbound", "bound", "running", "ended", "rejected"]
Resizing = Literal["", "in-progress", "deferred", "infeasible", "error"]
"""deferred: the kubelet takes it up by itself when the node has room. infeasible: it never will."""

NOT_ADMITTED = frozenset(
    {"UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError", "PodLevelResourcesNotAdmittedReason"}
)
"""Reasons of a kubelet that refused a pod for good; `OutOf<resource>` and `…NotSupported` are others."""

STILL_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
_SAME = {"ErrImagePull": "ImagePullBackOff", "RunContainerError": "CrashLoopBackOff"}
"""A pull that fails shows both by turns: one name, or the outcome would change with each try."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a pod."""

    pod_uid: str = ""
    phase: SeenPhase = "unbound"
    node: str = ""
    managed: bool = True
    """Carries our label, or was bound by us."""
    foreign: bool = False
    """Somebody else made it."""
    mark: marks.Mark | None = None
    bound_by_us: bool = False
    cards: str = ""
    shares: str = ""
    terminating: bool = False
    gates: tuple[str, ...] = ()
    grace_s: int = 30
    isolation: dict[str, str] = {}
    """What its backend's variables are read from: the variable's name and the value in its annotation."""
    cpu_milli: int | None = None
    """CPU that the container's spec asks for; None = nothing, or not readable."""
    cpu_limit_milli: int | None = None
    """The most that the kubelet lets it have."""
    container_id: str = ""
    """Of the container as it runs now, without the runtime's name."""
    resize: Resizing = ""
    """How far an in-place change of its resources is."""
    cpu_has_milli: int | None = None
    """CPU that its kubelet has set aside for it; None = it does not say."""
    exit_code: int | None = None
    reason: str = ""

    @property
    def terminal(self) -> bool:
        """Its containers have ended for good, or never began."""
        return self.phase in ("ended", "rejected")


def look(pod: Pod) -> Seen:
    """What there is to see."""
    annotations = pod.metadata.annotations or {}
    phase = _phase(pod)
    ours = marks.bound_by_us(annotations, pod.spec.node_name)
    grace_s = pod.spec.termination_grace_period_seconds
    return Seen(
        pod_uid=pod.metadata.uid,
        phase=phase,
        node=pod.spec.node_name,
        managed=(pod.metadata.labels or {}).get(marks.MANAGED) == "true" or ours,
        foreign=marks.FOREIGN in annotations,
        mark=marks.mark_of(annotations),
        bound_by_us=ours,
        cards=annotations.get(marks.CARDS, ""),
        shares=annotations.get(marks.SHARES, ""),
        terminating=pod.metadata.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates or ()),
        grace_s=30 if grace_s is None else grace_s,
        isolation=marks.isolation_of(annotations),
        cpu_milli=_cpu(pod, limit=False),
        cpu_limit_milli=_cpu(pod, limit=True),
        container_id=_container_id(pod),
        resize=resizing(pod),
        cpu_has_milli=_cpu_has(pod),
        exit_code=_exit_code(pod) if phase == "ended" else None,
        reason=_reason(pod, phase),
    )


def _phase(pod: Pod) -> SeenPhase:
    if pod.status.phase == "Succeeded":
        return "ended"
    if pod.status.phase == "Failed":
        return "rejected" if _not_admitted(pod) else "ended"
    if not pod.spec.node_name:
        return "unbound"
    return "running" if pod.status.phase == "Running" else "bound"


def resizing(pod: Pod) -> Resizing:
    """What the kubelet says of an in-place change; nothing once it is done, nor of the size before the present one."""
    for condition in pod.status.conditions or ():
        if condition.status != "True" or _outdated(condition, pod):
            continue
        if condition.type == "PodResizePending":
            return "infeasible" if condition.reason == "Infeasible" else "deferred"
        if condition.type == "PodResizeInProgress":
            return "error" if condition.reason == "Error" else "in-progress"
    return ""


def _outdated(condition: PodCondition, pod: Pod) -> bool:
    return 0 < condition.observed_generation < pod.metadata.generation


def _resize_told(pod: Pod) -> str:
    """`resize deferred: Node didn't have enough capacity: cpu, …`; empty while nothing is wrong with it."""
    kind = resizing(pod)
    if kind in ("", "in-progress"):
        return ""
    told = [c.message for c in pod.status.conditions or () if c.type.startswith("PodResize") and c.status == "True"]
    return f"resize {kind}: {told[0] if told and told[0] else 'no reason given'}"


def _cpu(pod: Pod, *, limit: bool) -> int | None:
    """Of the one container that we render; the webhooks of others may have put more beside it."""
    own = next((c for c in pod.spec.containers or () if c.name == _main(pod)), None)
    resources = own.resources if own else None
    amounts = (resources.limits if limit else resources.requests) if resources else None
    try:
        return ceil_in(parse((amounts or {})["cpu"]), MILLI)
    except (KeyError, BadQuantity):
        return None


def _cpu_has(pod: Pod) -> int | None:
    """As its kubelet tells it: with a refused resize the spec says what was asked for."""
    own = next((s for s in pod.status.container_statuses or () if s.name == _main(pod)), None)
    try:
        return ceil_in(parse(((own.allocated_resources if own else None) or {})["cpu"]), MILLI)
    except (KeyError, BadQuantity):
        return None


def _main(pod: Pod) -> str:
    """The container that is looked at; of a pod that somebody else made only where it is the only one."""
    if marks.FOREIGN not in (pod.metadata.annotations or {}):
        return CONTAINER
    names = [container.name for container in pod.spec.containers or ()]
    return names[0] if len(names) == 1 else ""


def _container_id(pod: Pod) -> str:
    own = next((s for s in pod.status.container_statuses or () if s.name == _main(pod)), None)
    return own.container_id.rpartition("//")[2] if own else ""


def _not_admitted(pod: Pod) -> bool:
    """Failed by the kubelet before any container began: it would have been refused on any try."""
    reason = pod.status.reason
    admission = reason in NOT_ADMITTED or reason.startswith("OutOf") or reason.endswith("NotSupported")
    return admission and not pod.status.container_statuses


def _exit_code(pod: Pod) -> int | None:
    """Of the first container that failed, else of the first that ended; None when nobody knows."""
    codes = [code for status in pod.status.container_statuses or () if (code := _code(status)) is not None]
    return next((code for code in codes if code), codes[0] if codes else None)


def _code(status: ContainerStatus) -> int | None:
    return status.state.terminated.exit_code if status.state.terminated else None


def _reason(pod: Pod, phase: SeenPhase) -> str:
    if phase in ("ended", "rejected"):
        return _end_reason(pod)
    if phase == "bound":
        waits = [status.state.waiting.reason for status in pod.status.container_statuses or () if status.state.waiting]
        return next((_SAME.get(why, why) for why in waits if why and why not in STILL_STARTING), "")
    return _resize_told(pod)[:1000]


def _end_reason(pod: Pod) -> str:
    """`OutOfcpu: Node didn't have enough resource`, `OOMKilled`, `Completed`, …"""  # noqa: D415 - a list of samples
    own = ": ".join(part for part in (pod.status.reason, pod.status.message) if part)
    ends = [status.state.terminated.reason for status in pod.status.container_statuses or () if status.state.terminated]
    return (own or next((end for end in ends if end and end != "Completed"), "") or next(iter(ends), ""))[:1000]
