"""The reconciler when things go wrong on purpose: lost answers, proxies, quotas, outages, and its death at any call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest

from bus.codec import ask
from bus.memory import InMemoryBus
from bus.protocol import BusUnavailable
from contracts.decisions import Withdrawn
from contracts.outcomes import AllocationsPage, AskAllocations
from contracts.subjects import ALLOCATIONS, LEDGER
from gpubus.local.kube import Fault
from reconciler import marks, podspec
from reconciler.plan import pod_of
from reconciler.protocol import Answer, Transport
from tests.contract.reconciler.rig import QUICK, running
from tests.contract.reconciler.worlds import OVER, World, everywhere, fakes
from tests.servers.process import wait_until

CREATE = {"method": "POST", "path": r"/pods$"}
BIND = {"method": "POST", "path": r"/binding$"}
LOST_ANSWER = Fault(kind="lose_answer")
LOST_REQUEST = Fault(kind="lose_request")
HTML = Fault(kind="answer", status=502, body="<html>Bad Gateway</html>", headers={"Content-Type": "text/html"})
FLOW = Fault(
    kind="answer",
    status=429,
    body="Too many requests, please try again later.\n",
    headers={"Content-Type": "text/plain", "Retry-After": "1"},
)


def refusal(status: int, message: str, reason: str = "Forbidden", **details: Any) -> Fault:
    """A Status as the API server writes it."""
    body = {"kind": "Status", "status": "Failure", "reason": reason, "code": status, "message": message}
    text = msgspec.json.encode({**body, "details": details}).decode()
    return Fault(kind="answer", status=status, body=text, headers={"Content-Type": "application/json"})


QUOTA = refusal(403, 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1')
POD_SECURITY = refusal(403, 'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true')
RIGHTS = refusal(403, 'pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "y"')
WEBHOOK = refusal(403, 'admission webhook "w.example.com" denied the request: not today')


# --- one trouble at one call ---------------------------------------------------------------------------------------

TROUBLES = [
    ("the answer of the create is lost", CREATE, LOST_ANSWER, 1),
    ("the create is lost", CREATE, LOST_REQUEST, 2),
    ("the answer of the binding is lost", BIND, LOST_ANSWER, 1),
    ("the binding is lost", BIND, LOST_REQUEST, 2),
    ("every answer is lost for a while", {"method": "POST", "path": ""}, LOST_ANSWER, 6),
    ("a proxy answers the create", CREATE, HTML, 2),
    ("a proxy answers the binding", BIND, HTML, 2),
    ("the create is throttled", CREATE, FLOW, 1),
    ("the binding is throttled", BIND, FLOW, 1),
    ("the token is refused for a moment", CREATE, refusal(401, "Unauthorized", "Unauthorized"), 2),
    ("reading back fails too", {"method": "", "path": r"/(pods|binding|pods/[^/]+)$"}, LOST_ANSWER, 3),
    ("etcd has no leader", BIND, refusal(500, "etcdserver: no leader", "InternalError"), 2),
]


@fakes
@pytest.mark.parametrize(("claim", "where", "fault", "times"), TROUBLES, ids=[row[0] for row in TROUBLES])
async def test_one_decision_is_one_pod(
    world: World, claim: str, where: dict[str, str], fault: Fault, times: int
) -> None:
    """Whatever happens to a call: the pod is made once, bound once, and told as if nothing had been."""
    world.local.faults.add(fault, times=times, **where)
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        outcome = await world.author.outcome(request, "running", timeout_s=20.0)

    [pod] = await world.pods()
    assert pod["metadata"]["uid"] == outcome.pod_uid, claim
    assert pod["metadata"]["annotations"][marks.SEQUENCE] == str(request.decided_at)


@fakes
async def test_a_lost_answer_of_a_deletion_changes_nothing(world: World) -> None:
    """Deleted once, gracefully, and gone in the end."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        world.local.faults.add(LOST_ANSWER, method="DELETE", times=2)
        await world.author.withdraw(request)
        await world.author.outcome(request, *OVER)


@fakes
async def test_a_quota_is_waited_for_and_seen_and_others_are_placed_meanwhile(world: World) -> None:
    """Nothing is freed, the reason is told, and the pod is made once the quota allows it."""
    world.local.faults.add(QUOTA, times=2, **CREATE)
    async with running(world.bus, world.transport) as reconciler:
        held_up = await world.author.place(on=world.node)

        async def seen() -> bool:
            return bool(reconciler.worker.refusals())

        await wait_until(seen, what="the refusal can be read")
        [(key, blocked)] = reconciler.worker.refusals().items()
        assert key == f"{world.rig.namespace}/{pod_of(held_up)}"
        assert (blocked.code, blocked.final) == ("quota", False)
        assert "exceeded quota: q" in blocked.reason
        waiting = await world.author.outcome(held_up, "waiting")
        assert "exceeded quota: q" in waiting.reason

        await world.author.outcome(held_up, "running", timeout_s=20.0)
        assert reconciler.worker.refusals() == {}


@fakes
async def test_missing_rights_are_not_the_users_fault(world: World) -> None:
    """The request waits for an operator and is not rejected."""
    world.local.faults.add(RIGHTS, times=1, **CREATE)
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running", timeout_s=20.0)


@fakes
async def test_what_will_never_be_allowed_is_rejected_once(world: World) -> None:
    """One call, one clear answer."""
    world.local.faults.add(POD_SECURITY, times=1, **CREATE)
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        outcome = await world.author.outcome(request, "rejected")
        reconciler.everything()
        await world.settled(reconciler)
        await world.author.release(request, "rejected")
        await world.settled(reconciler)

        assert reconciler.worker.refusals() == {}
    assert outcome.reason.startswith("pod-security: ")
    assert await world.pods() == []


@fakes
async def test_a_webhook_that_refuses_a_binding_parks_it(world: World) -> None:
    """No outcome is told after a refusal, others go on, and the pod is bound when the webhook allows it."""
    world.local.faults.add(WEBHOOK, times=2, **BIND)
    async with running(world.bus, world.transport) as reconciler:
        parked = await world.author.place(on=world.node)

        async def seen() -> bool:
            return bool(reconciler.worker.refusals())

        await wait_until(seen, what="the refusal can be read")
        assert await world.author.last_outcome(parked) is None
        other = await world.author.place(on=world.node)
        await world.author.outcome(other, "running")

        await world.author.outcome(parked, "running", timeout_s=20.0)


@fakes
async def test_a_binding_that_can_never_be_takes_its_pod_with_it(world: World) -> None:
    """An illegal node name is a 500 that no time mends: the pod goes, and the request is rejected with the text."""
    world.local.faults.add(refusal(500, "target.name: Required value", ""), times=1, **BIND)
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        outcome = await world.author.outcome(request, "rejected")

    assert "target.name" in outcome.reason
    assert await world.pods() == []


# --- outages -------------------------------------------------------------------------------------------------------


@everywhere
async def test_a_restart_of_the_api_server_touches_no_pod(world: World) -> None:
    """Its watches are too old afterwards: everything is listed again, compared, and found to be right."""
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.settled(reconciler)
        before, lists = await world.pod(pod_of(request)), reconciler.pods.relists
        await world.rig.backend.restart()
        await world.rig.create_pod("somebody-elses", nodeName=world.node)

        async def relisted() -> bool:
            known = f"{world.rig.namespace}/somebody-elses" in reconciler.pods.store.objects
            return known and not reconciler.pods.trouble

        await wait_until(relisted, what="the pods are known again", timeout_s=60.0)
        await world.settled(reconciler)
        after = await world.author.place(on=world.node)
        await world.author.outcome(after, "running", timeout_s=30.0)

        found = await world.pod(pod_of(request))
        assert found["metadata"]["uid"] == before["metadata"]["uid"]
        assert found["metadata"].get("deletionTimestamp") is None
        assert reconciler.pods.relists >= lists


@fakes
async def test_while_the_pods_are_not_known_nothing_is_said_of_allocations(world: World) -> None:
    """An old view could miss a pod: no answer is better than "none", and the asker asks again."""
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.local.kill()

        async def troubled() -> bool:
            return reconciler.pods.trouble != ""

        await wait_until(troubled, what="the watch is broken")
        with pytest.raises(BusUnavailable):
            await ask(world.other, ALLOCATIONS, AskAllocations(), AllocationsPage, timeout_s=0.5)

        await world.local.restart()
        await wait_until(lambda: _answers(world, 1), what="allocations are told again", timeout_s=40.0)


async def _answers(world: World, count: int) -> bool:
    try:
        page = await ask(world.other, ALLOCATIONS, AskAllocations(), AllocationsPage, timeout_s=0.5)
    except BusUnavailable:
        return False
    return len(page.items) == count


@everywhere
async def test_a_frozen_api_server_only_delays(world: World) -> None:
    """Calls time out, their outcome is read back, and each decision still has one pod."""
    settings = msgspec.structs.replace(QUICK, kube=msgspec.structs.replace(QUICK.kube, timeout_s=1.0))
    async with running(world.bus, world.transport, settings):
        world.rig.backend.freeze()
        try:
            request = await world.author.place(on=world.node)
            await asyncio.sleep(2.5)
        finally:
            world.rig.backend.thaw()
        outcome = await world.author.outcome(request, "running", timeout_s=40.0)

    assert [pod["metadata"]["uid"] for pod in await world.pods()] == [outcome.pod_uid]


@fakes
async def test_without_the_bus_nothing_is_done_and_then_everything(world: World) -> None:
    """A process that may have missed commits must not act on those it knows."""
    bus = world.bus
    assert isinstance(bus, InMemoryBus)
    async with running(bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        bus.drop()

        async def stopped() -> bool:
            return not reconciler.may_act()

        await wait_until(stopped, what="it stops acting")
        await world.author.withdraw(request)
        await world.rig.delete_pod(pod_of(request), gracePeriodSeconds=1)
        await world.rig.wait_gone(pod_of(request))
        assert (await world.author.last_outcome(request)).phase == "running"  # type: ignore[union-attr]

        bus.restore()
        outcome = await world.author.outcome(request, *OVER)
        assert outcome.reason.startswith("withdrawn")


class Lagging:
    """A transport whose watches say nothing while `held`: the world has moved on and nobody tells."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        return await self._transport.call(method, path, **more)

    async def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        chunks = self._transport.stream(path, query=query, silence_s=silence_s)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                await self.flowing.wait()
                yield chunk


@fakes
async def test_what_is_unknown_is_read_back_and_not_waited_for(world: World) -> None:
    """The answers of create and binding are lost and the watch is silent: the pod is read, and all is well."""
    lagging = Lagging(world.transport)
    world.local.faults.add(LOST_ANSWER, times=1, **CREATE)
    world.local.faults.add(LOST_ANSWER, times=1, **BIND)
    async with running(world.bus, lagging):
        lagging.flowing.clear()
        request = await world.author.place(on=world.node)
        try:
            await world.author.outcome(request, "bound", "running", timeout_s=10.0)
        finally:
            lagging.flowing.set()


@fakes
async def test_a_pod_that_the_cache_does_not_know_is_never_said_to_be_gone(world: World) -> None:
    """Another process made it and our watch is behind: the API server is asked before a slice is called free."""
    lagging = Lagging(world.transport)
    async with running(world.bus, lagging):
        lagging.flowing.clear()
        accepted, reserved = world.author.placing("train", on=world.node)
        scratch = await world.author.ahead(accepted, reserved)
        body = podspec.manifest(scratch, epoch=world.author.epoch)
        assert (await world.transport.call("POST", world.rig.pods, body=body)).status == 201
        uid = (await world.pod(pod_of(scratch)))["metadata"]["uid"]
        assigned = podspec.assignment(scratch, epoch=world.author.epoch)
        binding = podspec.binding(scratch, assigned, pod_uid=uid)
        path = f"{world.rig.pods}/{pod_of(scratch)}/binding"
        assert (await world.transport.call("POST", path, body=binding)).status == 201
        await world.rig.wait_phase(pod_of(scratch), "Running")
        await world.author.write(accepted, reserved, Withdrawn(uid=accepted.uid, reason="test"))
        request = world.author.ledger.state.requests[accepted.uid]

        async def ending() -> bool:
            found = await world.pod(pod_of(request))
            last = await world.author.last_outcome(request)
            assert last is None or not found or found["metadata"].get("deletionTimestamp"), "gone, and it runs"
            return not found or "deletionTimestamp" in found["metadata"]

        await wait_until(ending, what="the pod is deleted", every_s=0.001)
        lagging.flowing.set()
        await world.author.outcome(request, *OVER)


class Behind:
    """A bus on which the ledger's commits do not come through while everything else, the lease included, does."""

    def __init__(self, bus: Any) -> None:
        self._bus = bus
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def read(self, stream: str, **more: Any) -> AsyncGenerator[Any, None]:
        async with contextlib.aclosing(self._bus.read(stream, **more)) as batches:
            async for batch in batches:
                if stream == LEDGER.stream:
                    await self.flowing.wait()
                yield batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)


@fakes
async def test_the_holder_of_the_lease_does_nothing_while_it_is_behind_the_ledger(world: World) -> None:
    """Commits are there that it has not read: what it knows may be over. When it has read them, it goes on."""
    behind = Behind(world.bus)
    async with running(behind, world.transport) as reconciler:  # type: ignore[arg-type]  # it passes everything on
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        behind.flowing.clear()
        await world.author.withdraw(request)

        async def stopped() -> bool:
            return reconciler.lease.held and not reconciler.may_act()

        await wait_until(stopped, what="it stops acting, lease or not")
        await world.rig.delete_pod(pod_of(request), gracePeriodSeconds=1)
        await world.rig.wait_gone(pod_of(request))
        assert (await world.author.last_outcome(request)).phase == "running"  # type: ignore[union-attr]

        behind.flowing.set()
        outcome = await world.author.outcome(request, *OVER)
        assert outcome.reason.startswith("withdrawn")
