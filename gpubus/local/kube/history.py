"""The log of changes that watches read from: contiguous versions, a window of limited length.

Each change of the store takes the next version, so a version is an index. What has fallen out of the window
cannot be watched from any more: the client gets 410 and lists again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpubus.local.kube.status import expired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubus.local.kube.resources import Resource

__all__ = ["Change", "Entry", "History"]


class Entry(NamedTuple):
    """One stored version of one object; never changed in place. `raw` is its JSON."""

    version: int
    obj: dict[str, Any]
    raw: bytes

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        meta = self.obj["metadata"]
        return meta.get("namespace", ""), meta["name"]


class Change(NamedTuple):
    """One write: ADDED, MODIFIED or DELETED, the object after it, and before it where there was one."""

    version: int
    kind: str
    resource: Resource
    entry: Entry
    before: Entry | None


class History:
    """The last changes, at least `size` of them once so many have happened."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._log: list[Change] = []
        self._dropped = 0

    def append(self, change: Change) -> None:
        """Keep one more; the oldest half goes when twice `size` are held, so that trimming costs nothing."""
        self._log.append(change)
        if len(self._log) >= 2 * self._size:
            self._drop(self._size)

    def since(self, version: int) -> Sequence[Change]:
        """All changes after a version, oldest first; StatusError 410 when some of them are gone.

        A version of the future is answered by nothing, as the real server does: it may belong to another
        history.
        """
        if version < self._dropped:
            raise expired(f"too old resource version: {version} ({self._dropped})")
        return self._log[version - self._dropped :]

    def forget(self) -> None:
        """Drop everything, as a restart of the real server does to its watch cache."""
        self._drop(len(self._log))

    def _drop(self, count: int) -> None:
        del self._log[:count]
        self._dropped += count
