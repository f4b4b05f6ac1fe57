"""The ledger on three servers, R3: leaders killed, frozen and stepped down while two writers write."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from bus.client import NatsBus, connect
from contracts.subjects import LEDGER
from tests.contract.ledger_world import Writer, begun, judge
from tests.servers.natsd import NatsCluster, NatsServer
from tests.servers.process import wait_until

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.timeout(300)]

log = logging.getLogger(__name__)

NOTES = 25
"""Acknowledged by each writer after each fault, before the next."""

Fault = Callable[[NatsCluster, NatsBus], Awaitable[None]]


async def leader(cluster: NatsCluster, bus: NatsBus) -> NatsServer:
    """The server that leads the ledger's stream now, waited for while there is none."""
    name = ""

    async def known() -> bool:
        nonlocal name
        with contextlib.suppress(Exception):
            reply = await bus.request(f"$JS.API.STREAM.INFO.{LEDGER.stream}", b"")
            name = msgspec.json.decode(reply.data)["cluster"].get("leader", "")
        return any(server.name == name and server.running for server in cluster.servers)

    await wait_until(known, what="a leader of the ledger's stream", timeout_s=60)
    return next(server for server in cluster.servers if server.name == name)


async def killed(cluster: NatsCluster, bus: NatsBus) -> None:
    """Kill -9, and back two seconds later."""
    server = await leader(cluster, bus)
    await server.kill()
    await asyncio.sleep(2)
    await server.restart()


async def frozen(cluster: NatsCluster, bus: NatsBus) -> None:
    """SIGSTOP for longer than an election takes: it comes back and thinks it leads."""
    server = await leader(cluster, bus)
    server.freeze()
    await asyncio.sleep(12)
    server.thaw()


async def stepped_down(cluster: NatsCluster, bus: NatsBus) -> None:
    """A planned change."""
    await leader(cluster, bus)
    with contextlib.suppress(Exception):
        await bus.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{LEDGER.stream}", b"")


@pytest.mark.parametrize(
    "faults",
    [[stepped_down] * 6, [killed, killed], [frozen], [stepped_down, killed, stepped_down, frozen]],
    ids=["stepped down six times", "killed twice", "frozen", "all of it"],
)
async def test_two_writers_lose_nothing_acknowledged_whatever_happens_to_the_leader(
    nats_cluster: NatsCluster, faults: list[Fault]
) -> None:
    """Claim: 0 acknowledged commits lost, 0 breaks in the chain, and both writers go on by themselves."""
    async with contextlib.AsyncExitStack() as stack:
        names = ("a", "b", "operator")
        a, b, operator = [await stack.enter_async_context(connect(nats_cluster.urls, name=name)) for name in names]
        await wait_until(lambda: _prepared(operator), what="replicated streams", timeout_s=30)
        await begun(operator)
        writers, stop = [Writer(a, "a", pause_s=0.02), Writer(b, "b", pause_s=0.02)], asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.run(100_000, stop), name=writer.name)
            for fault in faults:
                await _progress(writers)
                await fault(nats_cluster, operator)
            await _progress(writers)
            stop.set()
        proof = await judge(operator, *writers)
    for w in writers:
        log.info("%s: %d acknowledged, %d lost heads, %d unknown", w.name, len(w.acknowledged), w.lost, w.unknown)
    log.info("%s", proof)
    assert sum(len(writer.acknowledged) for writer in writers) <= proof.commits


async def _prepared(bus: NatsBus) -> bool:
    try:
        await bus.ensure_streams(replicas=3)
    except Exception as error:  # noqa: BLE001 - a cluster that has just started refuses for a while in many words
        log.info("not yet: %s", error)
        return False
    return True


async def _progress(writers: list[Writer]) -> None:
    goal = {writer.name: len(writer.acknowledged) + NOTES for writer in writers}

    async def reached() -> bool:
        return all(len(writer.acknowledged) >= goal[writer.name] for writer in writers)

    await wait_until(reached, what=f"{NOTES} more notes acknowledged by each writer", timeout_s=90)
