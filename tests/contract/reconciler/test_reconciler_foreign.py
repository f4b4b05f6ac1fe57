"""Pods of others, and the scheduler as it may be: silent, refusing, late. The whole way is in tests/cluster."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from bus.protocol import Received
from contracts.answers import SubmitReply
from contracts.messages import encode
from contracts.outcomes import Reason, Refusal, RequestEvent
from contracts.requests import PodRequest, Withdraw
from contracts.subjects import EVENTS, SUBMIT
from tests.contract.reconciler.rig import running
from tests.contract.reconciler.worlds import World, fakes
from tests.servers.process import wait_until

read = msgspec.json.Decoder(PodRequest | Withdraw).decode


class Scheduler:
    """Answers submits as a test wants it, and keeps what it was asked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[PodRequest | Withdraw] = []
        self.places = True
        self.refusals: tuple[Refusal, ...] = ()

    async def answer(self, message: Received) -> bytes:
        """Accept and place at once, refuse, or accept and let it wait."""
        asked = read(message.data)
        self.asked.append(asked)
        author = self.world.author
        if isinstance(asked, Withdraw) or self.refusals:
            return encode(SubmitReply(accepted=not self.refusals, refusals=self.refusals))
        accepted, reserved = author.placing(asked.name, on=self.world.node, cards=(0,))
        accepted = msgspec.structs.replace(accepted, request=asked)
        await author.write(accepted, *([reserved] if self.places else []))
        return encode(SubmitReply(accepted=True, uid=accepted.uid))


@contextlib.asynccontextmanager
async def scheduling(world: World) -> AsyncIterator[Scheduler]:
    made = Scheduler(world)
    async with world.other.respond(SUBMIT.wildcard, made.answer):
        yield made


async def create(world: World, name: str, **annotations: str) -> dict[str, Any]:
    """A pod of somebody that names us."""
    keys = {f"gpubus.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    body = {
        "metadata": {"name": name, "annotations": keys},
        "spec": {"schedulerName": "gpubus", "containers": [{"name": "c", "image": "x"}]},
    }
    answer = await world.rig.call("POST", world.rig.pods, body)
    assert answer.status == 201, answer.body
    made: dict[str, Any] = answer.body
    return made


async def until(world: World, name: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def reached() -> object:
        found.clear()
        found.update(await world.pod(name))
        return found and holds(found)

    await wait_until(reached, what=f"{name}: {found}")
    return found


def told(pod: dict[str, Any]) -> tuple[str, str]:
    conditions = pod["status"].get("conditions", [])
    found = next((c for c in conditions if c["type"] == "PodScheduled"), {})
    return found.get("reason", ""), found.get("message", "")


async def eventually(condition: Callable[[], bool], what: str) -> None:
    async def holds() -> bool:
        return condition()

    await wait_until(holds, what=what)


@fakes
async def test_the_very_pod_is_bound_and_asked_for_once(world: World) -> None:
    """However often it changes meanwhile."""
    async with scheduling(world) as scheduler, running(world.bus, world.transport):
        made = await create(world, "train", share_milli="500")
        bound = await until(world, "train", lambda pod: pod["status"]["phase"] == "Running")

    assert bound["metadata"]["uid"] == made["metadata"]["uid"]
    [asked] = scheduler.asked
    assert isinstance(asked, PodRequest)
    assert (asked.gpu.share_milli, asked.external and asked.external.uid) == (500, made["metadata"]["uid"])


@fakes
async def test_a_scheduler_that_comes_late_is_asked_then(world: World) -> None:
    async with running(world.bus, world.transport):
        await create(world, "train", share_milli="500")
        async with scheduling(world):
            await until(world, "train", lambda pod: pod["status"]["phase"] == "Running")


@fakes
async def test_a_refusal_of_the_scheduler_stands_on_the_pod(world: World) -> None:
    """And it is asked again, after a pause."""
    async with scheduling(world) as scheduler, running(world.bus, world.transport):
        scheduler.refusals = (Refusal(field="policy", value="x", bound="packing", text="policy: 'x' is none"),)
        await create(world, "train", policy="x")
        await until(world, "train", lambda pod: told(pod) == ("Refused", "policy: 'x' is none"))
        scheduler.refusals = ()
        await until(world, "train", lambda pod: pod["status"]["phase"] == "Running")


@fakes
async def test_what_nobody_can_honour_is_not_even_asked(world: World) -> None:
    async with scheduling(world) as scheduler, running(world.bus, world.transport):
        await create(world, "train", share_mili="500")
        found = await until(world, "train", lambda pod: told(pod)[0] == "Refused")

    assert "did you mean gpubus.dev/share-milli?" in told(found)[1]
    assert scheduler.asked == []


@fakes
async def test_why_it_waits_is_told_also_after_a_restart(world: World) -> None:
    """What the scheduler said before this process began is read, what it says later is heard."""
    async with scheduling(world) as scheduler:
        scheduler.places = False
        async with running(world.bus, world.transport):
            await create(world, "train", share_milli="500")
            await eventually(lambda: len(scheduler.asked) == 1, "it is asked for")
        [asked] = scheduler.asked
        await say(world, asked.name, "500 needed, 100 free")
        async with running(world.bus, world.transport):
            await until(world, "train", lambda pod: told(pod) == ("Unschedulable", "500 needed, 100 free"))
            await say(world, asked.name, "500 needed, 200 free")
            await until(world, "train", lambda pod: told(pod) == ("Unschedulable", "500 needed, 200 free"))

    assert len(scheduler.asked) == 1


async def say(world: World, name: str, text: str) -> None:
    event = RequestEvent(
        namespace=world.rig.namespace, name=name, phase="pending", text=text, reasons=(Reason(code="x", text=text),)
    )
    await world.other.store(EVENTS.subject(namespace=world.rig.namespace, name=name), encode(event))


@fakes
async def test_a_pod_that_goes_takes_its_request_along(world: World) -> None:
    """Also one that went while nobody looked."""
    async with scheduling(world) as scheduler:
        scheduler.places = False
        async with running(world.bus, world.transport):
            await create(world, "train", share_milli="500")
            await eventually(lambda: len(scheduler.asked) == 1, "it is asked for")
        await world.rig.call("DELETE", f"{world.rig.pods}/train")
        async with running(world.bus, world.transport):
            await eventually(lambda: len(scheduler.asked) > 1, "it is taken back")

    assert isinstance(scheduler.asked[1], Withdraw)
    assert scheduler.asked[1].name == scheduler.asked[0].name
