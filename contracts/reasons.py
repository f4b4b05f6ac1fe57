"""Why something does not fit, or was not accepted: shared by records, events, answers and explanations."""

from __future__ import annotations

from contracts.messages import Value
from contracts.units import Count, Integer, ShortText


class Reason(Value, frozen=True, kw_only=True):
    """One reason why a request does not fit, with its numbers, over the nodes or cards it holds for."""

    code: ShortText
    """Stable, for machines: `card-share`, `card-memory`, `node-cpu`, `taint`, `stale`, …"""
    text: ShortText
    """A sentence for people, with the numbers in it."""
    needed: Integer | None = None
    free: Integer | None = None
    """The most that any of these had free."""
    unit: ShortText = ""
    nodes: Count = 0
    """On how many nodes this was the reason."""
    node: ShortText = ""
    card: ShortText = ""
    """Where it came closest."""


class Refusal(Value, frozen=True, kw_only=True):
    """Why a request was not accepted: the field, the value found, the bound."""

    field: ShortText
    value: ShortText
    bound: ShortText
    text: ShortText
