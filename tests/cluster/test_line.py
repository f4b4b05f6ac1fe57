"""The straight line on real servers: a stranger publishes JSON, and a pod runs on a slice of a card, with one trace."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.servers.control_plane import ControlPlane, HollowNode
from tests.servers.jaegerd import Jaeger
from tests.servers.line import Line, Stranger, stranger
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(180)]


STEPS = {"submit", "admit", "decide", "commit", "create", "bind", "running"}
"""The spans of one request, from its publish to its running container."""


def request(name: str, share_milli: int = 500, **more: Any) -> dict[str, Any]:
    """A request as its documentation shows it."""
    pod = {"image": "busybox", "command": ["sleep", "3600"], "cpu_milli": 10, "memory_mib": 16}
    return {"type": "pod.request.v1", "name": name, "pod": pod, "gpu": {"share_milli": share_milli}, **more}


@pytest_asyncio.fixture
async def world(
    own_control_plane: ControlPlane, jaeger: Jaeger, nats_server: NatsServer
) -> AsyncIterator[tuple[Line, Stranger, ControlPlane, str]]:
    """The line on real servers with one node of eight cards, a stranger, and a namespace of its own."""
    plane, node = own_control_plane, f"gpu-{secrets.token_hex(3)}"
    namespace = await plane.namespace()
    async with (
        HollowNode(plane, node),
        Line([nats_server.url], plane=plane, jaeger=jaeger.otlp_url) as line,
        stranger(nats_server.url) as client,
    ):
        await line.monitor(node)
        await ready(client, nodes=1)
        yield line, client, plane, namespace


async def ready(client: Stranger, *, nodes: int) -> None:
    """So many nodes can take requests."""

    async def enough() -> bool:
        view = await client.state("nodes")
        return sum(n["health"] == "fresh" and n["ready"] and n["cards"] == 8 for n in view.get("nodes", [])) >= nodes

    await wait_until(enough, what=f"{nodes} nodes with fresh heartbeats", timeout_s=60.0)


async def pods(plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """All pods of a namespace."""
    answer = await plane.api("GET", f"/api/v1/namespaces/{namespace}/pods")
    found: list[dict[str, Any]] = answer.body["items"]
    return found


async def whole(jaeger: Jaeger, trace_id: str, steps: set[str]) -> list[dict[str, Any]]:
    """The spans of a trace, once every step is there; services export theirs each second."""
    spans: list[dict[str, Any]] = []

    async def complete() -> bool:
        spans[:] = [span for trace in await jaeger.traces(trace_id=trace_id) for span in trace["spans"]]
        return {span["operationName"] for span in spans} >= steps

    await wait_until(complete, what=f"a trace with {sorted(steps)}", every_s=0.2)
    return spans


async def test_a_strangers_json_becomes_a_running_pod_on_a_slice_with_one_trace(
    world: tuple[Line, Stranger, ControlPlane, str], jaeger: Jaeger
) -> None:
    """Publish with a bare client; see the decision, the pod, and the whole trace under one id."""
    _, client, plane, namespace = world
    trace_id = secrets.token_hex(16)
    await client.publish(namespace, request("train-1"), traceparent=f"00-{trace_id}-{secrets.token_hex(8)}-01")

    placed = await client.until(namespace, "train-1", "placed")
    running = await client.until(namespace, "train-1", "running")

    [pod] = await pods(plane, namespace)
    assert pod["metadata"]["name"] == running["pod"]
    assert pod["spec"]["nodeName"] == placed["node"]
    assert pod["metadata"]["annotations"]["gpubus.dev/cards"] == placed["slices"][0]["card"]
    assert placed["slices"][0]["share_milli"] == 500
    await whole(jaeger, trace_id, STEPS - {"submit"})


async def test_a_request_without_a_trace_begins_one_with_its_submit(
    world: tuple[Line, Stranger, ControlPlane, str], jaeger: Jaeger
) -> None:
    """A bare `nats pub` has no headers: the submit is told as of when the server stored it."""
    _, client, _, namespace = world
    await client.publish(namespace, request("train-2"))
    await client.until(namespace, "train-2", "running")
    explained = await client.ask(f"gpubus.v1.ask.explain.{namespace}", {"type": "ask.explain.v1", "name": "train-2"})

    trace_id = explained["trace"].split("-")[1]
    spans = await whole(jaeger, trace_id, STEPS)
    assert {s["traceID"] for s in spans} == {trace_id}


async def test_sixteen_halves_in_one_burst_are_two_on_each_of_eight_cards(
    world: tuple[Line, Stranger, ControlPlane, str],
) -> None:
    """The burst that over-commits elsewhere."""
    _, client, plane, namespace = world
    await asyncio.gather(*(client.publish(namespace, request(f"half-{i}")) for i in range(16)))
    await asyncio.gather(*(client.until(namespace, f"half-{i}", "running", timeout_s=60.0) for i in range(16)))

    cards = (await client.state("cards"))["cards"]
    assert [c["used_milli"] for c in cards] == [1000] * 8
    assert [len(c["residents"]) for c in cards] == [2] * 8
    assert len(await pods(plane, namespace)) == 16


async def test_a_withdrawn_request_gives_its_slice_back_only_when_its_pod_is_gone(
    world: tuple[Line, Stranger, ControlPlane, str],
) -> None:
    """Withdrawing deletes the pod; the card is free after Kubernetes has said that it ended or is gone."""
    _, client, plane, namespace = world
    await client.publish(namespace, request("short"))
    await client.until(namespace, "short", "running")
    await client.publish(namespace, {"type": "pod.withdraw.v1", "name": "short"})
    await client.until(namespace, "short", "ended", "released")

    assert sum(c.get("used_milli", 0) for c in (await client.state("cards"))["cards"]) == 0

    async def no_pod() -> bool:
        return await pods(plane, namespace) == []

    await wait_until(no_pod, what="the pod is gone")


async def test_an_impossible_request_names_what_is_missing_and_where_it_comes_closest(
    world: tuple[Line, Stranger, ControlPlane, str],
) -> None:
    """A pending answer names the numbers."""
    _, client, _, namespace = world
    await client.publish(namespace, request("huge", gpu={"memory_mib": 500_000}))
    pending = await client.until(namespace, "huge", "pending")
    explained = await client.ask(f"gpubus.v1.ask.explain.{namespace}", {"type": "ask.explain.v1", "name": "huge"})

    assert pending["reasons"][0]["needed"] == 500_000
    assert explained["reasons"][0]["code"] == "card-memory"
    assert explained["nearest"]["card"]
    assert explained["nearest"]["missing"] > 0


async def test_nothing_is_lost_when_the_nats_disk_is_lost(
    world: tuple[Line, Stranger, ControlPlane, str], nats_server: NatsServer
) -> None:
    """The ledger is rebuilt from the pods' annotations; no running pod is touched; new requests go beside them."""
    _, client, plane, namespace = world
    for i in range(3):
        await client.publish(namespace, request(f"keep-{i}", 400))
    for i in range(3):
        await client.until(namespace, f"keep-{i}", "running")
    before = {
        p["metadata"]["uid"]: p["metadata"]["annotations"]["gpubus.dev/cards"] for p in await pods(plane, namespace)
    }
    used = [c.get("used_milli", 0) for c in (await client.state("cards"))["cards"]]
    await nats_server.kill()
    await nats_server.wipe()
    await nats_server.restart()
    for process in world[0].processes:
        await process.stop(grace_s=6.0)
        process.launch()
    await ready(client, nodes=1)

    assert [c.get("used_milli", 0) for c in (await client.state("cards"))["cards"]] == used
    await client.publish(namespace, request("new", 400))
    await client.until(namespace, "new", "running")
    after = {
        p["metadata"]["uid"]: p["metadata"]["annotations"]["gpubus.dev/cards"] for p in await pods(plane, namespace)
    }
    assert before.items() <= after.items()
    assert len(after) == 4
