"""Quotas of namespaces for simulated runs, in TOML; limits as `gpubus set-quota` takes them. Pure: text in, quotas out.

    [team-a]
    cards = 12.5            # all shares added up; "none" = no limit, 0 = nothing
    memory = "400Gi"        # card memory, all slices added up

Quotas are on from the first one, as in production: a namespace of the trace that the file does not name could hold
nothing, and that is told before anything is run. Weight and highest priority are not taken: they say who of those that
wait goes first, and in a simulation nobody waits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from contracts.quotas import NamespaceQuota
from contracts.units import NAME_PATTERN, WHOLE_CARD, NamespaceName
from gpubus.errors import UsageError
from gpubus.quantities import BadQuantity, memory_mib
from gpubus.simulate.openb import PodRow

NO_LIMIT = "none"
MAX_CARDS = 1_000_000
CARDS_BOUND = f"cards from 0 to {MAX_CARDS:,} in thousandths, as 4 or 2.5, or {NO_LIMIT!r}"


def read(text: str, source: str) -> tuple[NamespaceQuota, ...]:
    """The quotas of a file, in the order of the file.

    Raises:
        UsageError: naming the namespace, the field, its value and what is allowed.
    """
    try:
        tree = tomllib.loads(text, parse_float=str)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: no TOML: {error}") from error
    if not tree:
        raise UsageError(f"{source}: names no namespace; a quota is written as [team-a] and below it cards = 12.5")
    return tuple(_quota(name, fields, f"{source}: {name}") for name, fields in tree.items())


def check(quotas: Iterable[NamespaceQuota], rows: Iterable[PodRow], source: str) -> None:
    """Every namespace of the trace has a quota.

    Raises:
        UsageError: naming the first one that has none.
    """
    known = {quota.namespace for quota in quotas}
    for row in rows:
        if row.namespace not in known:
            raise UsageError(
                f"{source}: no quota for namespace {row.namespace}, which could then hold nothing; "
                f'write [{row.namespace}] and below it cards = "{NO_LIMIT}" if that is what is meant'
            )


def _quota(name: str, fields: Any, where: str) -> NamespaceQuota:
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"{where}: a namespace has lower-case letters, digits and dashes")
    if not isinstance(fields, Mapping):
        raise UsageError(f"{where} is {fields!r}: a quota is a table, as [team-a] and below it cards = 12.5")
    for field in fields:
        if field not in ("cards", "memory"):
            raise UsageError(f"{where}: {field} is {fields[field]!r}; there are cards and memory")
    return NamespaceQuota(
        namespace=NamespaceName(name),
        share_milli=_cards(fields.get("cards", NO_LIMIT), where),
        memory_mib=_memory(fields.get("memory", NO_LIMIT), where),
    )


def _cards(value: Any, where: str) -> int | None:
    if value == NO_LIMIT:
        return None
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,3})?", text) or float(text) > MAX_CARDS:
        raise UsageError(f"{where}: cards is {value}; allowed: {CARDS_BOUND}")
    whole, _, part = text.partition(".")
    return int(whole) * WHOLE_CARD + int(part.ljust(3, "0") or 0)


def _memory(value: Any, where: str) -> int | None:
    if value == NO_LIMIT:
        return None
    try:
        return memory_mib(str(value))
    except BadQuantity as error:
        raise UsageError(f"{where}: memory is {error}, or {NO_LIMIT!r}") from error
