"""Refusals in the API server's own words.

A rule that says no raises a `StatusError`; the shell writes its `body()` as the answer. Codes, reasons,
`details` and messages are those of Kubernetes 1.37: clients tell cases apart by them, so they are part of
the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubus.local.kube.resources import Resource

__all__ = [
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "created",
    "deleted",
    "expired",
    "forbidden_field",
    "invalid",
    "invalid_value",
    "not_found",
    "refuse",
    "required",
    "too_long",
]

Cause = dict[str, str]
_SUCCESS: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class StatusError(Exception):
    """A request the server refuses: HTTP code, machine-readable reason, message and details."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        self.code, self.reason, self.message, self.details = code, reason, message, details
        super().__init__(f"{code} {reason}: {message}")

    def body(self) -> dict[str, Any]:
        """The Status object of the answer."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}


def created() -> dict[str, Any]:
    """The answer of a subresource that stores nothing of its own (binding, eviction)."""
    return {**_SUCCESS, "code": 201}


def deleted(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """The answer to the deletion of anything but a pod."""
    return {**_SUCCESS, "details": _named(resource, name) | {"uid": uid}}


def not_found(resource: Resource, name: str) -> StatusError:
    """404."""
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', _named(resource, name))


def already_exists(resource: Resource, name: str) -> StatusError:
    """409: an object of that name is there."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _named(resource, name))


def conflict(resource: Resource, name: str, why: str, *, subresource: str = "") -> StatusError:
    """409: somebody else was there first. `why` ends the sentence that begins with the object's name."""
    kind = resource.plural + (f"/{subresource}" if subresource else "")
    qualified = kind + (f".{resource.group}" if resource.group else "")
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, _named(resource, name) | {"kind": kind})


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    """410: the history the client asks for is gone; it has to list again."""
    return StatusError(410, "Expired", message)


def refuse(resource: Resource, name: str, causes: Iterable[Cause]) -> None:
    """Raise 422 when there is at least one cause."""
    if found := list(causes):
        raise invalid(resource, name, found)


def invalid(resource: Resource, name: str, causes: Iterable[Cause]) -> StatusError:
    """422 with one cause per field."""
    found = list(causes)
    told = ", ".join(f"{c['field']}: {c['message']}" for c in found)
    if len(found) > 1:
        told = f"[{told}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.kind, "causes": found}
    kind = resource.kind + (f".{resource.group}" if resource.group else "")
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {told}', details)


def required(field: str, why: str = "") -> Cause:
    """A field that must be there."""
    return _cause("FieldValueRequired", "Required value" + (f": {why}" if why else ""), field)


def invalid_value(field: str, value: object, why: str) -> Cause:
    """A field whose value is not allowed."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return _cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def forbidden_field(field: str, why: str) -> Cause:
    """A field that may not be set or changed."""
    return _cause("FieldValueForbidden", f"Forbidden: {why}", field)


def too_long(field: str, limit: int) -> Cause:
    """A field that is too large."""
    return _cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def _cause(reason: str, message: str, field: str) -> Cause:
    return {"reason": reason, "message": message, "field": field}


def _named(resource: Resource, name: str) -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name} | group | {"kind": resource.plural}
