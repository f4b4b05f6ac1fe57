"""Loopback ports that no other test, worker or outgoing connection can take.

A port asked from the kernel (bind to 0, close, hand to the server) may be gone again before the server
binds it, and a server that is killed and restarted on the same port can find it used as somebody's outgoing
port. So: ports come from below the kernel's ephemeral range, and each is reserved by a file lock that lives
as long as the reservation. The lock is the kernel's: a killed test run leaves no stale reservation, and
pytest-xdist workers see each other's.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Port", "reserve_port"]

_LOWEST = 20_000
_ATTEMPTS = 500


class Port:
    """One reserved loopback port; `release()` (or the end of the process) gives it back."""

    def __init__(self, number: int, lock: int) -> None:
        self.number = number
        self._lock: int | None = lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __repr__(self) -> str:
        return f"Port({self.number}{'' if self._lock is not None else ', released'})"


def reserve_port(numbers: Iterable[int] | None = None) -> Port:
    """A port that is free now and stays ours until it is released: the first that can be had of these numbers.

    Without numbers: of a random draw from those that nothing else uses by itself.
    """
    folder = Path(tempfile.gettempdir()) / f"gpubus-test-ports.{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for number in numbers or _draw():
        if (lock := _try_lock(folder / str(number))) is None:
            continue
        if _is_free(number):
            return Port(number, lock)
        os.close(lock)
    raise RuntimeError("none of the ports is free")


def _draw() -> list[int]:
    highest = max(_ephemeral_low(), _LOWEST + 5_000)
    return random.sample(range(_LOWEST, highest), _ATTEMPTS)


def _ephemeral_low() -> int:
    """The first port the kernel hands out by itself (32768 unless configured)."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def _try_lock(path: Path) -> int | None:
    return try_lock(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def try_lock(lock: int) -> int | None:
    """An open file, held for this process alone; None, and closed: another one holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _is_free(number: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True
