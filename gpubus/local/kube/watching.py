"""WATCH: which line a change becomes for one watcher, and the pauses between them.

Pure: `initial_lines` and `line_of` give bytes; `http.py` sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpubus.local.kube.selectors import everything

if TYPE_CHECKING:
    from gpubus.local.kube.history import Change, Entry
    from gpubus.local.kube.resources import Resource
    from gpubus.local.kube.selectors import Predicate
    from gpubus.local.kube.status import StatusError

__all__ = ["WatchQuery", "bookmark", "error_line", "initial_lines", "line_of", "next_bookmark_s"]

_BOOKMARK_EVERY_S = 60.0
_BEFORE_THE_END_S = 2.0
_INITIAL_END = "k8s.io/initial-events-end"


class WatchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a watch. `version` None: begin with what is there."""

    resource: Resource
    namespace: str = ""
    matches: Predicate = everything
    version: int | None = None
    timeout_s: float = 1800.0
    bookmarks: bool = False
    mark_initial: bool = False


def initial_lines(query: WatchQuery, entries: list[Entry], version: int) -> bytes:
    """ADDED for everything that is there now, and the bookmark that ends it where one was asked for."""
    lines = [_line("ADDED", e.raw) for e in entries if query.matches(e.obj)]
    if query.mark_initial:
        lines.append(bookmark(query.resource, version, initial=True))
    return b"".join(lines)


def line_of(query: WatchQuery, change: Change) -> bytes:
    """The line a change is for this watcher; empty when it does not concern it.

    An object that comes to match is ADDED, one that no longer does is DELETED: as it last matched, under
    the new version.
    """
    if change.resource != query.resource or (query.namespace and change.entry.key[0] != query.namespace):
        return b""
    matched = change.before is not None and query.matches(change.before.obj)
    if change.kind == "DELETED":
        return _line("DELETED", change.entry.raw) if matched else b""
    if query.matches(change.entry.obj):
        return _line("MODIFIED" if matched else "ADDED", change.entry.raw)
    return _line("DELETED", _under(change.version, change.before)) if matched else b""


def bookmark(resource: Resource, version: int, *, initial: bool = False) -> bytes:
    """A BOOKMARK: everything up to this version has been sent."""
    meta: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial:
        meta["annotations"] = {_INITIAL_END: "true"}
    obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    return _line("BOOKMARK", msgspec.json.encode(obj))


def error_line(error: StatusError) -> bytes:
    """An ERROR: the watch ends after it."""
    return _line("ERROR", msgspec.json.encode(error.body()))


def next_bookmark_s(now_s: float, end_s: float) -> float:
    """When to send the next bookmark: once a minute, and once about two seconds before the end."""
    last = end_s - _BEFORE_THE_END_S
    return min(now_s + _BOOKMARK_EVERY_S, last) if last > now_s else now_s + _BOOKMARK_EVERY_S


def _under(version: int, entry: Entry | None) -> bytes:
    obj = entry.obj if entry else {"metadata": {}}
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}})


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode("ascii") + b'","object":' + raw + b"}\n"
