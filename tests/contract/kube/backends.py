"""The two servers that the suite of the Kubernetes API runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubus.local.kube import LocalKube, Machine

if TYPE_CHECKING:
    import ssl

    from tests.servers.control_plane import ControlPlane, HollowNode

__all__ = ["GPU", "Embedded", "Real"]

GPU = {"nvidia.com/gpu": 8}


class Embedded:
    """The embedded server of one test."""

    name = "embedded"
    token = "secret"
    tls: ssl.SSLContext | None = None
    node = "gpu-1"
    bookmark_watch_s = 3

    def __init__(self, kube: LocalKube) -> None:
        self.kube = kube

    @property
    def url(self) -> str:
        return self.kube.url

    async def restart(self) -> None:
        await self.kube.restart()

    def freeze(self) -> None:
        self.kube.freeze()

    def thaw(self) -> None:
        self.kube.thaw()

    async def start_node(self, name: str) -> None:
        self.kube.add_node(Machine(name=name, cpu_milli=8000, extended=GPU))

    async def kill_node(self, name: str) -> None:
        self.kube.kill_node(name)

    async def stop_node(self, name: str) -> None:
        pass


class Real:
    """The real servers of the session, and one hollow node of this module."""

    name = "real"
    bookmark_watch_s = 65

    def __init__(self, plane: ControlPlane, node: HollowNode) -> None:
        self.plane, self.node = plane, node.name
        self.url, self.token, self.tls = plane.url, plane.admin_token, plane.tls
        self._more: dict[str, HollowNode] = {}

    async def restart(self) -> None:
        await self.plane.restart_apiserver()

    def freeze(self) -> None:
        self.plane.freeze()

    def thaw(self) -> None:
        self.plane.thaw()

    async def start_node(self, name: str) -> None:
        from tests.servers.control_plane import HollowNode

        self._more[name] = HollowNode(self.plane, name)
        await self._more[name].start()

    async def kill_node(self, name: str) -> None:
        await self._more[name].kill()

    async def stop_node(self, name: str) -> None:
        await self._more.pop(name).close()
