"""Functions on a real nats-server with the real scheduler: calls, workers, and the replicas between them.

What needs no server, and time that can be skipped, is in tests/unit/autoscaler/test_service_functions.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

import msgspec
import pytest

from autoscaler.core.record import replay
from bus.client import connect
from contracts.subjects import CALLS
from gpubus.gateway import CallLate, Gateway, gateway
from gpubus.worker import InHand
from tests.contract.functions_rig import QUICK, FunctionsWorld, function, functions_world
from tests.servers.natsd import NatsServer

pytestmark = pytest.mark.nats


async def back_at_zero(world: FunctionsWorld, name: str) -> None:
    await world.until(name, "back at zero", lambda s: (s.target, s.ready, s.starting, s.draining) == (0, 0, 0, 0), 40)


async def test_a_function_goes_from_zero_to_one_and_back(nats_server: NatsServer) -> None:
    """S154, S156: at zero there is nothing but the stream; the first call makes a replica, silence takes it away.

    Every decision, made again from its own message, is the same one.
    """
    async with connect(nats_server.url, name="all") as bus, functions_world(bus) as world:
        await world.deploy(function("resize"))
        async with gateway(bus) as calling, asyncio.timeout(60):
            assert await calling.call("resize", "a cat") == "did a cat"
            await back_at_zero(world, "resize")
            assert await calling.call("resize", "a dog") == "did a dog"
        decisions = await world.decisions("resize")
        assert any(decision.rule.startswith("wake") for decision in decisions)
        for decision in decisions:
            again = replay(decision)
            assert (again.target, again.rule) == (decision.target, decision.rule)


async def test_no_call_is_lost_while_workers_are_killed_and_the_function_goes_to_zero_and_back(
    nats_server: NatsServer,
) -> None:
    """Five cycles; in each some workers are killed over their work, which goes to another: every caller is answered."""
    cycles, calls_each, rng = 5, 6, random.Random(7)

    async def work(call: InHand) -> None:
        await asyncio.sleep(0.05)
        if call.delivery.attempt == 1 and rng.random() < 0.2:
            world.pods.kill_self()
            await asyncio.sleep(100)
        await call.reply(call.body)

    quick = msgspec.structs.replace(QUICK, ack_wait_s=1.0)
    async with (
        connect(nats_server.url, name="all") as bus,
        functions_world(bus, cards=2, work=work, settings=quick) as world,
    ):
        await world.deploy(function("f", share_milli=500))
        async with gateway(bus) as calling, asyncio.timeout(100):
            answered = 0
            for cycle in range(cycles):
                bodies = [f"{cycle}-{n}" for n in range(calls_each)]
                answered += await answers(calling, bodies)
                if cycle % 2:
                    await back_at_zero(world, "f")
        assert answered == cycles * calls_each
        assert len(world.pods.created) > 2
        assert not await world.dead()


async def answers(calling: Gateway, bodies: list[str]) -> int:
    """How many of these calls came back with what was sent."""
    found = await asyncio.gather(*(calling.call("f", body, timeout_s=60) for body in bodies))
    return sum(reply == body for reply, body in zip(found, bodies, strict=True))


async def test_the_server_may_be_killed_meanwhile(nats_server: NatsServer) -> None:
    """A kept call survives it, and so does the answer to one that is being worked on."""
    gate = asyncio.Event()

    async def work(call: InHand) -> None:
        await gate.wait()
        await call.reply(call.body)

    async with connect(nats_server.url, name="all") as bus, functions_world(bus, work=work) as world:
        await world.deploy(function("f", max_replicas=1))
        async with gateway(bus) as calling, asyncio.timeout(60):
            calls = [asyncio.create_task(calling.call("f", str(n))) for n in range(3)]
            await world.until("f", "one is worked on", lambda s: s.ready == 1 and s.waiting == 2)
            await nats_server.kill()
            await nats_server.restart()
            gate.set()
            assert sorted(await asyncio.gather(*calls)) == ["0", "1", "2"]


async def test_what_came_too_late_is_not_run(nats_server: NatsServer) -> None:
    """By the server's clock and the worker's: the caller hears it, the call is kept as a dead one."""
    ran: list[str] = []

    async def work(call: InHand) -> None:
        ran.append(call.body)
        await asyncio.sleep(0.6)
        await call.reply("")

    async with connect(nats_server.url, name="all") as bus, functions_world(bus, work=work) as world:
        await world.deploy(function("f", max_replicas=1))
        async with gateway(bus) as calling, asyncio.timeout(30):
            first = asyncio.create_task(calling.call("f", "first"))
            await world.until("f", "it is worked on", lambda s: s.ready == 1 and s.outstanding == 1)
            with pytest.raises(CallLate, match="too late"):
                await calling.call("f", "second", timeout_s=0.1)
            await first
        assert ran == ["first"]
        assert len(await world.dead()) == 1


WORKER = """
import asyncio
from gpubus.worker import worker

async def main():
    async with worker() as calls:
        async def slow(body):
            print("begun", flush=True)
            await asyncio.sleep(1.0)
            return body.upper()
        await calls.serve(slow)
    print("left", flush=True)

asyncio.run(main())
"""


async def test_a_worker_process_that_gets_sigterm_finishes_and_leaves(nats_server: NatsServer) -> None:
    """As in a pod: the environment says whose worker it is; what it has begun is answered, what waits stays kept."""
    async with connect(nats_server.url, name="all") as bus:
        await bus.ensure_streams()
        subject = CALLS.subject(namespace="team-a", function="f")
        await bus.ensure_queue(CALLS.stream, "team-a_f", subject=subject, ack_wait_s=5.0)
        ours = {"WORKER_FUNCTION": "team-a/f", "WORKER_REPLICA": "f-0", "WORKER_NATS_URLS": nats_server.url}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORKER, env={**os.environ, **ours}, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with gateway(bus, "team-a") as calling, asyncio.timeout(30):
                assert process.stdout is not None
                one = asyncio.create_task(calling.call("f", "one"))
                assert await process.stdout.readline() == b"begun\n"
                await calling.send("f", "two")
                process.send_signal(signal.SIGTERM)
                assert await one == "ONE"
                assert (await process.stdout.read()).endswith(b"left\n")
                assert await process.wait() == 0
                state = await bus.queue_state(CALLS.stream, "team-a_f")
                assert state is not None
                assert (state.waiting, state.outstanding) == (1, 0)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
