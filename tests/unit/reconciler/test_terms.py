"""A request's constraints in the pod that is made of it: every word of them, in Kubernetes' spelling."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from contracts.constraints import (
    Expression,
    FieldExpression,
    NodeAffinity,
    NodeTerm,
    PodAffinity,
    PodExpression,
    PodSelector,
    PodTerm,
    PreferredNodeTerm,
    PreferredPodTerm,
    TopologySpread,
)
from contracts.requests import PodRequest, PodTemplate
from contracts.units import NodeName
from reconciler.foreign_terms import Whose, constraints
from reconciler.terms import PREFERRED, REQUIRED, constraint_fields

BARE = PodRequest(name="r", pod=PodTemplate(image="i", labels={"app": "web"}))
ZONE = Expression(key="zone", operator="In", values=("a", "b"))
OLD = Expression(key="generation", operator="Gt", values=("7",))
THIS = FieldExpression(key="metadata.name", values=(NodeName("n1"),))
DB = PodSelector(match_labels={"app": "db"}, match_expressions=(PodExpression(key="tier", operator="Exists"),))
TERM = PodTerm(topology_key="zone", selector=DB)

WORDS: list[tuple[str, PodRequest]] = [
    ("nothing", BARE),
    ("required nodes", replace(BARE, node_affinity=NodeAffinity(required=(NodeTerm(match_expressions=(ZONE, OLD)),)))),
    ("a node by name", replace(BARE, node_affinity=NodeAffinity(required=(NodeTerm(match_fields=(THIS,)),)))),
    (
        "preferred nodes",
        replace(
            BARE,
            node_affinity=NodeAffinity(
                preferred=(PreferredNodeTerm(weight=7, term=NodeTerm(match_expressions=(ZONE,))),)
            ),
        ),
    ),
    ("near", replace(BARE, pod_affinity=PodAffinity(required=(TERM,)))),
    ("apart", replace(BARE, pod_anti_affinity=PodAffinity(required=(TERM,)))),
    ("rather near", replace(BARE, pod_affinity=PodAffinity(preferred=(PreferredPodTerm(weight=3, term=TERM),)))),
    ("spread", replace(BARE, topology_spread=(TopologySpread(topology_key="zone", max_skew=2, selector=DB),))),
    (
        "rather spread",
        replace(
            BARE,
            topology_spread=(
                TopologySpread(topology_key="zone", when_unsatisfiable="ScheduleAnyway", selector=DB),
                TopologySpread(topology_key="rack", selector=DB),
            ),
        ),
    ),
]
FIELDS = ("node_affinity", "pod_affinity", "pod_anti_affinity", "topology_spread")


@pytest.mark.parametrize("asked", [asked for _, asked in WORDS], ids=[name for name, _ in WORDS])
def test_read_back_it_is_what_was_asked(asked: PodRequest) -> None:
    """Rendered, and read as a pod of anybody would be: the same constraints, without a fault."""
    spec = constraint_fields(asked)
    found, faults = constraints(
        spec.get("affinity"), spec.get("topologySpreadConstraints"), Whose("ns", asked.pod.labels)
    )
    again = msgspec.convert({"name": "r", "pod": {"image": "i"}, "gpu": {}, **found}, PodRequest)

    assert faults == []
    assert [getattr(again, name) for name in FIELDS] == [getattr(asked, name) for name in FIELDS]


def test_nothing_asked_is_nothing_written() -> None:
    """A pod without constraints is as it always was."""
    assert constraint_fields(BARE) == {}


def test_an_absent_selector_is_written_out() -> None:
    """Kubernetes would take none for nobody; here it means the own labels."""
    spread = TopologySpread(topology_key="zone")
    near = PodAffinity(required=(PodTerm(topology_key="rack"),))
    found = constraint_fields(replace(BARE, topology_spread=(spread,), pod_anti_affinity=near))

    own = {"matchLabels": {"app": "web"}}
    [term] = found["affinity"]["podAntiAffinity"][REQUIRED]
    assert (term, found["topologySpreadConstraints"][0]["labelSelector"]) == (
        {"topologyKey": "rack", "labelSelector": own},
        own,
    )


def test_it_is_spelt_as_kubernetes_spells_it() -> None:
    asked: dict[str, Any] = constraint_fields(
        replace(
            BARE,
            node_affinity=NodeAffinity(
                required=(NodeTerm(match_expressions=(ZONE,), match_fields=(THIS,)),),
                preferred=(PreferredNodeTerm(weight=9, term=NodeTerm(match_expressions=(OLD,))),),
            ),
            pod_affinity=PodAffinity(preferred=(PreferredPodTerm(weight=3, term=TERM),)),
        )
    )["affinity"]

    [node] = asked["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert node["matchExpressions"] == [{"key": "zone", "operator": "In", "values": ["a", "b"]}]
    assert node["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert asked["nodeAffinity"][PREFERRED][0]["weight"] == 9
    [rather] = asked["podAffinity"][PREFERRED]
    assert rather["podAffinityTerm"]["labelSelector"]["matchExpressions"] == [{"key": "tier", "operator": "Exists"}]
