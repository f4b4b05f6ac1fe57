"""Types in words, for tables that people read: "integer 1..1000", "list of at most 64 Card"."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as types

from contracts.units import MAX_INTEGER


def link(struct: type[msgspec.Struct]) -> str:
    """To the section of that name on the same page."""
    return f"[{struct.__name__}](#{struct.__name__.lower()})"


def describe(info: types.Type) -> str:
    """A type in words, with its bounds: "integer 1..1000", "list of at most 64 Card"."""
    match info:
        case types.Metadata():
            return describe(info.type)
        case types.StructType():
            return link(info.cls)
        case types.UnionType():
            return _union(info)
        case types.VarTupleType() | types.ListType():
            return f"list of {_limit(info.max_length)}{describe(info.item_type)}"
        case types.DictType():
            return f"map of {_limit(info.max_length)}{describe(info.key_type)} to {describe(info.value_type)}"
        case _:
            return _scalar(info)


def _scalar(info: types.Type) -> str:
    match info:
        case types.LiteralType():
            return "one of " + ", ".join(f"`{value}`" for value in info.values)
        case types.IntType():
            return f"integer{_range(info.ge, info.le)}"
        case types.StrType():
            return _string(info)
        case types.BoolType():
            return "boolean"
        case _:
            raise TypeError(f"no words for {info}")


def _union(info: types.UnionType) -> str:
    some = [t for t in info.types if not isinstance(t, types.NoneType)]
    words = " or ".join(describe(t) for t in some)
    return words if len(some) == len(info.types) else f"{words}, or null"


def _limit(at_most: int | None) -> str:
    return f"at most {at_most} " if at_most is not None else ""


def _range(low: Any, high: Any) -> str:
    if low is None and high is None:
        return ""
    return f" {'' if low is None else low}..{'' if high is None or high == MAX_INTEGER else high}"


def _string(info: types.StrType) -> str:
    low, high = info.min_length, info.max_length
    length = f" of {low or 0}..{high} characters" if high is not None else ""
    return f"string{length}" + (f" matching `{info.pattern.replace('|', chr(92) + '|')}`" if info.pattern else "")
