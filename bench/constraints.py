"""Decisions with constraints in memory: 5,000 nodes in 3 zones and 100 racks, 40,000 residents of half a card each.

Each row is the median of `DECISIONS` decisions of one kind, each folded before the next; the first of a kind, which
reads every resident and scores every node, is told in the note. The floor is the decision for the same shape without
constraints in the same run: what looking at neighbours costs is the difference. Times are CPU times of this process.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from bench.rows import Row, median
from contracts.constraints import (
    Expression,
    NodeAffinity,
    NodeTerm,
    PodAffinity,
    PodSelector,
    PodTerm,
    PreferredNodeTerm,
    TopologySpread,
)
from scheduler.core.decide import Placed, decide
from scheduler.core.gang import place_gang
from scheduler.core.policies import POLICIES
from scheduler.core.ranking import Rankings
from tests.builders.ledger import Cluster, Request, cluster, node, request

NODES = 5000
RESIDENTS = 8
DECISIONS = 31
POLICY = POLICIES["packing"]
HOST = "kubernetes.io/hostname"
WEB = PodSelector(match_labels={"app": "web"})
IN_ONE = NodeTerm(match_expressions=(Expression(key="zone", operator="In", values=("z1",)),))
RATHER_ONE = PreferredNodeTerm(weight=1, term=IN_ONE)
BY_WEB = PodTerm(topology_key="rack", selector=WEB)

KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("no constraint", "plain", {}),
    ("spread over zones", "web", {"topology_spread": (TopologySpread(topology_key="zone"),)}),
    ("spread over nodes", "web", {"topology_spread": (TopologySpread(topology_key=HOST),)}),
    ("near pods of a rack", "api", {"pod_affinity": PodAffinity(required=(BY_WEB,))}),
    ("preferred node term", "api", {"node_affinity": NodeAffinity(preferred=(RATHER_ONE,))}),
    ("required node term", "api", {"node_affinity": NodeAffinity(required=(IN_ONE,))}),
    ("apart, one a node", "db", {"pod_anti_affinity": PodAffinity(required=(PodTerm(topology_key=HOST),))}),
    ("no constraint, kept away by residents", "db", {}),
    ("no constraint, others are kept away", "plain", {}),
)


def run() -> list[Row]:
    """The table."""
    drawn, rankings = _cluster(), Rankings()
    gc.collect()
    gc.freeze()  # half a million objects that a collection need not walk again
    rows: list[Row] = []
    floor: float | None = None
    for name, label, fields in KINDS:
        took = _decisions(drawn, rankings, request("r").share(100).labels(app=label).fields(**fields))
        usual = median(took[1:]) * 1e3
        rows.append(Row(name=name, value=usual, unit="ms", floor=floor, note=f"the first {took[0] * 1e3:.0f} ms"))
        floor = usual if floor is None else floor
    return [*rows, _gang(drawn, rankings)]


def _cluster() -> Cluster:
    drawn = cluster(node(f"n{i}").gpus(RESIDENTS).labels(zone=f"z{i % 3}", rack=f"r{i % 100}") for i in range(NODES))
    for index in range(NODES):
        for card in range(RESIDENTS):
            drawn.hold(request(f"h{index}-{card}").share(500).labels(app=f"app{card}"), f"n{index}", card)
    return drawn


def _decisions(drawn: Cluster, rankings: Rankings, asked: Request) -> list[float]:
    took = []
    for _ in range(DECISIONS):
        asked.name = f"r{drawn.state.totals.accepted}"
        waiting = drawn.accept(asked)
        began = time.process_time()
        decision = decide(drawn.state, waiting, POLICY, rankings)
        took.append(time.process_time() - began)
        if not isinstance(decision, Placed):
            raise TypeError(f"{asked.name} found no room: {decision.reasons[0].text}")
        drawn.fold(decision.record())
    return took


def _gang(drawn: Cluster, rankings: Rankings) -> Row:
    took = []
    for turn in range(5):
        members = [
            drawn.accept(request(f"g{turn}-{i}").share(250).gang(f"g{turn}", 8, within="node")) for i in range(8)
        ]
        began = time.process_time()
        place_gang(drawn.state, members, POLICY, rankings)
        took.append(time.process_time() - began)
    return Row(name="a gang of eight on one node", value=median(took) * 1e3, unit="ms", note="not folded")
