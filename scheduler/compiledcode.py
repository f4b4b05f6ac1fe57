"""Compiled kernels from an image whose root is read-only.

numba takes compiled code only from a folder that it could write to. An image has it in a folder that nobody may write
to, so the first process that starts in a container copies it (some MB) to its temporary folder and names that, before
numba is loaded. Without it every scheduler and every audit would compile for itself, 15 s of a core each time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path

FOLDER = "NUMBA_CACHE_DIR"


def may_write(folder: Path) -> bool:
    """Whether numba would find it so: it makes a folder for each source file, and a file in that."""
    return all(os.access(path, os.W_OK | os.X_OK) for path in (folder, *folder.iterdir()) if path.is_dir())


def make_writable(environment: MutableMapping[str, str], writable: Callable[[Path], bool] = may_write) -> None:
    """Point `NUMBA_CACHE_DIR` at a copy when the folder that it names is there and is not `writable`."""
    kept = environment.get(FOLDER, "")
    if not kept or not Path(kept).is_dir() or writable(Path(kept)):
        return
    copy = Path(tempfile.gettempdir()) / f"gpubus-kernels-{os.getuid()}"
    if not copy.is_dir():
        _copy(Path(kept), copy)
    if copy.stat().st_uid == os.getuid():  # what is loaded from there runs as us
        environment[FOLDER] = str(copy)


def _copy(kept: Path, copy: Path) -> None:
    """All of it or nothing: another process may do the same at this moment, and be first."""
    whole = Path(tempfile.mkdtemp(prefix="gpubus-")) / "kernels"
    shutil.copytree(kept, whole, copy_function=shutil.copyfile)
    for folder in (whole, *(path for path in whole.rglob("*") if path.is_dir())):
        folder.chmod(0o700)  # copytree copies that nobody may write to it, too
    try:
        whole.rename(copy)
    except OSError:
        shutil.rmtree(whole)
    whole.parent.rmdir()
