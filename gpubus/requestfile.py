"""Request files: JSON or TOML with one request or many, to the bytes that are sent. Pure.

The scheduler is the one judge of what is in them, so that a file, a flag and a message of a stranger meet the same
rules: here only the form is read (which of the two it is, how many requests, their names), and nothing is corrected.
A TOML file holds one request at the top level or many as `[[request]]`.
"""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec

from contracts.requests import PodRequest
from gpubus.errors import UsageError

TAG = str(PodRequest.__struct_config__.tag)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a file: its name, for people, and the bytes to send."""

    name: str
    data: bytes


def read(text: str, source: str) -> list[Wanted]:
    """Every request of a file.

    Raises:
        UsageError: neither JSON nor TOML, or not a table or a list of tables.
    """
    found = tree(text, source)
    rows = found["request"] if isinstance(found, dict) and set(found) == {"request"} else found
    rows = rows if isinstance(rows, list) else [rows]
    if not rows:
        raise UsageError(f"{source}: holds no request")
    return [_wanted(row, f"{source}, request {n}" if len(rows) > 1 else source) for n, row in enumerate(rows, 1)]


def tree(text: str, source: str) -> Any:
    """What a file holds, as plain values.

    Raises:
        UsageError: neither JSON nor TOML, or nothing at all.
    """
    if text.lstrip().startswith(("{", "[{", "[\n", "[ ", "[]")):
        return _json(text, source)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: neither JSON nor TOML: {error}") from error
    if not found:
        raise UsageError(f"{source}: is empty")
    return found


def _json(text: str, source: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{source}: not JSON: {error}") from error


def _wanted(row: Any, source: str) -> Wanted:
    if not isinstance(row, dict):
        raise UsageError(f"{source}: a request is a table of fields, not {type(row).__name__}")
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError(f"{source}: a request needs a name")
    try:
        return Wanted(name=name, data=msgspec.json.encode({"type": TAG, **row}))
    except TypeError as error:
        raise UsageError(f"{source}: {error}") from error
