"""Where a request may go, and where it would rather go: Kubernetes' words for nodes and neighbours, in our spelling.

Names and meanings are those of a Kubernetes pod (`nodeAffinity`, `topologySpreadConstraints`, `podAffinity`), so that a
pod can be read into a request without a loss. What differs is said beside the field. Terms over neighbours look at our
own pods of the same namespace, by the labels of their templates.

Not here, because nothing reads it: `namespaces` and `namespaceSelector`, `matchLabelKeys`, `minDomains`, the policies
of node inclusion (affinity is honoured, taints are ignored: the defaults).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Value
from contracts.units import LabelKey, LabelValue, NodeName

Weight = Annotated[int, Meta(ge=1, le=100, description="how much a preference counts")]
Skew = Annotated[int, Meta(ge=1, le=1000, description="pods")]


class Expression(Value, frozen=True, kw_only=True):
    """One condition on the labels of a node."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """NotIn holds where the label is absent; Gt and Lt compare integers and hold for no other text."""
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=64)] = ()
    """At least one for In and NotIn, none for Exists and DoesNotExist, one integer for Gt and Lt."""


class FieldExpression(Value, frozen=True, kw_only=True):
    """One condition on the name of a node."""

    key: Literal["metadata.name"]
    operator: Literal["In", "NotIn"] = "In"
    values: Annotated[tuple[NodeName, ...], Meta(max_length=64)]
    """At least one."""


class NodeTerm(Value, frozen=True, kw_only=True):
    """Conditions that must hold together; a term without any is refused."""

    match_expressions: Annotated[tuple[Expression, ...], Meta(max_length=16)] = ()
    match_fields: Annotated[tuple[FieldExpression, ...], Meta(max_length=4)] = ()


class PreferredNodeTerm(Value, frozen=True, kw_only=True):
    """A term that makes a node better by `weight`."""

    weight: Weight
    term: NodeTerm


class NodeAffinity(Value, frozen=True, kw_only=True):
    """Conditions on nodes."""

    required: Annotated[tuple[NodeTerm, ...], Meta(max_length=16)] = ()
    """One of them must hold; none = every node will do."""
    preferred: Annotated[tuple[PreferredNodeTerm, ...], Meta(max_length=16)] = ()
    """Ranks nodes, and never makes one infeasible."""


class PodExpression(Value, frozen=True, kw_only=True):
    """One condition on the labels of a pod."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=64)] = ()


class PodSelector(Value, frozen=True, kw_only=True):
    """Pods by their labels: all conditions must hold. One without any is refused."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Meta(max_length=16)] = {}
    match_expressions: Annotated[tuple[PodExpression, ...], Meta(max_length=16)] = ()


class TopologySpread(Value, frozen=True, kw_only=True):
    """Keep the pods of a selector evenly over the domains of a label.

    The skew of a domain is its pods, with the new one, less those of the domain that has fewest. Domains are those of
    nodes that have all keys asked for and that the node selector and the required node affinity allow.
    """

    topology_key: LabelKey
    """The label whose values are domains: `topology.kubernetes.io/zone`, `kubernetes.io/hostname`."""
    max_skew: Skew = 1
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    selector: PodSelector | None = None
    """Absent: the labels of this request's own template."""


class PodTerm(Value, frozen=True, kw_only=True):
    """Pods of a selector, within one domain of a label."""

    topology_key: LabelKey
    selector: PodSelector | None = None
    """Absent: the labels of this request's own template."""


class PreferredPodTerm(Value, frozen=True, kw_only=True):
    """A term that makes the nodes of a domain better by `weight`."""

    weight: Weight
    term: PodTerm


class PodAffinity(Value, frozen=True, kw_only=True):
    """Neighbours to be near to, or to stay away from."""

    required: Annotated[tuple[PodTerm, ...], Meta(max_length=8)] = ()
    """All of them must hold. Affinity to the own labels holds anywhere as long as no such pod runs: somebody must be
    the first. Anti-affinity holds both ways: it also keeps away later pods that the selector matches."""
    preferred: Annotated[tuple[PreferredPodTerm, ...], Meta(max_length=8)] = ()
