"""Which test shows which scenario: `tests/scenarios.toml` and the tests' own words, made into `docs/scenarios.md`.

    python -m tests.builders.scenarios

A test names a scenario by its number: `S081` in its text or beside a row of its table, `s081` in its name. Those that
do not are listed in the file, by path and name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests/scenarios.toml"
PAGE = ROOT / "docs/scenarios.md"
NUMBER = re.compile(r"\b[Ss]([01][0-9]{2})(?=\b|_)|_s([01][0-9]{2})_")
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
BEHIND = re.compile(r"^[^\s)]", re.MULTILINE)
"""The first line that is no part of a function any more."""
OWN = "test_scenarios_shown.py"
"""Speaks of numbers and shows no scenario."""

HEAD = """# Scenarios

What goes wrong when cards are shared, and the test that shows what happens here.
Each row was seen in some system of this kind; the numbers have gaps.
Tests carry the number in their names or texts, so `grep -rn S081 tests` finds them, too.

This page is made of `tests/scenarios.toml` and of the tests: `python -m tests.builders.scenarios`.
"""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row."""

    what: str
    section: str = ""
    """Begins with this row."""
    tests: tuple[str, ...] = ()
    """Those that do not carry the number."""
    not_shown: str = ""
    """What of it no test shows, and why."""


def read() -> dict[str, Scenario]:
    """All scenarios, by number, in the order of the file."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), dict[str, Scenario])


def tests() -> Iterator[tuple[str, str]]:
    """Every test, as `path::name`, with its text; what stands above a test, such as its table, belongs to it."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if file.name != OWN:
            text, begin = file.read_text(encoding="utf-8"), 0
            for found in TEST.finditer(text):
                behind = BEHIND.search(text, found.end())
                end = behind.start() if behind is not None else len(text)
                yield f"{file.relative_to(ROOT).as_posix()}::{found[1]}", text[begin:end]
                begin = end


def showing(found: dict[str, str]) -> dict[str, list[str]]:
    """By number: the tests that carry it.

    Args:
        found: texts of tests by `path::name`.
    """
    shown: dict[str, list[str]] = {}
    for name, text in found.items():
        for one, other in NUMBER.findall(text):
            row = shown.setdefault(f"S{one or other}", [])
            if name not in row:
                row.append(name)
    return shown


def page(rows: dict[str, Scenario], shown: dict[str, list[str]]) -> str:
    """The whole page."""
    parts = [HEAD]
    for number, row in rows.items():
        if row.section:
            parts.append(f"\n## {row.section}\n\n| | what | shown by |\n| --- | --- | --- |\n")
        names = "<br>".join(f"`{_short(name)}`" for name in [*shown.get(number, ()), *row.tests])
        cell = "<br>".join(filter(None, (names, f"not shown: {row.not_shown}" if row.not_shown else "")))
        parts.append(f"| {number} | {row.what} | {cell} |\n")
    return "".join(parts)


def _short(name: str) -> str:
    path, _, test = name.partition("::")
    return f"{path.removeprefix('tests/')}: {test.removeprefix('test_').replace('_', ' ')}"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(read(), showing(dict(tests()))), encoding="utf-8")


if __name__ == "__main__":
    main()
