"""A whole local installation: a function goes up from zero and back while a job breathes in the other direction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from contracts.requests import EnvVar, GpuAsk, PodTemplate
from contracts.workloads import Function
from gpubus.audit.collect import audit
from gpubus.cli.common import Common
from gpubus.cli.delete import delete
from gpubus.cli.deploy import deploy
from gpubus.client import Client
from gpubus.functions import decisions, functions
from gpubus.gateway import gateway
from gpubus.local.cluster import LocalCluster, Options, started
from gpubus.local.nodes import A100_40, uniform
from gpubus.workloads import publish
from tests.contract.functions_rig import HASTY
from tests.servers.process import wait_until

pytestmark = [pytest.mark.nats, pytest.mark.slow]

QUICK_JOBS = {
    "GPUBUS_AUTOSCALER__JOBS__PERIOD_S": "0.5",
    "GPUBUS_AUTOSCALER__JOBS__GROW_AFTER_S": "1",
    "GPUBUS_AUTOSCALER__JOBS__SHRINK_AFTER_S": "1",
    "GPUBUS_LOG__LEVEL": "warning",
    "GPUBUS_SCHEDULER__POLICY": "packing",  # needs no compiled code, which a fresh checkout has not
}
HALF = GpuAsk(share_milli=500)
TRAIN = """
[job]
name = "train"
max_trainers = 4
notice_s = 60
gpu.share_milli = 500
pod = {image = "registry.example/x:1", cpu_milli = 100, memory_mib = 64}
"""


def pod(**environment: str) -> PodTemplate:
    env = tuple(EnvVar(name=name, value=value) for name, value in environment.items())
    return PodTemplate(image="registry.example/x:1", cpu_milli=100, memory_mib=64, env=env)


async def running(client: Client, prefix: str) -> int:
    """Requests whose name begins so, with a running pod."""
    return sum(row.phase == "running" and row.name.startswith(prefix) for row in await client.requests())


async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    await wait_until(holds, what=what, timeout_s=60.0, every_s=0.1)


async def test_a_function_and_a_job_share_two_cards(tmp_path: Path) -> None:
    """Four halves: the job has them all; calls come, and it gives up two; they stop, and it takes them back.

    Nothing waits in the scheduler's queue for the function at any time, every call is answered, the trainers go long
    before their notice ends because they say that they have saved their work, and the audit of ledger, Kubernetes and
    monitors finds nothing. Then both are deleted.
    """
    nodes = tuple(uniform(1, cards=2, model=A100_40))
    options = Options(nodes=nodes, folder=tmp_path, environment=QUICK_JOBS)
    async with started(options, lambda _: None) as cluster:
        client = cluster.client
        common = Common(nats=cluster.nats_url)
        file = tmp_path / "train.toml"
        file.write_text(TRAIN, encoding="utf-8")
        assert await asyncio.to_thread(deploy, (str(file),), namespace="default", common=common) == 0
        await until("the job has all four halves", lambda: _is(running(client, "train-"), 4))

        resize = Function(name="resize", pod=pod(SIMULATED_CALL_S="0.2"), gpu=HALF, max_replicas=2, scaling=HASTY)
        await publish(client, resize, "default")
        answered = asyncio.create_task(_load(cluster, calls=80, at_once=8))
        await until("two replicas serve, two trainers train", lambda: _both(client, 2, 2))
        assert await answered == 80

        await until("the function sleeps and the job has all again", lambda: _both(client, 0, 4))
        assert {again.decision.kind for again in await decisions(client, "default", "resize")} == {"function"}
        told = [*await decisions(client, "default", "resize"), *await decisions(client, "default", "train")]
        assert [again for again in told if not again.same] == []
        view = (await functions(client))[0]
        assert view.status is not None
        assert view.status.missing is None
        report = await audit(client)
        assert report.findings == ()
        for name in ("default/train", "default/resize"):
            assert await asyncio.to_thread(delete, name, wait=True, common=common) == 0
        assert [row for row in await client.requests() if row.phase == "running"] == []
        assert await functions(client) == []


async def _is(number: Awaitable[int], wanted: int) -> bool:
    return await number == wanted


async def _both(client: Client, replicas: int, trainers: int) -> bool:
    return await running(client, "resize-") == replicas and await running(client, "train-") == trainers


async def _load(cluster: LocalCluster, *, calls: int, at_once: int) -> int:
    """So many calls, some at once, until all are answered; how many were."""
    turns = asyncio.Semaphore(at_once)
    async with gateway(cluster.client.bus, "default") as calling:

        async def one(number: int) -> str:
            async with turns:
                return await calling.call("resize", str(number), timeout_s=60)

        answers = await asyncio.gather(*(one(number) for number in range(calls)))
    return sum(answer.endswith(f": {number}") for number, answer in enumerate(answers))
