"""Every answer of an API server that is not "done", and the one error that it means. Texts are a real server's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler import errors
from reconciler.errors import Failure, classify


def status(code: int, reason: str, message: str, **details: Any) -> Failure:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Failure(status=code, content_type="application/json", body=msgspec.json.encode({**body, "details": details}))


def text(code: int, body: str, kind: str = "text/plain; charset=utf-8", **more: Any) -> Failure:
    return Failure(status=code, content_type=kind, body=body.encode(), **more)


def forbidden(message: str, **details: Any) -> Failure:
    return status(403, "Forbidden", f'pods "p" is forbidden: {message}', **details)


CANNOT = "Operation cannot be fulfilled on "
UID = (
    f'{CANNOT}pods "p": StorageError: invalid object, Code: 4, Key: /registry/pods/d/p, Precondition failed: '
    "UID in precondition: a, UID in object meta: b"
)
UID_ON_DELETE = f'{CANNOT}pods "p": the UID in the precondition (a) does not match the UID in record (b)'
ASSIGNED = f'{CANNOT}pods/binding "p": pod p is already assigned to node "n"'
TERMINATING = "pod p is being deleted, cannot be assigned to a host"

REFUSALS: list[tuple[str, Failure]] = [
    ("quota", forbidden("exceeded quota: q, requested: requests.nvidia.com/gpu=2, used: ...=0, limited: ...=1")),
    ("quota", forbidden("status unknown for quota: q, resources: pods")),
    ("limit-range", forbidden("maximum cpu usage per Container is 2, but limit is 4")),
    ("limit-range", forbidden("[minimum memory usage per Pod is 1Gi, but request is 16777216, maximum ...]")),
    ("limit-range", forbidden("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000")),
    ("pod-security", forbidden('violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false')),
    ("priority-class", forbidden("no PriorityClass with name x was found")),
    ("namespace-terminating", forbidden("unable to create new content in namespace d because it is being terminated")),
    ("namespace-terminating", forbidden("anything", causes=[{"reason": "NamespaceTerminating", "field": ""}])),
    ("rbac", forbidden('User "alice" cannot create resource "pods" in API group "" in the namespace "d"')),
    ("policy", forbidden("ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request: no")),
    ("policy", status(422, "Invalid", "ValidatingAdmissionPolicy 'guard' with binding 'guard' denied request: no")),
    ("policy", status(403, "Invalid", "policy 'inject' with binding 'inject' denied request: wrong field")),
    ("webhook", forbidden('admission webhook "w.example.com" denied the request: no')),
    ("forbidden", forbidden("something new")),
    ("invalid", status(422, "Invalid", 'Pod "p" is invalid: spec.containers[0].image: Required value')),
    ("invalid", status(500, "", "target.name: Required value")),
    ("bad-request", status(400, "BadRequest", 'strict decoding error: unknown field "spec.nodename"')),
    ("too-large", text(413, "request entity too large")),
]


@pytest.mark.parametrize(("code", "failure"), REFUSALS, ids=[f"{i}-{row[0]}" for i, row in enumerate(REFUSALS)])
def test_refusal(code: str, failure: Failure) -> None:
    """A rule of the cluster is recognised, and its words are kept."""
    error = classify(failure)

    assert isinstance(error, errors.Refused)
    assert error.code == code
    assert str(error)


CONFLICTS = [
    ("exists", status(409, "AlreadyExists", 'pods "p" already exists', kind="pods")),
    ("bound", status(409, "Conflict", ASSIGNED, kind="pods/binding")),
    ("terminating", status(409, "Conflict", TERMINATING, kind="pods/binding")),
    ("gated", status(409, "Conflict", "pod p has non-empty .spec.schedulingGates", kind="pods/binding")),
    ("uid", status(409, "Conflict", UID, kind="pods")),
    ("uid", status(409, "Conflict", UID_ON_DELETE)),
    ("version", status(409, "Conflict", f'{CANNOT}pods "p": the object has been modified')),
]


@pytest.mark.parametrize(("subtype", "failure"), CONFLICTS, ids=[f"{i}-{row[0]}" for i, row in enumerate(CONFLICTS)])
def test_conflict(subtype: str, failure: Failure) -> None:
    """All five conflicts of a binding are one code; the subtype tells them apart."""
    error = classify(failure)

    assert isinstance(error, errors.Conflict)
    assert error.subtype == subtype


@pytest.mark.parametrize("kind", ["pods", "namespaces"])
def test_not_found_says_what_is_missing(kind: str) -> None:
    """A missing pod is a fact, a missing namespace a refusal."""
    error = classify(status(404, "NotFound", f'{kind} "x" not found', kind=kind))

    assert isinstance(error, errors.NotFound)
    assert error.kind == kind


def test_two_kinds_of_too_many() -> None:
    """Flow control in plain text is repeated when it says; a disruption budget is not a matter of seconds."""
    flow = classify(text(429, "Too many requests, please try again later.\n", retry_after_s=7.0))
    plain = classify(text(429, "Too many requests, please try again later.\n"))
    budget = classify(
        status(429, "TooManyRequests", "Cannot evict pod", causes=[{"reason": "DisruptionBudget", "message": "x"}])
    )

    assert isinstance(flow, errors.Throttled)
    assert flow.retry_after_s == 7.0
    assert isinstance(plain, errors.Throttled)
    assert plain.retry_after_s == 1.0
    assert isinstance(budget, errors.DisruptionBlocked)


UNKNOWN = [
    text(502, "<html><body>Bad Gateway</body></html>", "text/html"),
    text(503, "", "text/plain"),
    status(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    status(504, "Timeout", "request did not complete within the allotted timeout"),
    status(500, "InternalError", "etcdserver: request timed out"),
    status(500, "InternalError", 'failed calling webhook "w": connection refused'),
    text(302, "moved", "text/html"),
    text(500, "{not json", "application/json"),
]


@pytest.mark.parametrize("failure", UNKNOWN, ids=[f"{i}-{f.status}" for i, f in enumerate(UNKNOWN)])
def test_a_server_in_trouble_leaves_the_outcome_unknown(failure: Failure) -> None:
    """It may have been done: only reading back tells."""
    assert isinstance(classify(failure), errors.OutcomeUnknown)


def test_tokens_and_old_versions() -> None:
    """401 and 410."""
    assert isinstance(classify(status(401, "Unauthorized", "Unauthorized")), errors.Unauthorized)
    assert isinstance(classify(status(410, "Expired", "too old resource version: 5 (26663)")), errors.Expired)


def test_a_page_of_html_is_never_read_as_a_status() -> None:
    """A proxy's 403 in HTML is a refusal of an unknown kind, with the page as its text, cut to what fits."""
    error = classify(text(403, "<html>" + "x" * 5000, "text/html"))

    assert isinstance(error, errors.Refused)
    assert error.code == "forbidden"
    assert len(str(error)) <= errors.TEXT_LIMIT
