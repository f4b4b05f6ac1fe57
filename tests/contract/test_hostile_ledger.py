"""Forged commits: whoever has the right to publish them can stop the ledger, loudly, and nothing else.

Who has that right is the matter of `test_identities.py`.
"""

from __future__ import annotations

import contextlib
import json

import pytest

from bus.client import connect
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
