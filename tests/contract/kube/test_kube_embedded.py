"""What only the embedded API has: trouble on purpose, a clock of its own, an open door, a window of history."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration, CoreV1Api

from gpubus.local.kube import Fault, LocalKube, Machine, ScaledClock, Timings
from tests.contract.kube.rig import Rig
from tests.servers.http import call

if TYPE_CHECKING:
    from pathlib import Path


class Open:
    """An embedded server without further ado."""

    name, tls, node, bookmark_watch_s = "embedded", None, "n1", 3

    def __init__(self, kube: LocalKube, token: str = "ignored") -> None:
        self.kube, self.token = kube, token
        self.url = kube.url

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kube, name)


def rig_of(kube: LocalKube) -> Rig:
    return Rig(Open(kube), "default")


async def test_an_answer_can_be_lost_after_the_write() -> None:
    """Claim: the client cannot know, and reading back shows that the binding happened."""
    async with LocalKube() as kube:
        rig = rig_of(kube)
        await rig.create_pod("a")
        kube.faults.add(Fault(kind="lose_answer"), method="POST", path="/binding$")
        assert (await rig.bind("a")).status == 0
        assert (await rig.get_pod("a"))["spec"]["nodeName"] == "n1"
        assert (await rig.bind("a")).status == 409


async def test_a_request_can_be_lost_before_it() -> None:
    """Claim: as long as it is planned, and nothing is written."""
    async with LocalKube() as kube:
        rig = rig_of(kube)
        await rig.create_pod("a")
        kube.faults.add(Fault(kind="lose_request"), path="/binding$", times=2)
        assert [(await rig.bind("a")).status for _ in range(3)] == [0, 0, 201]


async def test_a_proxy_can_answer_instead() -> None:
    """Claim: text, status and headers as planned; the next call is served."""
    async with LocalKube() as kube:
        rig = rig_of(kube)
        busy = Fault(kind="answer", status=429, body="Too many requests\n", headers={"Retry-After": "1"})
        kube.faults.add(busy, method="GET")
        answer = await rig.call("GET", rig.pods)
        assert (answer.status, answer.body, answer.headers["Retry-After"]) == (429, "Too many requests\n", "1")
        assert (await rig.call("GET", rig.pods)).status == 200


async def test_a_killed_server_refuses_and_comes_back_with_its_state() -> None:
    """Claim: connections are refused while it is away; machines and objects go on; the address stays."""
    async with LocalKube(timings=Timings(start_s=0.05)) as kube:
        kube.add_node(Machine(name="n1"))
        rig, url = rig_of(kube), kube.url
        await rig.create_pod("a")
        await rig.bind("a")
        async with rig.watch(resourceVersion=await rig.version()) as watch:
            await kube.kill()
            while await watch.next() is not None:
                pass
        assert (await rig.call("GET", rig.pods)).status == 0
        await kube.restart()
        assert kube.url == url
        await rig.wait_phase("a", "Running", timeout_s=5.0)


async def test_a_watch_that_falls_behind_the_window_has_to_list_again() -> None:
    """Claim: ERROR 410 and the end, as after a restart of the real server."""
    async with LocalKube(history=10) as kube:
        rig = rig_of(kube)
        old = await rig.version()
        await rig.create_pod("a")
        for number in range(30):
            await rig.patch_pod("a", {"metadata": {"annotations": {"n": str(number)}}})
        async with rig.watch(resourceVersion=old) as watch:
            events = await watch.rest()
        assert [(event.kind, event.object["code"]) for event in events] == [("ERROR", 410)]


async def test_an_accelerated_cluster_lives_an_hour_in_a_second() -> None:
    """Claim: with a clock 3600 times as fast, an hour's pod ends while we wait."""
    async with LocalKube(clock=ScaledClock(3600.0)) as kube:
        kube.add_node(Machine(name="n1"))
        rig = rig_of(kube)
        await rig.create_pod("a", command=["sleep", "1800"])
        await rig.bind("a")
        ended = await rig.wait_phase("a", "Succeeded", timeout_s=5.0)
        end = ended["status"]["containerStatuses"][0]["state"]["terminated"]
        assert end["finishedAt"] > end["startedAt"]


async def test_a_killed_and_revived_machine() -> None:
    """Claim: through the server's own switches, in real time."""
    async with LocalKube(timings=Timings(start_s=0.01, node_grace_s=0.05)) as kube:
        kube.add_node(Machine(name="n1"))
        rig = rig_of(kube)
        async with rig.watch("/api/v1/nodes", resourceVersion=await rig.version()) as watch:
            kube.kill_node("n1")
            lost = await watch.until("MODIFIED", "n1")
            assert lost.object["status"]["conditions"][-1]["status"] == "Unknown"
            kube.revive_node("n1")
            while (event := await watch.until("MODIFIED", "n1")).object["spec"].get("taints"):
                pass
        assert event.object["status"]["conditions"][-1]["status"] == "True"


async def test_the_usual_client_finds_its_way(tmp_path: Path) -> None:
    """Claim: kubernetes-asyncio with the written kubeconfig lists nodes and pods as its models."""
    async with LocalKube(token="t") as kube:
        kube.add_node(Machine(name="n1", extended={"nvidia.com/gpu": 4}))
        rig = Rig(Open(kube, token="t"), "default")
        await rig.create_pod("a")
        await rig.bind("a")
        await rig.wait_phase("a", "Running")
        cfg = Configuration()
        path = kube.write_kubeconfig(tmp_path / "kubeconfig")
        await config.load_kube_config(config_file=str(path), client_configuration=cfg)
        async with ApiClient(cfg) as client:
            nodes = await CoreV1Api(client).list_node()
            pods = await CoreV1Api(client).list_namespaced_pod("default")
        assert [node.metadata.name for node in nodes.items] == ["n1"]
        assert nodes.items[0].status.allocatable["nvidia.com/gpu"] == "4"
        assert [(pod.spec.node_name, pod.status.phase) for pod in pods.items] == [("n1", "Running")]


async def test_the_api_describes_itself() -> None:
    """Claim: groups and resources for clients that discover, permissions for those that ask."""
    async with LocalKube() as kube:
        groups = await call("GET", kube.url + "/apis")
        assert {group["name"] for group in groups.body["groups"]} == {"coordination.k8s.io", "events.k8s.io"}
        listed = await call("GET", kube.url + "/api/v1")
        assert {"pods", "pods/binding", "nodes/status"} <= {entry["name"] for entry in listed.body["resources"]}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        review = await call("POST", kube.url + path, body={"spec": {"resourceAttributes": {"verb": "get"}}})
        assert review.body["status"]["allowed"] is True


async def test_stopping_leaves_no_task_behind() -> None:
    """Claim: open watches and the machines' task end with the server."""
    before = asyncio.all_tasks()
    async with LocalKube() as kube:
        watch = rig_of(kube).watch()
        await watch.__aenter__()
    await watch.__aexit__(None, None, None)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("speed", [0.0, -1.0])
def test_time_does_not_stand_still_or_run_backwards(speed: float) -> None:
    """Claim: such a clock is refused."""
    with pytest.raises(ValueError, match="positive"):
        ScaledClock(speed)
