"""The line on a control plane with our policies in force, its reconciler under the account and the rights of the chart.

async with cluster_line(plane, nats) as world:
await world.create(world.pod("train", {"gpubus.dev/share-milli": "500"}))
await world.until("train", running)
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.servers import chart
from tests.servers.control_plane import ControlPlane, HollowNode
from tests.servers.http import Answer
from tests.servers.line import Line, Stranger, stranger
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

CRD = "CustomResourceDefinition"


class ClusterWorld:
    """A tenant's namespace, and everything behind it."""

    def __init__(
        self, plane: ControlPlane, nats: NatsServer, line: Line, client: Stranger, *, namespace: str, node: str
    ) -> None:
        self.plane, self.nats, self.line, self.client = plane, nats, line, client
        self.namespace, self.node = namespace, node
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        """As the tenant."""
        return await self.plane.api(method, path, body, token=self.plane.tenant_token, **more)

    async def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Make a pod as the tenant."""
        answer = await self.call("POST", self.path, pod)
        assert answer.status == 201, answer.body
        made: dict[str, Any] = answer.body
        return made

    async def get(self, name: str) -> dict[str, Any]:
        """The pod; empty when there is none."""
        answer = await self.plane.api("GET", f"{self.path}/{name}")
        return answer.body if answer.status == 200 else {}

    async def pods(self) -> list[dict[str, Any]]:
        answer = await self.plane.api("GET", self.path)
        found: list[dict[str, Any]] = answer.body["items"]
        return found

    async def delete(self, name: str, *, grace_s: int = 1) -> None:
        await self.plane.api("DELETE", f"{self.path}/{name}", query={"gracePeriodSeconds": grace_s})

    async def until(
        self, name: str, holds: Callable[[dict[str, Any]], object], *, timeout_s: float = 40.0
    ) -> dict[str, Any]:
        """The pod, once this holds of it."""
        return await held(lambda: self.get(name), holds, what=name, timeout_s=timeout_s)

    async def requests(self) -> list[dict[str, Any]]:
        """All requests of the namespace that the ledger knows, live ones first."""
        found = await self.client.state("requests", namespace=self.namespace)
        requests: list[dict[str, Any]] = found.get("requests", [])
        return requests

    async def gone(self, name: str) -> None:
        """Wait until there is no pod of that name."""
        await self.until(name, lambda found: not found)

    async def events(self, name: str) -> list[dict[str, Any]]:
        """What `kubectl describe` shows of it, newest series included."""
        answer = await self.plane.api("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        found: list[dict[str, Any]] = answer.body["items"]
        ours = "gpubus.dev/reconciler"
        return [e for e in found if e["regarding"]["name"] == name and e["reportingController"] == ours]

    async def used_milli(self) -> int:
        """Thousandths sold of all cards."""
        return sum(card.get("used_milli", 0) for card in (await self.client.state("cards"))["cards"])

    async def sold(self, milli: int) -> None:
        """Wait until so much is sold, neither more nor less."""

        async def so_much() -> bool:
            return await self.used_milli() == milli

        # 60 s: a garbage collector learns of a new kind of object, whose pods it is to take along, every 30
        await wait_until(so_much, what=f"{milli} thousandths are sold", timeout_s=60.0, every_s=0.1)


def pod(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of anybody that names our scheduler."""
    requests = {"cpu": "10m", "memory": "16Mi"}
    container = {"name": "work", "image": "busybox", "resources": {"requests": requests, **spec.pop("resources", {})}}
    metadata = {"name": name, "annotations": annotations or {}, "labels": {"app": name}}
    return {"metadata": metadata, "spec": {"schedulerName": "gpubus", "containers": [container], **spec}}


async def held(
    get: Callable[[], Awaitable[dict[str, Any]]],
    holds: Callable[[dict[str, Any]], object],
    *,
    what: str,
    timeout_s: float = 40.0,
) -> dict[str, Any]:
    """An object of the API server, once this holds of it; AssertionError with what was seen last."""
    last: dict[str, Any] = {}

    async def reached() -> object:
        last.clear()
        last.update(await get())
        return holds(last)

    try:
        await wait_until(reached, what=what, timeout_s=timeout_s, every_s=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}; last seen: {last}") from None
    return last


def running(found: dict[str, Any]) -> bool:
    return bool(found.get("status", {}).get("phase") == "Running")


def condition(found: dict[str, Any]) -> dict[str, Any]:
    """`PodScheduled`; empty when it is not there."""
    conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


@contextlib.asynccontextmanager
async def cluster_line(plane: ControlPlane, nats: NatsServer, *, cards: int = 2) -> AsyncIterator[ClusterWorld]:
    """Everything started, one node that can take pods."""
    system, node = await plane.namespace("system"), f"gpu-{secrets.token_hex(3)}"
    namespace = await chart.tenants_namespace(plane)
    await chart.install(plane, system, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", only="gpubus-reconciler")
    await chart.install(plane, system, CRD, *chart.POLICIES)
    await chart.in_force(plane, namespace)
    token = await plane.service_account_token(system, "gpubus-reconciler")
    kubeconfig = plane.write_kubeconfig(Path(plane.folder) / "reconciler.kubeconfig", token)
    env = {"GPUBUS_RECONCILER__KUBE__KUBECONFIG": str(kubeconfig)}
    async with (
        HollowNode(plane, node),
        Line([nats.url], env=env) as line,
        stranger(nats.url) as client,
    ):
        await line.monitor(node, cards=cards)
        await nodes_ready(client, cards)
        yield ClusterWorld(plane, nats, line, client, namespace=namespace, node=node)


async def nodes_ready(client: Stranger, cards: int) -> None:
    """Wait until the node takes requests."""

    async def ready() -> bool:
        nodes = (await client.state("nodes")).get("nodes", [])
        return any(n["health"] == "fresh" and n["ready"] and n["cards"] == cards for n in nodes)

    await wait_until(ready, what="a node with fresh heartbeats", timeout_s=60.0)
