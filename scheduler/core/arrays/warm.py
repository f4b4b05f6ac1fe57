"""Compile the kernels, or load what was compiled before, so that the first request does not wait for it.

    warm_up()                                 at the start of a service, in a thread: 1 s if compiled before, else 15 s
    python -m scheduler.core.arrays.warm      when an image is built, or before tests; see `compiled` for the folder

One node of two cards and one shape are enough: kernels are compiled for the types of their arguments, not their sizes.
"""

from __future__ import annotations

from bus.ledger.state import CardState, LedgerState, NodeState
from contracts.inventory import Card, NodeFacts
from contracts.units import CardUuid, NodeName
from scheduler.core.arrays.cluster import Cluster
from scheduler.core.arrays.values import node_value
from scheduler.core.menu.terms import MenuTerms
from scheduler.core.request import Shape

_TERMS = MenuTerms(menus=2, menu_size=2)
_MIX = {"1000|1|500|": 2, "1000|2|1000|": 1, "1000|0|0|": 1}
_SHAPE = Shape(cards=1, share_milli=500, memory_mib=None, cpu_milli=1000)


def warm_up() -> None:
    """Once through every kernel."""
    cluster, state = Cluster(_TERMS), _state()
    for node in state.nodes.values():
        cluster.refresh(node, state.requests)
    for coming in (True, False):
        state.coming, state.coming_at = _MIX, 1
        state.learned, state.learned_at = ({}, 0) if coming else (_MIX, 1)
        cluster.learn(state)
        cluster.cheapest(_SHAPE, lambda _: None)
    cluster.boards.put(cluster.boards.of(_SHAPE, cluster.tables), 0, 0)
    node_value(cluster.tables.values, 1000, [1000, 500])


def _state() -> LedgerState:
    cards = {
        uuid: CardState(
            card=Card(uuid=CardUuid(uuid), index=index, model="model", memory_total_mib=1000),
            node="node",
            capacity_mib=1000,
        )
        for index, uuid in enumerate(("one", "two"))
    }
    facts = NodeFacts(
        node=NodeName("node"),
        uid="node",
        allocatable_cpu_milli=8000,
        allocatable_memory_mib=8000,
        allocatable_pods=10,
    )
    node = NodeState(name="node", tie="0" * 16, facts=facts, fresh=True, cards=dict(cards))
    return LedgerState(epoch="warm", nodes={"node": node})


if __name__ == "__main__":
    warm_up()
