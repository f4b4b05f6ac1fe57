"""A kubelet that is killed and comes back, as systemd would bring it.

In: a bed and the name of a node. Out: another process in the place of the first; the node's containers lived on
meanwhile, because they are containerd's.
"""

from __future__ import annotations

import shutil

from tests.bed import layout
from tests.bed.bed import Bed
from tests.servers.binaries import folder as programs
from tests.servers.process import ServerProcess

__all__ = ["process_of", "restart_kubelet"]


def process_of(bed: Bed, name: str) -> int:
    """The first process of the bed that writes this log, as this machine numbers it."""
    found = bed.processes(name)
    assert found, f"no process of {name}"
    return found[0]


def restart_kubelet(bed: Bed, node: str) -> ServerProcess:
    """In the namespaces of the node's containerd. The new process is the caller's to kill before the bed ends."""
    bed.kill(f"kubelet-{node}")
    containerd = process_of(bed, f"containerd-{node}")
    there = layout.Node(bed.folder, 1 + bed.nodes.index(node), node, group=bed.group, programs=programs())
    kubelet = there.kubelet(containerd)
    command = kubelet[kubelet.index("--") + 1 :]
    enter = [shutil.which("nsenter") or "", "--net", "--mount", "--pid", "-t", str(containerd), "--"]
    process = ServerProcess(f"kubelet-{node}", [*enter, *command], bed.folder / "log" / f"kubelet-{node}.log")
    process.launch()
    return process
