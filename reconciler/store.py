"""The informer's memory: what Kubernetes has, folded from lists, watch lines and the answers of our own calls. Pure.

What flows in: pages of a list, one watch event after the other, objects that our own calls brought back. What flows
out: changes. Three rules keep it true:

    a watch may be ahead of our own calls: an event arrives before the answer of the call that caused it
    nothing goes back: an object is replaced by an equal or newer version only
    `version` is how far the watch has come: an object of ours that is older and not here has been deleted meanwhile

An object that is put in by us may be ahead of the server's (a binding brings no object back): it has the version that
it was bound at, so the next real event replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Literal

import msgspec

from reconciler.objects import Node, Object, Pod, SharePod


class Change(msgspec.Struct, Generic[Object], frozen=True, kw_only=True):
    """What became of one object; `object` is its last state."""

    kind: Literal["added", "changed", "gone"]
    key: str
    object: Object
    before: Object | None = None


def key_of(found: Pod | Node | SharePod) -> str:
    """`<namespace>/<name>`, or the name of what has no namespace."""
    metadata = found.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def version_of(found: Pod | Node | SharePod) -> int:
    """Its resource version. They are numbers that grow in the whole cluster; what is none counts as the oldest."""
    text = found.metadata.resource_version
    return int(text) if text.isdecimal() else 0


class Store(Generic[Object]):
    """All objects of one kind, by key, and grouped (pods by node).

    Args:
        group: names the group of an object; an empty name = none.
    """

    def __init__(self, group: Callable[[Object], str] | None = None) -> None:
        self.objects: dict[str, Object] = {}
        self.version = 0
        self._group = group
        self._groups: dict[str, dict[str, Object]] = {}

    def __repr__(self) -> str:
        return f"<Store of {len(self.objects)} at {self.version}>"

    def get(self, key: str) -> Object | None:
        """The object of that key."""
        return self.objects.get(key)

    def grouped(self, group: str) -> Iterable[Object]:
        """All objects of a group."""
        return self._groups.get(group, {}).values()

    # --- folding -----------------------------------------------------------------------------------------------------

    def relist(self, items: Iterable[Object], version: int) -> list[Change[Object]]:
        """The whole truth at `version`. What is not in it is gone, unless it is ours and younger than the list.

        A version that went back means a restored etcd: then nothing that we had is worth anything.
        """
        reset = version < self.version
        found = {key_of(item): item for item in items}
        changes: list[Change[Object]] = []
        for key, old in list(self.objects.items()):
            if key not in found and (reset or version_of(old) <= version):
                changes += self._take(key)
        for key, item in found.items():
            if reset and key in self.objects:
                changes += self._take(key)
            changes += self._put(key, item)
        self.version = version
        return changes

    def event(self, kind: Literal["ADDED", "MODIFIED", "DELETED"], item: Object) -> list[Change[Object]]:
        """One event of the watch; an event that is not newer than what was seen is a repetition."""
        version = version_of(item)
        if version <= self.version:
            return []
        self.version = version
        key = key_of(item)
        if kind != "DELETED":
            return self._put(key, item)
        old = self.objects.get(key)
        if old is None or old.metadata.uid != item.metadata.uid:
            return []
        return self._take(key, item)

    def bookmark(self, version: int) -> None:
        """The watch has come this far without an event for us."""
        self.version = max(self.version, version)

    def own(self, item: Object) -> list[Change[Object]]:
        """What a call of ours brought back, or made true."""
        key = key_of(item)
        if key not in self.objects and version_of(item) <= self.version:
            return []
        return self._put(key, item, equal_wins=True)

    # --- keeping the groups ------------------------------------------------------------------------------------------

    def _put(self, key: str, item: Object, *, equal_wins: bool = False) -> list[Change[Object]]:
        """`equal_wins`: what we made true may replace what it was made of, never the other way round."""
        old = self.objects.get(key)
        if old is None:
            self._keep(key, item)
            return [Change(kind="added", key=key, object=item)]
        ahead = version_of(item) - version_of(old)
        if old.metadata.uid != item.metadata.uid:
            return [*self._take(key), *self._put(key, item)] if ahead > 0 else []
        if ahead < 0 or (ahead == 0 and not (equal_wins and item != old)):
            return []
        self._drop(key, old)
        self._keep(key, item)
        return [Change(kind="changed", key=key, object=item, before=old)]

    def _take(self, key: str, last: Object | None = None) -> list[Change[Object]]:
        old = self.objects[key]
        self._drop(key, old)
        return [Change(kind="gone", key=key, object=last or old, before=old)]

    def _keep(self, key: str, item: Object) -> None:
        self.objects[key] = item
        if self._group and (group := self._group(item)):
            self._groups.setdefault(group, {})[key] = item

    def _drop(self, key: str, item: Object) -> None:
        del self.objects[key]
        if not self._group:
            return
        group = self._group(item)
        members = self._groups.get(group, {})
        members.pop(key, None)
        if not members:
            self._groups.pop(group, None)
