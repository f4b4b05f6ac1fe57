"""A request's affinities and spread in Kubernetes' spelling: the way back of `foreign_terms`. Pure.

In: a request. Out: the fields of a pod's spec. The decision is made already, and nothing in Kubernetes makes it again;
they are written all the same, because others read them: `kubectl` shows what was asked for, Kubernetes' own scheduler
keeps its pods away from one that must be alone, a descheduler leaves alone what stands where it should, and a kubelet
refuses a pod whose node has lost the label that it needs. A selector that was left out means the request's own labels,
and is written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from contracts.constraints import NodeTerm, PodAffinity, PodSelector, PodTerm, TopologySpread
from contracts.requests import PodRequest
from reconciler.foreign_terms import PREFERRED, REQUIRED

Labels = Mapping[str, str]


def constraint_fields(asked: PodRequest) -> dict[str, Any]:
    """`affinity` and `topologySpreadConstraints`, each only where there is something to say."""
    labels = asked.pod.labels
    affinity = {
        "nodeAffinity": _node_affinity(asked),
        "podAffinity": _pod_affinity(asked.pod_affinity, labels),
        "podAntiAffinity": _pod_affinity(asked.pod_anti_affinity, labels),
    }
    spread = [_spread(one, labels) for one in asked.topology_spread]
    return _said({"affinity": _said(affinity), "topologySpreadConstraints": spread})


def _node_affinity(asked: PodRequest) -> dict[str, Any]:
    required = [_node_term(term) for term in asked.node_affinity.required]
    preferred = [{"weight": one.weight, "preference": _node_term(one.term)} for one in asked.node_affinity.preferred]
    return _said({REQUIRED: {"nodeSelectorTerms": required} if required else {}, PREFERRED: preferred})


def _node_term(term: NodeTerm) -> dict[str, Any]:
    return _said(
        {"matchExpressions": _expressions(term.match_expressions), "matchFields": _expressions(term.match_fields)}
    )


def _pod_affinity(asked: PodAffinity, labels: Labels) -> dict[str, Any]:
    required = [_pod_term(term, labels) for term in asked.required]
    preferred = [{"weight": one.weight, "podAffinityTerm": _pod_term(one.term, labels)} for one in asked.preferred]
    return _said({REQUIRED: required, PREFERRED: preferred})


def _pod_term(term: PodTerm, labels: Labels) -> dict[str, Any]:
    return {"topologyKey": term.topology_key, "labelSelector": _selector(term.selector, labels)}


def _spread(one: TopologySpread, labels: Labels) -> dict[str, Any]:
    return {
        "topologyKey": one.topology_key,
        "maxSkew": one.max_skew,
        "whenUnsatisfiable": one.when_unsatisfiable,
        "labelSelector": _selector(one.selector, labels),
    }


def _selector(selector: PodSelector | None, labels: Labels) -> dict[str, Any]:
    if selector is None:
        return {"matchLabels": dict(labels)}
    return _said(
        {"matchLabels": dict(selector.match_labels), "matchExpressions": _expressions(selector.match_expressions)}
    )


def _expressions(found: Iterable[msgspec.Struct]) -> list[dict[str, Any]]:
    """With the operator always, which a struct leaves out where it is the default one."""
    return [
        _said({name: list(value) if name == "values" else value for name, value in msgspec.structs.asdict(one).items()})
        for one in found
    ]


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty."""
    return {name: value for name, value in fields.items() if value}
