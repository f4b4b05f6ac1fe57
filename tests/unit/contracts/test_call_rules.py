"""Whether a call is still to be run, and what an order makes of a worker."""

from __future__ import annotations

import itertools
from typing import Literal, get_args

import pytest

from contracts.callrules import judge, obey, waited_ms
from contracts.functions import WorkerOrder, WorkerPhase

ORDERS: tuple[Literal["promote", "demote", "drain"], ...] = ("promote", "demote", "drain")


@pytest.mark.parametrize(
    ("waited", "attempt", "verdict"),
    [
        (0, 1, "run"),
        (999, 1, "run"),
        (1000, 1, "late"),
        (999, 3, "run"),
        (0, 4, "gave-up"),
        (5000, 4, "gave-up"),
    ],
    ids=["at once", "just in time", "too late", "third worker", "fourth worker", "both"],
)
def test_a_call_is_run_in_time_and_by_three_workers_at_most(waited: int, attempt: int, verdict: str) -> None:
    assert judge(timeout_ms=1000, waited_ms=waited, attempt=attempt) == verdict


def test_clocks_that_disagree_make_no_call_younger_than_new() -> None:
    assert waited_ms(100.0, 99.9) == 0
    assert waited_ms(100.0, 101.25) == 1250


def test_every_phase_and_order() -> None:
    """The whole table: what is not in it changes nothing."""
    moves = {
        (phase, order): obey(phase, WorkerOrder(order=order))
        for phase, order in itertools.product(get_args(WorkerPhase), ORDERS)
    }
    assert {pair: after for pair, after in moves.items() if after != pair[0]} == {
        ("warm", "promote"): "ready",
        ("warm", "drain"): "draining",
        ("ready", "demote"): "warm",
        ("ready", "drain"): "draining",
        ("draining", "promote"): "ready",
    }
