"""`gpubus delete`: take a function or a training job down."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.text import Text

from autoscaler.core.elastic_life import FINAL
from bus.protocol import Received
from contracts.subjects import FUNCTION_STATUS, JOB_STATUS
from contracts.workloads import Function, Job
from gpubus.cli.common import Common, Namespace, address, connected, run, show
from gpubus.cli.exits import Exit
from gpubus.client import Client
from gpubus.errors import AnswerIsNo, UsageError
from gpubus.functions import is_gone
from gpubus.functions import status_of as function_status
from gpubus.quantities import BadQuantity, seconds
from gpubus.settings import ClientSettings
from gpubus.workloads import publish, status_of, workload_of


def delete(
    name: str,
    /,
    *,
    wait: Annotated[bool, Parameter(negative="")] = False,
    timeout: str = "5m",
    namespace: Namespace = None,
    common: Common | None = None,
) -> int:
    """Take a function or a training job down, with notice.

    Replicas finish the calls that they have; trainers may save their work for `notice_s`. Nothing wakes a function that
    is stopped. Publishing it again, by `gpubus deploy` or `gpubus scale --image`, starts it anew.
    Exit status 1 when there is nothing of that name, or --wait has not seen the end in time.

    Try:

    ```
    gpubus delete resize
    gpubus delete team-a/bert --wait
    ```

    Args:
        name: NAME or NAMESPACE/NAME.
        wait: Until its last pod has ended.
        timeout: How long to wait: 90, 90s, 5m.
        namespace: Namespace of the workload.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    space, plain = address(name, namespace, settings)
    try:
        timeout_s = seconds(timeout) if wait else None
    except BadQuantity as error:
        raise UsageError(f"--timeout {error}") from error
    return run(_delete(space, plain, timeout_s, settings))


async def _delete(namespace: str, name: str, timeout_s: float | None, settings: ClientSettings) -> Exit:
    async with connected(settings) as client:
        workload = await workload_of(client, namespace, name)
        if workload is None:
            raise AnswerIsNo(f"there is no function or job {namespace}/{name}")
        if not workload.stopped:
            await publish(client, msgspec.structs.replace(workload, stopped=True), namespace)
        if timeout_s is not None:
            await _until_gone(client, namespace, workload, timeout_s)
    show(Text(f"{namespace}/{name}: {'gone' if timeout_s is not None else 'is taken down'}"))
    return Exit.OK


async def _until_gone(client: Client, namespace: str, workload: Function | Job, timeout_s: float) -> None:
    heard = asyncio.Event()

    async def hear(_: Received) -> None:
        heard.set()

    try:
        async with asyncio.timeout(timeout_s):
            async with client.bus.subscribe(_told_on(namespace, workload), hear):
                while not await _is_gone(client, namespace, workload):
                    await heard.wait()
                    heard.clear()
    except TimeoutError:
        raise AnswerIsNo(f"{namespace}/{workload.name} has not ended within {timeout_s:g} s") from None


def _told_on(namespace: str, workload: Function | Job) -> str:
    if isinstance(workload, Job):
        return JOB_STATUS.subject(namespace=namespace, name=workload.name)
    return FUNCTION_STATUS.subject(namespace=namespace, function=workload.name)


async def _is_gone(client: Client, namespace: str, workload: Function | Job) -> bool:
    if isinstance(workload, Job):
        job = await status_of(client, namespace, workload.name)
        return job is not None and job.phase in FINAL
    status = await function_status(client, namespace, workload.name)
    return status is not None and status.rule == "off" and is_gone(status)
