"""Rankings of policies with menus: arrays where kernels know the shape, the rules in Python where they do not.

In: nodes and what was learned, as `Rankings` follows them. Out: the cheapest node of a shape, or the scores of all
nodes for whoever needs the whole order: an explanation, conditions on the surroundings, a gang's domain.

The arrays, and numba with them, are loaded when the first policy with menus is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from contracts.units import WHOLE_CARD
from scheduler.core.cheapest import Cheapest
from scheduler.core.locality import Requests
from scheduler.core.menu.terms import MenuTerms
from scheduler.core.policies import Policy, evaluate
from scheduler.core.request import Shape
from scheduler.core.view import NodeView

if TYPE_CHECKING:  # numba takes a second to load, and most policies do without
    from scheduler.core.arrays.cluster import Cluster


MAX_KNOWN = 4096
"""Shapes that are remembered to be plain or not."""


def plain(shape: Shape) -> bool:
    """Whether numbers, models, labels and taints are all that narrows the shape: what kernels know.

    Asked by comparing it with a shape that has nothing else, so that whatever shapes learn to ask for later goes to
    the rules in Python until it is known here.
    """
    known = Shape(
        cards=shape.cards,
        share_milli=shape.share_milli,
        memory_mib=shape.memory_mib,
        models=shape.models,
        cpu_milli=shape.cpu_milli,
        host_memory_mib=shape.host_memory_mib,
        node_selector=shape.node_selector,
        tolerations=shape.tolerations,
        policy=shape.policy,
        special=bool(shape.models),
    )
    return known == shape and not (shape.cards > 1 and shape.share_milli < WHOLE_CARD)


class MenuRankings:
    """One form of the policy.

    Args:
        views: of all nodes, for the rules in Python.
    """

    def __init__(self, terms: MenuTerms, views: Mapping[str, NodeView]) -> None:
        from scheduler.core.arrays.cluster import Cluster  # noqa: PLC0415 - see the module

        self.cluster: Cluster = Cluster(terms)
        self._plain: dict[Shape, bool] = {}
        self._views = views

    def knows(self, shape: Shape) -> bool:
        """Whether arrays tell all that the shape asks for."""
        known = self._plain.get(shape)
        if known is None:
            if len(self._plain) > MAX_KNOWN:
                self._plain.clear()
            known = self._plain[shape] = plain(shape)
        return known

    def quiet(self, requests: Requests) -> bool:
        """Nothing but the shape and the node decides: no soft taints, nobody who keeps others away."""
        rows = self.cluster.rows
        return not rows.discouraged and not rows.tenants.any_repels(requests)

    def cheapest(self, shape: Shape, policy: Policy) -> Cheapest | None:
        """The best node; None: there is no room."""
        return self.cluster.cheapest(shape, self._scorer(shape, policy))

    def scores(self, shape: Shape, policy: Policy) -> dict[str, int]:
        """All nodes with room, by name."""
        return self.cluster.scores(shape, self._scorer(shape, policy))

    def _scorer(self, shape: Shape, policy: Policy) -> Callable[[str], int | None]:
        return lambda name: evaluate(policy, shape, self._views[name], self.cluster.outlook())
