"""Files of the kernel that are read each second by the hundred: opened, read to the end, closed, and nothing more.

In: a path. Out: its bytes, or None where there is nothing to read. A reader from the standard library makes eight
system calls and three objects for each; on a node with 64 pods that is half of the monitor's work.

The kernel gives a long file in pieces of a page, so one read is not the whole: it is read until nothing comes.
"""

from __future__ import annotations

import os

MOST_BYTES = 65_536
"""memory.stat has some 2 KiB, a process in a container in a container 4 KiB of cgroups. The rest of a longer one is
not read: nothing that we look for stands there."""


def read(path: str) -> bytes | None:
    """The whole file; None when it is not there, or vanishes while it is read (ENODEV of a removed cgroup)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a null byte in a name
        return None
    try:
        return _to_the_end(handle)
    except OSError:
        return None
    finally:
        os.close(handle)


def _to_the_end(handle: int) -> bytes:
    found = os.read(handle, MOST_BYTES)
    while len(found) < MOST_BYTES and (more := os.read(handle, MOST_BYTES - len(found))):
        found += more
    return found
