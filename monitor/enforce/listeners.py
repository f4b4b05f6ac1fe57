"""Which TCP ports somebody listens on, from the text of /proc/net/tcp and tcp6. Nothing is connected to.

A connection would be a client to the program that is looked at; the kernel's table tells without being noticed.
"""

from __future__ import annotations

from pathlib import Path

_LISTEN = "0A"
_LOCAL, _STATE = 1, 3


def listening(text: str) -> frozenset[int]:
    """Ports in state LISTEN; lines that are not of the table's form tell nothing."""
    rows = (line.split() for line in text.splitlines()[1:])
    found = (row[_LOCAL].rpartition(":")[2] for row in rows if len(row) > _STATE and row[_STATE] == _LISTEN)
    return frozenset(int(port, 16) for port in found if _is_port(port))


def on_host(proc: Path) -> frozenset[int] | None:
    """Ports of the host's network, which is that of its first process; None = the table cannot be read."""
    texts = [_text(proc / "1" / "net" / name) for name in ("tcp", "tcp6")]
    if texts[0] is None:
        return None
    return frozenset().union(*(listening(text) for text in texts if text is not None))


def _is_port(digits: str) -> bool:
    return len(digits) == 4 and all(c in "0123456789ABCDEFabcdef" for c in digits)  # noqa: PLR2004 - two bytes


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
