"""`gpubus call`: call a function and print what it answers."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from gpubus.cli.common import Common, Namespace, address, connected, run, show
from gpubus.cli.exits import Exit
from gpubus.errors import AnswerIsNo, UsageError
from gpubus.gateway import CallError, Gateway, gateway
from gpubus.quantities import BadQuantity, seconds
from gpubus.settings import ClientSettings

MAX_CALLS = 10_000


def call(
    function: str,
    body: str = "",
    /,
    *,
    namespace: Namespace = None,
    timeout: str = "60s",
    count: int = 1,
    send: Annotated[bool, Parameter(negative="")] = False,
    common: Common | None = None,
) -> int:
    """Call a function and print its answer.

    The call is kept until a worker has answered it, also while the function is at zero: it wakes it.
    Exit status 1 when the function failed, or nobody took the call in time.

    Try:

    ```
    gpubus call resize '{"width": 40}'
    gpubus call team-a/resize hello --timeout 5m
    gpubus call resize load --count 200
    ```

    Args:
        function: NAME or NAMESPACE/NAME.
        body: What it gets.
        namespace: Namespace of the function.
        timeout: It must have begun by then: 90, 90s, 5m.
        count: Call it so often at once, and tell how long that took.
        send: Do not wait for the answer.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    space, name = address(function, namespace, settings)
    if not 1 <= count <= MAX_CALLS:
        raise UsageError(f"--count {count}: between 1 and {MAX_CALLS}")
    try:
        timeout_s = seconds(timeout)
    except BadQuantity as error:
        raise UsageError(f"--timeout {error}") from error
    return run(_call(space, name, [body] * count, timeout_s, settings, send=send))


async def _call(
    namespace: str, name: str, bodies: list[str], timeout_s: float, settings: ClientSettings, *, send: bool
) -> Exit:
    async with connected(settings) as client, gateway(client.bus, namespace) as calling:
        if send:
            await asyncio.gather(*(calling.send(name, body, timeout_s=timeout_s) for body in bodies))
            show(Text(f"{len(bodies)} kept", style="dim"))
        elif len(bodies) == 1:
            show(Text(await _one(calling, name, bodies[0], timeout_s)))
        else:
            await _many(calling, name, bodies, timeout_s)
    return Exit.OK


async def _one(calling: Gateway, name: str, body: str, timeout_s: float) -> str:
    try:
        return await calling.call(name, body, timeout_s=timeout_s)
    except CallError as error:
        raise AnswerIsNo(str(error)) from error


async def _many(calling: Gateway, name: str, bodies: list[str], timeout_s: float) -> None:
    began = time.monotonic()
    found = await asyncio.gather(*(_one(calling, name, body, timeout_s) for body in bodies), return_exceptions=True)
    failed = [error for error in found if isinstance(error, BaseException)]
    show(Text(f"{len(bodies) - len(failed)} of {len(bodies)} answered in {time.monotonic() - began:.1f} s"))
    if failed:
        raise failed[0]
