"""Room on a card in two dimensions: thousandths of time × percent of its multiprocessors.

In: slices that stand on a card, a slice that wants to. Out: where it fits with the least waste, or nothing. A card is a
rectangle of 1000 × 100, a slice a rectangle of share × partition that is never turned (FaST-GShare, ICPP 2023). What is
free is kept as maximal rectangles: each is as large as it can be, and they overlap. They follow from the slices that
stand there, so taking one away merges what it parted.

    an empty card, 400 x 40 placed at (0, 0): free are (400, 0) 600 x 100 and (0, 40) 1000 x 60.

Compute only: memory is counted elsewhere, as it does not lie in a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


def area_milli(share_milli: int, partition_percent: int) -> int:
    """How much of a card a slice is, in thousandths of it, rounded up."""
    return -(-share_milli * partition_percent // PERCENT)


def free(taken: Iterable[Rectangle]) -> tuple[Rectangle, ...]:
    """The maximal rectangles that nothing stands in, in a fixed order."""
    rectangles = [WHOLE]
    for block in sorted(taken):
        rectangles = _pruned([piece for rectangle in rectangles for piece in _around(rectangle, block)])
    return tuple(sorted(rectangles))


def place(taken: Sequence[Rectangle], width: int, height: int) -> Rectangle | None:
    """Where the least area is left over in the rectangle it goes into; then the shorter side left over, then the first.

    Raises:
        ValueError: a side is below 1 or above the card's.
    """
    if not (1 <= width <= TIME and 1 <= height <= PERCENT):
        raise ValueError(f"a slice of {width} x {height}: sides are 1..{TIME} thousandths and 1..{PERCENT} percent")
    fitting = [rectangle for rectangle in free(taken) if rectangle.width >= width and rectangle.height >= height]
    into = min(fitting, key=lambda r: (*waste(r, width, height), r), default=None)
    return None if into is None else Rectangle(time=into.time, unit=into.unit, width=width, height=height)


def place_all(taken: Sequence[Rectangle], slices: Sequence[tuple[int, int]]) -> tuple[Rectangle | None, ...]:
    """Places for several slices (width, height) at once, in their order; the largest chooses first.

    Small ones that come first scatter: 4 of 400 x 12, 2 of 400 x 24 and 2 of 600 x 50 are 98 % of a card, and the last
    of them finds no place. Largest first all eight do.
    """
    stands, places = list(taken), dict[int, Rectangle]()
    for i in sorted(range(len(slices)), key=lambda i: (-slices[i][0] * slices[i][1], slices[i], i)):
        found = place(stands, *slices[i])
        if found is not None:
            places[i] = found
            stands.append(found)
    return tuple(places.get(i) for i in range(len(slices)))


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
