"""Chunks of a watch into whole lines. A last line without its end was cut off and is dropped. Pure."""

from __future__ import annotations

LINE_LIMIT = 16 * 1024 * 1024
"""An object is at most 1.5 MiB in etcd and a few times that as JSON; more is no watch."""


class TooLong(ValueError):  # noqa: N818 - named by what is the case
    """A line beyond any object's size."""


class Lines:
    """Feed chunks, get lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends and without empty ones.

        Raises:
            TooLong: no end of line within the limit.
        """
        first, *rest = chunk.split(b"\n")
        self._hold(first)
        if not rest:
            return []
        whole = b"".join(self._parts)
        self._parts, self._size = [], 0
        self._hold(rest.pop())
        return [line for line in (whole, *rest) if line]

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > LINE_LIMIT:
            raise TooLong(f"a line of more than {LINE_LIMIT} bytes")
        self._parts.append(part)
