"""Constraints as people type them in one word, to the fields of a request. Pure.

    zone=a    zone!=a    zone in (a, b)    zone notin (a, b)    gpu    !gpu    generation>7    generation<7
    zone                     a topology: `zone` and `region` of Kubernetes, `node`, or any label of nodes
    zone:2  zone:prefer      a spread with a skew of 2, or one that is only asked for

Only the form is read here; whether a label may be called so is the scheduler's to say.
"""

from __future__ import annotations

import re
from typing import Any

TOPOLOGIES = {
    "node": "kubernetes.io/hostname",
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
}
"""What the short names stand for."""

_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_PAIR = re.compile(r"(?P<key>[^\s=!<>]+)\s*(?P<operator>==|!=|=|>|<)\s*(?P<value>[^\s=!<>]*)")
_ALONE = re.compile(r"(?P<operator>!?)\s*(?P<key>[^\s=!<>()]+)")
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


class BadExpression(ValueError):  # noqa: N818 - named by what is the case
    """It has not the form; the text says which forms there are."""


def expression(text: str) -> dict[str, Any]:
    """One condition on labels.

    Raises:
        BadExpression: it is none.
    """
    word = text.strip()
    if found := _SET.fullmatch(word):
        values = [value.strip() for value in found["values"].split(",") if value.strip()]
        return {"key": found["key"], "operator": _OPERATORS[found["operator"]], "values": values}
    if found := _PAIR.fullmatch(word):
        return {"key": found["key"], "operator": _OPERATORS[found["operator"]], "values": [found["value"]]}
    if found := _ALONE.fullmatch(word):
        return {"key": found["key"], "operator": "DoesNotExist" if found["operator"] else "Exists"}
    raise BadExpression(f"{text!r}: write KEY=VALUE, KEY!=VALUE, KEY in (A, B), KEY notin (A, B), KEY, !KEY, KEY>7")


def topology(text: str) -> str:
    """A label of nodes, by its short name or in full."""
    return TOPOLOGIES.get(text, text)


def spread(text: str) -> dict[str, Any]:
    """One topology spread constraint over the own labels.

    Raises:
        BadExpression: what stands behind the colon is neither a number nor `prefer`.
    """
    key, colon, how = text.partition(":")
    asked: dict[str, Any] = {"topology_key": topology(key)}
    if how == "prefer":
        asked["when_unsatisfiable"] = "ScheduleAnyway"
    elif how.isascii() and how.isdigit():
        asked["max_skew"] = int(how)
    elif colon or not key:
        raise BadExpression(f"{text!r}: write KEY, KEY:SKEW or KEY:prefer, as zone, zone:2, zone:prefer")
    return asked


def preferred(text: str) -> dict[str, Any]:
    """A preferred node term: a condition, and its weight behind a colon.

    Raises:
        BadExpression: the condition or the weight is none.
    """
    word, colon, weight = text.rpartition(":")
    if not colon:
        word, weight = text, "1"
    if not weight.isascii() or not weight.isdigit():
        raise BadExpression(f"{text!r}: write CONDITION:WEIGHT with a weight from 1 to 100")
    return {"weight": int(weight), "term": {"match_expressions": [expression(word)]}}
