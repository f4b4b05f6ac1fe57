"""Kubernetes objects, with only the fields that are read here: a list of pods decodes ten times faster that way.

Strangers write these objects, so everything but a name may be missing. What is missing has a default that means
"nothing said", never a value that somebody might have meant.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

CONTAINER = "main"
"""The one container of a pod that we render."""
Quantities = dict[str, str | int]
"""Resource name to Kubernetes quantity; the API server writes strings, strangers write numbers."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object, in Kubernetes' spelling. Nothing in it refers back, so the collector need not look at it."""


class Owner(Part, frozen=True, kw_only=True):
    """Whose an object is: when the owner goes, Kubernetes takes it along."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Part, frozen=True, kw_only=True):
    """Who an object is. `uid` is Kubernetes' own and differs in each life of a name."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    generation: int = 0
    owner_references: tuple[Owner, ...] | None = None


class Resources(Part, frozen=True, kw_only=True):
    """What a container or a whole pod asks for, and the most that it may use."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(Part, frozen=True, kw_only=True):
    """One container; an init container that restarts always is a sidecar and runs beside the others."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str = ""


class Gate(Part, frozen=True, kw_only=True):
    """A scheduling gate: the pod may not be bound while it has one."""

    name: str = ""


class PodSpec(Part, frozen=True, kw_only=True):
    """What a pod asks for and where it is."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    scheduling_gates: tuple[Gate, ...] | None = None
    termination_grace_period_seconds: int | None = None


class Waiting(Part, frozen=True, kw_only=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Terminated(Part, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int | None = None
    reason: str = ""


class ContainerState(Part, frozen=True, kw_only=True):
    """One of these is set."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class Device(Part, frozen=True, kw_only=True):
    """One device that a container was given."""

    resource_id: str = msgspec.field(name="resourceID", default="")
    health: str = ""


class Allocated(Part, frozen=True, kw_only=True):
    """The devices of one resource that a container was given; known before it starts."""

    name: str = ""
    resources: tuple[Device, ...] | None = None


class ContainerStatus(Part, frozen=True, kw_only=True):
    """How a container is doing, and what the kubelet keeps for it while a resize is under way."""

    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    """`<runtime>://<id>`; another one after each restart."""
    state: ContainerState = ContainerState()
    allocated_resources: Quantities | None = None
    allocated_resources_status: tuple[Allocated, ...] | None = None
    """Kubernetes 1.36; None = the kubelet does not say."""


class PodCondition(Part, frozen=True, kw_only=True):
    """A condition of a pod, with why."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    """Of the pod that it speaks of; 0 = it does not say."""


class PodStatus(Part, frozen=True, kw_only=True):
    """How a pod is doing."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Part, frozen=True, kw_only=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class KubeTaint(Part, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True, kw_only=True):
    """What operators say of a node."""

    unschedulable: bool = False
    taints: tuple[KubeTaint, ...] | None = None


class Condition(Part, frozen=True, kw_only=True):
    """A condition: True, False or Unknown."""

    type: str = ""
    status: str = ""


class NodeInfo(Part, frozen=True, kw_only=True):
    """What the kubelet found when it started."""

    boot_id: str = msgspec.field(name="bootID", default="")


class NodeStatus(Part, frozen=True, kw_only=True):
    """What the kubelet says of its node."""

    node_info: NodeInfo = NodeInfo()
    allocatable: Quantities | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(Part, frozen=True, kw_only=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Share(Part, frozen=True, kw_only=True):
    """What each pod of a SharePod gets."""

    cards: int = 1
    share_milli: int = 1000
    memory_mib: int | None = None
    memory_milli: int | None = None
    models: tuple[str, ...] = ()
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    priority_class: str = ""


class Template(Part, frozen=True, kw_only=True):
    """A pod to be made: its spec is passed on whole."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}


class SharePodUpdate(Part, frozen=True, kw_only=True):
    """How pods of another template are replaced."""

    max_unavailable: int = 1
    """So many fewer than `replicas` may be ready meanwhile."""
    max_surge: int = 0
    """So many more than `replicas` may be there meanwhile; each takes a share of a card."""


class SharePodSpec(Part, frozen=True, kw_only=True):
    """What somebody wants of a SharePod."""

    replicas: int = 1
    update: SharePodUpdate = SharePodUpdate()
    share: Share = Share()
    template: Template = Template()


class SharePodCondition(Part, frozen=True, kw_only=True):
    """A condition of a SharePod, with the generation of the spec that it speaks of."""

    type: str = ""
    status: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""
    reason: str = ""
    message: str = ""


class SharePodStatus(Part, frozen=True, kw_only=True, omit_defaults=False):
    """What there is of a SharePod; every field is written each time."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    """Of the template and the share that the spec has now."""
    selector: str = ""
    ready: str = ""
    """`2/3`."""
    card: str = ""
    reason: str = ""
    conditions: tuple[SharePodCondition, ...] = ()


class SharePod(Part, frozen=True, kw_only=True):
    """Replicas of one pod, each on a share of a card."""

    metadata: Metadata
    spec: SharePodSpec = SharePodSpec()
    status: SharePodStatus = SharePodStatus()


Object = TypeVar("Object", bound=Pod | Node | SharePod)


class ListMetadata(Part, frozen=True, kw_only=True):
    """Of a list: the version to watch from, and where the next page begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ListOf(Part, Generic[Object], frozen=True, kw_only=True):
    """One page of a list."""

    metadata: ListMetadata
    items: tuple[Object, ...] | None = None


EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class WatchLine(Part, frozen=True, kw_only=True):
    """One line of a watch. The object is decoded once its type is known: an ERROR carries a Status, not a pod."""

    type: EventType
    object: msgspec.Raw


class StatusCause(Part, frozen=True, kw_only=True):
    """One machine-readable cause of a refusal; most refusals have none."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Part, frozen=True, kw_only=True):
    """What a Status speaks of."""

    kind: str = ""
    name: str = ""
    causes: tuple[StatusCause, ...] | None = None


class Status(Part, frozen=True, kw_only=True):
    """Kubernetes' answer when it is not the object itself."""

    status: str = ""
    reason: str = ""
    code: int = 0
    message: str = ""
    details: StatusDetails | None = None
