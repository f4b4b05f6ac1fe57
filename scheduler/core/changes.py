"""Names of nodes in the order in which their views changed: one log, and a position for each of its readers.

In: a name at each change. Out: the names since a position, or "too long ago": then a reader looks at every node.
"""

from __future__ import annotations

LOG_LIMIT = 100_000
"""Entries; the older half is dropped beyond it."""


class Changes:
    """The log of one `Rankings`."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.dropped = 0

    @property
    def end(self) -> int:
        """The position after the last change."""
        return self.dropped + len(self.names)

    def since(self, position: int) -> list[str] | None:
        """Names from `position` on, repeated as they changed; None: they are not remembered any more."""
        return self.names[position - self.dropped :] if position >= self.dropped else None

    def trim(self) -> None:
        """Forget the older half of what is too much."""
        if len(self.names) > LOG_LIMIT:
            del self.names[: LOG_LIMIT // 2]
            self.dropped += LOG_LIMIT // 2
