"""One request without a connection: method, path, query and body in, status and JSON out.

The dispatch between HTTP and the store; it knows verbs and parameters, neither sockets nor time. Watches
are not served here, only read: `watch_query` gives what `http.py` streams.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gpubus.local.kube.listing import Lister, ListQuery
from gpubus.local.kube.patch import apply_patch
from gpubus.local.kube.resources import PODS, Target
from gpubus.local.kube.selectors import selector
from gpubus.local.kube.status import StatusError, bad_request, created, deleted, forbidden_field
from gpubus.local.kube.store import DeleteOptions
from gpubus.local.kube.watching import WatchQuery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubus.local.kube.history import Entry
    from gpubus.local.kube.store import Store

__all__ = ["Call", "Calls", "Reply", "is_watch", "watch_query"]

_YES = frozenset({"1", "true", "True"})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a target."""

    method: str
    target: Target
    query: Mapping[str, str] = {}
    content_type: str = "application/json"
    body: bytes = b""

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        return self.query.get("dryRun") == "All"


class Reply(msgspec.Struct, frozen=True):
    """HTTP status and JSON."""

    status: int
    body: bytes


class Calls:
    """Serves every call on one store but watches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lister = Lister(store)

    def serve(self, call: Call) -> Reply:
        """The reply; a refusal is one too."""
        try:
            return self._serve(call)
        except StatusError as error:
            return Reply(error.code, msgspec.json.encode(error.body()))

    def _serve(self, call: Call) -> Reply:
        target = call.target
        match call.method, target.subresource:
            case "POST", "binding":
                self._store.bind(target.namespace, target.name, _decode(call), dry_run=call.dry_run)
                return _reply(201, created())
            case "POST", "eviction":
                options = _options(_decode(call).get("deleteOptions") or {}, {})
                self._store.delete(target.resource, target.namespace, target.name, options, dry_run=call.dry_run)
                return _reply(201, created())
            case "POST", "" if not target.name and (target.namespace or not target.resource.namespaced):
                sent = _decode_object(call)
                return _entry(201, self._store.create(target.resource, target.namespace, sent, dry_run=call.dry_run))
            case "GET", "" if not target.name:
                return Reply(200, self.lister.page(_list_query(call)))
            case _ if target.name and target.subresource in {"", "status"}:
                return self._serve_one(call)
            case "PATCH", "resize":
                return self._serve_one(call)
        raise _not_allowed()

    def _serve_one(self, call: Call) -> Reply:
        target = call.target
        where = (target.resource, target.namespace, target.name)
        match call.method:
            case "GET":
                return _entry(200, self._store.get(*where))
            case "PUT":
                sub, sent = target.subresource, _decode_object(call)
                entry, made = self._store.replace(*where, sent, subresource=sub, dry_run=call.dry_run)
                return _entry(201 if made else 200, entry)
            case "PATCH":
                change = partial(_patched, call)
                return _entry(
                    200, self._store.patch(*where, change, subresource=target.subresource, dry_run=call.dry_run)
                )
            case "DELETE" if not target.subresource:
                return self._delete(call)
        raise _not_allowed()

    def _delete(self, call: Call) -> Reply:
        target = call.target
        options = _options(_decode(call) if call.body else {}, call.query)
        gone = self._store.delete(target.resource, target.namespace, target.name, options, dry_run=call.dry_run)
        if target.resource == PODS or not gone.gone:
            return _entry(200, gone.entry)
        return _reply(200, deleted(target.resource, target.name, gone.entry.obj["metadata"]["uid"]))


def is_watch(call: Call) -> bool:
    """Whether the answer is a stream."""
    return call.method == "GET" and not call.target.name and call.query.get("watch") in _YES


def watch_query(call: Call) -> WatchQuery:
    """What a watch asks for; StatusError 422 for parameters that exclude each other."""
    query, target = call.query, call.target
    initial = query.get("sendInitialEvents") in _YES
    if initial and query.get("resourceVersionMatch") != "NotOlderThan":
        raise _bad_options(
            "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    version = query.get("resourceVersion", "")
    bookmarks = query.get("allowWatchBookmarks") in _YES
    return WatchQuery(
        resource=target.resource,
        namespace=target.namespace,
        matches=_matches(call),
        version=None if initial or version in {"", "0"} else _number(version),
        timeout_s=float(_number(query.get("timeoutSeconds", "1800"))),
        bookmarks=bookmarks,
        mark_initial=initial and bookmarks,
    )


def _list_query(call: Call) -> ListQuery:
    query, target = call.query, call.target
    if "sendInitialEvents" in query:
        raise _bad_options("sendInitialEvents", "sendInitialEvents is forbidden for list")
    return ListQuery(
        resource=target.resource,
        namespace=target.namespace,
        matches=_matches(call),
        limit=_number(query.get("limit", "0")),
        token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        exact=query.get("resourceVersionMatch") == "Exact",
    )


def _matches(call: Call) -> Any:
    return selector(call.target.resource, call.query.get("labelSelector", ""), call.query.get("fieldSelector", ""))


def _patched(call: Call, before: dict[str, Any]) -> dict[str, Any]:
    return apply_patch(call.content_type, before, _decode_any(call))


def _options(sent: dict[str, Any], query: Mapping[str, str]) -> DeleteOptions:
    grace, wanted = sent.get("gracePeriodSeconds"), sent.get("preconditions") or {}
    if grace is None and "gracePeriodSeconds" in query:
        grace = _number(query["gracePeriodSeconds"])
    return DeleteOptions(grace_s=grace, uid=wanted.get("uid"), resource_version=wanted.get("resourceVersion"))


def _decode_any(call: Call) -> Any:
    try:
        return msgspec.json.decode(call.body)
    except msgspec.DecodeError as error:
        kind = call.target.resource.kind
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from error


def _decode(call: Call) -> dict[str, Any]:
    sent = _decode_any(call)
    if not isinstance(sent, dict):
        raise bad_request("the body must be an object")
    return sent


def _decode_object(call: Call) -> dict[str, Any]:
    """The body as an object of the target's kind."""
    sent, kind = _decode(call), call.target.resource.kind
    if sent.get("kind", kind) != kind:
        raise bad_request(f'{sent["kind"]} in version "v1" cannot be handled as a {kind}')
    return sent


def _number(text: str) -> int:
    if not text.isdigit():
        raise bad_request(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def _entry(status: int, entry: Entry) -> Reply:
    return Reply(status, entry.raw)


def _reply(status: int, body: dict[str, Any]) -> Reply:
    return Reply(status, msgspec.json.encode(body))


def _bad_options(field: str, why: str) -> StatusError:
    cause = forbidden_field(field, why)
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}
    message = f'ListOptions.meta.k8s.io "" is invalid: {field}: {cause["message"]}'
    return StatusError(422, "Invalid", message, details)


def _not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})
