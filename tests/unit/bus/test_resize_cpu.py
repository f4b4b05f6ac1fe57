"""CPU that is resized in place: counted on its node, never beyond what the node has, and as before when not named."""

from __future__ import annotations

import pytest

from bus.ledger.rules import InvariantBroken
from contracts.decisions import Resized
from tests.builders.ledger import cluster, node, request


def test_the_node_counts_the_new_request() -> None:
    """Up, down, and not named; the cards' share is changed in the same record (S144)."""
    world = cluster(node("n1").gpus(1).cpu(4000))
    held = world.hold(request("a").share(250).gpu_memory(1000).cpu(1000), "n1", 0)
    for cpu_milli, counted in ((3500, 3500), (500, 500), (None, 500)):
        world.fold(Resized(uid=held.uid, share_milli=300, memory_mib=1000, cpu_milli=cpu_milli))

        assert world.state.nodes["n1"].used_cpu_milli == counted
        assert held.placement is not None
        assert (held.placement.cpu_milli, held.placement.slices[0].share_milli) == (counted, 300)
    world.release(held.uid)

    assert world.state.nodes["n1"].used_cpu_milli == 0


def test_growth_beyond_the_node_breaks_the_fold() -> None:
    """Claim S145: never over-committed; giving back is always possible."""
    world = cluster(node("n1").gpus(1).cpu(4000))
    held = world.hold(request("a").share(250).gpu_memory(1000).cpu(1000), "n1", 0)
    world.hold(request("b").share(250).gpu_memory(1000).cpu(2000), "n1", 0)

    with pytest.raises(InvariantBroken, match=r"asks for 1001 milli-cores more of n1, 1000 free"):
        world.fold(Resized(uid=held.uid, share_milli=250, memory_mib=1000, cpu_milli=2001))
    assert world.state.nodes["n1"].used_cpu_milli == 3000
