"""The door: what somebody published becomes a request, a refusal that names field, value and bound, or a dead letter.

Pure. A refusal needs somebody to address, so a message is refused when its name can be read and is a dead letter when
it cannot. Nothing is stripped or corrected: what is outside the restricted template is refused, with the nearest key.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, get_args, get_type_hints

import msgspec

from contracts.messages import Value, encode
from contracts.outcomes import Refusal
from contracts.priorities import PRIORITY_CLASSES
from contracts.requests import PodRequest, PodTemplate, RequestMessage, Resize, Withdraw
from contracts.units import NAME_PATTERN, NamespaceName
from scheduler.constraint_rules import constraints, refuse
from scheduler.core.message_room import largest_gang

MAX_BYTES = 64 * 1024
"""Of one request; the stream refuses larger ones too."""

DEVICE_VARIABLES = ("NVIDIA_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_", "CUDA_MPS_", "LD_", "POD_MANAGER_", "GPUBUS_")
"""Prefixes of variables that pick devices, load code into every process, tell a pod its share, or are ours: all that
no pod can be made with, so that nothing is refused later that was taken here."""

RESERVED_KEYS = ("gpubus.dev", "kubernetes.io", "k8s.io")
"""Domains of labels and annotations that belong to us or to Kubernetes, with all their subdomains."""

_decoder = msgspec.json.Decoder(RequestMessage)
"""Not `convert(raw, ...)`: a union is compiled anew at each call of it, thirty microseconds."""


class Admitted(Value, frozen=True, kw_only=True):
    """A request that may enter the queue."""

    message: PodRequest | Withdraw | Resize


class Refused(Value, frozen=True, kw_only=True):
    """Everything that is wrong with a request whose name is known."""

    name: str
    refusals: tuple[Refusal, ...]


class Unreadable(Value, frozen=True, kw_only=True):
    """A message that cannot be answered, only kept: the reason, with the path where there is one."""

    reason: str


Verdict = Admitted | Refused | Unreadable

MAX_REFUSALS = 16
"""Of one request; the events stream takes 64 KiB, and nobody reads the seventeenth."""

_NAMESPACE = msgspec.json.Decoder(NamespaceName)


@functools.lru_cache(maxsize=1024)
def namespace_fault(namespace: str) -> str:
    """Why this is no namespace, or an empty string. It comes from the subject, whose tokens may be nearly anything."""
    try:
        _NAMESPACE.decode(msgspec.json.encode(namespace))
    except msgspec.ValidationError as error:
        return f"the subject's namespace {namespace[:80]!r} is none: {error}"
    return ""


def admit(data: bytes, *, malformed: str = "", policies: frozenset[str] = frozenset()) -> Verdict:
    """Judge one message of the requests subject, or of a submit.

    Args:
        data: the payload.
        malformed: what the client found wrong with the frame (subject, header, status), or empty.
        policies: names that `policy` may take; empty = not checked here.
    """
    if malformed:
        return Unreadable(reason=f"malformed {malformed} in the NATS frame")
    if len(data) > MAX_BYTES:
        return Unreadable(reason=f"{len(data)} bytes, the limit is {MAX_BYTES}")
    unknown: Iterable[Refusal] = ()
    message = _canonical(data)
    if message is None:
        try:
            raw = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Unreadable(reason=f"not JSON: {error}")
        try:
            message = _decoder.decode(data)
        except msgspec.ValidationError as error:
            return _invalid(raw, str(error))
        unknown = _unknown(raw, type(message), "")
    refusals = tuple(islice(chain(unknown, _content(message, policies)), MAX_REFUSALS))
    return Refused(name=message.name, refusals=refusals) if refusals else Admitted(message=message)


def _canonical(data: bytes) -> PodRequest | Withdraw | Resize | None:
    """The message, if these bytes are the very ones that it is encoded to: then nothing in them is unknown.

    That is what our own clients send, and it saves a third of the door: two microseconds instead of six.
    """
    try:
        message = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return message if encode(message) == data else None


# --- what the types refuse -----------------------------------------------------------------------------------------


def _invalid(raw: Any, text: str) -> Verdict:
    """A value out of its bounds: refused if the request says who it is, unreadable otherwise."""
    name = raw.get("name") if isinstance(raw, dict) else None
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        return Unreadable(reason=text)
    bound, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".") or "type"
    return Refused(
        name=name,
        refusals=(Refusal(field=field, value=_show(_dig(raw, field)), bound=bound, text=f"{field}: {bound}"),),
    )


def _dig(raw: Any, path: str) -> Any:
    """The value at a msgspec path such as `gpu.share_milli` or `pod.env[0].name`; None where it cannot be told.

    Versions of msgspec that write `[...]` do not tell which one of a list it is.
    """
    for part in path.replace("[", ".[").split("."):
        if isinstance(raw, list) and part[1:-1].isdigit() and int(part[1:-1]) < len(raw):
            raw = raw[int(part[1:-1])]
        elif isinstance(raw, dict) and part in raw:
            raw = raw[part]
        else:
            return None
    return raw


def _show(value: Any) -> str:
    return "(absent)" if value is None else msgspec.json.encode(value).decode()[:80]


def _unknown(raw: Any, kind: type[msgspec.Struct], prefix: str) -> Iterator[Refusal]:
    """Keys that no field has: refused, because a misspelt limit must not mean `no limit`."""
    shape = _shape(kind)
    for key, value in raw.items():
        if key not in shape:
            if prefix or key != "type":
                yield _unknown_key(key, shape, prefix)
        elif (inner := shape[key]) is not None:
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, dict):
                    yield from _unknown(item, inner, f"{prefix}{key}.")


@functools.cache
def _shape(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """The keys of a struct, each with the struct that its value (or its items) must be, if it is one."""
    hints = get_type_hints(kind)
    return {field.encode_name: _struct_in(hints[field.name]) for field in msgspec.structs.fields(kind)}


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    candidates = (hint, *get_args(hint))
    return next((t for t in candidates if isinstance(t, type) and issubclass(t, msgspec.Struct)), None)


def _unknown_key(key: str, known: Iterable[str], prefix: str) -> Refusal:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    bound = f"one of {', '.join(sorted(known))}"
    return Refusal(
        field=f"{prefix}{key}"[:200], value=key[:80], bound=bound, text=f"{prefix}{key} is no field{hint}"[:500]
    )


# --- what the rules refuse -----------------------------------------------------------------------------------------


def _content(message: PodRequest | Withdraw | Resize, policies: frozenset[str]) -> Iterator[Refusal]:
    if not isinstance(message, PodRequest):
        return
    for rule in _RULES:
        yield from rule(message)
    if message.policy is not None and policies and message.policy not in policies:
        yield refuse("policy", message.policy, f"one of {', '.join(sorted(policies))}", "is no placement policy")


def _environment(request: PodRequest) -> Iterator[Refusal]:
    for index, variable in enumerate(request.pod.env):
        if variable.name.upper().startswith(DEVICE_VARIABLES):
            yield refuse(
                f"pod.env[{index}].name",
                variable.name,
                f"no name that begins with {', '.join(DEVICE_VARIABLES)}",
                "is set by the platform",
            )


def _metadata(request: PodRequest) -> Iterator[Refusal]:
    """A pod that somebody else made has its labels already; selectors look at them, and nothing writes them."""
    if request.external is not None or not (request.pod.labels or request.pod.annotations):
        return
    for field, keys in (("labels", request.pod.labels), ("annotations", request.pod.annotations)):
        for key in sorted(keys):
            if _reserved(key):
                yield refuse(f"pod.{field}", key, f"no key of {', '.join(RESERVED_KEYS)}", "is a reserved key")


SIMULATION_KEY = "gpubus.dev/simulated-run-s"
"""The one key of ours that users may set: how long a simulated kubelet runs the pod. Real kubelets ignore it."""


def _reserved(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    return key != SIMULATION_KEY and any(domain == d or domain.endswith(f".{d}") for d in RESERVED_KEYS)


def _tolerations(request: PodRequest) -> Iterator[Refusal]:
    """What a pod of somebody else tolerates was for Kubernetes to allow."""
    if request.external is not None:
        return
    for index, toleration in enumerate(request.tolerations):
        if toleration.key is None:
            yield refuse(f"tolerations[{index}].key", "(absent)", "a taint's key", "would tolerate every taint")


def _cards(request: PodRequest) -> Iterator[Refusal]:
    gpu = request.gpu
    if gpu.cards == 0 and (gpu.memory_mib or gpu.models):
        yield refuse("gpu.cards", "0", "at least 1 with gpu.memory_mib or gpu.models", "asks for no card")


def _no_nul(request: PodRequest) -> Iterator[Refusal]:
    """A NUL in an argument or variable cannot reach a process; the kubelet would fail long after we said yes."""
    template: PodTemplate = request.pod
    if not (template.command or template.args or template.env or template.working_dir):
        return
    for field, texts in (
        ("pod.command", template.command),
        ("pod.args", template.args),
        ("pod.env", tuple(v.value for v in template.env)),
        ("pod.working_dir", (template.working_dir,)),
    ):
        if any("\0" in text for text in texts):
            yield refuse(field, "\\0", "text without NUL characters", "holds a NUL character")


def _urgency(request: PodRequest) -> Iterator[Refusal]:
    """A class or a number, and a class that there is."""
    name = request.priority_class
    if name is None:
        return
    if name not in PRIORITY_CLASSES:
        yield refuse("priority_class", name, f"one of {', '.join(PRIORITY_CLASSES)}", "is no priority class")
    if request.priority:
        yield refuse("priority", str(request.priority), "no number beside priority_class", "says it twice")


def _gang(request: PodRequest) -> Iterator[Refusal]:
    gang = request.gang
    if gang is None:
        return
    if gang.min is not None and gang.min > gang.size:
        yield refuse("gang.min", str(gang.min), f"at most gang.size, {gang.size}", "is more than there are members")
    if gang.size > (most := largest_gang(request.gpu.cards)):
        each = f"at most {most} members of {request.gpu.cards} cards, placed in one message of the ledger"
        yield refuse("gang.size", str(gang.size), each, "is more than one commit can place")


_RULES: tuple[Callable[[PodRequest], Iterator[Refusal]], ...] = (
    _environment,
    _metadata,
    _tolerations,
    _cards,
    _no_nul,
    constraints,
    _urgency,
    _gang,
)
