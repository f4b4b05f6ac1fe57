"""Who may say and hear what on the bus: one table, from which configuration, documentation and tests are made.

An identity is a role, for some roles with one value: `scheduler`, `monitor/gpu-1`, `tenant/team-a`. What flows in: the
table below. What flows out: for an identity the subjects that it may publish and subscribe to (`rights`), and for an
account what it takes from the others (`crossings`). Nothing here knows how a server is configured; `bus.auth` does.

Why accounts, and not subject permissions alone: a publish names a reply subject, and the server answers there with its
own rights. `nats pub --reply gpubus.v1.ledger.default gpubus.v1.requests.team-a x`, by somebody who may publish the
second subject only, puts a line into the ledger's stream (seen on nats-server 2.15). So everybody who is not trusted
with the ledger lives in another account, where a reply subject means nothing to the core.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from contracts import subjects
from contracts.subjects import Channel

Account = Literal["CORE", "NODES", "TENANTS", "WORKERS", "PEOPLE"]

ACCOUNTS: dict[Account, str] = {
    "CORE": "the services that are trusted with the ledger; the streams live here",
    "NODES": "monitors: one identity a node",
    "TENANTS": "whoever asks for pods: one identity a namespace",
    "WORKERS": "what runs in the pods of functions and training jobs: one identity a function or job",
    "PEOPLE": "operators and viewers",
}

CORE_API = "$JS.API"
CROSSING_API = "gpubus.js"
"""Where the stream API of CORE stands in the other accounts. Under its own name the server's "no JetStream in this
account" answers first."""

ACK = "$JS.ACK"
"""Where what was taken from a work queue is settled: the server names the rest of the subject with each message."""

REPLY_S = 30
"""How long a service may answer a question late; a submit that waits for a commit takes milliseconds."""

ECHO = "gpubus.v1.echo"
"""Nobody answers there; the client proves a round trip with it."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of identity may do. A channel's parameter named as `value` is bound to the identity's own."""

    name: str
    account: Account
    purpose: str
    value: str = ""
    """`node`, `namespace`, `namespace.function`, or nothing: what is named behind the slash."""
    sends: tuple[Channel, ...] = ()
    """Publishes, stores or asks."""
    hears: tuple[Channel, ...] = ()
    """Subscribes: core messages, and live copies of what is stored."""
    answers: tuple[Channel, ...] = ()
    looks: tuple[str, ...] = ()
    """Streams of which single messages may be fetched."""
    follows: tuple[str, ...] = ()
    """Streams that may be read from any place on, by a consumer. Only for the trusted: whoever makes a consumer chooses
    where the server delivers to, with the rights of CORE."""
    queues: tuple[str, ...] = ()
    """Work queues whose consumers it makes and looks at."""
    takes: tuple[str, ...] = ()
    """Work queues from which it takes and settles messages: of the consumer named by its own value, or of any."""
    manages: bool = False
    """Creates the streams, and reads how they are configured."""

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of subjects that its value stands for."""
        return tuple(self.value.split(".")) if self.value else ()


_ALL_STREAMS = tuple(stream.name for stream in subjects.STREAMS)
_FOLLOWED = tuple(stream.name for stream in subjects.STREAMS if not stream.queue)
_WORK = tuple(stream.name for stream in subjects.STREAMS if stream.queue)

ROLES: tuple[Role, ...] = (
    Role(
        name="scheduler",
        account="CORE",
        purpose="decides; the only one that writes ledger, checkpoints and events",
        sends=(
            subjects.LEDGER,
            subjects.CHECKPOINTS,
            subjects.EVENTS,
            subjects.DEAD_LETTERS,
            subjects.LEASES,
            subjects.ALLOCATIONS,
        ),
        hears=(subjects.HEARTBEATS,),
        answers=(subjects.SUBMIT, subjects.WHAT_IF, subjects.EXPLAIN, subjects.STATE),
        looks=_ALL_STREAMS,
        follows=_FOLLOWED,
        manages=True,
    ),
    Role(
        name="reconciler",
        account="CORE",
        purpose="makes Kubernetes agree with the ledger; asks for pods in the name of their namespaces",
        sends=(
            subjects.REQUESTS,
            subjects.SUBMIT,
            subjects.NODE_FACTS,
            subjects.SHARES,
            subjects.OUTCOMES,
            subjects.DEAD_LETTERS,
            subjects.LEASES,
            subjects.EXPLAIN,
        ),
        answers=(subjects.ALLOCATIONS,),
        looks=_ALL_STREAMS,
        follows=_FOLLOWED,
        manages=True,
    ),
    Role(
        name="autoscaler",
        account="CORE",
        purpose="stretches shares, adds replicas, breathes training jobs",
        sends=(
            subjects.REQUESTS,
            subjects.SUBMIT,
            subjects.WHAT_IF,
            subjects.EXPLAIN,
            subjects.STATE,
            subjects.SCALE,
            subjects.JOB_STATUS,
            subjects.SHRINK_NOTICES,
            subjects.CPU_LIMITS,
            subjects.VERTICAL,
            subjects.FUNCTION_STATUS,
            subjects.WORKER_ORDERS,
            subjects.CALL_REPLIES,
            subjects.DEAD_CALLS,
            subjects.DEAD_LETTERS,
            subjects.LEASES,
        ),
        hears=(subjects.USAGE, subjects.HEARTBEATS, subjects.CALLS, subjects.WORKER_REPORTS, subjects.CHECKPOINTED),
        answers=(subjects.JOB_NOW,),
        looks=_ALL_STREAMS,
        follows=_FOLLOWED,
        queues=_WORK,
        takes=_WORK,
        manages=True,
    ),
    Role(
        name="monitor",
        account="NODES",
        value="node",
        purpose="tells what its own node has and uses",
        sends=(subjects.INVENTORY, subjects.ENFORCEMENT, subjects.HEARTBEATS, subjects.USAGE),
        hears=(subjects.SHARES, subjects.CPU_LIMITS, subjects.CORDONS),
        looks=(subjects.INVENTORY.stream,),
    ),
    Role(
        name="tenant",
        account="TENANTS",
        value="namespace",
        purpose="asks for pods in its own namespace and hears what becomes of them",
        sends=(
            subjects.REQUESTS,
            subjects.SUBMIT,
            subjects.WHAT_IF,
            subjects.EXPLAIN,
            subjects.WORKLOADS,
            subjects.CALLS,
            subjects.CHECKPOINTED,
            subjects.JOB_NOW,
        ),
        hears=(
            subjects.EVENTS,
            subjects.SCALE,
            subjects.FUNCTION_STATUS,
            subjects.JOB_STATUS,
            subjects.SHRINK_NOTICES,
            subjects.CALL_REPLIES,
        ),
    ),
    Role(
        name="worker",
        account="WORKERS",
        value="namespace.function",
        purpose="takes the calls of one function and answers them; makes no consumers",
        sends=(subjects.CALL_REPLIES, subjects.DEAD_CALLS, subjects.WORKER_REPORTS),
        hears=(subjects.WORKER_ORDERS,),
        takes=_WORK,
    ),
    Role(
        name="trainer",
        account="WORKERS",
        value="namespace.name",
        purpose="asks and hears how its own training job is and when it has to go, and says that it has saved its work",
        sends=(subjects.CHECKPOINTED, subjects.JOB_NOW),
        hears=(subjects.JOB_STATUS, subjects.SHRINK_NOTICES),
    ),
    Role(
        name="operator",
        account="PEOPLE",
        purpose="sees everything, asks in any namespace, cordons cards, sets quotas; writes no decision",
        sends=(
            subjects.REQUESTS,
            subjects.SUBMIT,
            subjects.WHAT_IF,
            subjects.EXPLAIN,
            subjects.STATE,
            subjects.ALLOCATIONS,
            subjects.WORKLOADS,
            subjects.CALLS,
            subjects.SCALING_SWITCH,
            subjects.CORDONS,
            subjects.NAMESPACE_QUOTAS,
        ),
        hears=(
            subjects.EVENTS,
            subjects.SCALE,
            subjects.FUNCTION_STATUS,
            subjects.JOB_STATUS,
            subjects.CALL_REPLIES,
            subjects.USAGE,
            subjects.VERTICAL,
            subjects.HEARTBEATS,
        ),
        looks=_ALL_STREAMS,
        follows=_FOLLOWED,
    ),
    Role(
        name="viewer",
        account="PEOPLE",
        purpose="sees everything and changes nothing",
        sends=(subjects.WHAT_IF, subjects.EXPLAIN, subjects.STATE, subjects.ALLOCATIONS),
        hears=(
            subjects.EVENTS,
            subjects.SCALE,
            subjects.FUNCTION_STATUS,
            subjects.JOB_STATUS,
            subjects.USAGE,
            subjects.VERTICAL,
            subjects.HEARTBEATS,
        ),
    ),
)


class Identity(msgspec.Struct, frozen=True, order=True):
    """Somebody on the bus."""

    role: str
    value: str = ""
    """A node's or a namespace's name, as it stands in subjects (dots of node names are underscores), or a namespace and
    a function with an underscore between them, as consumers are named."""

    def __str__(self) -> str:
        return f"{self.role}/{self.value}" if self.value else self.role


class UnknownIdentity(ValueError):  # noqa: N818 - named by what is the case
    """No role of that name, a value where none belongs, or one that is missing or cannot stand in a subject."""


def identity(text: str) -> Identity:
    """`tenant/team-a` as an identity.

    Raises:
        UnknownIdentity: with what is possible.
    """
    name, slash, value = text.partition("/")
    role = next((role for role in ROLES if role.name == name), None)
    if role is None:
        raise UnknownIdentity(f"identity {text!r}: no role {name!r}; there are {', '.join(r.name for r in ROLES)}")
    if not _well_formed(role, value) or (slash and not value):
        form = f"{name}/<{role.value}>" if role.value else name
        raise UnknownIdentity(f"identity {text!r}: the form is {form}")
    if value and subjects.TOKEN.fullmatch(token := value.replace(".", "_")) is None:
        raise UnknownIdentity(f"identity {text!r}: {token!r} cannot stand in a subject ([A-Za-z0-9_-])")
    return Identity(name, value.replace(".", "_"))


def _well_formed(role: Role, value: str) -> bool:
    """A value where one belongs, of as many parts as it has names; a node's name may hold any number of dots."""
    parts = value.replace(".", "_").split("_")
    return bool(role.value) == bool(value) and (len(role.names) < 2 or len(parts) == len(role.names))  # noqa: PLR2004


def role_of(who: Identity) -> Role:
    """The row of the table."""
    return next(role for role in ROLES if role.name == who.role)


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects that the server lets through. Whoever answers may also send one reply to each message it gets."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    replies: bool


def rights(who: Identity) -> Rights:
    """What an identity may publish and subscribe to, in the order of the table."""
    role = role_of(who)
    sends = [_bound(channel, who) for channel in role.sends]
    api = [api_prefix(who) + tail for tail in _api(role, who.value or "*")]
    api += [f"{ACK}.{stream}.{who.value or '*'}.>" for stream in role.takes]
    listens = [_bound(channel, who) for channel in (*role.hears, *role.answers)]
    return Rights(
        publish=(*sends, *api, ECHO), subscribe=(f"{inbox_prefix(who)}.>", *listens), replies=bool(role.answers)
    )


def inbox_prefix(who: Identity) -> str:
    """Where replies to an identity come to; nobody else may listen there."""
    return f"_INBOX_{who.role}" + (f"_{who.value}" if who.value else "")


def api_prefix(who: Identity) -> str:
    """How the account of an identity calls the stream API."""
    return CORE_API if role_of(who).account == "CORE" else CROSSING_API


def _bound(channel: Channel, who: Identity) -> str:
    """The channel's subject with the identity's own value where the role has one, `*` for the other parameters."""
    pattern = channel.pattern
    for name, value in values_of(who).items():
        pattern = pattern.replace(f"{{{name}}}", value)
    return msgspec.structs.replace(channel, pattern=pattern).wildcard


def values_of(who: Identity) -> dict[str, str]:
    """What an identity's value stands for, by parameter of subjects."""
    names = role_of(who).names
    return dict(zip(names, who.value.split("_") if len(names) > 1 else [who.value], strict=True)) if names else {}


def _api(role: Role, value: str = "*") -> Iterator[str]:
    """Calls of the stream API, without their prefix; `value` names the consumer that a role takes from."""
    if role.manages:
        yield ".STREAM.CREATE.*"
    for stream in role.looks:
        yield f".STREAM.INFO.{stream}"
        yield f".STREAM.MSG.GET.{stream}"
    for stream in role.follows:
        yield f".CONSUMER.CREATE.{stream}.>"
        yield f".CONSUMER.MSG.NEXT.{stream}.*"
    for stream in role.queues:
        yield f".CONSUMER.CREATE.{stream}.>"
        yield f".CONSUMER.INFO.{stream}.*"
    for stream in role.takes:
        yield f".CONSUMER.MSG.NEXT.{stream}.{value}"


class Crossing(msgspec.Struct, frozen=True, order=True):
    """One thing that passes from an account to another: a `service` (question, answer) or a `stream` (one way)."""

    kind: Literal["service", "stream"]
    subject: str
    """As it is called where it lives."""
    called: str = ""
    """Its other name where it is taken in; empty = the same."""
    many: bool = False
    """One question, any number of answers."""


def crossings() -> dict[tuple[Account, Account], tuple[Crossing, ...]]:
    """By (where it lives, where it is taken in), sorted: everything that passes between accounts."""
    found: dict[tuple[Account, Account], set[Crossing]] = {}
    for role in ROLES:
        if role.account != "CORE":
            found.setdefault(("CORE", role.account), set()).update(_services(role))
        for channel in role.hears:
            for home in sorted(_homes(channel) - {role.account}):
                found.setdefault((home, role.account), set()).add(Crossing("stream", channel.wildcard))
    return {pair: tuple(sorted(crossing)) for pair, crossing in sorted(found.items())}


def _homes(channel: Channel) -> set[Account]:
    """The accounts from which a channel's messages come."""
    stored: set[Account] = {"CORE"}
    return stored if channel.stream else {role.account for role in ROLES if channel in role.sends}


def _services(role: Role) -> Iterator[Crossing]:
    """What a role outside CORE needs from it: stored subjects, questions, and the stream API."""
    for channel in role.sends:
        if channel.transport != "core":
            yield Crossing("service", channel.wildcard)
    for tail in _api(role):
        yield Crossing("service", CORE_API + tail, CROSSING_API + tail, many=".MSG.NEXT." in tail)
    for stream in role.takes:
        yield Crossing("service", f"{ACK}.{stream}.*.>")
