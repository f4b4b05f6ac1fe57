"""The state of the embedded API: commands in, objects and changes out. No I/O, no clock and no randomness of its own.

One counter numbers every write of every kind; it is the `resourceVersion` of the object written and the
position of the change in the history that watches read. Each command is one step: there is nothing to lock
in a single-threaded shell. Time and uids come from functions that are handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpubus.local.kube.history import Change, Entry, History
from gpubus.local.kube.meta import new_metadata, server_metadata, timestamp, with_metadata
from gpubus.local.kube.resources import NAMESPACES, PODS, Resource
from gpubus.local.kube.rules import Write, grace_s, rules_for
from gpubus.local.kube.rules.binding import bind, check_binding, check_preconditions
from gpubus.local.kube.status import (
    already_exists,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    not_found,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DeleteOptions", "Deletion", "Store"]

_ENCODER = msgspec.json.Encoder()
_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a DELETE asks for; None means not said."""

    grace_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None


class Deletion(NamedTuple):
    """The last state of the object, and whether it is gone or only marked."""

    entry: Entry
    gone: bool


class Store:
    """Objects of all kinds, in memory.

    `clock` gives seconds since the epoch, `new_uid` a fresh uid, `history` is how many changes watches can
    go back. `on_change` is called after each write.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        new_uid: Callable[[], str],
        history: int = 10_000,
        on_change: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        self._clock, self._new_uid = clock, new_uid
        self._objects: dict[Resource, dict[tuple[str, str], Entry]] = {}
        self._version = 0
        self.history = History(history)
        self.on_change = on_change
        for name in _FIRST_NAMESPACES:
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    @property
    def version(self) -> int:
        """The version of the newest write."""
        return self._version

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        """One object; StatusError 404 when it is not there."""
        found = self._table(resource).get((namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def find(self, resource: Resource, namespace: str, name: str) -> Entry | None:
        """One object, None when it is not there."""
        return self._table(resource).get((namespace, name))

    def entries(self, resource: Resource, namespace: str = "") -> list[Entry]:
        """All objects of a kind (of one namespace, unless it is empty), by namespace and name."""
        table = self._table(resource)
        return [table[key] for key in sorted(table) if not namespace or key[0] == namespace]

    def create(self, resource: Resource, namespace: str, sent: dict[str, Any], *, dry_run: bool = False) -> Entry:
        """POST. 404 without the namespace, 409 when it exists, 400 or 422 when it is refused."""
        self._check_place(resource, namespace, sent)
        meta = new_metadata(sent.get("metadata") or {}, namespace=namespace, uid=self._new_uid(), now=self._clock())
        write = Write(resource=resource, obj={**sent, "metadata": meta}, now=self._clock())
        obj = rules_for(resource).create(write)
        if (namespace, meta["name"]) in self._table(resource):
            raise already_exists(resource, meta["name"])
        return self._commit(resource, None, obj, dry_run=dry_run)

    def replace(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        sent: dict[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> tuple[Entry, bool]:
        """PUT: the object, and whether it was made by this call. 409 when its resourceVersion is not the latest."""
        rules = rules_for(resource)
        if (sent.get("metadata") or {}).get("name", name) != name:
            raise bad_request(
                f"the name of the object ({sent['metadata']['name']}) does not match the name on the URL ({name})"
            )
        if rules.create_on_update and (namespace, name) not in self._table(resource):
            return self.create(resource, namespace, sent, dry_run=dry_run), True
        before = self.get(resource, namespace, name)
        if not (sent.get("metadata") or {}).get("resourceVersion") and not rules.unconditional_update:
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(msgspec.structs.replace(resource, kind=resource.plural), name, [cause])
        return self._update(resource, before, sent, subresource, dry_run=dry_run), False

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Entry:
        """PATCH: `change` makes the new object of the old one. A patch that changes nothing writes nothing."""
        before = self.get(resource, namespace, name)
        return self._update(resource, before, change(before.obj), subresource, dry_run=dry_run)

    def bind(self, namespace: str, name: str, binding: Mapping[str, Any], *, dry_run: bool = False) -> Entry:
        """POST pods/{name}/binding."""
        self._check_namespace(namespace)
        check_binding(name, binding)
        before = self.get(PODS, namespace, name)
        check_preconditions(before.obj, binding)
        return self._commit(PODS, before, bind(before.obj, binding, self._clock()), dry_run=dry_run)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        options: DeleteOptions | None = None,
        *,
        dry_run: bool = False,
    ) -> Deletion:
        """DELETE: at once, or marked with a deletion timestamp when a grace time or a finalizer is in the way."""
        options = options or DeleteOptions()
        before = self.get(resource, namespace, name)
        _check_delete(resource, before.obj, options)
        marked = self._marked(resource, before.obj, options.grace_s)
        entry = self._commit(resource, before, marked, dry_run=dry_run)
        if _is_held(marked):
            return Deletion(entry, gone=False)
        if resource == NAMESPACES:
            self._empty(name, dry_run=dry_run)
        return Deletion(self._remove(resource, entry, dry_run=dry_run), gone=True)

    def _update(
        self, resource: Resource, before: Entry, after: dict[str, Any], subresource: str, *, dry_run: bool
    ) -> Entry:
        name, sent = before.obj["metadata"]["name"], after.get("metadata") or {}
        if sent.get("resourceVersion") not in {None, "", "0", str(before.version)}:
            raise conflict(resource, name, _MODIFIED)
        if sent.get("uid") not in {None, "", before.obj["metadata"]["uid"]}:
            raise invalid(resource, name, [invalid_value("metadata.uid", sent["uid"], "field is immutable")])
        kept = server_metadata({**after, "metadata": sent}, before.obj)
        write = Write(resource=resource, obj=kept, before=before.obj, subresource=subresource, now=self._clock())
        obj = rules_for(resource).update(write)
        written = self._commit(resource, before, obj, dry_run=dry_run)
        if written.obj["metadata"].get("deletionTimestamp") and not _is_held(written.obj):
            return self._remove(resource, written, dry_run=dry_run)
        return written

    def _marked(self, resource: Resource, obj: dict[str, Any], asked_s: int | None) -> dict[str, Any]:
        """The object with its end announced: pods always, others when a finalizer holds them.

        A second request may only bring the end nearer.
        """
        meta = obj["metadata"]
        old_s = meta.get("deletionGracePeriodSeconds")
        if resource != PODS and not meta.get("finalizers"):
            return obj
        if meta.get("deletionTimestamp") and (asked_s is None or asked_s >= (old_s or 0)):
            return obj
        first = old_s is None
        left_s = grace_s(resource, obj, asked_s) if first else asked_s or 0
        generation = meta["generation"] + 1 if first and "generation" in meta else meta.get("generation")
        at = timestamp(self._clock() + left_s)
        return with_metadata(obj, deletionTimestamp=at, deletionGracePeriodSeconds=left_s, generation=generation)

    def _commit(self, resource: Resource, before: Entry | None, obj: dict[str, Any], *, dry_run: bool) -> Entry:
        if before is not None and obj == before.obj:
            return before
        if dry_run:
            return _encoded(resource, obj, 0)
        entry = _encoded(resource, obj, self._next())
        self._table(resource)[entry.key] = entry
        self._record(Change(entry.version, "MODIFIED" if before else "ADDED", resource, entry, before))
        return entry

    def _remove(self, resource: Resource, before: Entry, *, dry_run: bool) -> Entry:
        if dry_run:
            return before
        entry = _encoded(resource, before.obj, self._next())
        self._table(resource).pop(before.key, None)
        self._record(Change(entry.version, "DELETED", resource, entry, before))
        return entry

    def _empty(self, namespace: str, *, dry_run: bool) -> None:
        """Everything in a namespace goes before the namespace does."""
        for resource in [r for r in self._objects if r.namespaced]:
            for entry in self.entries(resource, namespace):
                self._remove(resource, entry, dry_run=dry_run)

    def _check_place(self, resource: Resource, namespace: str, sent: dict[str, Any]) -> None:
        if (sent.get("metadata") or {}).get("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if resource.namespaced:
            self._check_namespace(namespace)

    def _check_namespace(self, namespace: str) -> None:
        if ("", namespace) not in self._table(NAMESPACES):
            raise not_found(NAMESPACES, namespace)

    def _table(self, resource: Resource) -> dict[tuple[str, str], Entry]:
        return self._objects.setdefault(resource, {})

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _record(self, change: Change) -> None:
        self.history.append(change)
        self.on_change(change)


def _encoded(resource: Resource, obj: dict[str, Any], version: int) -> Entry:
    """The object under a version (0: none, a dry run), `kind` and `apiVersion` first: lists cut them off."""
    rest = {key: value for key, value in obj.items() if key not in {"kind", "apiVersion", "metadata"}}
    meta = {**obj["metadata"], "resourceVersion": str(version)}
    if not version:
        del meta["resourceVersion"]
    body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta, **rest}
    return Entry(version, body, _ENCODER.encode(body))


def _is_held(obj: dict[str, Any]) -> bool:
    """Whether something is in the way of its removal: a finalizer, or time to stop."""
    meta = obj["metadata"]
    return bool(meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"))


def _check_delete(resource: Resource, obj: dict[str, Any], options: DeleteOptions) -> None:
    meta = obj["metadata"]
    checks = (
        ("UID", options.uid, meta["uid"], "The object might have been deleted and then recreated"),
        ("ResourceVersion", options.resource_version, meta["resourceVersion"], "The object might have been modified"),
    )
    for label, wanted, found, hint in checks:
        if wanted is not None and wanted != found:
            why = f"the {label} in the precondition ({wanted}) does not match the {label} in record ({found}). {hint}"
            raise conflict(msgspec.structs.replace(resource, plural=resource.kind, group=""), meta["name"], why)
