"""Pods on cards that a backend shares, and in-place resizes: on the fakes and on a real API server and bus."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.decisions import InventorySet, Resized
from contracts.inventory import Card, NodeInventory
from contracts.messages import encode
from contracts.outcomes import Outcome, ResizeRefused
from contracts.shares import NodeEnforcement, PodEnforcement, PodState
from contracts.subjects import ENFORCEMENT
from contracts.units import CardUuid, NodeName, RequestUid, node_token
from reconciler import marks
from reconciler.calls import Kube
from reconciler.plan import pod_of
from reconciler.ports import FIRST
from scheduler.core.putback import put_back
from tests.contract.kube.rig import STRATEGIC, pod
from tests.contract.reconciler.rig import running
from tests.contract.reconciler.worlds import REAL, World, everywhere
from tests.servers.process import wait_until

real = pytest.mark.parametrize(("real", "buses"), [REAL], indirect=True)


async def say(world: World, uid: RequestUid, state: PodState, reason: str = "", port: int = 0) -> None:
    """What the node's monitor would report."""
    card = f"GPU-{world.node}-0"
    report = NodeEnforcement(
        node=NodeName(world.node), incarnation="i", epoch=world.author.epoch,
        pods=(PodEnforcement(uid=uid, what=card, state=state, reason=reason, port=port),),
    )  # fmt: skip
    subject = ENFORCEMENT.subject(node=node_token(world.node))
    await world.bus.store(subject, encode(report), stream=ENFORCEMENT.stream)


async def shared_by_gemini(world: World) -> None:
    """The node's card is shared by a backend."""
    card = Card(
        uuid=CardUuid(f"GPU-{world.node}-0"), index=0, model="A100", memory_total_mib=81_920, isolation="gemini"
    )
    found = NodeInventory(node=NodeName(world.node), boot_id="b", incarnation="i", cards=(card,))
    await world.author.write(InventorySet(inventory=found))


@everywhere
async def test_a_pod_is_bound_with_its_port_when_its_node_is_ready(world: World) -> None:
    """Claim S113: made at once, bound when the node has applied it, with what the backend reads from annotations."""
    await shared_by_gemini(world)
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        name = pod_of(request)

        async def told() -> bool:
            shares = await world.author.shares(world.node)
            return shares is not None and [a.port for a in shares.assignments if a.uid == request.uid] == [FIRST]

        await wait_until(told, what="the node is told a port", timeout_s=20.0)
        await say(world, request.uid, "waiting", "no pod manager listens")
        await world.settled(reconciler)
        pod = await world.pod(name)
        assert "nodeName" not in pod["spec"]
        assert [v["hostPath"]["path"] for v in pod["spec"]["volumes"]] == ["/kubeshare/library"]

        await say(world, request.uid, "applied", port=FIRST)
        await world.author.outcome(request, "bound", "running")
        annotations = (await world.pod(name))["metadata"]["annotations"]
        assert annotations[f"{marks.ISOLATION}POD_MANAGER_PORT"] == str(FIRST)


@everywhere
async def test_cpu_is_resized_in_place(world: World) -> None:
    """What the ledger counts stands in the container's request; the container's other resources and its life stay."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        name = pod_of(request)
        before = await world.pod(name)
        await world.author.write(Resized(uid=request.uid, share_milli=10, memory_mib=100, cpu_milli=25))

        async def resized() -> bool:
            pod = await world.pod(name)
            return bool(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "25m")

        await wait_until(resized, what="the container asks for 25m", timeout_s=20.0)
        after = await world.pod(name)

        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
        wanted = before["spec"]["containers"][0]["resources"]
        wanted["requests"]["cpu"] = "25m"
        assert after["spec"]["containers"][0]["resources"] == wanted


@everywhere
async def test_a_resize_from_an_old_view_is_a_conflict(world: World) -> None:
    """Somebody wrote in between: nothing is changed, and the pod is read back before the next try."""
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.settled(reconciler)
        name, namespace = pod_of(request), request.accepted.namespace
        key = f"{namespace}/{name}"
        pod = reconciler.pods.store.get(key)
        assert pod is not None
        stale = replace(pod, metadata=replace(pod.metadata, resource_version="1"))
        reconciler.pods.store.objects[key] = stale
        await world.author.write(Resized(uid=request.uid, share_milli=10, memory_mib=100, cpu_milli=25))

        async def resized() -> bool:
            found = await Kube(world.transport).get(namespace, name)
            containers = (found.spec.containers or ()) if found else ()
            resources = containers[0].resources if containers else None
            return bool(resources and (resources.requests or {}).get("cpu") == "25m")

        await wait_until(resized, what="resized after it was read back", timeout_s=20.0)


@everywhere
async def test_a_resize_that_the_kubelet_finds_infeasible_is_put_back(world: World) -> None:
    """S148: told with the kubelet's words, counted again as it was, and the pod asks for its old size again.

    The kubelet's word is written by hand: it says so of a size that the whole node does not have.
    """
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        name = pod_of(request)
        await world.author.write(Resized(uid=request.uid, share_milli=20, memory_mib=200, cpu_milli=25))
        await cpu_is(world, name, "25m")
        await infeasible(world, name, "True")
        refused = await told_refusal(world, request)
        assert refused.resize_refused is not None
        assert (refused.phase, refused.reason, refused.resize_refused.wanted_milli) == (
            "running", "resize infeasible: node didn't have enough capacity", 25,
        )  # fmt: skip
        back = put_back(world.author.ledger.state, world.author.ledger.state.requests[request.uid], refused)
        assert back is not None
        await world.author.write(back)
        await cpu_is(world, name, "10m")
        await infeasible(world, name, "False")

        async def content() -> bool:
            last = await world.author.last_outcome(request)
            return last is not None and last.resize_refused is None and not last.reason

        await wait_until(content, what="there is nothing more to complain of", timeout_s=20.0)
        placed = world.author.ledger.state.requests[request.uid].placement
        assert placed is not None
        assert (placed.cpu_milli, placed.slices[0].share_milli, placed.slices[0].memory_mib) == (10, 10, 100)


@real
async def test_a_resize_that_a_quota_forbids_is_put_back(world: World) -> None:
    """S148: the API server's own refusal; the container was never touched, and the ledger counts it as it is.

    What was refused is forgotten when it is not wanted any more: it is neither shown nor looked at again.
    """
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "100m"}}}
        path = f"/api/v1/namespaces/{request.accepted.namespace}/resourcequotas"
        assert (await world.rig.call("POST", path, quota)).status == 201

        async def in_force() -> bool:
            tried = pod("big", limits={"cpu": "500m"})
            answer = await world.rig.call("POST", world.rig.pods, tried, query={"dryRun": "All"})
            return answer.status == 403 and "exceeded quota" in answer.body["message"]

        await wait_until(in_force, what="the quota is in force", timeout_s=30.0)
        await world.author.write(Resized(uid=request.uid, share_milli=10, memory_mib=100, cpu_milli=500))
        refused = await told_refusal(world, request)
        assert refused.resize_refused == ResizeRefused(wanted_milli=500, has_milli=10)
        assert refused.reason.startswith("resize to 500m refused: quota: ")
        back = put_back(world.author.ledger.state, world.author.ledger.state.requests[request.uid], refused)
        assert back is not None
        await world.author.write(back)

        async def content() -> bool:
            last = await world.author.last_outcome(request)
            return last is not None and last.resize_refused is None and not last.reason

        await wait_until(content, what="there is nothing more to complain of", timeout_s=20.0)
        assert (await world.pod(pod_of(request)))["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "10m"

        async def forgotten() -> bool:
            return not reconciler.worker.refusals()

        await wait_until(forgotten, what="no refusal stands any more", timeout_s=20.0)
        await world.settled(reconciler)


async def cpu_is(world: World, name: str, wanted: str) -> None:
    async def so() -> bool:
        found: str = (await world.pod(name))["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        return found == wanted

    await wait_until(so, what=f"the container asks for {wanted}", timeout_s=20.0)


async def infeasible(world: World, name: str, status: str) -> None:
    """As a kubelet would say it, or take it back."""
    condition = {
        "type": "PodResizePending",
        "status": status,
        "reason": "Infeasible",
        "message": "node didn't have enough capacity",
    }
    answer = await world.rig.patch_pod(name, {"status": {"conditions": [condition]}}, STRATEGIC, "/status")
    assert answer.status == 200, answer.body


async def told_refusal(world: World, request: RequestState) -> Outcome:
    found: list[Outcome] = []

    async def told() -> bool:
        last = await world.author.last_outcome(request)
        found[:] = [last] if last is not None and last.resize_refused is not None else []
        return bool(found)

    await wait_until(told, what="the refusal is told", timeout_s=20.0)
    return found[0]
