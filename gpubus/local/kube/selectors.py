"""Label and field selectors: text in, a predicate over objects out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpubus.local.kube.status import StatusError, bad_request

if TYPE_CHECKING:
    from gpubus.local.kube.resources import Resource

__all__ = ["Predicate", "everything", "selector"]

Predicate = Callable[[dict[str, Any]], bool]
_LabelTest = Callable[[dict[str, str]], bool]

_COMMON_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_FIELDS = {
    "pods": frozenset({
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    }),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "events": frozenset({"reason", "type", "reportingController", "regarding.uid", "regarding.name", "regarding.kind"}),
}  # fmt: skip

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^!=\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^!=\s]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[^!=\s(),]+)$")


def everything(_obj: dict[str, Any]) -> bool:
    """The predicate of no selector at all."""
    return True


def selector(resource: Resource, labels: str, fields: str) -> Predicate:
    """One predicate for `labelSelector` and `fieldSelector`; StatusError 400 for what the server would refuse."""
    tests: list[Predicate] = [_field(resource, part) for part in fields.split(",") if part.strip()]
    if labels.strip():
        tests.append(_labels(labels))
    if not tests:
        return everything
    return lambda obj: all(test(obj) for test in tests)


def _labels(text: str) -> Predicate:
    tests = [_label(part.strip(), text) for part in re.split(r",(?![^(]*\))", text)]
    return lambda obj: all(test(obj["metadata"].get("labels") or {}) for test in tests)


def _label(part: str, whole: str) -> _LabelTest:
    if found := _SET.match(part):
        key, values = found["key"], frozenset(value.strip() for value in found["values"].split(","))
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALITY.match(part):
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(part):
        key, absent = found["key"], bool(found["not"])
        return lambda labels: (key in labels) != absent
    raise bad_request(f"unable to parse requirement: {whole!r} at {part!r}")


def _field(resource: Resource, part: str) -> Predicate:
    found = _EQUALITY.match(part.strip())
    if found is None:
        raise bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
    key, op, value = found["key"], found["op"], found["value"]
    if key not in _COMMON_FIELDS | _FIELDS.get(resource.plural, frozenset()):
        raise StatusError(400, "BadRequest", f"field label not supported: {key}")
    path = key.split(".")
    wanted = op != "!="
    return lambda obj: (_at(obj, path) == value) is wanted


def _at(obj: dict[str, Any], path: list[str]) -> str:
    """The field as text: absent is empty, booleans as JSON writes them."""
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
