"""Desired state of what is made of many pods: functions, training jobs, and the scale decisions about them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Message
from contracts.requests import GpuAsk, PodTemplate
from contracts.units import Count, Integer, NamespaceName, Percent, RequestName, ShortText

Replicas = Annotated[int, Meta(ge=0, le=10_000)]


class Function(Message, frozen=True, kw_only=True, tag="workload.function.v1"):
    """A function that is served by replicas, each on a slice of a card."""

    name: RequestName
    pod: PodTemplate
    gpu: GpuAsk = GpuAsk()
    replicas: Replicas | None = None
    min_replicas: Replicas | None = None
    max_replicas: Replicas = 10
    warm_replicas: Replicas = 0
    target_percent: Percent = 70
    cause: ShortText = ""


class Job(Message, frozen=True, kw_only=True, tag="workload.job.v1"):
    """A training job that may run with any number of trainers between two bounds."""

    name: RequestName
    pod: PodTemplate
    gpu: GpuAsk = GpuAsk()
    min_trainers: Annotated[int, Meta(ge=1, le=10_000)] = 1
    max_trainers: Annotated[int, Meta(ge=1, le=10_000)] = 1
    cause: ShortText = ""


class ScaleDecision(Message, frozen=True, kw_only=True, tag="workload.scale.v1"):
    """What the autoscaler decided, with the inputs it was made from and the rule that fired."""

    namespace: NamespaceName
    name: RequestName
    kind: Literal["function", "job"]
    target: Count
    present: Count
    rule: ShortText
    inputs: dict[ShortText, Integer] = {}
    at_ms: Count = 0
    cause: ShortText = ""
