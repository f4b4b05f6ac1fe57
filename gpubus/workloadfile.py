"""Workload files: JSON or TOML with functions and training jobs, as they would be published. Pure.

A file holds one workload at the top level, a list of them (JSON), or `[[function]]` and `[[job]]` tables (TOML). What
it is stands in `type`, or follows from the table; a file that says neither is a job when it names trainers.
Unlike requests nobody judges these before they are kept, so bounds and unknown names are told here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from autoscaler.core.elastic_trainers import faults
from autoscaler.core.faults import faults as function_faults
from contracts.workloads import Function, Job
from gpubus.errors import UsageError
from gpubus.requestfile import tree

KINDS: dict[str, type[Function | Job]] = {"function": Function, "job": Job}
Made = TypeVar("Made", bound=Function | Job)
TAGS = {str(kind.__struct_config__.tag): kind for kind in KINDS.values()}


def read(text: str, source: str) -> list[Function | Job]:
    """Every workload of a file.

    Raises:
        UsageError: neither JSON nor TOML, no workload, an unknown field, a value out of its bounds.
    """
    found = [_workload(row, kind, f"{source}, workload {n}") for n, (row, kind) in enumerate(_rows(text, source), 1)]
    if not found:
        raise UsageError(f"{source}: holds no workload")
    return found


def sound(made: type[Made], fields: dict[str, Any]) -> Made:
    """The workload of these fields.

    Raises:
        UsageError: a value out of its bounds, or values that contradict each other.
    """
    try:
        workload = msgspec.convert(fields, made)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from error
    if wrong := tuple(faults(workload) if isinstance(workload, Job) else function_faults(workload)):
        raise UsageError("; ".join(wrong))
    return workload


def _rows(text: str, source: str) -> Iterator[tuple[Any, str]]:
    found = tree(text, source)
    if isinstance(found, list):
        yield from ((row, "") for row in found)
    elif found and set(found) <= set(KINDS):
        for kind, rows in found.items():
            yield from ((row, kind) for row in (rows if isinstance(rows, list) else [rows]))
    else:
        yield found, ""


def _workload(row: Any, kind: str, source: str) -> Function | Job:
    if not isinstance(row, dict):
        raise UsageError(f"{source}: a workload is a table of fields, not {type(row).__name__}")
    made = _kind(row, kind, source)
    fields = {name: value for name, value in row.items() if name != "type"}
    try:
        workload = sound(made, fields)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error
    if unknown := sorted(_unknown(fields, workload)):
        raise UsageError(f"{source}: {', '.join(unknown)}: no field of a {made.__name__.lower()}")
    return workload


def _unknown(given: Any, read: Any, where: str = "") -> Iterator[str]:
    """What is given and was not read, as `scaling.concurency`: messages pass over what they do not know."""
    if isinstance(given, dict) and isinstance(read, msgspec.Struct):
        fields = dict(zip(read.__struct_encode_fields__, read.__struct_fields__, strict=True))
        for name, value in given.items():
            if name not in fields:
                yield f"{where}{name}"
            else:
                yield from _unknown(value, getattr(read, fields[name]), f"{where}{name}.")
    elif isinstance(given, list) and isinstance(read, tuple):
        for number, (value, one) in enumerate(zip(given, read, strict=True)):
            yield from _unknown(value, one, f"{where}{number}.")


def _kind(row: dict[str, Any], kind: str, source: str) -> type[Function | Job]:
    tag = row.get("type")
    if tag is None:
        trains = any(name.endswith("_trainers") for name in row)
        return KINDS[kind] if kind else (Job if trains else Function)
    if tag not in TAGS:
        raise UsageError(f"{source}: type {tag!r}: one of {', '.join(sorted(TAGS))}")
    return TAGS[tag]
