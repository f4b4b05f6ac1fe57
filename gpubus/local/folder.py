"""The run folder: where logs and the store of one local installation are, and what becomes of it at the end."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpubus.errors import LocalFailure, UsageError


@contextlib.contextmanager
def run_folder(keep: Path | None) -> Iterator[Path]:
    """`keep`, made if needed and left as it is; else a temporary one, removed unless a part has failed.

    Raises:
        UsageError: `keep` cannot be used.
    """
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--keep {keep}: {error.strerror or error}") from error
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="gpubus-local-"))
    try:
        yield folder
    except LocalFailure:
        # The logs are what the failure's reader needs next.
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    else:
        shutil.rmtree(folder, ignore_errors=True)
