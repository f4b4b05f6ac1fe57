"""What a dry run works on: jobs with the seats of their trainers, who waits, and what has been found for each job."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from autoscaler.core.elastic_order import Standing
from autoscaler.core.elastic_shape import Shape
from contracts.decisions import Placement


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """A trainer and where it sits; None = it waits."""

    index: int
    placement: Placement | None = None


class Runner(msgspec.Struct, frozen=True, kw_only=True):
    """An elastic job as the dry run sees it."""

    name: str
    """`namespace/name`."""
    shape: Shape
    minimum: int
    maximum: int
    planned: int
    """Its target: trainers that are told to leave are not in it any more."""
    seats: tuple[Seat, ...] = ()
    """In the order in which they would leave; those that may not leave are left out."""
    priority: int = 0
    may_grow: bool = True
    may_shrink: bool = True

    @property
    def standing(self) -> Standing:
        """How it is sorted: by what runs now."""
        return Standing(
            name=self.name,
            minimum=self.minimum,
            maximum=self.maximum,
            present=self.planned,
            gpu=self.shape.card_milli,
            cpu=self.shape.cpu_milli,
            memory=self.shape.memory_mib,
        )


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or all of a gang, that waits for room."""

    key: str
    shape: Shape
    count: int = 1
    priority: int = 0


class Change(msgspec.Struct):
    """What one job should do. `rule` is the first reason that it had."""

    runner: Runner
    delta: int = 0
    left: set[int] = set()
    """Indexes of trainers that should leave, chosen for where they sit."""
    rule: str = "steady"
    first: int = 0
    """All seats before this position are left."""

    @property
    def planned(self) -> int:
        """Trainers afterwards."""
        return self.runner.planned + self.delta

    def shrink(self, rule: str, seat: Seat | None) -> None:
        """One trainer less: that one, or whichever."""
        self.delta -= 1
        if seat is not None:
            self.left.add(seat.index)
        self.rule = rule if self.rule == "steady" else self.rule

    def stay(self, seat: Seat | None) -> None:
        """Undo `shrink` of that seat."""
        self.delta += 1
        if seat is not None:
            self.left.remove(seat.index)
        self.first = 0
        self.rule = "steady" if self.delta == 0 else self.rule

    def free_seats(self) -> Iterator[Seat]:
        """Those that could still leave, the next one first."""
        seats = self.runner.seats
        while self.first < len(seats) and seats[self.first].index in self.left:
            self.first += 1
        for position in range(self.first, len(seats)):
            if seats[position].index not in self.left:
                yield seats[position]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run found."""

    changes: dict[str, Change]
    """Every job that was given, by name; also those that stay as they are."""
    passes: int
    unmet: tuple[str, ...] = ()
    """Who waits and could not be helped by any job shrinking."""

    @property
    def deltas(self) -> dict[str, int]:
        """By job."""
        return {name: change.delta for name, change in self.changes.items()}
