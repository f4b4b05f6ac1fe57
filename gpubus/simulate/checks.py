"""Which pods of a trace no node of the cluster could ever hold, even empty. Pure.

In: pods and nodes. Out: for each such pod one line that names file, line, column, what is asked and the most there is.
Such a pod would be refused on arrival in every run: it says something of the two files, nothing of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpubus.local.nodes import NodeSpec
from gpubus.simulate.openb import PodRow

Column = tuple[str, Callable[[PodRow], int], Callable[[NodeSpec], int]]

COLUMNS: tuple[Column, ...] = (
    ("num_gpu", lambda row: row.cards, lambda spec: spec.cards),
    ("cpu_milli", lambda row: row.cpu_milli, lambda spec: spec.cpu_milli),
    ("memory_mib", lambda row: row.memory_mib, lambda spec: spec.memory_mib),
)
"""Column, what a pod asks, what a node has."""


class Holds:
    """What the nodes of a cluster can hold; equal ones are asked once."""

    def __init__(self, specs: Sequence[NodeSpec]) -> None:
        kinds = {(s.model.name, *(has(s) for _, _, has in COLUMNS)): s for s in specs}
        self._kinds = list(kinds.values())
        self._known: dict[tuple[object, ...], str] = {}

    def complaint(self, row: PodRow) -> str:
        """Why no node could hold it; empty when one could."""
        key = (row.models, *(asks(row) for _, asks, _ in COLUMNS))
        if key not in self._known:
            self._known[key] = self._complaint(row)
        return self._known[key]

    def _complaint(self, row: PodRow) -> str:
        left = [spec for spec in self._kinds if not row.models or not row.cards or spec.model.name in row.models]
        if not left:
            there = ", ".join(sorted({spec.model.name for spec in self._kinds}))
            return f"gpu_spec is {'|'.join(row.models)!r}, and the nodes have {there}"
        for column, asks, has in COLUMNS:
            most = max(has(spec) for spec in left)
            left = [spec for spec in left if has(spec) >= asks(row)]
            if not left:
                return f"{column} is {asks(row)}, and no node that is left has more than {most}"
        return ""


def split(rows: Sequence[PodRow], specs: Sequence[NodeSpec], source: str) -> tuple[list[PodRow], list[str]]:
    """Pods that some node could hold, and a line for each of the others."""
    holds = Holds(specs)
    told = [(row, holds.complaint(row)) for row in rows]
    good = [row for row, complaint in told if not complaint]
    return good, [f"{source} line {row.line}: {row.name}: {complaint}" for row, complaint in told if complaint]
