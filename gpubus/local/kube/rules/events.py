"""events.k8s.io/v1: everything is required, and only `series` may change afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpubus.local.kube.meta import check_metadata, check_micro_time
from gpubus.local.kube.rules.base import Rules, checked
from gpubus.local.kube.status import Cause, invalid_value, refuse, required, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubus.local.kube.resources import Resource
    from gpubus.local.kube.rules.base import Write

__all__ = ["EventRules"]

_LIMITS = {"reportingController": 253, "reportingInstance": 128, "action": 128, "reason": 128}
_NOTE_BYTES = 1024
_FIXED = ("eventTime", "reportingController", "reportingInstance", "action", "reason", "regarding", "note", "type")


class EventRules(Rules):
    """Validation of an event."""

    def create(self, write: Write) -> dict[str, Any]:
        """Everything that says who saw what about whom must be there."""
        _check_times(write.obj)
        refuse(_core(write.resource), write.name, _causes(write.obj))
        return write.obj

    def update(self, write: Write) -> dict[str, Any]:
        """Only `series` (and metadata) may change."""
        _check_times(write.obj)
        new, old = write.obj, write.before
        changed = (invalid_value(f, new.get(f), "field is immutable") for f in _FIXED if new.get(f) != old.get(f))
        refuse(_core(write.resource), write.name, changed)
        return checked(write)


def _causes(obj: dict[str, Any]) -> Iterator[Cause]:
    yield from check_metadata(obj)
    regarding = obj.get("regarding") or {}
    if (place := regarding.get("namespace", "")) != obj["metadata"].get("namespace"):
        yield invalid_value("involvedObject.namespace", place, "does not match event.namespace")
    if not obj.get("eventTime"):
        yield required("eventTime")
        return  # the server stops here: without it the event is of the old kind
    for field, limit in _LIMITS.items():
        if not (value := obj.get(field)):
            yield required(field)
        elif len(value.encode()) > limit:
            yield too_long(field, limit)
    if obj.get("type") not in {"Normal", "Warning"}:
        yield invalid_value("type", obj.get("type", ""), "has invalid value: ")
    if len((obj.get("note") or "").encode()) > _NOTE_BYTES:
        yield too_long("message", _NOTE_BYTES)


def _check_times(obj: dict[str, Any]) -> None:
    check_micro_time("Event", obj.get("eventTime"))
    check_micro_time("Event", (obj.get("series") or {}).get("lastObservedTime"))


def _core(resource: Resource) -> Resource:
    """Validation speaks of the internal type, without the group."""
    return replace(resource, group="")
