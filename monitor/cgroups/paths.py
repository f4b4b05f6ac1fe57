"""From the path of a cgroup to the pod and the container that it is: kubelets write it in a dozen ways. Pure.

In: a path below the root of a hierarchy, as /proc/<pid>/cgroup or a walk gives it. Out: a `Home`, or None for what is
no pod's and no container's. What differs:

    driver      cgroupfs `/kubepods/burstable/pod<uid>/<id>`,
                systemd `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice/x-<id>.scope`
    class       burstable and besteffort have a level of their own, guaranteed pods hang directly below the root
    runtime     containerd `cri-containerd-`, CRI-O `crio-`, docker `docker-`, podman `libpod-`, or no prefix at all
    root        kubelet `--cgroup-root`, kind's `kubelet-` prefix and `/docker/<id>/kubelet/…`, `/../..` of a namespace
    depth       a container may make cgroups of its own below its own

A pod inside a pod (kind, a runner with its own kubelet) belongs, for whoever shares this node, to the outer one: the
first pod of the path counts, and the first container behind it. A process of `conmon`, CRI-O's keeper, is in the pod
and in no container.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from contracts.usage import Runtime

Qos = Literal["guaranteed", "burstable", "besteffort"]

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
"""A UUID, or 32 hexadecimal digits: the kubelet's own (static) pods are named by a digest of their file."""
_ID = r"[0-9a-f]{64}"

_POD_FOLDER = re.compile(rf"pod({_UID})")
_POD_SLICE = re.compile(rf"(?:[A-Za-z0-9_.]+-)*?kubepods(?:-(burstable|besteffort))?-pod({_UID})\.slice")
_MISFILED = re.compile(rf"{_POD_SLICE.pattern}:([a-z-]+):({_ID})")
"""containerd told to use cgroupfs under a kubelet that uses systemd: one folder with colons in it."""
_CONTAINER = re.compile(rf"(?:(cri-containerd|crio|docker|libpod)-)?({_ID})(?:\.scope)?")
_DELETED = " (deleted)"

_RUNTIMES: dict[str | None, Runtime] = {
    "cri-containerd": "containerd",
    "crio": "cri-o",
    "docker": "docker",
    "libpod": "podman",
}


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cgroup belongs. Empty = there is none: a docker container has no pod, a pod's own cgroup no container."""

    pod_uid: str = ""
    """With dashes, as Kubernetes writes it."""
    container: str = ""
    runtime: Runtime = ""
    """Empty where the path does not tell."""
    qos: Qos | None = None
    """Of the pod."""


def home_of(path: str) -> Home | None:
    """The pod and container of a cgroup path; None when it is neither. Never raises."""
    parts = path.removesuffix(_DELETED).split("/")
    for index, part in enumerate(parts):
        if (misfiled := _MISFILED.fullmatch(part)) is not None:
            return _misfiled(misfiled)
        pod = pod_of(part, parts[index - 1] if index else "")
        if pod is not None:
            return _with_container(pod, parts[index + 1 :])
    return next((Home(container=c.container, runtime=c.runtime) for c in map(container_of, parts) if c), None)


def pod_of(part: str, above: str = "") -> Home | None:
    """The pod that one folder is; `above` is the folder that it lies in, which tells its class under cgroupfs."""
    if (plain := _POD_FOLDER.fullmatch(part)) is not None:
        return Home(pod_uid=_dashed(plain[1]), qos=_qos(above))
    if (unit := _POD_SLICE.fullmatch(part)) is not None:
        return Home(pod_uid=_dashed(unit[2]), qos=_qos(unit[1]))
    return None


def container_of(part: str) -> Home | None:
    """The container that one folder is."""
    found = _CONTAINER.fullmatch(part)
    return Home(container=found[2], runtime=_RUNTIMES.get(found[1], "")) if found else None


def may_hold_pods(part: str) -> bool:
    """Whether pods can lie below a folder of this name: `kubepods`, `kubelet-kubepods-burstable.slice`, `kubelet`."""
    return "kubepods" in part or part in ("kubelet", "kubelet.slice", "burstable", "besteffort")


def _with_container(pod: Home, below: list[str]) -> Home:
    for part in below:
        if (found := container_of(part)) is not None:
            return msgspec.structs.replace(pod, container=found.container, runtime=found.runtime)
    return pod


def _misfiled(found: re.Match[str]) -> Home:
    qos, uid, runtime, container = found.groups()
    return Home(pod_uid=_dashed(uid), container=container, runtime=_RUNTIMES.get(runtime, ""), qos=_qos(qos))


def _dashed(uid: str) -> str:
    return uid.replace("_", "-")


def _qos(word: str | None) -> Qos:
    return word if word in ("burstable", "besteffort") else "guaranteed"  # type: ignore[return-value] # narrowed by `in`
