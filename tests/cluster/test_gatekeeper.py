"""Kubernetes tokens on the bus: a real API server issues and reviews them, a real nats-server lets their owners in."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.auth import keys, serverconfig
from bus.client import connect
from bus.protocol import BusUnavailable, NotPermitted
from contracts.identities import identity
from contracts.requests import EnvVar, GpuAsk, PodRequest, PodTemplate
from contracts.subjects import CHECKPOINTED
from gpubus.trainer import trainer
from reconciler.podspec import PodRules, manifest
from tests.builders.ledger import cluster, node
from tests.servers.control_plane import ControlPlane
from tests.servers.natsd import NatsServer
from tests.servers.process import ServerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

SCHEDULER = identity("scheduler")


@contextlib.asynccontextmanager
async def gatekept(plane: ControlPlane, folder: Path, ours: str) -> AsyncIterator[tuple[NatsServer, keys.Key]]:
    """A server that asks the real gatekeeper process, which asks the real API server."""
    issuer, service, scheduler = keys.account_key(), keys.user_key(), keys.user_key()
    keys.keep(issuer, folder / "issuer.nk")
    keys.keep(service, folder / "service.nk")
    callout = serverconfig.Callout(issuer=issuer.public, user=service.public)
    async with NatsServer(extra=serverconfig.blocks({SCHEDULER: scheduler.public}, callout=callout)) as server:
        env = {
            **os.environ,
            "GPUBUS_NATS__URLS": server.url,
            "GPUBUS_NATS__NKEY_SEED_FILE": str(folder / "service.nk"),
            "GPUBUS_GATEKEEPER__ISSUER_SEED_FILE": str(folder / "issuer.nk"),
            "GPUBUS_GATEKEEPER__NAMESPACE": ours,
            "GPUBUS_GATEKEEPER__KUBE__KUBECONFIG": str(plane.kubeconfig),
        }
        command = [sys.executable, "-m", "reconciler.gatekeeper"]
        process = ServerProcess("gatekeeper", command, folder / "gatekeeper.log", env=env)
        process.launch()
        try:
            yield server, scheduler
        finally:
            await process.stop(grace_s=5.0)


async def token(plane: ControlPlane, namespace: str, account: str, *, audience: str, pod: str = "") -> str:
    """A token of a service account, bound to a pod where one is named."""
    spec = {"expirationSeconds": 3600, "audiences": [audience]}
    if pod:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await plane.api("POST", path, {"metadata": {"name": account}})
    status, body, _ = await plane.api("POST", f"{path}/{account}/token", {"spec": spec})
    assert status == 201, body
    return str(body["status"]["token"])


async def pod_on(plane: ControlPlane, namespace: str, account: str, node: str) -> str:
    """A pod that runs as the account on a node, as far as the API server can tell."""
    await plane.api("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    spec = {"nodeName": node, "serviceAccountName": account, "containers": [{"name": "c", "image": "x"}]}
    body = {"metadata": {"name": "monitor"}, "spec": spec}
    status, answer, _ = await plane.api("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    assert status == 201, answer
    return "monitor"


def trainer_pod(namespace: str) -> dict[str, Any]:
    """The pod of a trainer as the reconciler makes it, with a login."""
    env = (EnvVar(name="JOB_NAME", value="bert"), EnvVar(name="TRAINER_INDEX", value="0"))
    asked = PodRequest(name="bert-t0", pod=PodTemplate(image="x:1", env=env), gpu=GpuAsk())
    held = cluster(node("gpu-1").gpus(1)).hold(asked, "gpu-1", 0)
    held.accepted = msgspec.structs.replace(held.accepted, namespace=namespace)
    pod: dict[str, Any] = msgspec.json.decode(manifest(held, epoch="e1", rules=PodRules(bus_login=True)))
    return pod


async def _trainer_does_its_part(plane: ControlPlane, url: str, team: str) -> None:
    """The API server takes its pod; a token of the pod's account speaks for this job alone."""
    pods = f"/api/v1/namespaces/{team}/pods"
    theirs = await token(plane, team, "gpubus-trainer-bert", audience="gpubus")
    status, answer, _ = await plane.api("POST", pods, trainer_pod(team))
    assert status == 201, answer
    assert answer["spec"]["serviceAccountName"] == "gpubus-trainer-bert"
    who = f"trainer/{team}.bert"
    async with (
        connect(url, name="trainer", token=theirs, identity=who, connect_timeout_s=30) as bus,
        trainer("bert", 0, namespace=team, bus=bus) as me,
    ):
        assert (me.world, me.leaving) == (None, None), "it may not look things up"
        await bus.publish(CHECKPOINTED.subject(namespace=team), b"saved")
        with pytest.raises(NotPermitted):
            await bus.store(f"gpubus.v1.requests.{team}", b"more cards")


async def test_tokens_of_kubernetes_open_the_bus_each_for_its_own(control_plane: ControlPlane, tmp_path: Path) -> None:
    """A monitor speaks as the node of its pod, a tenant in its namespace; a token for the API server opens nothing."""
    ours, team = await control_plane.namespace("sys"), await control_plane.namespace("team")
    node = f"gk-{ours[-5:]}"
    async with contextlib.AsyncExitStack() as stack:
        server, scheduler = await stack.enter_async_context(gatekept(control_plane, tmp_path, ours))
        decides = await stack.enter_async_context(
            connect(server.url, name="scheduler", nkey_seed=scheduler.seed, identity="scheduler")
        )
        await decides.ensure_streams()
        await token(control_plane, ours, "gpubus-monitor", audience="gpubus")
        pod = await pod_on(control_plane, ours, "gpubus-monitor", node)
        bound = await token(control_plane, ours, "gpubus-monitor", audience="gpubus", pod=pod)
        monitor = await stack.enter_async_context(
            connect(server.url, name="m", token=bound, identity=f"monitor/{node}", connect_timeout_s=30)
        )
        await monitor.store(f"gpubus.v1.nodes.{node}.inventory", b"cards")
        with pytest.raises(NotPermitted):
            await monitor.store("gpubus.v1.nodes.another.inventory", b"forged")

        tenants = await token(control_plane, team, "default", audience="gpubus")
        tenant = await stack.enter_async_context(
            connect(server.url, name="t", token=tenants, identity=f"tenant/{team}", connect_timeout_s=30)
        )
        await tenant.store(f"gpubus.v1.requests.{team}", b"mine")

        await _trainer_does_its_part(control_plane, server.url, team)
        unbound = await token(control_plane, ours, "gpubus-monitor", audience="gpubus")
        elsewhere = await token(control_plane, team, "default", audience="https://kubernetes.default.svc")
        for refused in (unbound, elsewhere, "made up"):
            with pytest.raises(BusUnavailable):
                async with connect(server.url, name="x", token=refused, identity=f"tenant/{team}", connect_timeout_s=2):
                    pass
        said = (tmp_path / "gatekeeper.log").read_text()
        assert "not bound to a pod on a node" in said
        assert "not for 'gpubus'" in said or "does not know this token" in said
