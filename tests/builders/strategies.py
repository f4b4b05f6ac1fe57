"""A Hypothesis strategy for any message, from its types: legal values of every field, bounds included.

`st.from_type` fails on structs with mutable defaults, so the tree is walked here and built with `st.builds`.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as types

from contracts.units import END

SMALL = 3
"""Length of lists and maps: what can go wrong with three can go wrong with two."""


@functools.cache
def messages(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Legal values of a struct; each optional field is given or left out."""
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    required = {f.name: _value(f.type) for f in info.fields if f.required}
    optional = {f.name: _value(f.type) for f in info.fields if not f.required}
    fields = st.fixed_dictionaries(required, optional=optional)
    return fields.map(lambda given: struct(**given))


def _value(info: types.Type) -> st.SearchStrategy[Any]:
    match info:
        case types.Metadata():
            return _value(info.type)
        case types.StructType():
            return st.deferred(lambda: messages(info.cls))
        case types.UnionType():
            return st.one_of([_value(t) for t in info.types])
        case types.VarTupleType():
            return st.lists(_value(info.item_type), max_size=SMALL).map(tuple)
        case types.DictType():
            return st.dictionaries(_value(info.key_type), _value(info.value_type), max_size=SMALL)
        case _:
            return _scalar(info)


def _scalar(info: types.Type) -> st.SearchStrategy[Any]:
    match info:
        case types.NoneType():
            return st.none()
        case types.BoolType():
            return st.booleans()
        case types.IntType():
            low = -(2**63) if info.ge is None else info.ge
            high = 2**63 - 1 if info.le is None else info.le
            return st.integers(low, high) | st.sampled_from([low, high])
        case types.LiteralType():
            return st.sampled_from(info.values)
        case types.StrType():
            return _string(info)
        case _:
            raise TypeError(f"no strategy for {info}")


def _string(info: types.StrType) -> st.SearchStrategy[str]:
    low, high = info.min_length or 0, info.max_length
    if info.pattern is None:
        return st.text(min_size=low, max_size=20 if high is None else min(20, high))
    whole = info.pattern.removeprefix("^").removesuffix(END)
    return st.from_regex(whole, fullmatch=True, alphabet=st.characters(codec="ascii")).filter(
        lambda text: low <= len(text) <= (high or 10**6)
    )
