"""A pod's affinities, spread and tolerations in our spelling. Pure.

In: the parts of a spec as JSON, and whose they are. Out: the fields of a request, and a fault for each word that has no
meaning here: terms over other namespaces, numbers of domains. Operators and bounds are left to the types of the
request, which say no by themselves.

Label keys that stand for "the pods of this revision" (`matchLabelKeys: [pod-template-hash]`) become a condition with
the pod's own value, as the API server itself merges them in newer versions; merged already, they are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from reconciler.annotations import Fault

REQUIRED, PREFERRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
Json = Mapping[str, Any]


class Whose(msgspec.Struct, frozen=True):
    """The pod that the terms are of."""

    namespace: str
    labels: Mapping[str, str]


def tolerations(found: Iterable[Json]) -> list[dict[str, Any]]:
    """How long a taint is tolerated is the kubelet's and the controllers' business."""
    kept = ("key", "operator", "value", "effect")
    return [{name: one[name] for name in kept if one.get(name) not in (None, "")} for one in found]


def constraints(
    affinity: Json | None, spread: Iterable[Json] | None, whose: Whose
) -> tuple[dict[str, Any], list[Fault]]:
    """The constraint fields of a request."""
    faults: list[Fault] = []
    affinity = affinity or {}
    fields: dict[str, Any] = {}
    if node := affinity.get("nodeAffinity"):
        fields["node_affinity"] = _node_affinity(node)
    for ours, theirs in (("pod_affinity", "podAffinity"), ("pod_anti_affinity", "podAntiAffinity")):
        if one := affinity.get(theirs):
            fields[ours] = _pod_affinity(one, f"spec.affinity.{theirs}", whose, faults)
    if spread:
        fields["topology_spread"] = [_spread(one, whose, faults) for one in spread]
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


def _pod_affinity(found: Json, where: str, whose: Whose, faults: list[Fault]) -> dict[str, Any]:
    return {
        "required": [_pod_term(term, where, whose, faults) for term in found.get(REQUIRED) or ()],
        "preferred": [
            {"weight": one["weight"], "term": _pod_term(one["podAffinityTerm"], where, whose, faults)}
            for one in found.get(PREFERRED) or ()
        ],
    }


def _pod_term(term: Json, where: str, whose: Whose, faults: list[Fault]) -> dict[str, Any]:
    if others := sorted(set(term.get("namespaces") or ()) - {whose.namespace}):
        text = f"pods of other namespaces are not looked at: {', '.join(others)}"
        faults.append(Fault(where=where, text=text))
    if term.get("namespaceSelector") is not None:
        faults.append(Fault(where=where, text="namespaceSelector is not understood: terms are over the own namespace"))
    return {"topology_key": term.get("topologyKey", ""), "selector": _selector(term, where, whose, faults)}


def _spread(found: Json, whose: Whose, faults: list[Fault]) -> dict[str, Any]:
    where = "spec.topologySpreadConstraints"
    if (found.get("minDomains") or 1) > 1:
        faults.append(Fault(where=where, text=f"minDomains {found['minDomains']} is not understood, 1 is"))
    for name, default in (("nodeAffinityPolicy", "Honor"), ("nodeTaintsPolicy", "Ignore")):
        if found.get(name, default) != default:
            faults.append(Fault(where=where, text=f"{name} {found[name]} is not understood, {default} is"))
    return {
        "topology_key": found.get("topologyKey", ""),
        "max_skew": found.get("maxSkew", 1),
        "when_unsatisfiable": found.get("whenUnsatisfiable", "DoNotSchedule"),
        "selector": _selector(found, where, whose, faults),
    }


def _selector(term: Json, where: str, whose: Whose, faults: list[Fault]) -> dict[str, Any]:
    """Absent selects nobody in Kubernetes and the own labels here: refused, so that neither is meant by accident."""
    selector = term.get("labelSelector")
    if not selector:
        faults.append(Fault(where=where, text="labelSelector is missing or empty"))
        return {}
    said = list(selector.get("matchExpressions") or ())
    return {
        "match_labels": selector.get("matchLabels") or {},
        "match_expressions": [*said, *(one for one in _of_own_values(term, whose) if one not in said)],
    }


def _of_own_values(term: Json, whose: Whose) -> Iterator[dict[str, Any]]:
    """Keys that stand for the pod's own value of a label; one that it does not have says nothing."""
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(name) or ():
            if key in whose.labels:
                yield {"key": key, "operator": operator, "values": [whose.labels[key]]}
