"""The worker library and the gateway on the bus in memory, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from bus.memory import InMemoryBus, MemoryServer
from contracts.functions import WorkerOrder, WorkerReport
from contracts.messages import encode
from contracts.subjects import CALLS, WORKER_ORDERS, WORKER_REPORTS
from gpubus.errors import NoAnswer, UsageError
from gpubus.gateway import CallFailed, gateway
from gpubus.worker import Calls, Options, address_of, from_environment, worker

pytestmark = pytest.mark.looptime(start=0)

QUEUE = "ns_f"


class Place:
    """A server with the queue of one function, and its clients."""

    def __init__(self) -> None:
        self.server = MemoryServer(wall=asyncio.get_running_loop().time)
        self.bus = InMemoryBus(self.server, "caller")
        self.reports: list[WorkerReport] = []

    async def _hear(self, received: object) -> None:
        self.reports.append(msgspec.json.decode(received.data, type=WorkerReport))  # type: ignore[attr-defined]

    async def order(self, what: str) -> None:
        order = msgspec.convert({"type": "function.order.v1", "order": what}, WorkerOrder)
        await self.bus.publish(WORKER_ORDERS.subject(namespace="ns", function="f", replica="f-0"), encode(order))

    async def state(self) -> tuple[int, int]:
        found = await self.bus.queue_state(CALLS.stream, QUEUE)
        assert found is not None
        return found.waiting, found.outstanding

    @contextlib.asynccontextmanager
    async def worker(self, **options: object) -> AsyncIterator[Calls]:
        made = msgspec.convert({"replica": "f-0", **options}, Options)
        made = msgspec.structs.replace(made, wall_s=asyncio.get_running_loop().time)
        bus = InMemoryBus(self.server, "worker")
        async with worker("ns/f", bus=bus, options=made, signals=False) as calls:
            yield calls


@contextlib.asynccontextmanager
async def place() -> AsyncIterator[Place]:
    made = Place()
    await made.bus.ensure_streams()
    subject = CALLS.subject(namespace="ns", function="f")
    await made.bus.ensure_queue(CALLS.stream, QUEUE, subject=subject, ack_wait_s=5.0)
    async with made.bus.subscribe(WORKER_REPORTS.wildcard, made._hear):
        yield made


async def test_calls_are_answered_and_what_a_handler_raises_is_told() -> None:
    """A plain function in a thread, or a coroutine; the worker lives on."""

    async def upper(body: str) -> str:
        if body == "bad":
            raise ValueError("no such size")
        return body.upper()

    async with place() as here, gateway(here.bus, "ns") as calling, here.worker() as calls:
        serving = asyncio.create_task(calls.serve(upper))
        assert await calling.call("f", "a") == "A"
        with pytest.raises(CallFailed, match="ValueError: no such size"):
            await calling.call("f", "bad")
        assert await calling.call("f", "b") == "B"
        calls.drain()
        await serving
        assert await here.state() == (0, 0)


async def test_no_more_than_the_limit_are_worked_on_and_the_rest_stay_kept() -> None:
    running = most = 0

    async def busy(body: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return body

    async with place() as here, gateway(here.bus, "ns") as calling, here.worker(limit=3) as calls:
        serving = asyncio.create_task(calls.serve(busy))
        many = [asyncio.create_task(calling.call("f", str(n))) for n in range(9)]
        await asyncio.sleep(0.5)
        assert await here.state() == (6, 3)
        await asyncio.gather(*many)
        assert most == 3
        calls.drain()
        await serving


async def test_a_long_call_is_not_given_to_another_worker() -> None:
    """It says every second that it still works, for much longer than the queue waits."""
    begun: list[str] = []

    async def slow(body: str) -> str:
        begun.append(body)
        await asyncio.sleep(60)
        return body

    async with place() as here, gateway(here.bus, "ns") as calling, here.worker() as one, here.worker() as other:
        serving = [asyncio.create_task(calls.serve(slow)) for calls in (one, other)]
        assert await calling.call("f", "x", timeout_s=100) == "x"
        assert begun == ["x"]
        one.drain()
        other.drain()
        await asyncio.gather(*serving)


async def test_orders_move_it_between_standing_by_serving_and_draining() -> None:
    """Warm it takes nothing; promoted it does; draining it takes nothing more and may be called back."""

    async def echo(body: str) -> str:
        return body

    async with place() as here, gateway(here.bus, "ns") as calling, here.worker(warm=True) as calls:
        serving = asyncio.create_task(calls.serve(echo))
        call = asyncio.create_task(calling.call("f", "x"))
        await asyncio.sleep(3)
        assert not call.done()
        await here.order("promote")
        assert await call == "x"
        await here.order("drain")
        await asyncio.sleep(1)
        call = asyncio.create_task(calling.call("f", "y"))
        await asyncio.sleep(3)
        assert not call.done()
        assert here.reports[-1].phase == "draining"
        await here.order("promote")
        assert await call == "y"
        await here.order("demote")
        await asyncio.sleep(1)
        calls.drain()
        await serving
    phases = [report.phase for report in here.reports]
    assert list(dict.fromkeys(phases)) == ["warm", "ready", "draining", "gone"]


async def test_what_it_leaves_unanswered_goes_to_the_next_worker_at_once() -> None:
    async with place() as here, gateway(here.bus, "ns") as calling:
        call = asyncio.create_task(calling.call("f", "x"))
        async with here.worker() as calls:
            left = await anext(calls)
            assert left.body == "x"
        left_at = asyncio.get_running_loop().time()
        async with here.worker() as calls:
            again = await anext(calls)
            assert again.delivery.attempt == 2
            assert asyncio.get_running_loop().time() - left_at < 1, "not only when its time is up"
            await again.reply("done")
            await again.reply("twice")
        assert await call == "done"


async def test_an_answer_is_tried_again_while_the_connection_is_gone() -> None:
    async with place() as here, gateway(here.bus, "ns") as calling, here.worker() as calls:
        call = asyncio.create_task(calling.call("f", "x"))
        in_hand = await anext(calls)
        bus = calls._bus
        assert isinstance(bus, InMemoryBus)
        bus.drop()
        answering = asyncio.create_task(in_hand.reply("late but here"))
        await asyncio.sleep(3)
        bus.restore()
        await answering
        assert await call == "late but here"


async def test_a_caller_does_not_wait_for_ever_and_a_late_answer_harms_nobody() -> None:
    """Nobody answers at all: neither worker nor autoscaler is there."""
    async with place() as here, gateway(here.bus, "ns") as calling:
        with pytest.raises(NoAnswer, match="no answer in time"):
            await calling.call("f", "x", timeout_s=2, run_s=1)
        assert await calling.send("f", "y") == 2
        assert await here.state() == (2, 0)
        with pytest.raises(UsageError):
            await calling.call("no function", "x")


@pytest.mark.parametrize("name", ["", "f", "ns/", "/f", "a/b/c"])
@pytest.mark.looptime(False)
def test_a_function_is_named_with_its_namespace(name: str) -> None:
    with pytest.raises(UsageError, match="NAMESPACE/NAME"):
        address_of(name)


@pytest.mark.looptime(False)
def test_a_pod_says_how_its_worker_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_REPLICA", "f-7")
    monkeypatch.setenv("WORKER_WARM", "1")
    monkeypatch.setenv("WORKER_CONCURRENCY", "4")
    found = from_environment()
    assert (found.replica, found.warm, found.limit) == ("f-7", True, 4)
    monkeypatch.setenv("WORKER_CONCURRENCY", "many")
    with pytest.raises(UsageError, match="WORKER_CONCURRENCY='many'"):
        from_environment()
