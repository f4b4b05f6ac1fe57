"""CPU best fit for requests without cards (KubeShare, HPDC 2020)."""

from __future__ import annotations

from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.request import Shape
from scheduler.core.view import NodeView


def cpu_left(shape: Shape, view: NodeView, _chosen: Choice, _mix: Mix) -> int:
    """-(free CPU after the placement) in milli-cores; 0 for a request with cards, which is placed by its cards."""
    return 0 if shape.cards else shape.cpu_milli - view.cpu_milli
