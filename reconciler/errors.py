"""What Kubernetes answers when it is not "done": one typed error each, so that nobody has to read texts twice.

    KubeError
    ├── NotSent          the world's: no connection was made. Nothing happened; repeat
    ├── OutcomeUnknown   the world's: it may have happened. Read back before anything is decided
    ├── Throttled        the world's: flow control refused it before it was executed. Repeat after `retry_after_s`
    ├── DisruptionBlocked  the world's: a disruption budget refuses the eviction for now
    ├── Unauthorized     the operator's: the token is missing, wrong or not yet refreshed
    ├── Expired          ours: the resource version is too old; list again
    ├── NotFound         what was spoken of is not there; `kind` says whether it is the pod or its namespace
    ├── Conflict         the object is not as assumed; `subtype` says how. Read back
    └── Refused          somebody's rule: `code` is the class, the text is Kubernetes' own

Only namespaces that end and invalid fields have machine-readable causes; the rest is recognised by what the
messages have begun with for years, and the raw text is always kept.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from reconciler.objects import Status, StatusDetails

RefusalCode = Literal[
    "quota",
    "limit-range",
    "pod-security",
    "priority-class",
    "namespace-terminating",
    "rbac",
    "policy",
    "webhook",
    "invalid",
    "too-large",
    "bad-request",
    "forbidden",
]
ConflictSubtype = Literal["exists", "bound", "terminating", "gated", "uid", "version"]
TEXT_LIMIT = 900
"""A kept text fits into a message's reason (1,024) with our own words before it."""


class KubeError(Exception):
    """Anything Kubernetes did not do."""


class NotSent(KubeError):  # noqa: N818 - named by what is the case, as the drawing above; so are the others
    """No connection: nothing reached the API server."""


class OutcomeUnknown(KubeError):  # noqa: N818
    """Timed out, cut off, or a server error: it may have taken effect."""


class Throttled(KubeError):  # noqa: N818
    """Refused by flow control before it was executed; safe to repeat for every verb."""

    def __init__(self, text: str, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class DisruptionBlocked(KubeError):  # noqa: N818
    """A pod disruption budget does not allow this eviction now."""


class Unauthorized(KubeError):  # noqa: N818
    """401: a projected token is read again within a minute, everything else needs an operator."""


class Expired(KubeError):  # noqa: N818
    """410: the resource version is no longer known."""


class NotFound(KubeError):  # noqa: N818
    """404."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Conflict(KubeError):  # noqa: N818
    """409: it exists already, or is not as assumed."""

    def __init__(self, text: str, subtype: ConflictSubtype) -> None:
        super().__init__(text)
        self.subtype = subtype


class Refused(KubeError):  # noqa: N818
    """A rule of the cluster says no."""

    def __init__(self, text: str, code: RefusalCode) -> None:
        super().__init__(text)
        self.code = code


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not 2xx, as it came."""

    status: int
    content_type: str
    body: bytes
    retry_after_s: float | None = None


def classify(failure: Failure) -> KubeError:
    """The one error that an answer means."""
    status = _status(failure)
    text = (status.message if status else failure.body.decode("utf-8", "replace"))[:TEXT_LIMIT].strip()
    told = text or f"HTTP {failure.status}"
    if failure.status == 429:  # noqa: PLR2004 - the codes are the vocabulary here
        return _too_many(failure, status, told)
    if failure.status == 500 and status is not None and "target.name: Required value" in text:  # noqa: PLR2004
        return Refused(told, "invalid")
    rule = _BY_STATUS.get(failure.status)
    if rule is None:
        return OutcomeUnknown(f"HTTP {failure.status}: {told}")
    return rule(told, status or Status())


def _status(failure: Failure) -> Status | None:
    """A Status only if it says that it is JSON: flow control and proxies answer in plain text or HTML."""
    if not failure.content_type.startswith("application/json"):
        return None
    try:
        return _decode_status(failure.body)
    except msgspec.MsgspecError:
        return None


_decode_status = msgspec.json.Decoder(Status).decode


def _too_many(failure: Failure, status: Status | None, text: str) -> KubeError:
    """Two kinds: a disruption budget says so in a Status with a cause, flow control in plain text."""
    causes = (status.details or StatusDetails()).causes or () if status else ()
    if any(cause.reason == "DisruptionBudget" for cause in causes):
        return DisruptionBlocked(text)
    return Throttled(text, failure.retry_after_s if failure.retry_after_s is not None else 1.0)


def _not_found(text: str, status: Status) -> KubeError:
    return NotFound(text, (status.details or StatusDetails()).kind)


def _conflict(text: str, status: Status) -> KubeError:
    if status.reason == "AlreadyExists":
        return Conflict(text, "exists")
    for subtype, sign in _CONFLICTS:
        if sign in text:
            return Conflict(text, subtype)
    return Conflict(text, "version")


_CONFLICTS: tuple[tuple[ConflictSubtype, str], ...] = (
    ("bound", "is already assigned to node"),
    ("terminating", "is being deleted"),
    ("gated", "has non-empty .spec.schedulingGates"),
    ("uid", "Precondition failed: UID in precondition"),
    ("uid", "the UID in the precondition"),
)


def _forbidden(text: str, status: Status) -> KubeError:
    causes = (status.details or StatusDetails()).causes or ()
    if any(cause.reason == "NamespaceTerminating" for cause in causes):
        return Refused(text, "namespace-terminating")
    return Refused(text, next((code for code, sign in _FORBIDDEN if sign.search(text)), "forbidden"))


def _unprocessable(text: str, _status: Status) -> KubeError:
    return Refused(text, "policy" if _POLICY.search(text) else "invalid")


_POLICY = re.compile(r"ValidatingAdmissionPolicy '|MutatingAdmissionPolicy '|\bpolicy '")
_FORBIDDEN: tuple[tuple[RefusalCode, re.Pattern[str]], ...] = (
    ("policy", _POLICY),
    ("webhook", re.compile(r'admission webhook "')),
    ("quota", re.compile(r"exceeded quota: |status unknown for quota: ")),
    ("pod-security", re.compile(r"violates PodSecurity ")),
    ("limit-range", re.compile(r"(maximum|minimum) \S+ usage per |limit to request ratio ")),
    ("priority-class", re.compile(r"no PriorityClass with name ")),
    ("namespace-terminating", re.compile(r"because it is being terminated")),
    ("rbac", re.compile(r'[Uu]ser "[^"]*" cannot ')),
)
_BY_STATUS = {
    400: lambda text, _: Refused(text, "bad-request"),
    401: lambda text, _: Unauthorized(text),
    403: _forbidden,
    404: _not_found,
    405: lambda text, _: Refused(text, "bad-request"),
    406: lambda text, _: Refused(text, "bad-request"),
    409: _conflict,
    410: lambda text, _: Expired(text),
    413: lambda text, _: Refused(text, "too-large"),
    415: lambda text, _: Refused(text, "bad-request"),
    422: _unprocessable,
}
