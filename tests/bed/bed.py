"""A bed: a real Kubernetes of real kubelets, containerd and runc on this machine, in namespaces of its own.

    async with Bed(["gpu-1", "gpu-2"]) as bed:
        with bed.entered():
            await bed.api("GET", "/api/v1/nodes")
            await bed.helm("install", "gpubus", "deploy/chart", "-n", "gpubus-system", "--create-namespace")

Real are: storage, admission, controllers, the default scheduler, kubelets, images, containers, cgroups, pod network,
tokens in pods. Not real: seccomp filters (see tests/cluster/build.sh), and Services are names, see tests.bed.names.

Nothing of it touches the machine's network, mounts or settings; cgroups are the one thing that outlives its processes,
and those of an earlier bed that was killed are taken away by the next one. It lives in namespaces whose first process
ends with ours, however ours ends: no container survives a `kill -9` of the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bed import images, layout
from tests.servers.binaries import program
from tests.servers.http import Answer, call
from tests.servers.ports import try_lock
from tests.servers.process import Opened

__all__ = ["Bed", "BedError", "trees"]

REPOSITORY = Path(__file__).resolve().parents[2]
GROUP = "gpubus-bed-"
_CGROUPS = Path("/sys/fs/cgroup")
_NETWORK = 0x40000000  # CLONE_NEWNET
_START_S = 150.0
_NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class BedError(RuntimeError):
    """A bed did not come up, or a command in it failed."""


class Bed(Opened):
    """One cluster with nodes of these names."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.nodes = list(nodes)
        self.folder = Path(tempfile.mkdtemp(prefix=GROUP))
        self.group = self.folder.name
        self._lock = _lock(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._tls: ssl.SSLContext | None = None

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator; its addresses mean something inside the bed's network only."""
        return self.folder / "admin.kubeconfig"

    async def start(self, say: Callable[[str], None] | None = None) -> None:
        """From nothing to Ready nodes; what is done goes to `say`."""
        await asyncio.to_thread(images.make)
        _sweep()
        _make_groups([self.group, *(f"{self.group}/{node}" for node in self.nodes)])
        (self.folder / "certs").mkdir()
        self._launch()
        await asyncio.wait_for(asyncio.to_thread(self._listen, say), _START_S)

    def _launch(self) -> None:
        """Plain `subprocess`, not asyncio's: a bed outlives the event loop of the fixture that started it."""
        command = [sys.executable, "-m", "tests.bed.inside", str(self.folder), self.group, *self.nodes]
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with (self.folder / "inside.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*_NAMESPACES, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env
            )

    def _listen(self, say: Callable[[str], None] | None) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode().rstrip()
            if say is not None:
                say(text)
            if text.endswith("  ready"):
                return
        raise BedError(f"the bed did not come up:\n{self.logs()}")

    async def close(self) -> None:
        """End everything, take the cgroups away, remove the folder."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        await asyncio.to_thread(_remove, self.folder)
        if self._lock is not None:
            os.close(self._lock)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and what it starts, in the bed's network meanwhile."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        theirs = os.open(f"/proc/{self.first}/ns/net", os.O_RDONLY)
        try:
            _enter(theirs)
            try:
                yield
            finally:
                _enter(home)
        finally:
            os.close(home)
            os.close(theirs)

    @property
    def first(self) -> int:
        """The bed's first process, as this machine numbers it."""
        assert self._process is not None
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])

    async def api(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        """One call as administrator, or with another `token`."""
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))
        more = {"token": layout.ADMIN_TOKEN, **more}
        return await call(method, f"https://{layout.API}{path}", body=body, tls=self._tls, **more)

    async def helm(self, *arguments: str | Path) -> str:
        """Run helm as administrator; what it printed."""
        command = [str(program("helm")), "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]
        env = {**os.environ, **{f"HELM_{what}_HOME": str(self.folder / "helm") for what in ("CACHE", "CONFIG", "DATA")}}
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=env
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise BedError(f"helm {' '.join(map(str, arguments))}: {said.decode()}")
        return said.decode()

    async def pods(self, namespace: str, **labels: str) -> list[dict[str, Any]]:
        """The pods of a namespace that have these labels."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        answer = await self.api("GET", f"/api/v1/namespaces/{namespace}/pods", query=query)
        found: list[dict[str, Any]] = answer.body["items"]
        return found

    async def log(self, namespace: str, pod: str, **query: object) -> str:
        """What a container has written, asked from the kubelet through the API server; empty while it has not begun."""
        answer = await self.api("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query=query)
        return str(answer.body) if answer.status == 200 else ""

    def processes(self, name: str) -> list[int]:
        """Those that write the log of this name, as this machine numbers them: a kubelet, and what brought it there."""
        log = self.folder / "log" / f"{name}.log"
        return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is(entry, log))

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """A signal to processes of the bed by the name of their log, a kubelet for example; containers live on."""
        for pid in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def logs(self, lines: int = 15) -> str:
        """The end of what each process wrote."""
        found = [self.folder / "inside.log", *sorted(self.folder.glob("log/*.log"))]
        texts = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in found if path.exists()}
        return "\n".join(f"--- {name}\n" + "\n".join(text.splitlines()[-lines:]) for name, text in texts.items())


def _enter(network: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(network, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _is(entry: Path, log: Path) -> bool:
    with contextlib.suppress(OSError):
        return (entry / "fd" / "1").readlink() == log
    return False


# --- cgroups ---------------------------------------------------------------------------------------------------------


def trees() -> list[Path]:
    """The hierarchies: one in version 2, one for each controller in version 1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [path for path in sorted(_CGROUPS.iterdir()) if path.is_dir() and not path.is_symlink()]


def _make_groups(names: Sequence[str]) -> None:
    """Groups with every controller; in version 1 a new cpuset is empty, and takes no process until it is filled."""
    for tree in trees():
        for name in names:
            group = tree / name
            group.mkdir()
            for inherited in ("cpuset.cpus", "cpuset.mems"):
                if (group / inherited).exists() and (tree / inherited).exists():
                    (group / inherited).write_text((group.parent / inherited).read_text(encoding="ascii"))
            _delegate(group.parent)
            _delegate(group)


def _delegate(group: Path) -> None:
    """In version 2: what is in a group may be limited by every controller that it has itself."""
    control = group / "cgroup.subtree_control"
    if not control.exists():
        return
    for controller in (group / "cgroup.controllers").read_text(encoding="ascii").split():
        with contextlib.suppress(OSError):
            control.write_text(f"+{controller}", encoding="ascii")


def _remove_group(name: str) -> None:
    """Bottom up; a group is busy for a moment after its last process."""
    for tree in trees():
        top = tree / name
        folders = [Path(path) for path, _, _ in os.walk(top, topdown=False)]
        for folder in folders:
            for _ in range(100):
                with contextlib.suppress(FileNotFoundError):
                    try:
                        folder.rmdir()
                    except OSError:
                        time.sleep(0.02)
                        continue
                break


def _lock(folder: Path) -> int | None:
    """Held as long as a bed's maker lives; None: somebody else's lives."""
    return try_lock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC))


def _sweep() -> None:
    """What beds left whose makers were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{GROUP}*"):
        lock = _lock(folder)
        if lock is not None:
            _remove(folder)
            os.close(lock)


def _remove(folder: Path) -> None:
    """What a bed leaves when all its processes are gone: cgroups, mount points that it made, its folder."""
    _remove_group(folder.name)
    with contextlib.suppress(OSError):
        for path in (folder / "made").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                Path(path).rmdir()
    shutil.rmtree(folder, ignore_errors=True)
