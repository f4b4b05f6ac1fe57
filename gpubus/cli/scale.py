"""`gpubus scale`: make a function, change its bounds, or stop all scaling for a while."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.text import Text

from contracts.workloads import Function
from gpubus.cli.common import Common, Namespace, address, connected, run, show
from gpubus.cli.exits import Exit
from gpubus.cli.requestflags import RequestFlags, tree
from gpubus.errors import AnswerIsNo, UsageError
from gpubus.functions import deploy, freeze, function_of
from gpubus.settings import ClientSettings

NO_FLAGS = RequestFlags()
Quiet = Parameter(show_default=False)


def scale(
    name: str | None = None,
    /,
    *,
    flags: RequestFlags = NO_FLAGS,
    least: Annotated[int | None, Parameter(name="--min", show_default=False)] = None,
    most: Annotated[int | None, Parameter(name="--max", show_default=False)] = None,
    warm: Annotated[int | None, Quiet] = None,
    replicas: Annotated[int | None, Quiet] = None,
    automatic: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    concurrency: Annotated[int | None, Quiet] = None,
    target_percent: Annotated[int | None, Quiet] = None,
    frozen: Annotated[str | None, Parameter(name="--freeze", show_default=False)] = None,
    thaw: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    namespace: Namespace = None,
    common: Common | None = None,
) -> int:
    """Make a function, change how it scales, or stop all scaling.

    With --image it is made, or made anew; without, what is given is changed and the rest stays.

    Try:

    ```
    gpubus scale resize --image registry.example/resize:1 --gpu-share 0.25 --max 8
    gpubus scale resize --min 1 --warm 1
    gpubus scale resize --replicas 0
    gpubus scale --freeze "maintenance"
    gpubus scale --thaw
    ```

    Args:
        name: NAME or NAMESPACE/NAME of the function.
        flags: Its pods, as for `gpubus submit`.
        least: Replicas at least; 0 = none while nobody calls.
        most: Replicas at most.
        warm: Replicas that stand by besides, started and out of traffic.
        replicas: So many, whatever the load; 0 = off.
        automatic: The load decides again.
        concurrency: Calls that one replica works on at once.
        target_percent: How busy replicas should be.
        frozen: Stop all scaling of functions and jobs, for this reason.
        thaw: Let it go on.
        namespace: Namespace of the function.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    if frozen is not None or thaw:
        if name is not None or (frozen is not None and thaw):
            raise UsageError("--freeze and --thaw stand alone: they hold for everything")
        return run(_freeze(settings, frozen=frozen is not None, reason=frozen or ""))
    if name is None:
        raise UsageError("give the NAME of a function, or --freeze REASON, or --thaw")
    space, plain = address(name, namespace, settings)
    changes: dict[str, Any] = {
        "min_replicas": least,
        "max_replicas": most,
        "warm_replicas": warm,
        "replicas": replicas,
        "target_percent": target_percent,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    if automatic:
        given["replicas"] = None
    return run(_scale(space, dataclasses.replace(flags, name=plain), given, concurrency, settings))


async def _freeze(settings: ClientSettings, *, frozen: bool, reason: str) -> Exit:
    async with connected(settings) as client:
        await freeze(client, frozen=frozen, reason=reason, at_ms=time.time_ns() // 1_000_000)
    show(Text("frozen: nothing is scaled until --thaw" if frozen else "scaling goes on"))
    return Exit.OK


async def _scale(
    namespace: str, flags: RequestFlags, given: dict[str, Any], concurrency: int | None, settings: ClientSettings
) -> Exit:
    async with connected(settings) as client:
        before = None if flags.image else await function_of(client, namespace, str(flags.name))
        if before is None and not flags.image:
            raise AnswerIsNo(f"there is no function {namespace}/{flags.name}; with --image it is made")
        function = changed(before, flags, given, concurrency)
        await deploy(client, function, namespace)
    show(Text(f"{namespace}/{function.name}: kept; `gpubus get functions` shows how it stands"))
    return Exit.OK


def changed(before: Function | None, flags: RequestFlags, given: dict[str, Any], concurrency: int | None) -> Function:
    """The function that is meant.

    Raises:
        UsageError: field, value and bound of what is wrong.
    """
    wanted = tree(flags)
    fields = msgspec.to_builtins(before) if before is not None else {}
    for part in ("pod", "gpu"):
        fields[part] = {**fields.get(part, {}), **wanted.get(part, {})}
    scaling = fields.get("scaling", {}) | ({"concurrency": concurrency} if concurrency is not None else {})
    fields = {**fields, **given, "name": wanted["name"], "scaling": scaling}
    try:
        return msgspec.convert(fields, Function)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from error
