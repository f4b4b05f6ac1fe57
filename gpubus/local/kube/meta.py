"""What all objects share: names, labels, annotations, timestamps, and what the server alone may write in metadata."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gpubus.local.kube.status import Cause, bad_request, invalid_value, required, too_long

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MICRO_TIME",
    "check_metadata",
    "check_micro_time",
    "new_metadata",
    "server_metadata",
    "subdomain_cause",
    "timestamp",
    "with_metadata",
]

_ANNOTATIONS_BYTES = 262_144
_SUBDOMAIN_CHARACTERS = 253
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_KEY_NAME = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$")

# Written by the server only; what a client sends in them is ignored.
_SERVER_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

MICRO_TIME = "2006-01-02T15:04:05.000000Z07:00"
_MICRO_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")


def timestamp(now: float) -> str:
    """Seconds since the epoch as the server writes them: `2026-11-30T14:25:12Z`."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def with_metadata(obj: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The object with some metadata fields set; a value of None removes the field."""
    merged = {**obj["metadata"], **changes}
    return {**obj, "metadata": {key: value for key, value in merged.items() if value is not None}}


def new_metadata(sent: dict[str, Any], *, namespace: str, uid: str, now: float) -> dict[str, Any]:
    """The metadata of a new object: the client's, under the server's fields."""
    kept = {k: v for k, v in sent.items() if k not in (*_SERVER_FIELDS, "resourceVersion", "namespace")}
    place = {"namespace": namespace} if namespace else {}
    name = {"name": kept.pop("name", "")}
    return name | place | {"uid": uid, "creationTimestamp": timestamp(now)} | kept


def server_metadata(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The object after a write, with the fields that only the server writes as they were."""
    old = before["metadata"]
    fixed = {key: old.get(key) for key in (*_SERVER_FIELDS, "namespace", "resourceVersion")}
    return with_metadata(after, **fixed)


def check_metadata(obj: dict[str, Any]) -> Iterator[Cause]:
    """What is wrong with name, labels and annotations."""
    meta = obj["metadata"]
    name = meta.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif cause := subdomain_cause("metadata.name", name):
        yield cause
    yield from _labels(meta.get("labels") or {})
    yield from _annotations(meta.get("annotations") or {})


def subdomain_cause(field: str, name: str) -> Cause | None:
    """The cause to report when this is not a DNS subdomain name of at most 253 characters."""
    if _SUBDOMAIN.match(name) and len(name) <= _SUBDOMAIN_CHARACTERS:
        return None
    why = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )
    return invalid_value(field, name, why)


def check_micro_time(kind: str, value: object) -> None:
    """Refuse (400) a MicroTime that is not RFC 3339 with exactly six decimals."""
    if value is None or (isinstance(value, str) and _MICRO_TIME.match(value)):
        return
    message = f'{kind} in version "v1" cannot be handled as a {kind}: parsing time "{value}" as "{MICRO_TIME}"'
    raise bad_request(message)


def _labels(labels: dict[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        if not _is_qualified(key):
            yield invalid_value("metadata.labels", key, _KEY_RULE)
        if not _LABEL_VALUE.match(str(value)):
            yield invalid_value("metadata.labels", value, "a valid label must be an empty string or a short name")


def _annotations(annotations: dict[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if not _is_qualified(key.lower()):
            yield invalid_value("metadata.annotations", key, _KEY_RULE)
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_BYTES:
        yield too_long("metadata.annotations", _ANNOTATIONS_BYTES)


_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and not (_SUBDOMAIN.match(prefix) and len(prefix) <= _SUBDOMAIN_CHARACTERS):
        return False
    return bool(_KEY_NAME.match(name))
