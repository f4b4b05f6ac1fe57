"""The one map subject - message - stream, as data.

JSON Schema, the AsyncAPI document and the table in the docs are generated from here, and the streams are created and
verified from here. A subject pattern is a literal with named parameters: `gpubus.v1.requests.{namespace}`.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from contracts import answers, decisions, functions, inventory, outcomes, quotas, requests, shares, usage, workloads
from contracts.messages import Message

PREFIX = "gpubus.v1"
DAY_S = 86_400
MIB = 1024 * 1024


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A JetStream stream. File storage, limits retention, `discard: new`, no delete, no purge, no rollup, always."""

    name: str
    subjects: tuple[str, ...]
    purpose: str
    max_bytes: int
    max_age_s: int = 0
    """0 = kept for ever (within `max_bytes`)."""
    max_msg_bytes: int = 64 * 1024
    last_only: bool = False
    """Keep the last message of each subject: the older one is replaced, nothing is refused for it."""
    history: int = 0
    """Keep so many of each subject, and drop the oldest; 0 = all, or the last one."""
    dedup_s: float = 120.0
    """How long a message id is known: a publisher repeats within seconds. The least that servers take is 0.1."""
    together: bool = False
    """Takes many messages as one (`allow_atomic`): one sync for all, and all or none. Not promised: without it each is
    stored by itself, and it is slower."""
    queue: bool = False
    """A work queue: a message is kept until one of its consumers has settled it. Nobody reads it from the beginning."""

    @property
    def each(self) -> int:
        """Messages kept of each subject; -1 = all."""
        return self.history or (1 if self.last_only else -1)


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of subject: who says what to whom over which transport."""

    name: str
    pattern: str
    messages: tuple[type[Message], ...]
    transport: Literal["stream", "core", "request"]
    stream: str = ""
    reply: type[Message] | None = None
    sender: str
    receiver: str
    purpose: str

    def subject(self, **parameters: str) -> str:
        """The literal subject; each parameter must be one valid token.

        Raises:
            ValueError: a parameter holds something else than [A-Za-z0-9_-].
            KeyError: a parameter of the pattern is missing.
        """
        for key, value in parameters.items():
            if not TOKEN.fullmatch(value):
                raise ValueError(f"{key}={value!r} is no subject token ([A-Za-z0-9_-], 1 to 253 characters)")
        return self.pattern.format(**parameters)

    @property
    def wildcard(self) -> str:
        """The subject with `*` for each parameter."""
        return re.sub(r"\{[a-z]+\}", "*", self.pattern)

    def parse(self, subject: str) -> dict[str, str] | None:
        """The parameters of a literal subject, or None when it is of another channel."""
        match = _parser(self.pattern).fullmatch(subject)
        return match.groupdict() if match else None


TOKEN = re.compile(r"[A-Za-z0-9_-]{1,253}")
"""What may stand for a parameter of a subject."""


@functools.cache
def _parser(pattern: str) -> re.Pattern[str]:
    """The inverse of `subject`: what it would refuse to build is not recognised either."""
    return re.compile(re.sub(r"\{([a-z]+)\}", rf"(?P<\1>{TOKEN.pattern})", pattern.replace(".", r"\.")))


REQUESTS = Channel(
    name="requests",
    pattern=f"{PREFIX}.requests.{{namespace}}",
    transport="stream",
    stream="GPUBUS_REQUESTS",
    messages=(requests.PodRequest, requests.Withdraw, requests.Resize),
    sender="anybody",
    receiver="scheduler",
    purpose="Pod requests, withdrawals, resizes; kept also while we are down. The publish acknowledgement means kept.",
)
EVENTS = Channel(
    name="events",
    pattern=f"{PREFIX}.events.{{namespace}}.{{name}}",
    transport="stream",
    stream="GPUBUS_EVENTS",
    messages=(outcomes.RequestEvent,),
    sender="scheduler",
    receiver="users",
    purpose="Verdicts and life of a request: accepted, refused, pending with reasons, placed, bound, running, ended.",
)
LEDGER = Channel(
    name="ledger",
    pattern=f"{PREFIX}.ledger.{{pool}}",
    transport="stream",
    stream="GPUBUS_LEDGER",
    messages=(decisions.Commit,),
    sender="scheduler",
    receiver="scheduler, reconciler, audit",
    purpose="The single truth: commits of records, compare-and-set on the head.",
)
CHECKPOINTS = Channel(
    name="checkpoints",
    pattern=f"{PREFIX}.checkpoints.{{pool}}",
    transport="stream",
    stream="GPUBUS_CHECKPOINTS",
    messages=(decisions.CheckpointHead,),
    sender="scheduler",
    receiver="scheduler, reconciler",
    purpose="Projections of the ledger for a fast start: a head, then its chunks.",
)
INVENTORY = Channel(
    name="inventory",
    pattern=f"{PREFIX}.nodes.{{node}}.inventory",
    transport="stream",
    stream="GPUBUS_FACTS",
    messages=(inventory.NodeInventory,),
    sender="monitor",
    receiver="scheduler",
    purpose="The cards of a node: at start and on change.",
)
NODE_FACTS = Channel(
    name="node-facts",
    pattern=f"{PREFIX}.nodes.{{node}}.facts",
    transport="stream",
    stream="GPUBUS_FACTS",
    messages=(inventory.NodeFacts,),
    sender="reconciler",
    receiver="scheduler",
    purpose="A node as Kubernetes has it: allocatable, labels, taints, foreign pods.",
)
SHARES = Channel(
    name="shares",
    pattern=f"{PREFIX}.nodes.{{node}}.shares",
    transport="stream",
    stream="GPUBUS_FACTS",
    messages=(outcomes.NodeShares,),
    sender="reconciler",
    receiver="monitor",
    purpose="What each pod may use on a node's cards: a full snapshot.",
)
CPU_LIMITS = Channel(
    name="cpu-limits",
    pattern=f"{PREFIX}.nodes.{{node}}.cpulimits",
    transport="stream",
    stream="GPUBUS_FACTS",
    messages=(shares.NodeCpuLimits,),
    sender="autoscaler",
    receiver="monitor",
    purpose="Limits of a node's pods, changed in place within milliseconds: a full snapshot.",
)
VERTICAL = Channel(
    name="vertical",
    pattern=f"{PREFIX}.nodes.{{node}}.vertical",
    transport="core",
    messages=(shares.NodeVertical,),
    sender="autoscaler",
    receiver="views",
    purpose="What vertical scaling sees and does, or would do; newest replaces older.",
)
ENFORCEMENT = Channel(
    name="enforcement",
    pattern=f"{PREFIX}.nodes.{{node}}.enforcement",
    transport="stream",
    stream="GPUBUS_FACTS",
    messages=(shares.NodeEnforcement,),
    sender="monitor",
    receiver="reconciler, views",
    purpose="What a node enforces of the shares, as it found it: a full snapshot.",
)
NAMESPACE_QUOTAS = Channel(
    name="namespace-quotas",
    pattern=f"{PREFIX}.quotas.{{namespace}}",
    transport="stream",
    stream="GPUBUS_FACTS",
    messages=(quotas.NamespaceQuota,),
    sender="operators",
    receiver="scheduler",
    purpose="What a namespace may hold. The first of these turns quotas on for all.",
)
CORDONS = Channel(
    name="cordons",
    pattern=f"{PREFIX}.nodes.{{node}}.cordon.{{card}}",
    transport="stream",
    stream="GPUBUS_FACTS",
    messages=(inventory.CordonCard,),
    sender="operators",
    receiver="scheduler",
    purpose="Take one card out of the pool, or give it back.",
)
HEARTBEATS = Channel(
    name="heartbeats",
    pattern=f"{PREFIX}.nodes.{{node}}.heartbeat",
    transport="core",
    messages=(inventory.Heartbeat,),
    sender="monitor",
    receiver="scheduler",
    purpose="I am alive; may be lost, nothing is decided by one alone.",
)
USAGE = Channel(
    name="usage",
    pattern=f"{PREFIX}.nodes.{{node}}.usage",
    transport="core",
    messages=(usage.NodeUsage,),
    sender="monitor",
    receiver="autoscaler, views",
    purpose="GPU and CPU use; newest replaces older.",
)
OUTCOMES = Channel(
    name="outcomes",
    pattern=f"{PREFIX}.outcomes.{{namespace}}.{{name}}",
    transport="stream",
    stream="GPUBUS_OUTCOMES",
    messages=(outcomes.Outcome,),
    sender="reconciler",
    receiver="scheduler",
    purpose="What became of a request's pod in Kubernetes; last per request.",
)
WORKLOADS = Channel(
    name="workloads",
    pattern=f"{PREFIX}.workloads.{{namespace}}.{{name}}",
    transport="stream",
    stream="GPUBUS_WORKLOADS",
    messages=(workloads.Function, workloads.Job),
    sender="users",
    receiver="autoscaler",
    purpose="Functions and training jobs: desired state.",
)
SCALE = Channel(
    name="scale",
    pattern=f"{PREFIX}.scale.{{namespace}}.{{name}}",
    transport="stream",
    stream="GPUBUS_SCALE",
    messages=(workloads.ScaleDecision,),
    sender="autoscaler",
    receiver="users, audit",
    purpose="Scale decisions with the inputs they were made from; the last hundred of each workload.",
)
FUNCTION_STATUS = Channel(
    name="function-status",
    pattern=f"{PREFIX}.status.{{namespace}}.{{function}}",
    transport="stream",
    stream="GPUBUS_WORKLOADS",
    messages=(functions.FunctionStatus,),
    sender="autoscaler",
    receiver="users",
    purpose="How a function stands, and which cards are missing for it.",
)
SCALING_SWITCH = Channel(
    name="scaling-switch",
    pattern=f"{PREFIX}.scaling.{{pool}}",
    transport="stream",
    stream="GPUBUS_WORKLOADS",
    messages=(functions.ScalingSwitch,),
    sender="operators",
    receiver="autoscaler",
    purpose="Freeze all scaling, or let it go on.",
)
CALLS = Channel(
    name="calls",
    pattern=f"{PREFIX}.calls.{{namespace}}.{{function}}",
    transport="stream",
    stream="GPUBUS_CALLS",
    messages=(functions.Call,),
    sender="users",
    receiver="workers",
    purpose="Calls of functions, kept until a worker has answered them; also where none runs.",
)
CALL_REPLIES = Channel(
    name="call-replies",
    pattern=f"{PREFIX}.replies.{{namespace}}.{{function}}.{{caller}}",
    transport="core",
    messages=(functions.CallReply,),
    sender="workers",
    receiver="users",
    purpose="Answers to calls, on the caller's own subject.",
)
DEAD_CALLS = Channel(
    name="dead-calls",
    pattern=f"{PREFIX}.deadcalls.{{namespace}}.{{function}}",
    transport="stream",
    stream="GPUBUS_DEADCALLS",
    messages=(outcomes.DeadLetter,),
    sender="workers, autoscaler",
    receiver="users",
    purpose="Calls that were not run: too late, given up, or not understood; apart from what services cannot read.",
)
WORKER_REPORTS = Channel(
    name="worker-reports",
    pattern=f"{PREFIX}.workers.{{namespace}}.{{function}}.{{worker}}",
    transport="core",
    messages=(functions.WorkerReport,),
    sender="workers",
    receiver="autoscaler",
    purpose="What a worker does now; newest replaces older.",
)
WORKER_ORDERS = Channel(
    name="worker-orders",
    pattern=f"{PREFIX}.orders.{{namespace}}.{{function}}.{{replica}}",
    transport="core",
    messages=(functions.WorkerOrder,),
    sender="autoscaler",
    receiver="workers",
    purpose="Take calls, stand by, or stop taking them.",
)
JOB_STATUS = Channel(
    name="jobs",
    pattern=f"{PREFIX}.jobs.{{namespace}}.{{name}}",
    transport="stream",
    stream="GPUBUS_WORKLOADS",
    messages=(workloads.JobStatus,),
    sender="autoscaler",
    receiver="autoscaler, users",
    purpose="How far a training job is; the autoscaler goes on from it.",
)
JOB_NOW = Channel(
    name="job-now",
    pattern=f"{PREFIX}.ask.job.{{namespace}}.{{name}}",
    transport="request",
    messages=(workloads.AskJob,),
    reply=workloads.JobStatus,
    sender="trainers",
    receiver="autoscaler",
    purpose="How is my job now, and who else trains?",
)
SHRINK_NOTICES = Channel(
    name="notices",
    pattern=f"{PREFIX}.notices.{{namespace}}.{{name}}",
    transport="stream",
    stream="GPUBUS_WORKLOADS",
    messages=(workloads.ShrinkNotice,),
    sender="autoscaler",
    receiver="trainers",
    purpose="Which trainers of a job have to go, and until when they may save their work.",
)
CHECKPOINTED = Channel(
    name="checkpointed",
    pattern=f"{PREFIX}.checkpointed.{{namespace}}",
    transport="core",
    messages=(workloads.Checkpointed,),
    sender="trainers",
    receiver="autoscaler",
    purpose="A trainer that was told to go has saved its work; repeated until it ends.",
)
DEAD_LETTERS = Channel(
    name="deadletters",
    pattern=f"{PREFIX}.deadletters.{{stream}}",
    transport="stream",
    stream="GPUBUS_DEADLETTERS",
    messages=(outcomes.DeadLetter,),
    sender="any service",
    receiver="operators",
    purpose="What could not be understood, with the reason.",
)
LEASES = Channel(
    name="leases",
    pattern=f"{PREFIX}.leases.{{name}}",
    transport="stream",
    stream="GPUBUS_LEASES",
    messages=(),
    sender="services",
    receiver="services",
    purpose="Who is active; a matter of speed, not of safety.",
)
SUBMIT = Channel(
    name="submit",
    pattern=f"{PREFIX}.ask.submit.{{namespace}}",
    transport="request",
    messages=(requests.PodRequest, requests.Withdraw, requests.Resize),
    reply=answers.SubmitReply,
    sender="users",
    receiver="scheduler",
    purpose="Submit and wait for the promise.",
)
WHAT_IF = Channel(
    name="what-if",
    pattern=f"{PREFIX}.ask.whatif.{{namespace}}",
    transport="request",
    messages=(requests.PodRequest,),
    reply=answers.Explanation,
    sender="users, autoscaler",
    receiver="scheduler",
    purpose="Where would it go? Nothing is changed.",
)
EXPLAIN = Channel(
    name="explain",
    pattern=f"{PREFIX}.ask.explain.{{namespace}}",
    transport="request",
    messages=(answers.AskExplain,),
    reply=answers.Explanation,
    sender="users",
    receiver="scheduler",
    purpose="Why is it where it is, or nowhere?",
)
STATE = Channel(
    name="state",
    pattern=f"{PREFIX}.ask.state",
    transport="request",
    messages=(answers.AskState,),
    reply=answers.StateView,
    sender="users",
    receiver="scheduler",
    purpose="Requests, cards and nodes as the ledger has them.",
)
ALLOCATIONS = Channel(
    name="allocations",
    pattern=f"{PREFIX}.ask.allocations",
    transport="request",
    messages=(outcomes.AskAllocations,),
    reply=outcomes.AllocationsPage,
    sender="scheduler, audit",
    receiver="reconciler",
    purpose="Which pods carry our allocations, from Kubernetes alone?",
)

CHANNELS: tuple[Channel, ...] = (
    REQUESTS,
    SUBMIT,
    WHAT_IF,
    EXPLAIN,
    STATE,
    EVENTS,
    LEDGER,
    CHECKPOINTS,
    INVENTORY,
    NODE_FACTS,
    SHARES,
    CPU_LIMITS,
    VERTICAL,
    ENFORCEMENT,
    NAMESPACE_QUOTAS,
    CORDONS,
    HEARTBEATS,
    USAGE,
    OUTCOMES,
    ALLOCATIONS,
    WORKLOADS,
    SCALE,
    JOB_STATUS,
    JOB_NOW,
    SHRINK_NOTICES,
    CHECKPOINTED,
    FUNCTION_STATUS,
    SCALING_SWITCH,
    CALLS,
    CALL_REPLIES,
    DEAD_CALLS,
    WORKER_REPORTS,
    WORKER_ORDERS,
    DEAD_LETTERS,
    LEASES,
)

STREAMS: tuple[Stream, ...] = (
    Stream(
        name="GPUBUS_REQUESTS",
        subjects=(REQUESTS.wildcard,),
        dedup_s=0.1,
        max_bytes=512 * MIB,
        max_age_s=7 * DAY_S,
        purpose="what users asked for; older than a week it has been answered long ago",
    ),
    Stream(
        name="GPUBUS_EVENTS",
        subjects=(EVENTS.wildcard,),
        together=True,
        max_bytes=1024 * MIB,
        max_age_s=7 * DAY_S,
        purpose="the story of every request",
    ),
    Stream(
        name="GPUBUS_LEDGER",
        subjects=(LEDGER.wildcard,),
        max_bytes=8192 * MIB,
        max_age_s=30 * DAY_S,
        max_msg_bytes=1024 * 1024,
        purpose="the truth; a checkpoint is always younger than the oldest commit kept",
    ),
    Stream(
        name="GPUBUS_CHECKPOINTS",
        subjects=(CHECKPOINTS.wildcard,),
        max_bytes=2048 * MIB,
        max_age_s=30 * DAY_S,
        max_msg_bytes=1024 * 1024,
        purpose="projections of the ledger",
    ),
    Stream(
        name="GPUBUS_FACTS",
        last_only=True,
        max_bytes=256 * MIB,
        max_msg_bytes=256 * 1024,
        subjects=(
            INVENTORY.wildcard,
            NODE_FACTS.wildcard,
            SHARES.wildcard,
            CPU_LIMITS.wildcard,
            ENFORCEMENT.wildcard,
            NAMESPACE_QUOTAS.wildcard,
            CORDONS.wildcard,
        ),
        purpose="nodes as last seen",
    ),
    Stream(
        name="GPUBUS_OUTCOMES",
        subjects=(OUTCOMES.wildcard,),
        last_only=True,
        max_bytes=512 * MIB,
        max_age_s=7 * DAY_S,
        purpose="pods as last seen",
    ),
    Stream(
        name="GPUBUS_WORKLOADS",
        subjects=(
            WORKLOADS.wildcard,
            FUNCTION_STATUS.wildcard,
            SCALING_SWITCH.wildcard,
            JOB_STATUS.wildcard,
            SHRINK_NOTICES.wildcard,
        ),
        last_only=True,
        max_bytes=64 * MIB,
        purpose="desired state of functions and jobs",
    ),
    Stream(
        name="GPUBUS_SCALE",
        subjects=(SCALE.wildcard,),
        history=100,
        max_bytes=512 * MIB,
        max_age_s=30 * DAY_S,
        purpose="why every workload has the size it has",
    ),
    Stream(
        name="GPUBUS_CALLS",
        subjects=(CALLS.wildcard,),
        queue=True,
        max_bytes=1024 * MIB,
        max_age_s=3600,
        max_msg_bytes=256 * 1024,
        purpose="calls that wait for a worker; none waits longer than ten minutes",
    ),
    Stream(
        name="GPUBUS_DEADCALLS",
        subjects=(DEAD_CALLS.wildcard,),
        history=1000,
        max_bytes=256 * MIB,
        max_age_s=7 * DAY_S,
        purpose="calls that were not run",
    ),
    Stream(
        name="GPUBUS_DEADLETTERS",
        subjects=(DEAD_LETTERS.wildcard,),
        max_bytes=64 * MIB,
        max_age_s=30 * DAY_S,
        purpose="what could not be understood",
    ),
    Stream(
        name="GPUBUS_LEASES",
        subjects=(LEASES.wildcard,),
        last_only=True,
        max_bytes=1 * MIB,
        purpose="who is active",
    ),
)


def stream(name: str) -> Stream:
    """A stream by name.

    Raises:
        KeyError: there is none of that name.
    """
    return next(s for s in STREAMS if s.name == name) if any(s.name == name for s in STREAMS) else _missing(name)


def _missing(name: str) -> Stream:
    raise KeyError(f"no stream {name!r}; there are {[s.name for s in STREAMS]}")
