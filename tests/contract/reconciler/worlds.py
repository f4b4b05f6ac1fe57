"""Both sides of a reconciler under test, and where a test runs."""

from __future__ import annotations

from typing import Any

import pytest

from bus.protocol import Bus
from gpubus.local.kube import LocalKube
from reconciler.protocol import Transport
from reconciler.service import Reconciler
from tests.contract.kube.backends import Embedded
from tests.contract.kube.rig import Rig
from tests.contract.reconciler.rig import Author
from tests.servers.process import wait_until

FAKES = pytest.param("embedded", "memory", id="fakes")
REAL = pytest.param("real", "nats", id="real", marks=[pytest.mark.cluster, pytest.mark.nats])
everywhere = pytest.mark.parametrize(("real", "buses"), [FAKES, REAL], indirect=True)
fakes = pytest.mark.parametrize(("real", "buses"), [FAKES], indirect=True)

OVER = ("ended", "gone")
"""How a pod that is deleted is seen to end: a real kubelet reports it as ended before its object goes."""


class World:
    """Both sides of a reconciler, and a namespace of the test's own."""

    def __init__(self, rig: Rig, bus: Bus, other: Bus, transport: Transport, author: Author) -> None:
        self.rig, self.bus, self.other, self.transport, self.author = rig, bus, other, transport, author
        self.node = rig.backend.node

    @property
    def local(self) -> LocalKube:
        """The embedded API, for its faults."""
        assert isinstance(self.rig.backend, Embedded)
        return self.rig.backend.kube

    async def pod(self, name: str) -> dict[str, Any]:
        """The pod as the API server has it; empty when there is none."""
        answer = await self.rig.call("GET", f"{self.rig.pods}/{name}")
        found: dict[str, Any] = answer.body if answer.status == 200 else {}
        return found

    async def pods(self) -> list[dict[str, Any]]:
        answer = await self.rig.call("GET", self.rig.pods)
        found: list[dict[str, Any]] = answer.body["items"]
        return found

    async def settled(self, reconciler: Reconciler) -> None:
        """Everything written is folded, everything told is worked off."""

        async def quiet() -> bool:
            caught_up = reconciler.view.state.sequence == self.author.ledger.state.sequence
            return caught_up and not len(reconciler.queue) and not reconciler.board.behind

        await wait_until(quiet, what="the reconciler has nothing to do")
