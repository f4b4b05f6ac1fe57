"""CPU limits of containers, written to the kernel within milliseconds and looked at again and again.

In: each pod's container and the limit wanted; a tree of cgroups. Out: the limit in the container's cgroup, and for each
pod what stands there now. Kubernetes does not know of it: it writes its own limit when the container restarts or its
resources change, and this is written again at the next look. One that is no longer wanted gives its spec's back.

Which pods were touched is kept in a file, so that a monitor that was killed gives back what it had taken; pods that
were never touched are never written to. The folder's rights needed: root without capabilities, and a read-write mount
of the CPU hierarchy (v1: `/sys/fs/cgroup/cpu`, v2: `/sys/fs/cgroup`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from contracts.shares import CPU, PodEnforcement, PodState
from monitor.cgroups.stats import number
from monitor.cgroups.tree import CgroupTree, CpuPlace
from monitor.enforce import atomic
from monitor.enforce.cfs import Cfs, Write, milli, writes
from monitor.enforce.wanted import PodCpu

TOUCHED = "cpu-limits.json"


class CpuLimits:
    """The limits of one node's pods.

    Args:
        tree: where the pods' cgroups are.
        state: a folder that outlives this process, not the node's boot.
    """

    def __init__(self, tree: CgroupTree, state: Path) -> None:
        self._tree = tree
        self._file = state / TOUCHED
        self._touched: set[str] | None = None

    def hold(self, wanted: Sequence[PodCpu]) -> tuple[PodEnforcement, ...]:
        """Bring every container to its limit and tell what stands. Raises OSError: what was touched cannot be kept."""
        touched = self._remembered()
        ours = [pod for pod in wanted if pod.limit_milli is not None or pod.pod_uid in touched]
        if not ours and not touched:
            return ()
        uids = {pod.pod_uid for pod in ours if pod.pod_uid}
        places = self._tree.cpu_places(touched | uids)
        if places is None:
            return tuple(_told(pod, "failed", "there is no CPU hierarchy of cgroups here") for pod in ours)
        self._keep(uids | touched & {place.pod_uid for place in places})
        found = {(place.pod_uid, place.container): place for place in places}
        told = [(pod, self._one(pod, found.get((pod.pod_uid, pod.container_id)))) for pod in ours]
        self._keep(self._remembered() - {pod.pod_uid for pod, one in told if _given_back(pod, one)})
        return tuple(one for pod, one in told if pod.limit_milli is not None)

    def _one(self, pod: PodCpu, place: CpuPlace | None) -> PodEnforcement:
        if not pod.container_id:
            return _told(pod, "waiting", "its container is not known to run here")
        if place is None:
            return _told(pod, "waiting", f"container {pod.container_id[:12]} has no cgroup here")
        try:
            stands = bring(place, pod.spec_milli if pod.limit_milli is None else pod.limit_milli)
        except OSError as error:
            return _told(pod, "failed", f"{error.strerror}: {error.filename or place.folder}")
        return _told(pod, "applied", stands_milli=milli(stands))

    # --- what was touched --------------------------------------------------------------------------------------------

    def _remembered(self) -> set[str]:
        if self._touched is None:
            self._touched = _read(self._file)
        return self._touched

    def _keep(self, touched: set[str]) -> None:
        """Before a limit is written it stands here, and until it is given back."""
        if touched == self._touched:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(self._file, msgspec.json.encode(sorted(touched)), staging=self._staging())
        self._touched = touched

    def _staging(self) -> Path:
        folder = self._file.parent / ".staging"
        folder.mkdir(exist_ok=True)
        return folder


def _given_back(pod: PodCpu, told: PodEnforcement) -> bool:
    """Its spec's limit stands again. A container that is not found may be one that starts just now."""
    return pod.limit_milli is None and told.state == "applied"


def _told(pod: PodCpu, state: PodState, reason: str = "", *, stands_milli: int | None = None) -> PodEnforcement:
    return PodEnforcement(uid=pod.uid, what=CPU, state=state, reason=reason[:1024], limit_milli=stands_milli)


def _read(file: Path) -> set[str]:
    """A file that cannot be read is one that was never written: it is only ever replaced as a whole."""
    try:
        return set(msgspec.json.decode(file.read_bytes(), type=list[str]))
    except (OSError, msgspec.MsgspecError):
        return set()


# --- the kernel's files ----------------------------------------------------------------------------------------------


def bring(place: CpuPlace, want_milli: int | None) -> Cfs:
    """Bring one container to its limit and return what stands afterwards. Raises OSError, with the kernel's reason."""
    for write in writes(read(place.pod_folder, place), read(place.folder, place), want_milli):
        _write(place.pod_folder if write.level == "pod" else place.folder, write, unified=place.unified)
    return read(place.folder, place)


def read(folder: str, place: CpuPlace) -> Cfs:
    """The quota of one cgroup. Raises OSError: it is gone, or it has none."""
    if place.unified:
        words = _text(folder, "cpu.max").split()
        quota = None if words[:1] == ["max"] else _known(words[:1], folder)
        return Cfs(quota_us=quota, period_us=_known(words[1:2], folder))
    words = _text(folder, "cpu.cfs_quota_us").split()
    quota = None if words == ["-1"] else _known(words, folder)
    return Cfs(quota_us=quota, period_us=_known(_text(folder, "cpu.cfs_period_us").split(), folder))


def _known(words: list[str], folder: str) -> int:
    """A quota that cannot be read is not "no limit"."""
    found = number(words[0]) if words else None
    if not found:
        raise OSError(errno.EINVAL, f"{' '.join(words)[:40]!r} is no quota", folder)
    return found


def _write(folder: str, write: Write, *, unified: bool) -> None:
    quota = write.cfs.quota_us
    if unified:
        _put(folder, "cpu.max", f"{'max' if quota is None else quota} {write.cfs.period_us}")
    else:
        _put(folder, "cpu.cfs_quota_us", "-1" if quota is None else str(quota))


def _put(folder: str, name: str, text: str) -> None:
    """One write call: a file object would hold the kernel's EINVAL back until it is closed."""
    path = f"{folder}/{name}"
    handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} for {text!r}", path) from error
    finally:
        os.close(handle)


def _text(folder: str, name: str) -> str:
    return Path(folder, name).read_text(encoding="ascii")
