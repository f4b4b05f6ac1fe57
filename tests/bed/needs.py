"""Whether this machine can hold a test bed: what is missing, in words.

In: nothing. Out: the first reason why not, or the empty text. A namespace of each kind is really made and thrown away,
because containers, security modules and settings forbid them in ways that no file tells.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.servers import binaries, cgroups
from tests.servers.natsd import nats_server_binary

__all__ = ["PROGRAMS", "missing", "skip_without"]

PROGRAMS = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "containerd",
    "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local", "pause", "helm",
)  # fmt: skip
"""Built by tests/cluster/build.sh."""
_TOOLS = ("unshare", "nsenter", "mount", "ip", "openssl", "ldd")
_NAMESPACES = ("unshare", "--net", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-ec")
_PROBE = """
ip link add probe0 type bridge
mount -t tmpfs probe /tmp
mkdir /tmp/lower /tmp/upper /tmp/work /tmp/whole
mount -t overlay probe -o lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work /tmp/whole
"""
"""What nodes do: a bridge for the pods, images in memory, containers' files on top of them."""


def missing() -> str:
    """Why no bed can be made here; empty when it can."""
    if os.geteuid() != 0:
        return "needs root: real containers are made"
    if lacking := [name for name in _TOOLS if shutil.which(name) is None]:
        return f"not on PATH: {', '.join(lacking)}"
    if unbuilt := binaries.missing(*PROGRAMS):
        return f"not built: {', '.join(unbuilt)} (run tests/cluster/build.sh)"
    if reason := cgroups.missing():
        return reason
    try:
        nats_server_binary()
    except FileNotFoundError as error:
        return str(error)
    return _forbidden()


def skip_without() -> None:
    """Skip a test where no bed can be made. In CI it fails when the programs are not built: that is CI's to do."""
    if not (reason := missing()):
        return
    if os.environ.get("CI", "").lower() in {"1", "true"} and reason.startswith("not built"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _forbidden() -> str:
    tried = subprocess.run([*_NAMESPACES, _PROBE], capture_output=True, text=True, check=False)
    if not tried.returncode:
        return ""
    return f"namespaces with a bridge and overlays cannot be made here: {tried.stderr.strip() or tried.returncode}"
