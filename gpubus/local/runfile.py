"""The note that a running `gpubus local` leaves, so that the next commands find it without flags.

One small JSON file under the user's runtime folder. It is a hint, never a lock: a note whose process is gone is
ignored, the newest `gpubus local` wins, and each removes only its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of one local installation are."""

    pid: int
    nats_url: str
    traces_url: str
    """Takes OTLP/HTTP at /v1/traces and answers Jaeger's query API at /api."""
    kube_url: str
    folder: str
    """Logs, and the store of nats-server."""


def path(env: Mapping[str, str]) -> Path:
    """`$XDG_RUNTIME_DIR/gpubus/local.json`, else under `$XDG_CACHE_HOME` or `~/.cache`."""
    cache = env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache"
    return Path(env.get("XDG_RUNTIME_DIR") or cache) / "gpubus" / "local.json"


def find(env: Mapping[str, str]) -> Running | None:
    """The local installation that runs now, if there is one."""
    try:
        running = msgspec.json.decode(path(env).read_bytes(), type=Running)
    except (OSError, msgspec.MsgspecError):
        return None
    return running if _alive(running.pid) else None


def leave(running: Running, env: Mapping[str, str]) -> None:
    """Write the note, readable by its user only; the file is complete or not there."""
    note = path(env)
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = note.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(msgspec.json.encode(running))
    fresh.chmod(0o600)
    fresh.replace(note)


def remove(running: Running, env: Mapping[str, str]) -> None:
    """Take the note away if it is still the one of `running`."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        if msgspec.json.decode(path(env).read_bytes(), type=Running) == running:
            path(env).unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
