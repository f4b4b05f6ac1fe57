"""A pod of anybody that names our scheduler, as a request. Pure.

In: the pod, whole, as the API server has it. Out: the request, or everything in it that cannot be honoured. What the
pod asks of cards comes from `annotations` and `dialects`; CPU and memory are the sums that the kubelet counts; node
selector, tolerations, affinities and spread are Kubernetes' own words in our spelling (`foreign_terms`). What we do not
know how to honour is refused, never passed by: a pod that was placed without it would fail far from here.

The request's name is made of the pod's name and a digest of its uid: a pod that is made again under its name (a
StatefulSet does so) is another request, and one pod is one request however often it is read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from contracts.priorities import PRIORITY_CLASSES
from contracts.requests import ExternalPod, PodRequest
from contracts.units import LABEL_KEY_PATTERN
from reconciler import marks
from reconciler.annotations import Fault, Words, words
from reconciler.dialects import dialects, merged
from reconciler.facts import pod_request
from reconciler.foreign_terms import Whose, constraints, tolerations
from reconciler.objects import Container, Part, Pod, PodSpec, Quantities
from reconciler.quantity import MIB, MILLI, ceil_in

SCHEDULER = "gpubus"
MAX_LABELS = 32
IMAGE = "external"
"""In the template of a request for a pod that is there already: nobody reads it."""


class FieldRef(Part, frozen=True, kw_only=True):
    """A field of the pod that a variable is read from."""

    field_path: str = ""


class ValueFrom(Part, frozen=True, kw_only=True):
    """Where a variable is read from."""

    field_ref: FieldRef | None = None


class Variable(Part, frozen=True, kw_only=True):
    """One entry of an environment."""

    name: str = ""
    value: str = ""
    value_from: ValueFrom | None = None


class VolumeMount(Part, frozen=True, kw_only=True):
    """A volume in a container."""

    name: str = ""
    mount_path: str = ""


class ForeignContainer(Container, frozen=True, kw_only=True):
    """A container, with what the admission policy has set in it."""

    env: tuple[Variable, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None


class ForeignSpec(PodSpec, frozen=True, kw_only=True):
    """What a translation reads beside what the informer keeps."""

    containers: tuple[ForeignContainer, ...] | None = None
    init_containers: tuple[ForeignContainer, ...] | None = None
    volumes: tuple[dict[str, Any], ...] | None = None
    priority_class_name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: tuple[dict[str, Any], ...] | None = None
    affinity: dict[str, Any] | None = None
    topology_spread_constraints: tuple[dict[str, Any], ...] | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None


class ForeignPod(Pod, frozen=True, kw_only=True):
    """A pod, read whole."""

    spec: ForeignSpec = ForeignSpec()


DECODER = msgspec.json.Decoder(ForeignPod)


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod cannot be a request, everything at once."""

    faults: tuple[Fault, ...]

    @property
    def text(self) -> str:
        """`gpubus.dev/share-mili is no key of ours; did you mean …; …`"""  # noqa: D415 - a sample
        return "; ".join(f"{fault.where}: {fault.text}" for fault in self.faults)[:1024]


def wants_us(pod: Pod) -> bool:
    """Somebody else made it, it names our scheduler, it waits for a node, and nothing of ours is on it."""
    waits = not pod.spec.node_name and pod.metadata.deletion_timestamp is None and pod.status.phase in ("", "Pending")
    return waits and pod.spec.scheduler_name == SCHEDULER and marks.UID not in (pod.metadata.annotations or {})


def request_name(pod: Pod) -> str:
    """The name of the request that this life of a pod is."""
    return name_for(pod.metadata.name, pod.metadata.uid)


def name_for(pod: str, pod_uid: str) -> str:
    """`<pod's name>-<12 hex digits of its uid's digest>`, at most 50: one request for each life of a pod."""
    slug = re.sub(r"[^a-z0-9-]", "-", pod)[:37].strip("-") or "pod"
    return f"{slug}-{hashlib.sha256(pod_uid.encode()).hexdigest()[:12]}"


def made_up(request: PodRequest) -> bool:
    """It speaks of a pod, and is not the request that the reconciler makes of that pod: its name says so."""
    external = request.external
    return external is not None and request.name != name_for(external.name, external.uid)


def traceparent_of(pod: Pod) -> str:
    """The trace that the pod's maker wants it to belong to; empty when none was named."""
    return (pod.metadata.annotations or {}).get(marks.TRACEPARENT, "")


def translate(pod: ForeignPod) -> PodRequest | Refused:
    """The request that this pod is."""
    said = words(pod.metadata.annotations or {}, pod.metadata.labels or {})
    ask, conflicts = merged(said.gpu, dialects(pod.metadata.annotations or {}, dict(_limits(pod.spec))))
    whose = Whose(pod.metadata.namespace, pod.metadata.labels or {})
    placed, strange = constraints(pod.spec.affinity, pod.spec.topology_spread_constraints, whose)
    faults = [*said.faults, *conflicts, *strange, *_unknown(pod.spec)]
    if not ask:
        ask = {"cards": 0}
    raw = {
        "name": request_name(pod),
        "pod": _template(pod),
        "gpu": ask,
        **_more(said, pod.spec),
        **placed,
        "node_selector": pod.spec.node_selector or {},
        "tolerations": tolerations(pod.spec.tolerations or ()),
        "external": ExternalPod(name=pod.metadata.name, uid=pod.metadata.uid),
    }
    if not faults:
        try:
            return msgspec.convert(msgspec.to_builtins(raw), PodRequest)
        except msgspec.ValidationError as error:
            bound, _, path = str(error).partition(" - at `$.")
            faults.append(Fault(where=path.rstrip("`") or "pod", text=bound))
    return Refused(faults=tuple(faults))


def _template(pod: ForeignPod) -> dict[str, Any]:
    """Its sums and labels: what is counted on the node, and what selectors of others look at."""
    labels = {key: value for key, value in sorted((pod.metadata.labels or {}).items()) if not _ours(key)}
    return {
        "image": IMAGE,
        "cpu_milli": ceil_in(pod_request(pod, "cpu"), MILLI),
        "memory_mib": ceil_in(pod_request(pod, "memory"), MIB),
        "labels": dict(list(labels.items())[:MAX_LABELS]),
    }


def _ours(key: str) -> bool:
    """Ours, or one that a label key of a request cannot be."""
    return key.startswith(marks.DOMAIN) or re.fullmatch(LABEL_KEY_PATTERN, key) is None


def _more(said: Words, spec: ForeignSpec) -> dict[str, Any]:
    """Everything of the request that is neither cards nor places."""
    named = spec.priority_class_name if spec.priority_class_name in PRIORITY_CLASSES else ""
    urgent = {} if {"priority", "priority_class"} & set(said.request) or not named else {"priority_class": named}
    return {
        **said.request,
        **urgent,
        **({"locality": said.locality} if said.locality else {}),
        **({"gang": said.gang} if said.gang else {}),
    }


def _limits(spec: ForeignSpec) -> Iterator[tuple[str, Quantities]]:
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        yield container.name, (container.resources.limits if container.resources else None) or {}


KNOWN_RESOURCES = re.compile(
    r"cpu|memory|ephemeral-storage|nvidia\.com/(gpu|gpumem|gpumem-percentage|gpucores|mig-.*)|aliyun\.com/gpu-mem"
)


def _unknown(spec: ForeignSpec) -> Iterator[Fault]:
    """What a node would have to have, and nobody here counts."""
    if spec.resource_claims:
        yield Fault(where="spec.resourceClaims", text="claims of devices are not given out by this scheduler")
    for name, limits in _limits(spec):
        for resource in sorted(limits):
            if KNOWN_RESOURCES.fullmatch(resource) is None:
                yield Fault(where=f"container {name}", text=f"{resource} is not counted by this scheduler")


# --- is it what the ledger placed, and is it safe to bind ------------------------------------------------------------


def mismatch(pod: ForeignPod, request: PodRequest) -> str:
    """Why this pod is not what was asked for; empty when it is, word for word."""
    found = translate(pod)
    if isinstance(found, Refused):
        return found.text
    differing = [field for field in PodRequest.__struct_fields__ if getattr(found, field) != getattr(request, field)]
    return f"the pod asks for another {', '.join(differing)} than its request" if differing else ""


def uninjected(pod: ForeignPod, wanted: Mapping[str, str], mounts: Iterable[tuple[str, str]] = ()) -> str:
    """Which variable or mount the admission policy should have set and has not; empty when all are there.

    Args:
        pod: to be bound.
        wanted: variable -> the field it must be read from, or `=<value>`; of equal names the last counts.
        mounts: (path on the host, path in the container).
    """
    hosts = {volume.get("name"): (volume.get("hostPath") or {}).get("path") for volume in pod.spec.volumes or ()}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        has = {entry.name: _source(entry) for entry in container.env or ()}
        for name, source in wanted.items():
            if has.get(name) != source:
                return f"container {container.name}: {name} is not set by the platform; is its admission policy there?"
        sees = {(hosts.get(mount.name), mount.mount_path) for mount in container.volume_mounts or ()}
        for host, path in mounts:
            if (host, path) not in sees:
                return f"container {container.name}: {host} is not mounted at {path}"
    return ""


def _source(entry: Variable) -> str:
    field = entry.value_from.field_ref if entry.value_from else None
    return field.field_path if field else f"={entry.value}"
