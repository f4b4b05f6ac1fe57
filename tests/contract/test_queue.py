"""The queue on real servers: quotas hold back and let go; who must leave leaves once, whoever is killed meanwhile.

Quotas: a scheduler in this process over both buses, nodes played. Preemption: scheduler, reconciler and monitor as
processes on a nats-server, and pods with their grace on a Kubernetes-shaped API.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bus.client import connect
from bus.ledger.follow import decode_commit
from bus.ledger.proof import prove
from bus.protocol import Bus
from contracts.decisions import Commit, Nominated, QuotaSet, Released, Reserved
from contracts.messages import encode
from contracts.quotas import NamespaceQuota
from contracts.subjects import LEDGER, NAMESPACE_QUOTAS
from gpubus.local.kube import LocalKube, Machine, Timings
from gpubus.local.kube.resources import PODS
from tests.contract.bus_worlds import World, collect
from tests.contract.scheduler_rig import NAMESPACE, FakeCluster, Place, deciding, request
from tests.servers.line import Line
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

POLICY = "packing"
"""One that needs no compiled code: which of one or two cards is not asked here."""

LEAVING_S = 3.0
"""That a container takes to end after it was told to: long enough to kill a scheduler in between."""


async def said(bus: Bus, namespace: str, **fields: Any) -> None:
    """An operator's word on a namespace."""
    word = NamespaceQuota(namespace=namespace, **fields)
    await bus.store(NAMESPACE_QUOTAS.subject(namespace=namespace), encode(word))


async def commits(bus: Bus) -> list[Commit]:
    """The whole log, proved."""
    messages = await collect(bus, LEDGER.stream)
    proof = prove(messages)
    assert proof.holds, str(proof)
    return [decode_commit(message) for message in messages]


# --- quotas ----------------------------------------------------------------------------------------------------------


async def test_a_quota_holds_back_and_lets_go_when_it_is_raised_and_when_its_own_end(world: World) -> None:
    """There is room on the card all the time: the quota decides alone, and is told in its numbers."""
    theirs, ours = await world.client("scheduler"), await world.client("test")
    await ours.ensure_streams()
    async with FakeCluster(ours) as cluster, deciding(theirs, policy=POLICY, explain_every_s=0.2):
        await cluster.node("gpu-1", cards=2)
        await said(ours, NAMESPACE, share_milli=500)
        here = Place(ours, cluster)
        await here.submits("a", 400)
        await here.until("a", "placed", timeout_s=20.0)
        for name in ("b", "c"):
            await here.submits(name, 400)
        (reason, *_) = (await here.until("b", "pending"))["reasons"]
        assert (reason["code"], reason["needed"], reason["free"]) == ("quota", 400, 100)

        await said(ours, NAMESPACE, share_milli=800)
        await here.until("b", "placed")
        await here.ends("a")
        await here.until("c", "placed")
        await here.proved()


async def test_a_new_epoch_begins_with_the_quotas_that_are_stored(world: World) -> None:
    """The ledger is empty and the facts stream is not: the first commit holds the quota; a stranger gets nothing."""
    theirs, ours = await world.client("scheduler"), await world.client("test")
    await ours.ensure_streams()
    await said(ours, "team", share_milli=1000)
    async with FakeCluster(ours) as cluster:
        await cluster.node("gpu-1", cards=1)
        here = Place(ours, cluster)
        await here.submits("stranger", 100)  # stands in the stream before anybody decides
        async with deciding(theirs, policy=POLICY, explain_every_s=0.2):
            (reason, *_) = (await here.until("stranger", "pending", timeout_s=20.0))["reasons"]
            assert reason["code"] == "quota"
            await here.submit(request("mapped"), "team")

            async def held() -> bool:
                return (await here.summary()).get("placed") == 1

            await wait_until(held, what="the one with a quota is placed", timeout_s=10.0)
            assert "placed" not in await here.phases("stranger")
    (first, *_) = await commits(ours)
    assert [record.quota.namespace for record in first.records if isinstance(record, QuotaSet)] == ["team"]


# --- preemption ------------------------------------------------------------------------------------------------------


GRACE_S = 20
"""That the victim asks for."""
SETTINGS = {"GPUBUS_SCHEDULER__POLICY": POLICY}


class Site:
    """One node with one card; everything that is ours is a process."""

    def __init__(self, bus: Bus, line: Line, kube: LocalKube) -> None:
        self.bus, self.line, self.kube = bus, line, kube
        self.here = Place(bus, FakeCluster(bus))

    async def victim(self) -> None:
        """Somebody of low priority has the card and runs."""
        pod = {"image": "busybox", "cpu_milli": 1, "memory_mib": 1, "grace_s": GRACE_S}
        await self.here.submits("victim", 1000, priority_class="low", pod=pod)
        await self.here.until("victim", "running", timeout_s=30.0)

    def pods(self) -> dict[str, int | None]:
        """Pods there are, and the grace with which each has been told to end; None: it has not."""
        entries = (entry.obj["metadata"] for entry in self.kube.store.entries(PODS, NAMESPACE))
        return {meta["name"]: meta.get("deletionGracePeriodSeconds") for meta in entries}

    async def deleted(self, pod: str) -> None:
        """It has been told to end, with its grace, and is still there."""

        async def marked() -> bool:
            return self.pods().get(pod) == GRACE_S

        await wait_until(marked, what=f"{pod} is told to end", timeout_s=10.0, every_s=0.02)

    async def order(self) -> list[str]:
        """What the ledger did with the two, in its order."""
        names, told = {}, []
        for commit in await commits(self.bus):
            for record in commit.records:
                if isinstance(record, Nominated | Reserved | Released):
                    told.append(f"{type(record).__name__} {names[record.uid]}")
                elif hasattr(record, "request"):
                    names[record.uid] = record.request.name
        return told


@pytest_asyncio.fixture
async def site(nats_server: NatsServer) -> AsyncIterator[Site]:
    async with contextlib.AsyncExitStack() as stack:
        kube = await stack.enter_async_context(LocalKube(timings=Timings(stop_s=LEAVING_S)))
        kube.add_node(Machine(name="gpu-1"))
        bus = await stack.enter_async_context(connect(nats_server.url, name="test"))
        await bus.ensure_streams()
        line = await stack.enter_async_context(Line([nats_server.url], kube_url=kube.url, env=SETTINGS))
        await line.monitor("gpu-1", cards=1)
        yield Site(bus, line, kube)


EVICTED = [
    "Reserved victim",
    "Nominated urgent",
    "Released victim",
    "Reserved urgent",
]
"""The place is taken after the evidence, never before it."""


@pytest.mark.nats
@pytest.mark.parametrize("killed", [False, True], ids=["in peace", "kill -9 of the scheduler in between"])
async def test_who_has_to_leave_ends_gracefully_and_waits_again_and_its_place_is_taken_on_evidence(
    site: Site, *, killed: bool
) -> None:
    """Its pod is deleted with its grace; a scheduler that is killed meanwhile loses nobody and does nothing twice."""
    await site.victim()
    (before,) = site.pods()
    await site.here.submits("urgent", 1000, priority_class="high")
    await site.deleted(before)
    assert await site.order() == EVICTED[:2]
    if killed:
        (scheduler,) = site.line.schedulers
        await scheduler.kill()
        scheduler.launch()

    await site.here.until("urgent", "running", timeout_s=30.0)
    assert await site.order() == EVICTED
    await site.here.until("victim", "requeued")
    (now,) = site.pods()
    assert now.startswith("urgent")

    await site.here.withdraws("urgent")
    await wait_until(lambda: running_again(site), what="the victim runs again", timeout_s=30.0)
    assert await site.order() == [*EVICTED, "Nominated victim", "Released urgent", "Reserved victim"]
    (after,) = site.pods()
    assert after.startswith("victim")
    assert after != before
    told = Counter(event["phase"] for event in await site.here.events("victim"))
    assert (told["evicting"], told["requeued"], told["placed"]) == (1, 1, 2)


async def running_again(site: Site) -> bool:
    """Twice now."""
    return (await site.here.phases("victim")).count("running") == 2
