"""The worked examples of docs/autoscaling.md are decided again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from autoscaler.core.horizontal import RULES, decide
from autoscaler.core.ownership import OWNERS
from autoscaler.core.replicas import wanted_replicas
from tests.unit.autoscaler.function_world import inputs

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "autoscaling.md").read_text(encoding="utf-8")
LIMITS = [
    "up-rate",
    "down-rate",
    "min",
    "max",
    "capacity-unknown",
    "no-room",
    "budget-unknown",
    "over-budget",
    "reverted",
]


class Row(NamedTuple):
    """A line of one of the two tables with inputs."""

    name: str
    given: str
    target: int


def table(head: str) -> list[list[str]]:
    """The cells of the lines below a table's head, without quotes."""
    _, _, below = PAGE.partition(f"{head}\n")
    lines = below.split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def rows(first: str) -> list[Row]:
    return [
        Row(name, given, int(target)) for name, given, target, *_ in table(f"| {first} | inputs | target | in words |")
    ]


def meant(given: str) -> dict[str, Any]:
    """`load_milli=? placeable=2` as arguments: the load first, then fields of the inputs."""
    fields = dict(pair.split("=") for pair in given.split())
    numbers = {key: None if value == "?" else int(value) for key, value in fields.items()}
    return {"load" if key == "load_milli" else key: value for key, value in numbers.items()}


@pytest.mark.parametrize("row", [*rows("rule"), *rows("limit")], ids=lambda row: row.name)
def test_each_example_is_decided_as_the_page_says(row: Row) -> None:
    """Rule or limit, and the target."""
    decision = decide(inputs(**meant(row.given)))

    assert row.name in decision.rule.split("+")
    assert decision.target == row.target


def test_the_page_shows_every_rule_in_its_order_and_every_limit() -> None:
    """A rule that is added or moved is added or moved there."""
    assert [row.name for row in rows("rule")] == ["frozen", "rival", *(name for name, _ in RULES)]
    assert [row.name for row in rows("limit")] == LIMITS


def test_the_numbers_by_hand_are_those_of_the_page() -> None:
    """`any` is tried with and without a minimum."""
    for minimum, replicas, words in table("| minimum | replicas | wanted |"):
        wanted = wanted_replicas(*(None if text in ("none", "any") else int(text) for text in (minimum, replicas)))
        least = words.removeprefix("the load decides").removeprefix(", at least ")

        assert wanted == (int(least) if least else None)


def test_the_owners_are_those_of_the_page() -> None:
    """Row by row."""
    shown = table("| object | knob | owner | once people wrote a number | because |")

    assert shown == [[row.kind, row.knob, row.auto, row.fixed, row.reason] for row in OWNERS]
