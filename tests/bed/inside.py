"""The first process of a bed: `python -m tests.bed.inside FOLDER GROUP NODE…`, in namespaces of its own.

It starts etcd, the API server, the controllers, Kubernetes' own scheduler, the name server, and for each node a
containerd and a kubelet; says on stdout what is done, line by line, at last `ready`; then lives until its stdin closes.
It is process 1 of its namespace: when it ends, however it ends, the kernel ends everything else in the bed, containers
included, and takes mounts and network away.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bed import images, layout
from tests.servers.binaries import folder as programs
from tests.servers.control_plane import write_signing_key
from tests.servers.http import call
from tests.servers.process import ServerProcess, wait_until

_START_S = 120.0
_MACHINE_WIDE = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet sets for the whole machine. Here it finds files in their place that hold these values already."""
ETCD = "http://127.0.0.1:2379"


class Inside:
    """Everything that runs in a bed."""

    def __init__(self, folder: Path, group: str, names: list[str]) -> None:
        self.folder, self._began = folder, time.monotonic()
        self.nodes = [
            layout.Node(folder, number, name, group=group, programs=programs())
            for number, name in enumerate(names, start=1)
        ]
        self.authority = folder / "certs" / "apiserver.crt"
        self.admin = folder / "admin.kubeconfig"
        self._tls: ssl.SSLContext | None = None
        self._processes: list[ServerProcess] = []

    def say(self, what: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:6.2f} s  {what}\n")
        sys.stdout.flush()

    async def up(self) -> None:
        """From nothing to nodes that are Ready."""
        self._files()
        self._machine()
        self._network()
        self.launch("etcd", [*self._etcd()])
        server = self.launch("kube-apiserver", self._apiserver())
        containerds = {node.name: self.launch(f"containerd-{node.name}", node.containerd()) for node in self.nodes}
        await asyncio.gather(*(self._images(node, containerds[node.name]) for node in self.nodes))
        await server.ready(self._serves, timeout_s=_START_S)
        self.say("API server ready")
        self.launch("kube-controller-manager", self._controllers())
        self.launch("kube-scheduler", self._scheduler())
        self.launch("names", [sys.executable, "-m", "tests.bed.names", self.admin])
        for node in self.nodes:
            self.launch(f"kubelet-{node.name}", node.kubelet(containerds[node.name].pid))
        await wait_until(self._nodes_ready, what="nodes Ready", timeout_s=_START_S, every_s=0.1)
        self.say("ready")

    def launch(self, name: str, command: list[Any]) -> ServerProcess:
        """Start a process, with its log in the bed's folder and its number in a file, so that it can be killed."""
        whole = [self._path(str(command[0])), *command[1:]]
        process = ServerProcess(name, whole, self.folder / "log" / f"{name}.log")
        process.launch()
        self._processes.append(process)
        return process

    @staticmethod
    def _path(program: str) -> str:
        """`execv` looks for nothing."""
        folders = [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin"]
        found = [Path(place) / program for place in folders if (Path(place) / program).is_file()]
        return program if "/" in program else str(found[0])

    def _files(self) -> None:
        (self.folder / "log").mkdir()
        write_signing_key(self.folder / "sa.key")
        names = [node.name for node in self.nodes]
        (self.folder / "tokens.csv").write_text(layout.tokens(names), encoding="ascii")
        self._kubeconfig(self.admin, layout.ADMIN_TOKEN)
        self._kubeconfig(self.folder / "scheduler.kubeconfig", "scheduler-token")
        for node in self.nodes:
            node.write()
            # In memory: unpacking and removing 25,000 files would take longer than everything else.
            store = node.folder / "ctd"
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "images", store], check=True)
            self._kubeconfig(node.folder / "kubeconfig", f"{node.name}-token")

    def _kubeconfig(self, path: Path, token: str) -> None:
        path.write_text(layout.kubeconfig(self.authority, token), encoding="utf-8")

    def _machine(self) -> None:
        """Settings of the whole machine stay as they are: the kubelet sees these instead."""
        shown = self.folder / "sysctl"
        shown.mkdir()
        for name, value in _MACHINE_WIDE.items():
            file = shown / name.replace("/", ".")
            file.write_text(value + "\n", encoding="ascii")
            if Path("/proc/sys", name).exists():
                subprocess.run(["mount", "--bind", file, f"/proc/sys/{name}"], check=True)
        made = [path for path in layout.HIDDEN if not Path(path).exists()]
        (self.folder / "made").write_text("\n".join(made), encoding="ascii")
        for path in made:
            Path(path).mkdir(parents=True, exist_ok=True)
        names = self.folder / "resolv.conf"
        names.write_text(f"nameserver {layout.ADDRESS}\n", encoding="ascii")
        if Path("/etc/resolv.conf").exists():
            subprocess.run(["mount", "--bind", names, Path("/etc/resolv.conf").resolve()], check=True)

    def _network(self) -> None:
        commands = [
            "link set lo up",
            f"link add {layout.BRIDGE} type bridge",
            f"link set {layout.BRIDGE} up",
            *(f"addr add {node.address}/16 dev {layout.BRIDGE}" for node in self.nodes),
            f"addr add {layout.API}/32 dev {layout.BRIDGE}",
        ]
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)

    async def _images(self, node: layout.Node, containerd: ServerProcess) -> None:
        async def answers() -> bool:
            return await self._run(*node.ctr("version")) == 0

        await containerd.ready(answers, timeout_s=_START_S)
        for archive in images.archives():
            code = await self._run(*node.ctr("images", "import", "--local", "--discard-unpacked-layers", archive))
            if code:
                raise RuntimeError(f"{node.name}: {archive.name} was not imported: see {self.folder}/log/ctr.log")
        self.say(f"{node.name}: images imported")

    async def _run(self, *command: str | Path) -> int:
        with (self.folder / "log" / "ctr.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            return await process.wait()

    def _etcd(self) -> list[str]:
        return [
            str(programs() / "etcd"),
            f"--data-dir={self.folder}/etcd",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
        ]

    def _apiserver(self) -> list[str]:
        return [
            str(programs() / "kube-apiserver"),
            f"--etcd-servers={ETCD}",
            "--bind-address=0.0.0.0",
            "--secure-port=443",
            f"--advertise-address={layout.ADDRESS}",
            f"--cert-dir={self.authority.parent}",
            f"--service-account-key-file={self.folder}/sa.key",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            f"--service-account-issuer=https://kubernetes.default.svc.{layout.DOMAIN}",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={layout.SERVICES}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
        ]

    def _controllers(self) -> list[str]:
        return [
            str(programs() / "kube-controller-manager"),
            f"--kubeconfig={self.admin}",
            f"--service-account-private-key-file={self.folder}/sa.key",
            f"--root-ca-file={self.authority}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--secure-port=0",
            "--node-monitor-grace-period=20s",
        ]

    def _scheduler(self) -> list[str]:
        flags = (f"--kubeconfig={self.folder}/scheduler.kubeconfig", "--leader-elect=false", "--secure-port=0")
        return [str(programs() / "kube-scheduler"), *flags]

    async def _serves(self) -> bool:
        if not self.authority.exists() or "END CERTIFICATE" not in self.authority.read_text(encoding="ascii"):
            return False
        answers = [await self._api(path) for path in ("/readyz", "/api/v1/namespaces/default")]
        return [answer.status for answer in answers] == [200, 200]

    async def _nodes_ready(self) -> bool:
        answer = await self._api("/api/v1/nodes")
        if answer.status != 200 or len(answer.body["items"]) < len(self.nodes):
            return False
        return all(
            not node["spec"].get("taints")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
            for node in answer.body["items"]
        )

    async def _api(self, path: str) -> Any:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(self.authority))
        return await call("GET", f"https://{layout.API}{path}", token=layout.ADMIN_TOKEN, tls=self._tls, timeout_s=2.0)


def reap(child: int) -> int:
    """As process 1: take in everybody's orphans until the bed itself ends; how it ended."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


async def _main(folder: Path, group: str, names: list[str]) -> None:
    await Inside(folder, group, names).up()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    if bed := os.fork():
        os._exit(reap(bed) & 0xFF)
    ctypes.CDLL(None).prctl(1, 9)
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
