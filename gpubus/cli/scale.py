"""`gpubus scale`: make a function, change the bounds of one or of a training job, or stop all scaling for a while."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.text import Text

from contracts.workloads import Function, Job
from gpubus.cli.common import Common, Namespace, address, connected, run, show
from gpubus.cli.exits import Exit
from gpubus.cli.requestflags import RequestFlags, tree
from gpubus.errors import AnswerIsNo, UsageError
from gpubus.functions import freeze
from gpubus.settings import ClientSettings
from gpubus.workloadfile import sound
from gpubus.workloads import publish, workload_of

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
    pause: Annotated[bool | None, Parameter(name="--pause", negative="--resume", show_default=False)] = None,
    namespace: Namespace = None,
    common: Common | None = None,
) -> int:
    """Make a function, change how one or a training job scales, or stop all scaling.

    With --image a function is made, or made anew; without, what is given is changed and the rest stays.
    Of a training job --min and --max are trainers, and --pause leaves their number as it is.

    Try:

    ```
    gpubus scale resize --image registry.example/resize:1 --gpu-share 0.25 --max 8
    gpubus scale resize --min 1 --warm 1
    gpubus scale resize --replicas 0
    gpubus scale bert --min 2 --max 16
    gpubus scale bert --pause
    gpubus scale --freeze "maintenance"
    gpubus scale --thaw
    ```

    Args:
        name: NAME or NAMESPACE/NAME of the function or job.
        flags: Its pods, as for `gpubus submit`.
        least: Replicas, or trainers, at least; a function with 0 has none while nobody calls.
        most: Replicas, or trainers, at most.
        warm: Replicas that stand by besides, started and out of traffic.
        replicas: So many, whatever the load; 0 = off.
        automatic: The load decides again.
        concurrency: Calls that one replica works on at once.
        target_percent: How busy replicas should be.
        frozen: Stop all scaling of functions and jobs, for this reason.
        thaw: Let it go on.
        pause: Leave the number of a job's trainers as it is; --resume lets it breathe again.
        namespace: Namespace of the function or job.
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
    meant = Meant(flags=dataclasses.replace(flags, name=plain), given=given, concurrency=concurrency, pause=pause)
    return run(_scale(space, meant, settings))


async def _freeze(settings: ClientSettings, *, frozen: bool, reason: str) -> Exit:
    async with connected(settings) as client:
        await freeze(client, frozen=frozen, reason=reason, at_ms=time.time_ns() // 1_000_000)
    show(Text("frozen: nothing is scaled until --thaw" if frozen else "scaling goes on"))
    return Exit.OK


class Meant(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be changed."""

    flags: RequestFlags
    given: dict[str, Any]
    """Fields of a function."""
    concurrency: int | None = None
    pause: bool | None = None


async def _scale(namespace: str, meant: Meant, settings: ClientSettings) -> Exit:
    name = str(meant.flags.name)
    async with connected(settings) as client:
        before = None if meant.flags.image else await workload_of(client, namespace, name)
        if (before is None or before.stopped) and not meant.flags.image:
            gone = "was taken down" if before is not None else "is not there"
            raise AnswerIsNo(f"{namespace}/{name} {gone}; `gpubus deploy`, or --image, makes it")
        workload = (
            breathing(before, meant)
            if isinstance(before, Job)
            else changed(before, meant.flags, _of_function(meant), meant.concurrency)
        )
        await publish(client, workload, namespace)
    what = "jobs" if isinstance(workload, Job) else "functions"
    show(Text(f"{namespace}/{name}: kept; `gpubus get {what}` shows how it stands"))
    return Exit.OK


def _of_function(meant: Meant) -> dict[str, Any]:
    if meant.pause is not None:
        raise UsageError("--pause and --resume are for training jobs; a function stays with --replicas N")
    return {**meant.given, "stopped": False} if meant.flags.image else meant.given


def breathing(before: Job, meant: Meant) -> Job:
    """The job with its new bounds.

    Raises:
        UsageError: a flag that is for functions, or bounds that contradict each other.
    """
    names = {"min_replicas": "min_trainers", "max_replicas": "max_trainers"}
    pods = {key for key, value in tree(meant.flags).items() if value and key not in ("name", "type")}
    if meant.concurrency is not None or meant.given.keys() - names.keys() or pods:
        raise UsageError(f"{before.name} is a training job: --min, --max, --pause and --resume change it")
    changes = {names[key]: value for key, value in meant.given.items()}
    paused = before.paused if meant.pause is None else meant.pause
    return sound(Job, {**msgspec.to_builtins(before), **changes, "paused": paused})


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
    return sound(Function, {**fields, **given, "name": wanted["name"], "scaling": scaling})
