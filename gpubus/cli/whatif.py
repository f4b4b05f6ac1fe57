"""`gpubus whatif`: more nodes, a drained one, another policy, a quota, a hundred requests: what would happen?"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from bus.ledger.state import LedgerState
from contracts.messages import encode
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest
from contracts.units import WHOLE_CARD, NamespaceName
from gpubus import requestfile
from gpubus.cli.common import Common, Namespace, connected, run, show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.cli.simulationflags import chosen
from gpubus.cli.submit import read_text
from gpubus.errors import UsageError
from gpubus.ledgers import saved, state_of
from gpubus.render.whatif import what_if as drawn
from gpubus.settings import ClientSettings
from gpubus.whatif import Changes, what_if

Quiet = Parameter(show_default=False)
MOST_NODES = 10_000
MOST_TIMES = 10_000


def whatif(
    *,
    add_nodes: Annotated[int, Quiet] = 0,
    like: Annotated[str, Quiet] = "",
    drain: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    policy: Annotated[str, Quiet] = "",
    quota: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    submit: Annotated[str | None, Quiet] = None,
    times: Annotated[int, Quiet] = 1,
    moves: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    namespace: Namespace = None,
    ledger: Annotated[str | None, Quiet] = None,
    pool: str = "default",
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
    common: Common | None = None,
) -> int:
    """Ask what would happen, and change nothing.

    A copy of the ledger's state is changed as the flags say, and the scheduler's own engine decides on until nothing
    more can be placed. Told are those that wait and would start, those that would still wait and why, those that would
    move from a drained node, those that would have to leave, and what would become of new requests.

    Try:

    ```
    gpubus whatif --add-nodes 2
    gpubus whatif --drain node-03
    gpubus whatif --submit request.toml --times 100 -n team
    gpubus whatif --moves
    gpubus whatif --policy fgd --quota team=12.5 --ledger saved.ledger
    ```

    Args:
        add_nodes: So many nodes more.
        like: Equal to this one; else to the first by name.
        drain: A node that takes nothing new and gives up what it has; several: give the flag again.
        policy: Default policy from now on; else what the last placements were decided by.
        quota: NAMESPACE=CARDS, as team=2.5; several: give the flag again. Quotas are on from the first one.
        submit: A file with one request.
        times: So often, under names of its own.
        moves: Also tell which one pod, moved to another node, would make room for those who would still wait.
        namespace: Namespace of the submitted request.
        ledger: A file of `gpubus ledger save` instead of the bus.
        pool: The pool of nodes whose ledger it is.
        output: table or json.
        common: Connection.
    """
    if not 0 <= add_nodes <= MOST_NODES:
        raise UsageError(f"--add-nodes {add_nodes}: from 0 to {MOST_NODES}")
    if not 1 <= times <= MOST_TIMES:
        raise UsageError(f"--times {times}: from 1 to {MOST_TIMES}")
    if policy:
        (policy,), _ = chosen((policy,))
    settings = (common or Common()).loaded().settings
    changes = Changes(
        add_nodes=add_nodes,
        like=like,
        drain=tuple(dict.fromkeys(drain)),
        quotas=tuple(_quota(each) for each in quota),
        policy=policy,
        submit=_request(submit) if submit is not None else None,
        namespace=namespace or settings.gpubus.namespace,
        times=times,
        moves=moves,
    )
    if ledger is not None:
        return int(_told(saved(ledger).state(), changes, output))
    return run(_live(changes, pool, settings, output))


async def _live(changes: Changes, pool: str, settings: ClientSettings, output: str) -> Exit:
    async with connected(settings) as client:
        state = await state_of(client, pool)
    return _told(state, changes, output)


def _told(state: LedgerState, changes: Changes, output: str) -> Exit:
    answer = what_if(state, changes)
    if output == "json":
        show_json(answer)
    else:
        show_all(drawn(answer))
    return Exit.OK


def _request(file: str) -> PodRequest:
    """The one request of a file, read as a bus message would be."""
    wanted = requestfile.read(read_text(file), file)
    if len(wanted) != 1:
        raise UsageError(f"{file}: --submit takes one request, this file holds {len(wanted)}")
    try:
        return msgspec.json.decode(wanted[0].data, type=PodRequest)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{file}: {error}") from error


def _quota(text: str) -> NamespaceQuota:
    namespace, _, cards = text.partition("=")
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", cards):
        raise UsageError(f"--quota {text}: NAMESPACE=CARDS, as team=2.5")
    whole, _, part = cards.partition(".")
    quota = NamespaceQuota(
        namespace=NamespaceName(namespace), share_milli=int(whole) * WHOLE_CARD + int(part.ljust(3, "0") or 0)
    )
    try:
        return msgspec.json.decode(encode(quota), type=NamespaceQuota)  # a message that exists is legal
    except msgspec.MsgspecError as error:
        raise UsageError(f"--quota {text}: {error}") from error
