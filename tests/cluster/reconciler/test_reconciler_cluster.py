"""The process on a real control plane: kill -9 under load, SIGTERM, the rights as deployed, a node that dies."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus.client import connect as connect_nats
from bus.protocol import Bus
from reconciler import kube, marks
from reconciler.plan import pod_of
from tests.cluster.reconciler.hand import Hand
from tests.contract.reconciler.rig import Author, running
from tests.servers.control_plane import ControlPlane, HollowNode
from tests.servers.natsd import NatsServer
from tests.servers.process import ServerProcess, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(180)]


REPOSITORY = Path(__file__).resolve().parents[3]


@pytest_asyncio.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    async with connect_nats(nats_server.url, name="test") as made:
        await made.ensure_streams()
        yield made


def process(folder: Path, nats: NatsServer, kubeconfig: Path) -> ServerProcess:
    """`python -m reconciler` as it is deployed."""
    env = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "GPUBUS_NATS__URLS": nats.url,
        "GPUBUS_RECONCILER__KUBE__KUBECONFIG": str(kubeconfig),
        "GPUBUS_LOG__FORMAT": "json",
    }
    return ServerProcess("reconciler", [sys.executable, "-m", "reconciler"], folder / "reconciler.log", env=env)


async def test_killed_again_and_again_under_load_it_makes_one_pod_for_each_decision(
    hand: Hand, bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    """Kill -9 at random moments while 90 decisions come in: 90 pods, each with its decision, none twice."""
    author = await Author.open(bus, namespace=hand.namespace)
    await author.node(hand.node, cards=8)
    service = process(tmp_path, nats_server, hand.plane.kubeconfig)
    chance = random.Random(11)
    uids: dict[str, str] = {}
    bound: set[str] = set()
    cut_short = 0
    try:
        service.launch()
        for latest_s in (0.1, 0.1, 0.0, 0.0, 0.0, 0.0):
            records = [record for index in range(15) for record in author.placing(on=hand.node, index=index, share=1)]
            await author.write(*records)
            await _more_pods(hand, len(uids))
            await asyncio.sleep(chance.uniform(0.0, latest_s))
            await service.kill()
            for pod in (await hand.api("GET", "{ns}/pods"))["items"]:
                first = uids.setdefault(pod["metadata"]["name"], pod["metadata"]["uid"])
                assert pod["metadata"]["uid"] == first, "a pod was made twice"
                bound.update({pod["metadata"]["name"]} if pod["spec"].get("nodeName") else ())
            cut_short += len(bound) < len(author.ledger.state.requests)
            service.launch()
        requests = list(author.ledger.state.requests.values())
        for placed in requests:
            await author.outcome(placed, "running", timeout_s=90.0)
    finally:
        await service.kill()

    pods = (await hand.api("GET", "{ns}/pods"))["items"]
    assert cut_short >= 3, "it was killed in the middle of its work"
    assert sorted(pod["metadata"]["name"] for pod in pods) == sorted(pod_of(r) for r in requests)
    for pod in pods:
        assert uids.get(pod["metadata"]["name"], pod["metadata"]["uid"]) == pod["metadata"]["uid"]
        assert marks.bound_by_us(pod["metadata"]["annotations"], pod["spec"]["nodeName"])


async def _more_pods(hand: Hand, than: int) -> None:
    """Wait until the process has begun with what was decided last."""

    async def more() -> bool:
        return len((await hand.api("GET", "{ns}/pods"))["items"]) > than

    await wait_until(more, what="the process makes pods", timeout_s=40.0, every_s=0.005)


async def test_stopped_it_finishes_and_ends_within_five_seconds(
    hand: Hand, bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    """SIGTERM with decisions in flight: exit code 0, and the next process finds nothing half done."""
    author = await Author.open(bus, namespace=hand.namespace)
    await author.node(hand.node)
    service = process(tmp_path, nats_server, hand.plane.kubeconfig)
    service.launch()
    first = await author.place(on=hand.node)
    await author.outcome(first, "running", timeout_s=40.0)
    await author.write(*(record for index in range(20) for record in author.placing(on=hand.node, index=index)))
    began = asyncio.get_running_loop().time()
    await service.stop(grace_s=6.0)

    assert asyncio.get_running_loop().time() - began < 5.5
    assert service._child is not None
    assert service._child.returncode == 0, service.log_tail()
    async with kube.connect(kubeconfig=str(hand.plane.kubeconfig)) as transport, running(bus, transport):
        for placed in list(author.ledger.state.requests.values()):
            await author.outcome(placed, "running", timeout_s=60.0)


async def test_it_works_with_the_rights_that_are_deployed_and_no_others(
    hand: Hand, bus: Bus, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The whole life of a pod with a service account that has the documented rules only."""
    name = f"reconciler-{secrets.token_hex(3)}"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": hand.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await hand.api("POST", "{ns}/serviceaccounts", {"metadata": {"name": name}})
    await hand.api("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}
    await hand.api("POST", f"{rbac}/clusterrolebindings", binding)
    token = await control_plane.service_account_token(hand.namespace, name)
    path = control_plane.write_kubeconfig(tmp_path / "config", token)
    author = await Author.open(bus, namespace=hand.namespace)
    await author.node(hand.node)

    async with kube.connect(kubeconfig=str(path)) as transport, running(bus, transport):
        placed = await author.place(on=hand.node)
        await author.outcome(placed, "running", timeout_s=30.0)
        await author.withdraw(placed)
        await author.outcome(placed, "ended", "gone", timeout_s=30.0)


async def test_a_node_that_falls_silent_frees_nothing_and_one_that_is_deleted_does(
    hand: Hand, bus: Bus, control_plane: ControlPlane
) -> None:
    """The kubelet is killed: facts say not ready, the outcome stays. The Node object goes: gone, and so is the pod."""
    author = await Author.open(bus, namespace=hand.namespace)
    lost = HollowNode(control_plane, f"lost-{secrets.token_hex(3)}")
    await lost.start()
    closed = False
    try:
        await author.node(lost.name)
        async with kube.connect(kubeconfig=str(control_plane.kubeconfig)) as transport, running(bus, transport):
            placed = await author.place(on=lost.name)
            await author.outcome(placed, "running", timeout_s=30.0)
            await lost.kill()
            await lost.wait_lost()

            async def told_unready() -> bool:
                facts = await author.facts(lost.name)
                return facts is not None and not facts.ready

            await wait_until(told_unready, what="the node is said to be unready")
            still = await author.last_outcome(placed)
            assert still is not None
            assert still.phase == "running"

            await lost.close()
            closed = True

            async def told_gone() -> bool:
                facts = await author.facts(lost.name)
                return facts is not None and facts.gone

            await wait_until(told_gone, what="the node is said to be gone")
            await author.outcome(placed, "ended", "gone", timeout_s=60.0)
    finally:
        if not closed:
            await lost.close()
