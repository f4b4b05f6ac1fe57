"""The two counting policies, and who owns which knob."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.core.counters import MAXCOUNT, WATERMARK
from autoscaler.core.horizontal import decide
from autoscaler.core.ownership import OWNERS, NoSuchKnob, answer_to_rival, may_write, owner_of
from tests.unit.autoscaler.function_world import inputs

MAX, MARK = {"counted": MAXCOUNT}, {"counted": WATERMARK, "low": 2, "once": 1}
POLICIES: list[tuple[str, dict[str, Any], int]] = [
    ("maxcount begins with the minimum", {**MAX, "hot_ready": 0, "calls": 0, "min_replicas": 2}, 2),
    ("or with none", {**MAX, "hot_ready": 0, "calls": 0}, 0),
    ("one for each call that finds none idle", {**MAX, "hot_ready": 2, "calls": 4}, 4),
    ("those that start count", {**MAX, "hot_ready": 1, "coming": 3, "calls": 4}, 4),
    ("a replica with slots takes several", {**MAX, "hot_ready": 1, "calls": 9, "slots": 4}, 3),
    ("up to its number", {**MAX, "high": 5, "hot_ready": 2, "calls": 9}, 5),
    ("or the function's", {**MAX, "high": 50, "max_replicas": 4, "hot_ready": 2, "calls": 9}, 4),
    ("none is taken away", {**MAX, "hot_ready": 7, "calls": 0}, 7),
    ("one that is lost is made again", {**MAX, "hot_ready": 6, "calls": 0, "last_target": 7}, 7),
    ("one that ended is not", {**MAX, "once": 1, "hot_ready": 6, "calls": 0, "last_target": 7}, 6),
    ("unknown calls add nothing", {**MAX, "hot_ready": 2, "calls": None}, 2),
    ("watermark begins at the high mark", {**MARK, "high": 9, "hot_ready": 0, "calls": 0}, 9),
    ("also where nothing is low", {**MARK, "low": 0, "high": 9, "hot_ready": 0, "calls": 0}, 9),
    ("within the function's maximum", {**MARK, "high": 9, "max_replicas": 4, "hot_ready": 0, "calls": 0}, 4),
    ("at the low mark it leaves it", {**MARK, "high": 9, "hot_ready": 2, "calls": 0, "last_target": 3}, 2),
    ("below it fills up", {**MARK, "high": 9, "hot_ready": 1, "calls": 0, "last_target": 2}, 9),
    ("and adds for calls besides", {**MARK, "high": 9, "hot_ready": 3, "calls": 5, "last_target": 3}, 5),
    ("up to the mark", {**MARK, "high": 9, "hot_ready": 3, "calls": 50, "last_target": 3}, 9),
]


@pytest.mark.parametrize(("claim", "given", "target"), POLICIES, ids=[row[0] for row in POLICIES])
def test_counting_policies(claim: str, given: dict[str, Any], target: int) -> None:
    """Per function, with a real maximum; the load that inputs() tells has no say."""
    assert decide(inputs(**given)).target == target


def test_every_knob_has_one_owner_in_each_mode() -> None:
    """No row twice; of all writers exactly one may write."""
    writers = ["people", "horizontal", "warm", "elastic", "vertical", "scheduler", "node", "hpa", "edl"]
    assert len({(row.kind, row.knob) for row in OWNERS}) == len(OWNERS)
    for row in OWNERS:
        for mode in ("auto", "fixed"):
            assert [w for w in writers if may_write(w, row.kind, row.knob, mode)] == [
                owner_of(row.kind, row.knob, mode)
            ]


def test_a_number_by_hand_takes_the_knob_from_the_machines() -> None:
    """A fixed number of replicas is nobody's to move."""
    assert may_write("horizontal", "function", "replicas")
    assert not may_write("horizontal", "function", "replicas", "fixed")
    assert may_write("people", "function", "replicas", "fixed")


def test_two_scalers_never_own_one_number() -> None:
    """Replicas, trainers, limits and the warm pool belong to four different writers."""
    knobs: list[tuple[Any, str]] = [
        ("function", "replicas"),
        ("job", "trainers"),
        ("pod", "share"),
        ("function", "warm"),
    ]
    owners = [owner_of(*knob) for knob in knobs]

    assert owners == ["horizontal", "elastic", "vertical", "warm"]


def test_nobody_writes_what_nobody_owns() -> None:
    """An unknown knob is an error to ask for and closed to write."""
    assert not may_write("people", "function", "colour")
    with pytest.raises(NoSuchKnob, match="function has no knob 'colour'; it has: replicas, bounds, warm, slice"):
        owner_of("function", "colour")


def test_a_rival_is_answered_three_times_and_then_not_fought() -> None:
    """An HPA that writes every 15 s: reverted thrice, then scaling stands still; a write an hour later is new."""
    writes = [0, 15_000, 30_000]

    assert answer_to_rival(writes, 30_000, 60_000, "revert") == "revert"
    assert answer_to_rival(writes, 30_000, 60_000, "adopt") == "adopt"
    assert answer_to_rival([*writes, 45_000], 45_000, 60_000, "revert") == "stand-back"
    assert answer_to_rival([*writes, 45_000, 3_600_000], 3_600_000, 60_000, "revert") == "revert"
