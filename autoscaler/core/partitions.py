"""Room on a card in two dimensions: thousandths of time × percent of its multiprocessors.

In: slices that stand on a card. Out: where there is room, and how well a slice fits into it. A card is a
rectangle of 1000 × 100, a slice a rectangle of share × partition that is never turned (FaST-GShare, ICPP 2023). What is
free is kept as maximal rectangles: each is as large as it can be, and they overlap. They follow from the slices that
stand there, so taking one away merges what it parted.

    an empty card, 400 x 40 placed at (0, 0): free are (400, 0) 600 x 100 and (0, 40) 1000 x 60.

Compute only: memory is counted elsewhere, as it does not lie in a place.
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.messages import Value

TIME = 1000
PERCENT = 100
WHOLE_AREA = TIME * PERCENT


class Rectangle(Value, frozen=True, kw_only=True, order=True):
    """From (time, unit), so wide and so high."""

    time: int = 0
    unit: int = 0
    width: int
    height: int

    @property
    def area(self) -> int:
        """In thousandths × percent."""
        return self.width * self.height

    @property
    def right(self) -> int:
        """Where it ends in time."""
        return self.time + self.width

    @property
    def top(self) -> int:
        """Where it ends in multiprocessors."""
        return self.unit + self.height

    def holds(self, other: Rectangle) -> bool:
        """The other lies within it."""
        return (
            self.time <= other.time and self.unit <= other.unit and self.right >= other.right and self.top >= other.top
        )

    def meets(self, other: Rectangle) -> bool:
        """They have a place in common."""
        return self.time < other.right and other.time < self.right and self.unit < other.top and other.unit < self.top


WHOLE = Rectangle(width=TIME, height=PERCENT)


def free(taken: Iterable[Rectangle]) -> tuple[Rectangle, ...]:
    """The maximal rectangles that nothing stands in, in a fixed order."""
    rectangles = [WHOLE]
    for block in sorted(taken):
        rectangles = _pruned([piece for rectangle in rectangles for piece in _around(rectangle, block)])
    return tuple(sorted(rectangles))


def waste(into: Rectangle, width: int, height: int) -> tuple[int, int]:
    """Area left over, shorter side left over."""
    return into.area - width * height, min(into.width - width, into.height - height)


def _around(rectangle: Rectangle, block: Rectangle) -> list[Rectangle]:
    """What is left of a rectangle beside a block: up to four, each over the full length of the rectangle."""
    if not rectangle.meets(block):
        return [rectangle]
    r, b = rectangle, block
    pieces = [
        Rectangle(time=r.time, unit=r.unit, width=b.time - r.time, height=r.height) if b.time > r.time else None,
        Rectangle(time=b.right, unit=r.unit, width=r.right - b.right, height=r.height) if b.right < r.right else None,
        Rectangle(time=r.time, unit=r.unit, width=r.width, height=b.unit - r.unit) if b.unit > r.unit else None,
        Rectangle(time=r.time, unit=b.top, width=r.width, height=r.top - b.top) if b.top < r.top else None,
    ]
    return [piece for piece in pieces if piece is not None]


def _pruned(rectangles: list[Rectangle]) -> list[Rectangle]:
    """Without those that lie within another."""
    unique = sorted(set(rectangles), key=lambda r: (-r.area, r))
    kept: list[Rectangle] = []
    for rectangle in unique:
        if not any(larger.holds(rectangle) for larger in kept):
            kept.append(rectangle)
    return kept
