"""An API server that is away: few knocks, whoever waits, and everything again soon after; on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import pytest

from reconciler.calls import PODS, Kube
from reconciler.errors import KubeError, NotFound, NotSent, OutcomeUnknown, Throttled, Unauthorized
from reconciler.flow import CAP_S, IN_A_ROW, Flow
from reconciler.informer import Informer
from reconciler.objects import Pod
from reconciler.protocol import JSON, Answer
from reconciler.queue import WorkQueue

pytestmark = pytest.mark.looptime

OUTAGE_S = 150.0
BACK_WITHIN_S = 30.0
KEYS = 40
ANSWER_S = 0.01


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Away:
    """An API server that does not answer until `back_s`; it writes down when it is asked. `fails`: how, each time."""

    def __init__(
        self, fails: Callable[[], KubeError | Answer], *, after_s: float = 0.0, back_s: float = OUTAGE_S
    ) -> None:
        self.fails, self.after_s, self.back_s = fails, after_s, back_s
        self.asked_s: list[float] = []

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        self.asked_s.append(now_s())
        away = now_s() < self.back_s
        await asyncio.sleep(self.after_s if away else ANSWER_S)
        if not away:
            return Answer(status=200, content_type=JSON, body=b'{"metadata":{"name":"p","resourceVersion":"5"}}')
        found = self.fails()
        if isinstance(found, KubeError):
            raise found
        return found

    async def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        self.asked_s.append(now_s())
        if now_s() < self.back_s:
            found = self.fails()
            raise found if isinstance(found, KubeError) else OutcomeUnknown("cut")
        yield b""
        await asyncio.sleep(1e9)

    def rate_per_s(self) -> float:
        return sum(at < self.back_s for at in self.asked_s) / self.back_s


HTML = Answer(status=502, content_type="text/html", body=b"<html>Bad Gateway</html>")
BUSY = Answer(status=429, content_type="text/plain", body=b"Too many requests", retry_after_s=2.0)
OUTAGES = [
    ("refused", lambda: NotSent("refused"), 0.0),
    ("frozen", lambda: OutcomeUnknown("timed out"), 10.0),
    ("a proxy without a server", lambda: HTML, 0.005),
    ("throttled", lambda: BUSY, 0.005),
    ("no token", lambda: Unauthorized("401"), 0.005),
]


@pytest.mark.parametrize(("fails", "after_s"), [row[1:] for row in OUTAGES], ids=[row[0] for row in OUTAGES])
async def test_an_outage_brings_no_storm_and_half_a_minute_after_it_all_is_done(
    fails: Callable[[], KubeError | Answer], after_s: float
) -> None:
    """Forty keys want something of it all the time: under one call a second, and all are done soon after."""
    server = Away(fails, after_s=after_s)
    kube = Kube(server, rng=random.Random(7))
    queue = WorkQueue(rng=random.Random(8))
    done: set[str] = set()

    async def work(key: str) -> None:
        try:
            await kube.create("ns", b"{}")
        except KubeError:
            queue.failed(key)
        else:
            done.add(key)

    async def gate() -> None:
        while True:
            if kube.flow.asks:
                queue.hurry(1)
            await asyncio.sleep(1.0)

    kube.flow.on_recovery = queue.hurry
    queue.gate.set()
    for number in range(KEYS):
        queue.add(f"ns/p{number}")
    tasks = [asyncio.create_task(queue.run(work, width=8), name="queue"), asyncio.create_task(gate(), name="gate")]
    await asyncio.sleep(OUTAGE_S + BACK_WITHIN_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    queue.close()

    assert server.rate_per_s() < 1.0
    assert max(b - a for a, b in zip(server.asked_s, server.asked_s[1:], strict=False)) <= CAP_S + max(after_s, 2.0) + 1
    assert len(done) == KEYS


async def test_an_informer_knocks_seldom_and_knows_everything_again_soon() -> None:
    server = Away(lambda: NotSent("refused"))
    informer: Informer[Pod] = Informer(Kube(server), PODS, lambda _: None, rng=random.Random(4))
    task = asyncio.create_task(informer.run(), name="informer")
    await asyncio.sleep(OUTAGE_S + BACK_WITHIN_S)
    synced, trouble = informer.synced.is_set(), informer.trouble
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert (synced, trouble) == (True, "")
    assert server.rate_per_s() < 0.3


class AlwaysTooOld:
    """Lists are fine, and every watch is refused as too old."""

    def __init__(self) -> None:
        self.lists = 0

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        self.lists += 1
        return Answer(status=200, content_type=JSON, body=b'{"metadata":{"resourceVersion":"5"},"items":[]}')

    async def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        yield b""
        yield b'{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410,"message":"too old"}}\n'


async def test_where_every_watch_is_too_old_the_cluster_is_not_listed_without_end() -> None:
    """A list that works is no success of the watch: the pauses go on growing."""
    server = AlwaysTooOld()
    informer: Informer[Pod] = Informer(Kube(server), PODS, lambda _: None, rng=random.Random(4))
    task = asyncio.create_task(informer.run(), name="informer")
    await asyncio.sleep(120.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert 10 < server.lists < 60


# --- the flow by itself ----------------------------------------------------------------------------------------------


async def fail(flow: Flow, error: KubeError) -> None:
    with contextlib.suppress(type(error)):
        async with flow.leave("x"):
            raise error


async def test_a_few_failures_between_answers_change_nothing() -> None:
    """One tenant's broken webhook must not slow down the others."""
    flow = Flow(16, rng=random.Random(1))
    for _ in range(50):
        for _ in range(IN_A_ROW - 1):
            await fail(flow, OutcomeUnknown("a webhook"))
        async with flow.leave("x"):
            pass
        assert not flow.troubled


async def test_an_answer_is_an_answer_whatever_it_says() -> None:
    flow = Flow(16, rng=random.Random(1))
    for _ in range(3 * IN_A_ROW):
        await fail(flow, NotFound("no", "pods"))

    assert not flow.troubled


async def test_in_trouble_one_is_let_through_and_the_others_are_told_at_once() -> None:
    flow = Flow(16, rng=random.Random(1))
    for _ in range(IN_A_ROW):
        await fail(flow, OutcomeUnknown("cut"))
    with pytest.raises(NotSent, match="does not answer"):
        await flow._enter("early")
    await asyncio.sleep(CAP_S)
    assert flow.asks
    async with flow.leave("the one"):
        assert not flow.asks
        with pytest.raises(NotSent):
            await flow._enter("another")
    assert not flow.troubled


async def test_throttled_it_waits_as_long_as_it_was_told() -> None:
    flow = Flow(16, rng=random.Random(1))
    for _ in range(IN_A_ROW):
        await fail(flow, Throttled("busy", 20.0))
    await asyncio.sleep(19.0)
    assert not flow.asks
    await asyncio.sleep(1.5)

    assert flow.asks


async def test_those_who_wait_for_their_turn_are_told_when_the_trouble_begins() -> None:
    """And whoever is cancelled while he waits takes no place from others."""
    flow = Flow(1, rng=random.Random(1))
    await flow._enter("the one on its way")
    waiting = [asyncio.create_task(fail(flow, NotSent("x")), name=str(number)) for number in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    for _ in range(IN_A_ROW):
        flow._failed(OutcomeUnknown("cut"))
    await asyncio.gather(*waiting, return_exceptions=True)

    assert flow.troubled
    assert all(task.done() for task in waiting)


async def test_as_many_as_there_is_room_for_and_each_place_is_given_back() -> None:
    flow = Flow(4, rng=random.Random(1))
    inside = highest = 0

    async def call(number: int) -> None:
        nonlocal inside, highest
        async with flow.leave("x"):
            inside += 1
            highest = max(highest, inside)
            await asyncio.sleep(1.0)
            inside -= 1

    tasks = [asyncio.create_task(call(number), name=str(number)) for number in range(20)]
    await asyncio.sleep(1.5)
    for task in tasks[8:12]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert (highest, inside, flow._busy) == (4, 0, 0)
