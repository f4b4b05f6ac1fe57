"""A pod's cgroups on this machine's own kernel, of whichever version it has: for tests that throttle real processes.

`RealPod` makes a pod and its container below a root of its own, so that it meets no kubelet's; `missing()` tells why
that is not possible here. Everything is removed at the end, the processes first.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from monitor.cgroups.tree import Hierarchies, hierarchies

MOUNT = Path("/sys/fs/cgroup")
BUSY = """
import ctypes, os
ctypes.CDLL(None).prctl(1, 9)  # it ends with its parent, however that ends
os.write(1, b".")
while True:
    pass
"""
POD = "0badcafe-0000-4000-8000-000000000001"


def missing() -> str:
    """Why no cgroup can be made here; empty when it can."""
    if os.geteuid() != 0:
        return "needs root to make cgroups"
    trees = _trees(hierarchies(MOUNT))
    if not trees:
        return f"no CPU hierarchy of cgroups below {MOUNT}"
    probe = trees[0] / f"gpubus-probe-{secrets.token_hex(4)}"
    try:
        probe.mkdir()
    except OSError as error:
        return f"cgroups cannot be made below {trees[0]}: {error.strerror}"
    limit = next((probe / name for name in ("cpu.max", "cpu.cfs_quota_us") if (probe / name).exists()), None)
    probe.rmdir()
    return "" if limit else f"the CPU controller is not enabled below {trees[0]}"


class RealPod:
    """One pod with one container at a time.

    Args:
        pod_us: quota of the pod's own cgroup; None = none.
    """

    def __init__(self, pod_us: int | None = None) -> None:
        self.root = f"gpubus-test-{secrets.token_hex(4)}"
        found = hierarchies(MOUNT)
        self.unified = found.unified is not None
        self._trees = _trees(found)
        self._busy: list[subprocess.Popen[bytes]] = []
        self.container = ""
        for tree in self._trees:
            folder = tree
            for part in (self.root, "kubepods", "burstable", f"pod{POD}"):
                if self.unified:
                    (folder / "cgroup.subtree_control").write_text("+cpu")
                folder /= part
                folder.mkdir()
            if self.unified:
                (folder / "cgroup.subtree_control").write_text("+cpu")
        if pod_us is not None:
            self.put(self.pod_folder, pod_us)

    @property
    def pod_folder(self) -> Path:
        """Where the pod's CPU limit stands."""
        return self._trees[0] / self.root / "kubepods" / "burstable" / f"pod{POD}"

    @property
    def folder(self) -> Path:
        """Where the container's stands."""
        return self.pod_folder / self.container

    def start(self) -> str:
        """A new container with a busy process, in place of the last one; its id."""
        self.end()
        self.container = secrets.token_hex(32)
        busy = subprocess.Popen([sys.executable, "-I", "-S", "-c", BUSY], stdout=subprocess.PIPE)
        self._busy.append(busy)
        assert busy.stdout is not None
        assert busy.stdout.read(1) == b"."
        for tree in self._trees:
            folder = tree / self.pod_folder.relative_to(self._trees[0]) / self.container
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(busy.pid))
        return self.container

    def end(self) -> None:
        """The container ends."""
        for busy in self._busy:
            busy.send_signal(signal.SIGKILL)
            busy.wait()
            if busy.stdout:
                busy.stdout.close()
        self._busy.clear()
        if self.container:
            for tree in self._trees:
                _remove(tree / self.pod_folder.relative_to(self._trees[0]) / self.container)
            self.container = ""

    def limit(self, folder: Path | None = None) -> str:
        """As the kernel shows it: µs each period, or `none`."""
        name = "cpu.max" if self.unified else "cpu.cfs_quota_us"
        word = ((folder or self.folder) / name).read_text().split()[0]
        return "none" if word in ("max", "-1") else word

    def put(self, folder: Path, quota_us: int | None) -> None:
        """As the kubelet or the runtime would."""
        none = "max" if self.unified else "-1"
        (folder / ("cpu.max" if self.unified else "cpu.cfs_quota_us")).write_text(str(quota_us or none))

    def stat(self, key: str) -> int:
        """A line of the container's cpu.stat."""
        lines = (self.folder / "cpu.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == key)

    def used_us(self) -> int:
        """CPU time of the container so far."""
        if self.unified:
            return self.stat("usage_usec")
        accounts = hierarchies(MOUNT).cpuacct
        assert accounts is not None
        return int((Path(accounts) / self.folder.relative_to(self._trees[0]) / "cpuacct.usage").read_text()) // 1000

    def remove(self) -> None:
        """All of it."""
        self.end()
        for tree in self._trees:
            folder = tree / self.pod_folder.relative_to(self._trees[0])
            while folder != tree:
                _remove(folder)
                folder = folder.parent


def _trees(found: Hierarchies) -> list[Path]:
    """The one with the limits first; in v1 the one with the accounts beside it, which is the one that is walked."""
    names = [found.unified] if found.unified else [found.cpu, found.cpuacct]
    return list(dict.fromkeys(Path(name) for name in names if name)) if names[0] else []


def _remove(folder: Path) -> None:
    """A cgroup is busy for a moment after its last process has ended."""
    for _ in range(200):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.01)
        else:
            return
