"""A small picture of a curve in characters: allocation over time, eight levels a row."""

from __future__ import annotations

from collections.abc import Sequence

_LEVELS = " ▁▂▃▄▅▆▇█"


def plot(points: Sequence[tuple[float, float]], *, width: int = 64, height: int = 8, top: float = 100.0) -> list[str]:
    """Lines of a filled curve of (x, y), x ascending, y in 0..top; the last line is the x axis with its ends.

    Between two points the earlier value holds (a step function): an allocation stays until something changes it.
    """
    if not points:
        return ["(nothing to draw)"]
    columns = _columns(points, width)
    lines = []
    for row in range(height, 0, -1):
        cells = "".join(_cell(value / top * height, row) for value in columns)
        lines.append(f"{top * row / height:5.0f} ┤{cells.rstrip()}")
    first, last = f"{points[0][0]:.0f} s", f"{points[-1][0]:.0f} s"
    lines.append(f"      └{'─' * width}")
    lines.append(f"       {first}{last.rjust(width - len(first))}")
    return lines


def _columns(points: Sequence[tuple[float, float]], width: int) -> list[float]:
    """The value that holds at the middle of each column."""
    begin, end = points[0][0], points[-1][0]
    step = (end - begin) / width
    values, at = [], 0
    for column in range(width):
        x = begin + (column + 0.5) * step
        while at + 1 < len(points) and points[at + 1][0] <= x:
            at += 1
        values.append(points[at][1])
    return values


def _cell(level: float, row: int) -> str:
    return _LEVELS[max(0, min(8, round((level - row + 1) * 8)))]
