"""The garbage collector has nothing to do with messages and states, and seldom looks at the rest."""

from __future__ import annotations

import asyncio
import gc

import pytest

from bus.ledger.state import LedgerState
from bus.protocol import Received
from bus.runtime.process import Process, run
from bus.runtime.settings import HealthSettings, ServiceSettings
from contracts.messages import Message
from tests.builders.ledger import cluster, node, request
from tests.builders.messages import EXAMPLES


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_no_message_is_tracked(message: Message) -> None:
    """Claim: however many there are, a collection does not walk them."""
    assert not gc.is_tracked(message)


def test_no_part_of_a_state_is_tracked() -> None:
    """Claim: a state of 5,000 nodes is a handful of objects to the collector, not a million."""
    held = cluster(node("n1").gpus(2))
    held.hold(request("a").share(500), "n1", 0)
    state: LedgerState = held.state
    parts = [*state.nodes.values(), *state.requests.values(), *state.nodes["n1"].cards.values()]
    gc.collect()
    assert [part for part in parts if gc.is_tracked(part)] == []
    assert not gc.is_tracked(state.nodes)
    assert not gc.is_tracked(Received(subject="s", data=b""))


def test_a_process_collects_seldom_and_leaves_the_collector_as_it_was() -> None:
    """Claim: fifty thousand new containers between two collections while a service runs; Python's own afterwards."""
    seen: list[tuple[int, int, int]] = []

    class Service:
        def __init__(self, process: Process) -> None:
            self.process = process

        async def run(self, stop: asyncio.Event) -> None:
            seen.append(gc.get_threshold())
            self.process.request_stop("seen")
            await stop.wait()

    before = gc.get_threshold()
    settings = ServiceSettings(health=HealthSettings(port=0))
    run(Service, name="test", instance="test-1", settings=settings)
    assert seen == [(50_000, 20, 50)]
    assert gc.get_threshold() == before
