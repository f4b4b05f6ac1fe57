"""The map of scenarios is honest: what it names is there, and what nothing shows says why."""

from __future__ import annotations

import pytest

from tests.builders import scenarios


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """Texts of all tests, by path and name."""
    return dict(scenarios.tests())


def test_every_scenario_is_shown_by_a_test_or_says_why_not(found: dict[str, str]) -> None:
    """Claim: no row is silent."""
    shown = scenarios.showing(found)
    silent = [n for n, row in scenarios.read().items() if not (n in shown or row.tests or row.not_shown)]
    assert silent == []


def test_the_tests_that_are_named_exist(found: dict[str, str]) -> None:
    """Claim: a test that was renamed or taken away is missed here."""
    missing = {n: gone for n, row in scenarios.read().items() if (gone := [t for t in row.tests if t not in found])}
    assert missing == {}


def test_the_page_has_a_row_for_each(found: dict[str, str]) -> None:
    """Claim: with its text and all of its sections, in order; made anew it may name more tests, never fewer rows."""
    text = scenarios.PAGE.read_text(encoding="utf-8")
    made = scenarios.page(scenarios.read(), scenarios.showing(found))
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith(("| S", "## "))]
    assert rows == [line.split(" | ")[:2] for line in made.splitlines() if line.startswith(("| S", "## "))]


def test_a_number_is_read_from_names_texts_and_rows() -> None:
    """Claim: however it is written, and once a test."""
    texts = {
        "a": "test_s081_it_holds\ndef ...: S081",
        "b": 'test_x\n"""Claim (S082, S083)."""',
        "c": 'test_table\n("x", 1),  # S084',
        "d": "test_without USS084 S0845",
    }
    assert scenarios.showing(texts) == {"S081": ["a"], "S082": ["b"], "S083": ["b"], "S084": ["c"]}
