"""The reconciler when things go wrong on purpose: lost answers, proxies, quotas, outages, and its death at any call."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from bus.memory import InMemoryBus
from bus.protocol import BusUnavailable
from contracts.outcomes import Outcome
from contracts.subjects import OUTCOMES
from gpubus.local.kube import Fault
from reconciler import marks
from reconciler.plan import pod_of
from reconciler.protocol import Answer, Transport
from reconciler.service import Reconciler
from tests.contract.reconciler.rig import QUICK, running, wait_active
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
    """Nothing is freed, the reason can be read, and the pod is made once the quota allows it."""
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
        assert await world.author.last_outcome(held_up) is None

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


# --- death at any call ---------------------------------------------------------------------------------------------


class Mortal:
    """A transport and a bus of a process that dies at its n-th effect on the world: before it, or after it took effect.

    From then on nothing that the process does reaches anybody.
    """

    def __init__(self, transport: Transport, bus: Any, *, dies_at: int, before: bool) -> None:
        self._transport, self._bus = transport, bus
        self._dies_at, self._before = dies_at, before
        self.effects: list[str] = []
        self.dead = asyncio.Event()

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        return await self._effect(
            method != "GET", f"{method} {path}", lambda: self._transport.call(method, path, **more)
        )

    async def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        chunks = self._transport.stream(path, query=query, silence_s=silence_s)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    async def store(self, subject: str, data: bytes, **more: Any) -> Any:
        counts = subject.startswith(OUTCOMES.pattern.partition("{")[0])
        what = f"store {msgspec.json.decode(data, type=Outcome).phase}" if counts else ""
        return await self._effect(counts, what, lambda: self._bus.store(subject, data, **more))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def _effect(self, counts: bool, what: str, do: Any) -> Any:
        if self.dead.is_set():
            raise BusUnavailable("dead")
        if not counts:
            return await do()
        self.effects.append(what)
        last = len(self.effects) == self._dies_at
        if last and self._before:
            await self._die()
        result = await do()
        if last:
            await self._die()
        return result

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Future()


@contextlib.asynccontextmanager
async def living(mortal: Mortal) -> AsyncIterator[Reconciler]:
    """A reconciler that is cut off, not stopped."""
    made = await Reconciler.open(
        mortal,  # type: ignore[arg-type]  # it passes on everything that it does not count
        mortal,
        QUICK,
        incarnation=f"mortal-{secrets.token_hex(3)}",
        rng=random.Random(1),
    )
    task = asyncio.create_task(made.run(asyncio.Event()), name="mortal")
    try:
        await wait_active(made)
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await task


STEPS = ["POST pods", "POST binding", "store", "store", "DELETE", "store"]
"""Effects of one life: create, bind, bound, running, deletion, the end. Which words are stored depends on timing."""


@everywhere
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, len(STEPS) + 1))
async def test_killed_at_any_effect_the_next_process_comes_to_the_same_end(
    world: World, dies_at: int, *, before: bool
) -> None:
    """One pod with the placement that was decided, and the same last word, wherever the first process died."""
    mortal = Mortal(world.transport, world.bus, dies_at=dies_at, before=before)
    request = await world.author.place("train", on=world.node, cards=(0, 1))
    async with living(mortal):
        await first_of(mortal.dead.wait(), world.author.outcome(request, "running"))
        if not mortal.dead.is_set():
            await world.author.withdraw(request)
            await first_of(mortal.dead.wait(), world.author.outcome(request, *OVER))

    lives = {pod["metadata"]["uid"] for pod in await world.pods()}
    async with running(world.bus, world.transport) as reconciler:
        if not request.withdrawn:
            outcome = await world.author.outcome(request, "running")
            [pod] = await world.pods()
            assert not lives or lives == {pod["metadata"]["uid"]}, "the pod that was there is the pod that runs"
            assert outcome.pod_uid == pod["metadata"]["uid"]
            assert pod["metadata"]["annotations"][marks.CARDS] == f"GPU-{world.node}-0,GPU-{world.node}-1"
            await world.author.withdraw(request)
        await world.author.outcome(request, *OVER)
        await world.rig.wait_gone(pod_of(request))
        await world.settled(reconciler)


async def first_of(*work: Any) -> None:
    """Until one of them is done; the other is given up."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def short(effect: str) -> str:
    """`POST /api/v1/namespaces/x/pods/y/binding` -> `POST binding`."""
    return f"{effect.split(' ', maxsplit=1)[0]} {effect.replace(' ', '/').rsplit('/', 1)[1]}"


@fakes
async def test_the_crash_points_are_where_they_are_said_to_be(world: World) -> None:
    """The list of effects above is what a process really does: otherwise the test above would prove little."""
    mortal = Mortal(world.transport, world.bus, dies_at=99, before=True)
    async with living(mortal) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.author.withdraw(request)
        await world.author.outcome(request, *OVER)
        await world.settled(reconciler)
    kinds = [short(effect) for effect in mortal.effects]

    assert [kind for kind in kinds if kind.startswith(("POST", "DELETE"))] == [
        "POST pods",
        "POST binding",
        f"DELETE {pod_of(request)}",
    ]
    assert kinds[-1] in ("store gone", "store ended")
    assert len(kinds) <= len(STEPS) + 1


@everywhere
async def test_the_same_news_many_times_is_one_pod_and_two_writes(world: World) -> None:
    """Keys that come in again and again, from commits, events and sweeps, cost plans and no calls."""
    mortal = Mortal(world.transport, world.bus, dies_at=9999, before=True)
    async with living(mortal) as reconciler:
        request = await world.author.place(on=world.node)
        for _ in range(200):
            reconciler.everything()
            await asyncio.sleep(0.001)
        await world.author.outcome(request, "running")
        await world.settled(reconciler)

    writes = [effect for effect in mortal.effects if not effect.startswith("store")]
    assert len(writes) == 2, writes
    assert len(await world.pods()) == 1
