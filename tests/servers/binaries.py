"""Where the programs are that tests/cluster/build.sh has built."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CLUSTER", "HELM", "JAEGER", "MissingProgramError", "missing", "program"]

CLUSTER = ("etcd", "kube-apiserver", "kube-controller-manager", "hollow-kubelet")
JAEGER = ("jaeger",)
HELM = ("helm",)


class MissingProgramError(RuntimeError):
    """A test server's program has not been built."""


def folder() -> Path:
    """The folder that build.sh fills, by the same rule."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("GPUBUS_TEST_BIN") or Path(cache) / "gpubus-tests") / "bin"


def missing(*names: str) -> list[str]:
    return [name for name in names if not os.access(folder() / name, os.X_OK)]


def program(name: str) -> Path:
    """The path of a built program; MissingProgramError with what to do about it."""
    if missing(name):
        raise MissingProgramError(f"{name} is not in {folder()}: run tests/cluster/build.sh")
    return folder() / name
