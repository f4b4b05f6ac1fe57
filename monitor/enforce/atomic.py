"""Replacing a small file: a reader sees the old or the new content, and a watcher of closed writes sees the event.

In: a path, the bytes, a folder for staging on the same file system. A rename alone is atomic, but inotify reports it as
a move, and programs that wait for IN_CLOSE_WRITE never wake; writing in place is seen, but is read half-written. So:

    stage     write the whole to the staging folder, which nobody watches, and sync it
    rename    over the path: from here on every reader sees the new content, whole
    nudge     open the path for writing and close it, changing nothing: the event, for content that is already there

Killed before the rename, the old content stays and a leftover lies in the staging folder, which the next write of that
name replaces. Killed before the nudge, the new content stands and nobody was told; whoever starts again nudges.
"""

from __future__ import annotations

import os
from pathlib import Path

_MODE = 0o644


def write(path: Path, data: bytes, *, staging: Path) -> None:
    """Replace the file. Raises OSError; then the old content or the new one stands, never a part."""
    staged = staging / f"{path.parent.name}-{path.name}"
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    try:
        _write_all(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
    staged.replace(path)
    _sync_folder(path.parent)
    nudge(path)


def nudge(path: Path) -> None:
    """Make a watcher read it again. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
