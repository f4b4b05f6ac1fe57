"""`gpubus deploy`: publish functions and training jobs from files."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from contracts.workloads import Function, Job
from gpubus import workloadfile
from gpubus.cli.common import Common, Namespace, connected, run, show
from gpubus.cli.exits import Exit
from gpubus.cli.submit import read_text
from gpubus.errors import UsageError
from gpubus.settings import ClientSettings
from gpubus.workloads import publish


def deploy(
    files: Annotated[tuple[str, ...], Parameter(negative="")],
    /,
    *,
    namespace: Namespace = None,
    common: Common | None = None,
) -> int:
    """Publish functions and training jobs from files, JSON or TOML, or change them to what the files say.

    All files are read before anything is published. The same file again changes nothing.

    Try:

    ```
    gpubus deploy resize.toml
    gpubus deploy bert.json resnet.json -n team-a
    gpubus deploy - < resize.toml
    ```

    and `resize.toml`:

    ```
    [function]
    name = "resize"
    max_replicas = 8
    pod.image = "registry.example/resize:1"
    gpu.share_milli = 250
    scaling.concurrency = 4
    ```

    Args:
        files: Files with one workload or many; - is standard input.
        namespace: Their namespace.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    if not files:
        raise UsageError("give the files that hold the workloads")
    wanted = [workload for file in files for workload in workloadfile.read(read_text(file), file)]
    return run(_deploy(wanted, namespace or settings.gpubus.namespace, settings))


async def _deploy(wanted: list[Function | Job], namespace: str, settings: ClientSettings) -> Exit:
    async with connected(settings) as client:
        for workload in wanted:
            await publish(client, workload, namespace)
            kind = "functions" if isinstance(workload, Function) else "jobs"
            show(Text(f"{namespace}/{workload.name}: kept; `gpubus get {kind}` shows how it stands"))
    return Exit.OK
