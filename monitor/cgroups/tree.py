"""Reading the cgroups of pods: which containers there are, and what the kernel has charged to each.

In: the folder where cgroups are mounted, and the uids of the pods that matter. Out: for each container a `Reading`.
Both versions, found by what is there: `cgroup.controllers` at the root is v2; else each controller has a folder of its
own (v1), which may be shared (`cpu,cpuacct`) or missing.

Pods are found by their folder's name, not by a path made from a rule: the rule differs by driver, class and version.
Where one was found is remembered, so a steady node costs one listing a pod and seven small files a container; a pod
that is not found makes the folders of pods be listed again. A cgroup that vanishes while it is read has ended: its
files are None, and it is not there the next time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from contracts.usage import Runtime
from monitor import smallfile
from monitor.cgroups.paths import container_of, may_hold_pods, pod_of
from monitor.cgroups.stats import Reading, TextsV1, TextsV2, reading_v1, reading_v2

_DEPTH = 5
"""`kubelet/kubepods/burstable/pod…` is four deep; one more for a root of the kubelet's own."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One container and one look at it."""

    pod_uid: str
    container: str
    runtime: Runtime
    reading: Reading


class CpuPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where the CPU limits of one container and its pod stand: folders with `cpu.max`, or with `cpu.cfs_quota_us`."""

    pod_uid: str
    container: str
    unified: bool
    pod_folder: str
    folder: str


class Hierarchies(msgspec.Struct, frozen=True, kw_only=True):
    """Where each controller's tree begins; None = it is not mounted."""

    unified: str | None = None
    cpu: str | None = None
    cpuacct: str | None = None
    memory: str | None = None

    @property
    def walked(self) -> str | None:
        """The tree whose folders are listed; the others have the same ones."""
        return self.unified or self.cpuacct or self.cpu or self.memory


def hierarchies(root: Path) -> Hierarchies:
    """What is mounted below `root`."""
    if (root / "cgroup.controllers").exists():
        return Hierarchies(unified=str(root))
    mounted = {name: f"{root}/{folder}" for folder in _folders(str(root)) for name in folder.split(",")}
    return Hierarchies(cpu=mounted.get("cpu"), cpuacct=mounted.get("cpuacct"), memory=mounted.get("memory"))


class CgroupTree:
    """The pods below one mount. Blocking; for one caller at a time.

    Args:
        root: where cgroups are mounted, /sys/fs/cgroup on every machine of today.
        below: the kubelet's `--cgroup-root`, if it has one.
    """

    def __init__(self, root: Path, below: str = "") -> None:
        self._root = root
        self._below = below.strip("/")
        self._hierarchies = Hierarchies()
        self._pods: dict[str, str] = {}
        """Pod uid -> path below the walked tree's root. Only of pods that were asked for at the last look."""

    def look(self, pods: Collection[str]) -> tuple[Found, ...] | None:
        """One look at every container of these pods, by pod and container; None when there are no cgroups to read."""
        if self._hierarchies.walked is None:
            self._hierarchies = hierarchies(self._root)
        walked = self._hierarchies.walked
        if walked is None:
            return None
        self._find(walked, frozenset(pods))
        return tuple(self._found(walked, sorted(self._pods.items())))

    def cpu_places(self, pods: Collection[str]) -> tuple[CpuPlace, ...] | None:
        """Where the CPU limits of the containers of these pods stand; None when there is no such hierarchy."""
        if self._hierarchies.walked is None:
            self._hierarchies = hierarchies(self._root)
        walked, tree = self._hierarchies.walked, self._hierarchies.unified or self._hierarchies.cpu
        if walked is None or tree is None:
            return None
        self._find(walked, frozenset(pods))
        return tuple(self._cpu_places(tree, sorted(self._pods.items())))

    def _cpu_places(self, tree: str, pods: list[tuple[str, str]]) -> Iterator[CpuPlace]:
        unified = self._hierarchies.unified is not None
        for uid, path in pods:
            pod_folder = f"{tree}/{path}"
            for name in sorted(_folders(pod_folder)):
                home = container_of(name)
                if home is not None:
                    yield CpuPlace(
                        pod_uid=uid,
                        container=home.container,
                        unified=unified,
                        pod_folder=pod_folder,
                        folder=f"{pod_folder}/{name}",
                    )

    def _find(self, walked: str, wanted: frozenset[str]) -> None:
        still = {uid: path for uid, path in self._pods.items() if uid in wanted and Path(walked, path).is_dir()}
        if wanted - still.keys():
            still = {uid: path for uid, path in _pods_below(walked, self._below, _DEPTH) if uid in wanted}
        self._pods = still

    def _found(self, walked: str, pods: list[tuple[str, str]]) -> Iterator[Found]:
        for uid, path in pods:
            for folder in sorted(_folders(f"{walked}/{path}")):
                home = container_of(folder)
                if home is not None:
                    reading = self._read(f"{path}/{folder}")
                    yield Found(pod_uid=uid, container=home.container, runtime=home.runtime, reading=reading)

    def _read(self, path: str) -> Reading:
        return _read_v2(f"{self._hierarchies.unified}/{path}") if self._hierarchies.unified else self._read_v1(path)

    def _read_v1(self, path: str) -> Reading:
        cpu, cpuacct, memory = self._hierarchies.cpu, self._hierarchies.cpuacct, self._hierarchies.memory
        return reading_v1(
            TextsV1(
                cpuacct_usage=_text(cpuacct, path, "cpuacct.usage"),
                cpu_stat=_text(cpu, path, "cpu.stat"),
                cfs_quota_us=_text(cpu, path, "cpu.cfs_quota_us"),
                cfs_period_us=_text(cpu, path, "cpu.cfs_period_us"),
                memory_usage=_text(memory, path, "memory.usage_in_bytes"),
                memory_stat=_text(memory, path, "memory.stat"),
                memory_limit=_text(memory, path, "memory.limit_in_bytes"),
            )
        )


def _read_v2(folder: str) -> Reading:
    return reading_v2(
        TextsV2(
            cpu_stat=_text(folder, "", "cpu.stat"),
            cpu_max=_text(folder, "", "cpu.max"),
            memory_current=_text(folder, "", "memory.current"),
            memory_stat=_text(folder, "", "memory.stat"),
            memory_max=_text(folder, "", "memory.max"),
        )
    )


def _pods_below(walked: str, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Uid and path of every pod below; only folders that can hold pods are entered."""
    for name in _folders(f"{walked}/{path}"):
        child = f"{path}/{name}" if path else name
        pod = pod_of(name, path.rpartition("/")[2])
        if pod is not None:
            yield pod.pod_uid, child
        elif depth > 0 and may_hold_pods(name):
            yield from _pods_below(walked, child, depth - 1)


def _folders(folder: str) -> list[str]:
    """Names of the folders in it; none when it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _text(tree: str | None, path: str, name: str) -> str | None:
    """A file of a cgroup; None when there is none."""
    found = smallfile.read(f"{tree}/{path}/{name}") if tree is not None else None
    return found.decode("ascii", "replace") if found is not None else None
