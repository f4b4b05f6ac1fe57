"""`gpubus submit`: ask for pods by flags or by file, and see them come up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.text import Text

from contracts.answers import SubmitReply
from contracts.messages import Value
from contracts.outcomes import RequestEvent
from gpubus import requestfile
from gpubus.cli.common import Common, Format, Namespace, connected, run, show, show_json, traced
from gpubus.cli.exits import Exit
from gpubus.cli.follow import Followed, follow
from gpubus.cli.requestflags import RequestFlags
from gpubus.client import Client
from gpubus.errors import UsageError
from gpubus.quantities import BadQuantity, seconds
from gpubus.render import tables
from gpubus.requestfile import Wanted
from gpubus.settings import ClientSettings
from gpubus.waiting import Goal

NO_FLAGS = RequestFlags()


class Submitted(Value, frozen=True, kw_only=True):
    """What became of one request, as `--output json` tells it."""

    namespace: str
    name: str
    reply: SubmitReply | None = None
    """None for `--fire`."""
    request_sequence: int = 0
    """Of `--fire`: where it stands in the requests stream."""
    last_event: RequestEvent | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to submit."""

    namespace: str
    fire: bool
    goal: Goal | None
    timeout_s: float | None
    as_json: bool


def submit(
    file: str | None = None,
    /,
    *,
    flags: RequestFlags = NO_FLAGS,
    namespace: Namespace = None,
    wait: Annotated[Literal["accepted", "placed", "running", "ended"] | None, Parameter(show_default=False)] = None,
    timeout: str = "60s",
    fire: Annotated[bool, Parameter(negative="")] = False,
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Ask for a pod on a slice of a card.

    The answer is a promise: accepted means that it stands in the ledger, refused names every field that is wrong.
    Exit status 1 when something was refused, or not as far as --wait asks in time.

    Try:

    ```
    gpubus submit --name train --image registry.example/train:1 --gpu-share 0.5 --gpu-memory 8Gi --wait
    gpubus submit --name big --image registry.example/train:1 --gpus 4 -- python train.py --epochs 3
    gpubus submit requests.toml -n team --wait placed
    generate | gpubus submit - --fire
    ```

    Args:
        file: Requests in JSON or TOML, one or a list; - reads them from standard input.
        flags: One request by flags.
        namespace: Namespace of the request.
        wait: Follow it until it is so far; running when no value is given.
        timeout: Longest wait with --wait: 90, 90s, 5m.
        fire: Only store it in the stream, also while no scheduler runs; the verdict comes as an event.
        output: table or json.
        common: Connection.
    """
    common = common or Common()
    settings = common.loaded().settings
    try:
        timeout_s = seconds(timeout)
    except BadQuantity as error:
        raise UsageError(f"--timeout {error}") from error
    options = Options(
        namespace=namespace or settings.gpubus.namespace,
        fire=fire,
        goal=wait,
        timeout_s=timeout_s,
        as_json=output == "json",
    )
    return run(_submit(_wanted(file, flags), options, settings))


def _wanted(file: str | None, flags: RequestFlags) -> list[Wanted]:
    given = flags.given()
    if file is None:
        return [flags.wanted()]
    if given:
        raise UsageError(f"a FILE and {', '.join(given)}: give one or the other")
    return requestfile.read(read_text(file), file)


def read_text(file: str) -> str:
    """A file named on the command line.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: no text in UTF-8: {error.reason} at byte {error.start}") from error


async def _submit(wanted: list[Wanted], options: Options, settings: ClientSettings) -> Exit:
    with traced(settings):
        async with connected(settings) as client:
            head = await client.event_head()
            done = [await _one(client, one, options) for one in wanted]
            followed = [_followed(s) for s in done if s.reply is None or s.reply.accepted]
            reached = await _follow(client, followed, options, head) if options.goal and followed else True
    last = {f.name: f.last for f in followed}
    if options.as_json:
        show_json([msgspec.structs.replace(s, last_event=last.get(s.name)) for s in done])
    elif options.goal and not reached:
        _show_waiting(followed, options)
    refused = any(s.reply is not None and not s.reply.accepted for s in done)
    return Exit.NO if refused or not reached else Exit.OK


async def _one(client: Client, wanted: Wanted, options: Options) -> Submitted:
    if options.fire:
        sequence = await client.fire(wanted.data, namespace=options.namespace)
        done = Submitted(namespace=options.namespace, name=wanted.name, request_sequence=sequence)
    else:
        reply = await client.submit(wanted.data, namespace=options.namespace)
        done = Submitted(namespace=options.namespace, name=wanted.name, reply=reply)
    if not options.as_json:
        _show(done)
    return done


def _show(done: Submitted) -> None:
    line = Text(f"{done.namespace}/{done.name}  ")
    if done.reply is None:
        show(line.append(f"stored at {done.request_sequence}"))
    elif done.reply.accepted:
        again = ", as before" if done.reply.duplicate else f" at ledger sequence {done.reply.ledger_sequence}"
        show(line.append("accepted ", style="green").append(f" uid {done.reply.uid}{again}"))
    else:
        show(line.append("refused", style="red"), tables.refusals(done.reply.refusals))


def _followed(done: Submitted) -> Followed:
    uid = done.reply.uid if done.reply else ""
    return Followed(done.name, uid=uid, request_sequence=done.request_sequence)


async def _follow(client: Client, followed: list[Followed], options: Options, head: int) -> bool:
    began = time.monotonic()

    def told(event: RequestEvent) -> None:
        if not options.as_json:
            show(Text(f"{time.monotonic() - began:7.2f} s  ", style="dim").append(tables.event_line(event)))

    return await follow(
        client,
        options.namespace,
        followed,
        goal=options.goal or "running",
        from_sequence=head,
        timeout_s=options.timeout_s,
        told=told,
    )


def _show_waiting(followed: list[Followed], options: Options) -> None:
    for one in followed:
        if one.verdict:
            continue
        phase = one.last.phase if one.last else "without an event"
        why = f"not {options.goal} within {options.timeout_s:g} s" if one.verdict is None else f"never {options.goal}"
        show(Text(f"{options.namespace}/{one.name}  {why}: {phase}", style="yellow"))
