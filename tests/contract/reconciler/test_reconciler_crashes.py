"""The death of a reconciler at every effect that it has on the world, and the next one that comes to the same end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from bus.protocol import BusUnavailable, Outgoing
from contracts.outcomes import Outcome
from contracts.subjects import OUTCOMES
from reconciler import marks
from reconciler.plan import pod_of
from reconciler.protocol import Answer
from reconciler.service import Reconciler
from tests.contract.reconciler.rig import QUICK, running, wait_active
from tests.contract.reconciler.worlds import OVER, World, everywhere, fakes


class Mortal:
    """A transport and a bus of a process that dies at its n-th effect on the world: before it, or after it took effect.

    From then on nothing that the process does reaches anybody. The world is the test's namespace: a shared API server
    holds pods of others.
    """

    def __init__(self, world: World, *, dies_at: int, before: bool) -> None:
        self._transport, self._bus = world.transport, world.bus
        self._within = f"/namespaces/{world.rig.namespace}/"
        self._dies_at, self._before = dies_at, before
        self.effects: list[str] = []
        self.dead = asyncio.Event()

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        return await self._effect(
            method != "GET" and self._within in path,
            f"{method} {path}",
            lambda: self._transport.call(method, path, **more),
        )

    async def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        chunks = self._transport.stream(path, query=query, silence_s=silence_s)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    async def store(self, subject: str, data: bytes, **more: Any) -> Any:
        return await self._effect(False, "", lambda: self._bus.store(subject, data, **more))

    async def store_many(self, messages: Sequence[Outgoing], **more: Any) -> Any:
        """A batch is one effect when a word about a request is in it."""
        prefix = OUTCOMES.pattern.partition("{")[0]
        words = [msgspec.json.decode(m.data, type=Outcome).phase for m in messages if m.subject.startswith(prefix)]
        return await self._effect(bool(words), f"store {words}", lambda: self._bus.store_many(messages, **more))

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
    mortal = Mortal(world, dies_at=dies_at, before=before)
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
    mortal = Mortal(world, dies_at=99, before=True)
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
    assert kinds[-1] in ("store ['gone']", "store ['ended']")
    assert len(kinds) <= len(STEPS) + 1


@everywhere
async def test_the_same_news_many_times_is_one_pod_and_two_writes(world: World) -> None:
    """Keys that come in again and again, from commits, events and sweeps, cost plans and no calls."""
    mortal = Mortal(world, dies_at=9999, before=True)
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
