"""Forged commits: with the right to publish them the ledger stops loudly, without it nothing gets in."""

from __future__ import annotations

import contextlib
import json

import pytest

from bus.client import connect
from bus.protocol import NotPermitted
from contracts.subjects import LEDGER, REQUESTS
from tests.contract.scheduler_rig import FakeCluster, request
from tests.servers.line import Line, exit_code, log_lines
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = pytest.mark.nats

STOP_S = 5.0
NAMESPACE = "default"

FORGERY = {"type": "ledger.commit.v1", "pool": "default", "epoch": "evil", "number": 9, "predecessor": 1, "author": "e"}


@pytest.mark.parametrize(
    "data", [b"garbage", json.dumps({**FORGERY, "records": []}).encode()], ids=["no commit", "a lie"]
)
async def test_a_forged_commit_stops_every_scheduler_loudly(data: bytes) -> None:
    """Whoever may publish to the ledger can stop it, and nothing else.

    Nobody goes on behind a commit that does not add up, and the log says at which sequence it stands. Starting again
    does not help: an operator must look.
    """
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer())
        bus = await stack.enter_async_context(connect(server.url, name="test"))
        await bus.ensure_streams()
        cluster = await stack.enter_async_context(FakeCluster(bus))
        await cluster.node("gpu-1")
        line = await stack.enter_async_context(Line([server.url], schedulers=2, reconciler=False))

        async def begun() -> bool:
            answers = [await line.readyz(scheduler) for scheduler in line.schedulers]
            return all(a.status == 200 for a in answers) and await bus.last_sequence(LEDGER.stream) >= 2

        await wait_until(begun, what="the ledger has begun", timeout_s=30.0)
        at = (await bus.store(LEDGER.subject(pool="default"), data)).sequence
        await bus.store(REQUESTS.subject(namespace=NAMESPACE), json.dumps(request("after")).encode())

        async def ended() -> bool:
            return not any(scheduler.running for scheduler in line.schedulers)

        await wait_until(ended, what="both schedulers have ended", timeout_s=STOP_S)
        assert await bus.last_sequence(LEDGER.stream) == at
        for scheduler in line.schedulers:
            assert exit_code(scheduler) == 1
            last = [str(line_.get("reason")) for line_ in log_lines(scheduler) if line_["message"] == "ending"]
            assert str(at) in last[-1], last


TENANTS = """
authorization {
  users: [
    { user: ours, password: pw }
    { user: alice, password: pw, permissions: {
        publish: ["gpubus.v1.requests.alice", "gpubus.v1.ask.*.alice"]
        subscribe: ["gpubus.v1.events.alice.>", "_INBOX.alice.>"]
    } }
  ]
}
"""


async def test_a_tenant_with_rights_by_subject_reaches_its_requests_and_nothing_else() -> None:
    """Accounts as a deployment sets them up: forged commits, facts, outcomes and others' requests end at the server."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer(extra=TENANTS))
        ours = await stack.enter_async_context(connect(server.url, name="ours", user="ours", password="pw"))
        await ours.ensure_streams()
        alice = await stack.enter_async_context(
            connect(server.url, name="alice", user="alice", password="pw", inbox_prefix="_INBOX.alice")
        )
        for subject in (
            "gpubus.v1.ledger.default",
            "gpubus.v1.nodes.gpu-1.inventory",
            "gpubus.v1.nodes.gpu-1.facts",
            "gpubus.v1.outcomes.bob.train",
            "gpubus.v1.events.bob.train",
            "gpubus.v1.leases.scheduler-default",
            "gpubus.v1.requests.bob",
        ):
            with pytest.raises(NotPermitted):
                await alice.store(subject, b"forged")
        for stream in ("GPUBUS_LEDGER", "GPUBUS_EVENTS", "GPUBUS_LEASES", "GPUBUS_OUTCOMES", "GPUBUS_FACTS"):
            assert await ours.last_sequence(stream) == 0
        assert (await alice.store("gpubus.v1.requests.alice", b"mine")).sequence == 1
