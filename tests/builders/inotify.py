"""The kernel's own watcher of closed writes, as programs use it that wait for a file to be written."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

IN_CLOSE_WRITE = 0x8


class Inotify:
    """Watches one folder."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self.handle >= 0
        assert libc.inotify_add_watch(self.handle, str(folder).encode(), IN_CLOSE_WRITE) >= 0

    def closed(self) -> list[str]:
        """Names that were closed after a write, since the last call."""
        try:
            data = os.read(self.handle, 65_536)
        except BlockingIOError:
            return []
        names = []
        while data:
            length = struct.unpack_from("iIII", data)[3]
            names.append(data[16 : 16 + length].rstrip(b"\0").decode())
            data = data[16 + length :]
        return names
