"""A pod's affinities, spread and tolerations in our spelling. Pure.

In: the parts of a spec as JSON. Out: the fields of a request, and a fault for each word that has no meaning here: terms
over other namespaces, label keys that are merged later, numbers of domains. Operators and bounds are left to the types
of the request, which say no by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.annotations import Fault

REQUIRED, PREFERRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
Json = Mapping[str, Any]


def tolerations(found: Iterable[Json]) -> list[dict[str, Any]]:
    """How long a taint is tolerated is the kubelet's and the controllers' business."""
    kept = ("key", "operator", "value", "effect")
    return [{name: one[name] for name in kept if one.get(name) not in (None, "")} for one in found]


def constraints(affinity: Json | None, spread: Iterable[Json] | None) -> tuple[dict[str, Any], list[Fault]]:
    """The constraint fields of a request."""
    faults: list[Fault] = []
    affinity = affinity or {}
    fields: dict[str, Any] = {}
    if node := affinity.get("nodeAffinity"):
        fields["node_affinity"] = _node_affinity(node)
    for ours, theirs in (("pod_affinity", "podAffinity"), ("pod_anti_affinity", "podAntiAffinity")):
        if one := affinity.get(theirs):
            fields[ours] = _pod_affinity(one, f"spec.affinity.{theirs}", faults)
    if spread:
        fields["topology_spread"] = [_spread(one, faults) for one in spread]
    return fields, faults


def _node_affinity(found: Json) -> dict[str, Any]:
    required = (found.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    preferred = found.get(PREFERRED) or ()
    return {
        "required": [_node_term(term) for term in required],
        "preferred": [{"weight": one["weight"], "term": _node_term(one["preference"])} for one in preferred],
    }


def _node_term(term: Json) -> dict[str, Any]:
    return {"match_expressions": term.get("matchExpressions") or [], "match_fields": term.get("matchFields") or []}


def _pod_affinity(found: Json, where: str, faults: list[Fault]) -> dict[str, Any]:
    return {
        "required": [_pod_term(term, where, faults) for term in found.get(REQUIRED) or ()],
        "preferred": [
            {"weight": one["weight"], "term": _pod_term(one["podAffinityTerm"], where, faults)}
            for one in found.get(PREFERRED) or ()
        ],
    }


def _pod_term(term: Json, where: str, faults: list[Fault]) -> dict[str, Any]:
    _refuse(term, ("namespaces", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys"), where, faults)
    return {"topology_key": term.get("topologyKey", ""), "selector": _selector(term, where, faults)}


def _spread(found: Json, faults: list[Fault]) -> dict[str, Any]:
    where = "spec.topologySpreadConstraints"
    _refuse(found, ("minDomains", "matchLabelKeys"), where, faults)
    for name, default in (("nodeAffinityPolicy", "Honor"), ("nodeTaintsPolicy", "Ignore")):
        if found.get(name, default) != default:
            faults.append(Fault(where=where, text=f"{name} {found[name]} is not understood, {default} is"))
    return {
        "topology_key": found.get("topologyKey", ""),
        "max_skew": found.get("maxSkew", 1),
        "when_unsatisfiable": found.get("whenUnsatisfiable", "DoNotSchedule"),
        "selector": _selector(found, where, faults),
    }


def _selector(term: Json, where: str, faults: list[Fault]) -> dict[str, Any]:
    """Absent selects nobody in Kubernetes and the own labels here: refused, so that neither is meant by accident."""
    selector = term.get("labelSelector")
    if not selector:
        faults.append(Fault(where=where, text="labelSelector is missing or empty"))
        return {}
    return {
        "match_labels": selector.get("matchLabels") or {},
        "match_expressions": selector.get("matchExpressions") or [],
    }


def _refuse(found: Json, names: Iterable[str], where: str, faults: list[Fault]) -> None:
    faults += [Fault(where=where, text=f"{name} is not understood") for name in names if found.get(name)]
