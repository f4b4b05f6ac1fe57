"""Desired state of what is made of many pods: functions, training jobs, and the scale decisions about them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from contracts.messages import Message, Value
from contracts.requests import GpuAsk, PodTemplate, Toleration
from contracts.units import (
    Count,
    Integer,
    LabelKey,
    LabelValue,
    MemoryMib,
    ModelName,
    NamespaceName,
    Percent,
    Priority,
    RequestName,
    Sequence,
    ShareMilli,
    ShortText,
)

Replicas = Annotated[int, Meta(ge=0, le=10_000)]

Seconds = Annotated[int, Meta(ge=1, le=86_400, description="seconds")]


class Profile(Value, frozen=True, kw_only=True):
    """What one replica does on a slice of a card of one model, at full load. It says nothing about other models."""

    model: ModelName
    share_milli: ShareMilli
    rate_milli: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    """Thousandths of a call per second."""
    latency_ms: Annotated[int, Meta(ge=1, le=3_600_000)] | None = None
    """Of 99 in 100 calls; None = not known."""


class Scaling(Value, frozen=True, kw_only=True):
    """How the number of replicas of a function follows its load.

    The defaults suit calls of a tenth of a second to some seconds, on slices that start within a minute.
    """

    metric: Literal["concurrency", "rate"] = "concurrency"
    """Load is calls in progress and waiting, or calls that arrive per second."""
    policy: Literal["load", "maxcount", "watermark"] = "load"
    """`load`: windows, a target and rates, as all that follows says. `maxcount`: one replica more for each call that
    finds none idle, up to `high`; none is taken away. `watermark`: the same, filled to `high` at the beginning and
    whenever there are fewer than `low`."""
    low: Replicas = 0
    """For `watermark`."""
    high: Replicas | None = None
    """For `maxcount` and `watermark`: never more than this, and never more than `max_replicas`. Absent = that."""
    reuse: bool = True
    """A replica goes on after a call. False: it answers one, and ends; for what must not be used twice."""
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """Calls that one replica works on at once, at 100 %."""
    rate_milli: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    """For `rate`: thousandths of a call per second that one replica answers, at 100 %. Absent = as measured on the card
    models it runs on; without a measurement nothing is scaled."""
    profiles: Annotated[tuple[Profile, ...], Meta(max_length=64)] = ()
    """For `rate`: what replicas do on which slice, measured before. What is measured here while it runs is newer, and
    replaces the row of its slice."""
    slices: Literal["as-asked", "cheapest"] = "as-asked"
    """`cheapest`: new replicas get the share with the most calls per thousandth among `profiles` of the model that
    `gpu.models` names, or of the one model that they are of."""
    latency_ms: Annotated[int, Meta(ge=1, le=3_600_000)] | None = None
    """For `cheapest`: only rows whose latency is known and at most this."""
    stretch_percent: Annotated[int, Meta(ge=100, le=1000)] = 100
    """For `rate`: replicas whose limits were raised above what they were sold count as so much more, up to this. So a
    slice is stretched in place first, and a replica is added when its card has no more to lend."""
    stable_s: Seconds = 60
    """Load is averaged over this window."""
    panic_s: Seconds = 6
    """A burst shows in this window first."""
    panic_percent: Annotated[int, Meta(ge=110, le=1000)] = 200
    """The short window counts alone once it shows this much of what the ready replicas carry at their target."""
    tolerance_percent: Annotated[int, Meta(ge=0, le=50)] = 10
    """Load may differ so much from the target before anything changes."""
    period_s: Seconds = 15
    """The next four hold for each such period."""
    up_percent: Annotated[int, Meta(ge=100, le=100_000)] = 400
    """Never more than this percentage of the replicas at the period's start, or `up_step` more, whichever is more."""
    up_step: Annotated[int, Meta(ge=1, le=10_000)] = 4
    down_percent: Percent = 50
    """Never less than this percentage of those at the period's start, or `down_step` fewer, whichever is less."""
    down_step: Annotated[int, Meta(ge=1, le=10_000)] = 1
    down_delay_s: Seconds = 30
    """Fewer are needed for so long before one goes."""
    zero_grace_s: Seconds = 60
    """Nothing is called for so long before the last one goes, if `min_replicas` is 0."""
    warmup_s: Annotated[int, Meta(ge=0, le=86_400, description="seconds")] = 30
    """A replica that is ready for less than this is slow, and its calls in progress say little."""
    start_s: Seconds | None = None
    """A replica whose worker has not said anything for so long since it was asked for gives its card back, and is made
    anew. Absent = it may take as long as it takes."""
    silent_s: Seconds = 900
    """The same for one whose worker has spoken, and then has not said anything for so long: it hangs. Longer than a
    call may take, which may keep a worker from speaking. Time in which the bus was away does not count."""
    drain_s: Seconds = 60
    """A replica that is to go may finish its calls for so long."""
    missing_hold_s: Seconds = 300
    """Without a metric the number of replicas stays for so long; then it is at least `fallback_replicas`."""
    fallback_replicas: Replicas | None = None
    """Absent = the number stays until the metric is back."""
    by_hand: Literal["revert", "adopt"] = "revert"
    """What becomes of a number of replicas that somebody else wrote: the load decides at once, or after one window."""


class Promotion(Value, frozen=True, kw_only=True):
    """Which warm replica serves next when several could. Who would be the last is the first to be given back.

    Nobody is excluded: a warm replica on a card that does not fit serves after those that do, and before a new one.
    """

    rule: Literal["steadiest", "best-fit", "first-fit"] = "steadiest"
    """`steadiest`: the one that would be deleted last. `best-fit`: of the cards that fit, the one with the least free
    memory. `first-fit`: of the replicas whose cards fit, the one with the lowest number."""
    free_mib: MemoryMib = 0
    """A card fits while so much of its memory is sold to nobody; each of the function's replicas that serve there
    counts as having taken so much. It reserves nothing."""
    card_slots: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """A card fits while fewer than so many hold a piece of it, the function's own warm replicas apart. Absent = no
    bound."""
    near: Annotated[dict[LabelKey, LabelValue], Meta(max_length=32)] = {}
    """Of those that fit, replicas on nodes with all these labels go first."""


class Function(Message, frozen=True, kw_only=True, tag="workload.function.v1"):
    """A function that is served by replicas, each on a slice of a card."""

    name: RequestName
    pod: PodTemplate
    gpu: GpuAsk = GpuAsk()
    replicas: Replicas | None = None
    """A fixed number, at least `min_replicas`; 0 = off. Absent = the load decides."""
    min_replicas: Replicas | None = None
    """Absent or 0 = none while nobody calls."""
    max_replicas: Replicas = 10
    warm_replicas: Replicas = 0
    """Started and bound besides those that serve, out of traffic, promoted by one message."""
    promotion: Promotion = Promotion()
    target_percent: Percent = 70
    """Of what a replica can do, so much is aimed at: the rest is for bursts."""
    scaling: Scaling = Scaling()
    stopped: bool = False
    """Take it down: its replicas finish what they have and go, and nothing wakes it."""
    cause: ShortText = ""


class Job(Message, frozen=True, kw_only=True, tag="workload.job.v1"):
    """A training job that may run with any number of trainers between two bounds. Publish it again to change it."""

    name: RequestName
    pod: PodTemplate
    gpu: GpuAsk = GpuAsk()
    """What each trainer asks for."""
    min_trainers: Annotated[int, Meta(ge=1, le=10_000)] = 1
    """It starts with so many, together: all of them are placed in one step, or none is."""
    max_trainers: Annotated[int, Meta(ge=1, le=10_000)] = 1
    fault_tolerant: bool | None = None
    """Whether it goes on when a trainer dies. None = if it is elastic, which it cannot be without."""
    max_failures: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Trainers that may fail by themselves before the job has failed. None = as many as `max_trainers`."""
    notice_s: Annotated[int, Meta(ge=0, le=3600)] = 30
    """From the notice to a trainer that it has to go to its withdrawal, unless it has checkpointed before."""
    priority: Priority = 0
    node_selector: Annotated[dict[LabelKey, LabelValue], Meta(max_length=32)] = {}
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=32)] = ()
    paused: bool = False
    """Leave the number of trainers as it is. Those that die are replaced, and bounds hold."""
    stopped: bool = False
    """Take it down, with notice."""
    cause: ShortText = ""


JobPhase = Literal["creating", "running", "scaling", "stopping", "succeeded", "failed", "stopped"]
"""creating: not all of its first trainers run yet; scaling: some come or go. The last three are final."""


class TrainerSpan(Value, frozen=True, kw_only=True):
    """Trainers `first` to `last` of a job, all in one state."""

    first: Count
    last: Count
    state: Literal["asked", "known", "leaving"]
    """asked: the request is, or is about to be, published; known: the ledger has it; leaving: told to go."""
    deadline_ms: Count = 0
    """Of leaving ones: wall clock at which they are withdrawn without having checkpointed."""


class ScaleRecord(Value, frozen=True, kw_only=True):
    """One change of a job's number of trainers."""

    at_ms: Count
    generation: Count
    """The one that it made."""
    before: Count
    after: Count
    rule: ShortText


class JobStatus(Message, frozen=True, kw_only=True, tag="job.status.v1"):
    """How far a job is. Written by the autoscaler alone, which goes on from it after a restart."""

    namespace: NamespaceName
    name: RequestName
    phase: JobPhase
    reason: ShortText = ""
    generation: Count = 0
    """Counts the targets; a new target names the one it was computed from, or it is stale."""
    target: Count = 0
    trainers: tuple[TrainerSpan, ...] = ()
    """By index. Ended ones are not in it."""
    next_index: Count = 0
    """Of the next trainer: an index is never used again."""
    gang_first: Count = 0
    gang_size: Count = 0
    """The trainers that it started with, placed together; 0 = one alone."""
    running: Count = 0
    waiting: Count = 0
    """Trainers without a running pod, leaving ones apart."""
    succeeded: Count = 0
    failed: Count = 0
    """Trainers that failed by themselves; one that lost its node, or had to leave, did not."""
    job_sequence: Sequence = 0
    """The message in the workloads stream that is carried out."""
    changed_ms: Count = 0
    """Wall clock of the last target."""
    waiting_since_ms: Count = 0
    """Wall clock since when some trainer waits; 0 = none does."""
    history: Annotated[tuple[ScaleRecord, ...], Meta(max_length=20)] = ()
    """The latest changes, oldest first."""
    cause: ShortText = ""


class AskJob(Message, frozen=True, kw_only=True, tag="ask.job.v1"):
    """How is this job now? By the names in the subject; for a trainer that has just come."""

    index: Count
    """The trainer that asks."""


class ShrinkNotice(Message, frozen=True, kw_only=True, tag="job.shrink.v1"):
    """Some trainers of a job have to go: checkpoint, say so, and end at SIGTERM."""

    namespace: NamespaceName
    name: RequestName
    generation: Count
    target: Count
    """Trainers that remain."""
    trainers: Annotated[tuple[Count, ...], Meta(max_length=4000)]
    """Indexes of all that are leaving; trainer 7 of job `bert` is the request `bert-t7`."""
    deadline_ms: Count
    """Wall clock of the last withdrawal; each has its own `notice_s`."""
    rule: ShortText = ""
    cause: ShortText = ""


class Checkpointed(Message, frozen=True, kw_only=True, tag="job.checkpointed.v1"):
    """A trainer that was told to go has saved its work. Said again until it ends, as one alone may be lost."""

    job: RequestName
    index: Count
    generation: Count
    """Of the notice that it answers."""
    step: Count = 0
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
