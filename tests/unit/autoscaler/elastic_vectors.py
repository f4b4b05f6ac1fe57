"""The published vectors of the elastic dry run, as data: PaddlePaddle EDL's own tests of its autoscaler.

A cluster is (CPU total, CPU used, memory total, memory used[, cards total, cards used]); a job is (CPU, memory, cards
of one trainer, minimum, maximum, present).
"""

from __future__ import annotations

from typing import NamedTuple

UP, DOWN = False, True
Job = tuple[int, int, int, int, int, int]


class StepVector(NamedTuple):
    """Steps of one job: (change so far, down?, expected); the cluster is carried on."""

    name: str
    cluster: tuple[int, ...]
    job: Job
    steps: tuple[tuple[int, bool, int], ...]


class AllVector(NamedTuple):
    """A whole dry run."""

    name: str
    m_milli: int
    cluster: tuple[int, ...]
    jobs: dict[str, Job]
    expected: dict[str, int]


STEPS = [
    StepVector("1 at its maximum", (2000, 0, 1000, 0), (0, 0, 0, 1, 2, 2), ((0, UP, 0),)),
    StepVector("2 there is room", (3000, 100, 1000, 100), (1000, 105, 0, 1, 3, 1), ((0, UP, 1),)),
    StepVector("3 no CPU", (1000, 1000, 1000, 100), (1000, 105, 0, 1, 3, 1), ((0, UP, 0),)),
    StepVector("4 a card is free", (2000, 0, 1000, 100, 10, 0), (1000, 11, 1, 1, 3, 1), ((0, UP, 1), (1, DOWN, 0))),
    StepVector("5 no card is free", (2000, 0, 1000, 100, 10, 10), (1000, 11, 1, 1, 3, 1), ((0, UP, 0),)),
    StepVector(
        "6 down to the maximum",
        (1000, 1000, 1000, 1000, 10, 10),
        (1000, 11, 0, 1, 3, 6),
        ((0, DOWN, -1), (-1, DOWN, -1), (-2, DOWN, -1), (-3, DOWN, 0)),
    ),
    StepVector(
        "7 down to the minimum",
        (3000, 5000, 1000, 1000, 10, 10),
        (1000, 11, 0, 1, 3, 3),
        ((0, DOWN, -1), (-1, DOWN, -1), (-2, DOWN, 0)),
    ),
    StepVector(
        "8 down and not up again",
        (1000, 2000, 1000, 1000, 10, 10),
        (1000, 11, 0, 1, 3, 3),
        ((0, DOWN, -1), (-1, UP, 0)),
    ),
    StepVector("9 nothing is free", (1000, 1000, 1000, 1000), (1000, 11, 0, 1, 3, 1), ((0, UP, 0),)),
]

ALL = [
    AllVector("10 no memory", 1000, (1000, 0, 1000, 1000, 10, 0), {"a": (1000, 1, 1, 1, 3, 1)}, {"a": 0}),
    AllVector("11 up to its maximum", 1000, (4000, 1000, 1000, 100, 10, 8), {"a": (1000, 105, 0, 1, 3, 1)}, {"a": 2}),
    AllVector("12 up to the threshold", 800, (3000, 1000, 1000, 100, 10, 0), {"a": (1000, 105, 0, 1, 3, 1)}, {"a": 1}),
    AllVector(
        "13 down to the threshold", 800, (3000, 3000, 1000, 100, 10, 0), {"a": (1000, 105, 0, 1, 3, 3)}, {"a": -1}
    ),
    AllVector(
        "14 CPU is less than cards", 1000, (3000, 2000, 1000, 100, 10, 8), {"a": (1000, 1, 1, 1, 3, 1)}, {"a": 1}
    ),
    AllVector(
        "15 both are enough for one", 1000, (2000, 990, 1000, 100, 10, 9), {"a": (1000, 1, 1, 1, 3, 1)}, {"a": 1}
    ),
    AllVector(
        "16 one each, to the maximum of one",
        970,
        (20_000, 6000, 100_000, 0),
        {"a": (1000, 105, 0, 1, 10, 1), "b": (1000, 105, 0, 1, 10, 5)},
        {"a": 8, "b": 5},
    ),
    AllVector(
        "17 the most fulfilled shrinks first",
        1000,
        (10_000, 11_000, 100_000, 0),
        {"a": (1000, 105, 0, 1, 10, 8), "b": (1000, 105, 0, 1, 10, 1)},
        {"a": -1, "b": 0},
    ),
]
