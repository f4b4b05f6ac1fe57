"""`gpubus set-quota`: what a namespace may hold, its weight, the highest priority it may use."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.text import Text

from contracts.answers import QuotaView
from contracts.quotas import NamespaceQuota
from contracts.units import WHOLE_CARD
from gpubus.cli.common import Common, Format, connected, run, show, show_json
from gpubus.cli.exits import Exit
from gpubus.client import Client
from gpubus.errors import NoAnswer, UsageError
from gpubus.quantities import BadQuantity, memory_mib
from gpubus.render.quotas import quotas
from gpubus.settings import ClientSettings

LOOK_EVERY_S = 0.1
NO_LIMIT = "none"
MAX_CARDS = 1_000_000
Quiet = Parameter(show_default=False)


def set_quota(
    namespace: str,
    /,
    *,
    cards: Annotated[str | None, Quiet] = None,
    memory: Annotated[str | None, Quiet] = None,
    weight: Annotated[int | None, Quiet] = None,
    max_priority: Annotated[str | None, Quiet] = None,
    remove: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: Annotated[str, Quiet] = "",
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Say what a namespace may hold. What is not named stays as it is.

    Quotas are on from the first one that is set: from then on a namespace without one holds nothing. 0 is nothing, too.
    Lowering takes nothing away from what runs.

    Try:

    ```
    gpubus set-quota team-a --cards 4 --memory 160Gi
    gpubus set-quota team-b --cards 2.5 --weight 2 --max-priority 100
    gpubus set-quota team-b --memory none
    gpubus get quotas
    ```

    Args:
        namespace: Whose.
        cards: Cards, all shares added up, as 4 or 2.5; none = no limit.
        memory: Card memory, all slices added up, as 160Gi; none = no limit.
        weight: Of two that wait, one with weight 2 is entitled to twice as much.
        max_priority: The highest priority that its requests may have; none = any.
        remove: Take the quota away: the namespace may hold nothing while quotas are on.
        reason: Kept with the quota.
        output: table or json.
        common: Connection.
    """
    changes = wanted(cards=cards, memory=memory, weight=weight, max_priority=max_priority)
    if remove and changes:
        raise UsageError("--remove takes the whole quota away: name nothing else with it")
    if not remove and not changes:
        raise UsageError("name what to set: --cards, --memory, --weight, --max-priority, or --remove")
    settings = (common or Common()).loaded().settings
    return run(_set_quota(namespace, {**changes, "removed": remove, "reason": reason}, settings, output))


def wanted(
    *, cards: str | None = None, memory: str | None = None, weight: int | None = None, max_priority: str | None = None
) -> dict[str, int | None]:
    """The fields that the flags name. Raises UsageError with flag, value and bound."""
    found: dict[str, int | None] = {}
    if cards is not None:
        found["share_milli"] = None if cards == NO_LIMIT else _cards(cards)
    if memory is not None:
        found["memory_mib"] = None if memory == NO_LIMIT else _memory(memory)
    if weight is not None:
        found["weight"] = weight
    if max_priority is not None:
        found["max_priority"] = None if max_priority == NO_LIMIT else _whole("--max-priority", max_priority)
    return found


def quota_of(namespace: str, before: QuotaView | None, changes: dict[str, int | bool | str | None]) -> NamespaceQuota:
    """The message: what stood before, with the changes. Raises UsageError with field, value and bound."""
    kept: dict[str, int | None] = {}
    if before is not None and before.mapped:
        kept = {field: getattr(before, field) for field in ("share_milli", "memory_mib", "weight", "max_priority")}
    said = {"type": "namespace.quota.v1", "namespace": namespace, **kept, **changes}
    try:
        return msgspec.convert(said, NamespaceQuota)
    except msgspec.ValidationError as error:
        text = str(error)
        field = match[1] if (match := re.search(r"at `\$\.(\w+)", text)) else "namespace"
        raise UsageError(f"{field}: {said.get(field)!r}: {text}") from error


def _cards(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,3})?", text) or float(text) > MAX_CARDS:
        raise UsageError(f"--cards {text}: cards from 0 to {MAX_CARDS:,} in thousandths, as 4 or 2.5, or {NO_LIMIT}")
    whole, _, part = text.partition(".")
    return int(whole) * WHOLE_CARD + int(part.ljust(3, "0") or 0)


def _memory(text: str) -> int:
    try:
        return memory_mib(text)
    except BadQuantity as error:
        raise UsageError(f"--memory {error}, or {NO_LIMIT}") from error


def _whole(flag: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,7}", text):
        raise UsageError(f"{flag} {text}: a whole number from -1000000 to 1000000, or {NO_LIMIT}")
    return int(text)


async def _set_quota(
    namespace: str, changes: dict[str, int | bool | str | None], settings: ClientSettings, output: str
) -> Exit:
    quota_of(namespace, None, changes)  # what no message can hold is told before anything is asked
    async with connected(settings) as client:
        before = await _now(client, namespace)
        quota = quota_of(namespace, before, changes)
        await client.set_quota(quota)
        row = await _until(client, quota, within_s=settings.gpubus.answer_timeout_s)
    if output == "json":
        show_json(row)
    else:
        show(quotas([row]), *([Text("it may hold nothing now", style="dim")] if quota.removed else []))
    return Exit.OK


async def _now(client: Client, namespace: str) -> QuotaView | None:
    return next((row for row in await client.quotas() if row.namespace == namespace), None)


async def _until(client: Client, quota: NamespaceQuota, *, within_s: float) -> QuotaView:
    """The row, once the ledger has the quota. Raises NoAnswer: not in time; the message is kept."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                row = await _now(client, quota.namespace)
                if row is not None and _stands(row, quota):
                    return row
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError as error:
        raise NoAnswer("the scheduler", f"the quota is kept, and not in the ledger after {within_s:g} s") from error


def _stands(row: QuotaView, quota: NamespaceQuota) -> bool:
    if quota.removed or not row.mapped:
        return quota.removed and not row.mapped
    ours = (quota.share_milli, quota.memory_mib, quota.weight, quota.max_priority)
    return (row.share_milli, row.memory_mib, row.weight, row.max_priority) == ours
