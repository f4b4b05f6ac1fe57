"""What a bed's containers and the kernel under them say.

In: a bed and a pod as the API server has it. Out: container ids, the first line that a container printed, its CPU
quota.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.bed.bed import Bed, trees
from tests.servers.process import wait_until

__all__ = ["containers", "quota_us", "shown"]


def containers(pod: dict[str, Any]) -> list[str]:
    """The ids of its running containers."""
    return [status["containerID"].partition("://")[2] for status in pod["status"].get("containerStatuses", ())]


async def shown(bed: Bed, pod: dict[str, Any]) -> str:
    """The first line that a pod's container printed."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    line = ""

    async def printed() -> bool:
        nonlocal line
        line = (await bed.log(namespace, name)).partition("\n")[0]
        return bool(line)

    await wait_until(printed, what=f"{name} prints a line", timeout_s=20, every_s=0.1)
    return line


def quota_us(bed: Bed, pod: dict[str, Any]) -> int | None:
    """CPU time that the kernel gives the pod's one container in each period of 100 ms; None = no bound."""
    [container] = containers(pod)
    for tree in trees():
        for name in ("cpu.max", "cpu.cfs_quota_us"):
            for file in _files(tree / bed.group, container, name):
                word = file.read_text(encoding="ascii").split()[0]
                return None if word in ("max", "-1") else int(word)
    raise AssertionError(f"no cgroup of container {container}")


def _files(top: Path, container: str, name: str) -> list[Path]:
    """`os.walk` passes over groups that go meanwhile: those of other pods that end."""
    found = (Path(path) for path, _, _ in os.walk(top) if Path(path).name == container)
    return [folder / name for folder in found if (folder / name).exists()]
