"""A pod as decisions see it: a small value, taken from the object once, with everything that a plan asks about.

It tells what is there, not what should be: a pod that somebody forged, bound elsewhere or left half-marked is seen as
exactly that.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from reconciler import marks
from reconciler.objects import ContainerStatus, Pod

SeenPhase = Literal["unbound", "bound", "running", "ended", "rejected"]

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
    """Carries our label."""
    mark: marks.Mark | None = None
    bound_by_us: bool = False
    cards: str = ""
    shares: str = ""
    terminating: bool = False
    gates: tuple[str, ...] = ()
    grace_s: int = 30
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
    grace_s = pod.spec.termination_grace_period_seconds
    return Seen(
        pod_uid=pod.metadata.uid,
        phase=phase,
        node=pod.spec.node_name,
        managed=(pod.metadata.labels or {}).get(marks.MANAGED) == "true",
        mark=marks.mark_of(annotations),
        bound_by_us=marks.bound_by_us(annotations, pod.spec.node_name),
        cards=annotations.get(marks.CARDS, ""),
        shares=annotations.get(marks.SHARES, ""),
        terminating=pod.metadata.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates or ()),
        grace_s=30 if grace_s is None else grace_s,
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
    return ""


def _end_reason(pod: Pod) -> str:
    """`OutOfcpu: Node didn't have enough resource`, `OOMKilled`, `Completed`, …"""  # noqa: D415 - a list of samples
    own = ": ".join(part for part in (pod.status.reason, pod.status.message) if part)
    ends = [status.state.terminated.reason for status in pod.status.container_statuses or () if status.state.terminated]
    return (own or next((end for end in ends if end and end != "Completed"), "") or next(iter(ends), ""))[:1000]
