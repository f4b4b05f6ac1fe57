"""What a kubelet makes of a pod: admission, and the status it reports at each step. Pure.

How long a container runs is told by the pod annotation `gpubus.dev/simulated-run-s` or a command `["sleep",
"N"]`; without either it runs until the pod is deleted. `gpubus.dev/simulated-exit-code` is what it ends
with (0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubus.local.kube.meta import timestamp
from gpubus.local.kube.quantity import milli
from gpubus.local.kube.rules.pods import is_finished, set_condition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EXIT_CODE",
    "RUN_S",
    "between",
    "ended",
    "exit_code",
    "not_ready",
    "refusal",
    "rejected",
    "restarts",
    "run_s",
    "running",
]

RUN_S = "gpubus.dev/simulated-run-s"
EXIT_CODE = "gpubus.dev/simulated-exit-code"
_POD_IP = "10.244.0.1"


def run_s(pod: dict[str, Any]) -> float | None:
    """Seconds until the containers end by themselves; None: never."""
    text = (pod["metadata"].get("annotations") or {}).get(RUN_S)
    if text is None:
        program, *rest = pod["spec"]["containers"][0].get("command") or [""]
        text = rest[0] if program == "sleep" and rest else None
    try:
        seconds = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def exit_code(pod: dict[str, Any]) -> int:
    """What the containers end with when they end by themselves."""
    text = (pod["metadata"].get("annotations") or {}).get(EXIT_CODE, "0")
    return int(text) if text.isdigit() else 1


def restarts(pod: dict[str, Any], code: int) -> bool:
    """Whether the containers are started again after they have ended with this code."""
    policy = pod["spec"]["restartPolicy"]
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def refusal(node: dict[str, Any], pod: dict[str, Any], others: Iterable[dict[str, Any]]) -> tuple[str, str] | None:
    """Why a kubelet does not take a pod that was bound to it: (reason, message); None when it does.

    Only sums are checked, as by the real one: each resource asked for against what is allocatable and not
    requested by the pods it has.
    """
    present = [other for other in others if not is_finished(other)]
    allocatable = node["status"].get("allocatable") or {}
    if "pods" in allocatable and len(present) + 1 > milli(allocatable["pods"]) // 1000:
        return "OutOfpods", _lacks("pods", 1, len(present), milli(allocatable["pods"]) // 1000)
    for kind, wanted in _requests(pod).items():
        used = sum(_requests(other).get(kind, 0) for other in present)
        capacity = milli(allocatable.get(kind, "0"))
        if used + wanted > capacity:
            unit = 1 if kind == "cpu" else 1000
            return f"OutOf{kind}", _lacks(kind, wanted // unit, used // unit, capacity // unit)
    return None


def rejected(pod: dict[str, Any], reason: str, message: str, now: float) -> dict[str, Any]:
    """The pod after its kubelet has refused it: Failed for good."""
    told = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "startTime": timestamp(now)}
    return {**pod, "status": {**told, "qosClass": pod["status"].get("qosClass", "")}}


def running(pod: dict[str, Any], now: float) -> dict[str, Any]:
    """The pod with its containers started (again)."""
    status = pod["status"]
    containers = [_started(c, old, now) for c, old in _with_old(pod)]
    ip = {"podIP": _POD_IP, "podIPs": [{"ip": _POD_IP}], "hostIP": "127.0.0.1"}
    body = {**status, "phase": "Running", "startTime": status.get("startTime", timestamp(now)), **ip}
    return _conditions({**pod, "status": {**body, "containerStatuses": containers}}, "True", now)


def ended(pod: dict[str, Any], code: int, now: float) -> dict[str, Any]:
    """The pod with all its containers ended: Succeeded, or Failed when the code is not 0."""
    containers = [_stopped(c, old, code, now) for c, old in _with_old(pod)]
    phase = "Succeeded" if code == 0 else "Failed"
    body = {**pod["status"], "phase": phase, "containerStatuses": containers}
    told = {"reason": "PodCompleted" if code == 0 else "PodFailed"}
    return _conditions({**pod, "status": body}, "False", now, **told)


def between(pod: dict[str, Any], code: int, now: float) -> dict[str, Any]:
    """The pod whose containers have ended and will be started again: the phase stays Running."""
    after = ended(pod, code, now)
    return {**after, "status": {**after["status"], "phase": "Running"}}


def not_ready(pod: dict[str, Any], now: float) -> dict[str, Any]:
    """The pod of a node that is lost: the phase stays, only readiness goes."""
    return set_condition(pod, "Ready", "False", now)


def _with_old(pod: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    known = {status["name"]: status for status in pod["status"].get("containerStatuses") or []}
    return [(container, known.get(container["name"], {})) for container in pod["spec"]["containers"]]


def _started(container: dict[str, Any], old: dict[str, Any], now: float) -> dict[str, Any]:
    count = old["restartCount"] + 1 if old else 0
    state = {"running": {"startedAt": timestamp(now)}}
    return _container(container, count, state, last=old.get("state", {}), ready=True)


def _stopped(container: dict[str, Any], old: dict[str, Any], code: int, now: float) -> dict[str, Any]:
    started = old.get("state", {}).get("running", {}).get("startedAt", timestamp(now))
    end = {"exitCode": code, "startedAt": started, "finishedAt": timestamp(now)}
    state = {"terminated": {**end, "reason": "Completed" if code == 0 else "Error"}}
    return _container(container, old.get("restartCount", 0), state, last=old.get("lastState", {}), ready=False)


def _container(
    container: dict[str, Any], restarted: int, state: dict[str, Any], *, last: dict[str, Any], ready: bool
) -> dict[str, Any]:
    name, image = container["name"], container["image"]
    who = {"name": name, "image": image, "imageID": image, "containerID": f"simulated://{name}-{restarted}"}
    return {**who, "state": state, "lastState": last, "ready": ready, "started": ready, "restartCount": restarted}


def _conditions(pod: dict[str, Any], value: str, now: float, **told: str) -> dict[str, Any]:
    pod = set_condition(pod, "Initialized", "True", now)
    for kind in ("Ready", "ContainersReady"):
        pod = set_condition(pod, kind, value, now, **told)
    return pod


def _requests(pod: dict[str, Any]) -> dict[str, int]:
    """Sums of the containers' requests, in thousandths of each resource's unit."""
    sums: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for kind, quantity in (container.get("resources", {}).get("requests") or {}).items():
            sums[kind] = sums.get(kind, 0) + milli(quantity)
    return sums


def _lacks(kind: str, wanted: int, used: int, capacity: int) -> str:
    return f"Node didn't have enough resource: {kind}, requested: {wanted}, used: {used}, capacity: {capacity}"
