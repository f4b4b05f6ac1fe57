"""`LocalKube`: the embedded API with its simulated machines, in this process.

    async with LocalKube() as kube:
        kube.add_node(Machine(name="gpu-1"))
        ...                                         # talk HTTP to kube.url
        kube.kill_node("gpu-1")
        await kube.restart()                        # watches must list again

Time is real unless a clock is handed in; `ScaledClock(60)` makes a minute of the cluster a second of yours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gpubus.local.kube.clock import ScaledClock
from gpubus.local.kube.http import KubeHttp
from gpubus.local.kube.store import Store
from gpubus.local.kube.world import Timings, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from gpubus.local.kube.clock import Clock
    from gpubus.local.kube.faults import Faults
    from gpubus.local.kube.history import Change
    from gpubus.local.kube.machine import Machine

__all__ = ["LocalKube"]


class LocalKube:
    """A Kubernetes-shaped API server with kubelets, on a loopback port.

    `history` is how many changes a watch can go back before it gets 410.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        token: str | None = None,
        clock: Clock | None = None,
        timings: Timings | None = None,
        history: int = 10_000,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._clock = clock or ScaledClock()
        self._port, self._token = port, token
        self.store = Store(clock=self._clock.now, new_uid=new_uid, history=history)
        self.world = World(self.store, timings)
        self._http = KubeHttp(self.store, token=token)
        self._poked = asyncio.Event()
        self._mover: asyncio.Task[None] | None = None
        self.store.on_change = self._notice

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def faults(self) -> Faults:
        """Trouble to come: `kube.faults.add(Fault(kind="lose_answer"), method="POST", path="binding$")`."""
        return self._http.faults

    async def start(self) -> None:
        """Serve, and let the simulated machines live."""
        self._port = await self._http.listen("127.0.0.1", self._port)
        if self._mover is None:
            self._mover = asyncio.create_task(self._move(), name="simulated machines")

    async def stop(self) -> None:
        """End everything; the state stays in `store`."""
        await self._http.close()
        if self._mover is not None:
            self._mover.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._mover
            self._mover = None

    async def kill(self) -> None:
        """The API is away, connections are reset; machines and state go on."""
        await self._http.close()

    async def restart(self) -> None:
        """Come back (after `kill`, or at once) on the same port, with the state kept and the watch history lost."""
        await self._http.close()
        self._http.forget()
        self._port = await self._http.listen("127.0.0.1", self._port)

    def freeze(self) -> None:
        """Connections are accepted and nothing is answered."""
        self._http.freeze()

    def thaw(self) -> None:
        """Answer again."""
        self._http.thaw()

    def add_node(self, machine: Machine) -> None:
        """A machine joins, Ready."""
        self.world.add_node(machine, self._clock.now())

    def kill_node(self, name: str) -> None:
        """A machine falls silent: Ready turns Unknown after the grace time, pods stay as they are."""
        self.world.kill_node(name, self._clock.now())
        self._poked.set()

    def revive_node(self, name: str) -> None:
        """A silent machine is back."""
        self.world.revive_node(name, self._clock.now())
        self._poked.set()

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig file for this API."""
        user = {"token": self._token} if self._token else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": self.url}}],
            "users": [{"name": "local", "user": user}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
            "current-context": "local",
        }
        path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        return path

    def _notice(self, change: Change) -> None:
        self.world.notice(change)
        self._http.notice(change)
        self._poked.set()

    async def _move(self) -> None:
        """Advance the world when something happened or something is due."""
        while True:
            self._poked.clear()
            next_at = self.world.advance(self._clock.now())
            if next_at is None:
                await self._poked.wait()
            else:
                await self._doze(next_at - self._clock.now())

    async def _doze(self, seconds: float) -> None:
        """Until the time has passed on our clock, or somebody pokes."""
        async with asyncio.TaskGroup() as group:
            asleep = group.create_task(self._clock.sleep(seconds), name="until the next step")
            poked = group.create_task(self._poked.wait(), name="until poked")
            await asyncio.wait((asleep, poked), return_when=asyncio.FIRST_COMPLETED)
            asleep.cancel()
            poked.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
