"""Views of all nodes, built when somebody reads them: whoever decides over arrays never does.

In: nodes that changed (`marked`), views that stand for a trial (`put`). Out: a mapping by name, always up to date.
A node must not change between its mark and the next one; a state that is followed marks each change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bus.ledger.state import NodeState
from scheduler.core.locality import Requests
from scheduler.core.view import NodeView, view_of


class Views(Mapping[str, NodeView]):
    """See the module."""

    def __init__(self) -> None:
        self._views: dict[str, NodeView | None] = {}
        """None: never built."""
        self.requests: Requests = {}
        """Of the state that is followed."""
        self.marked: dict[str, NodeState] = {}
        """Nodes that are others now."""

    def join(self, node: NodeState) -> None:
        """The node is new."""
        self.marked[node.name] = node
        self._views[node.name] = None

    def put(self, view: NodeView) -> None:
        """This is the node from now on."""
        self.marked.pop(view.name, None)
        self._views[view.name] = view

    def drop(self, name: str) -> None:
        """The node is gone."""
        del self._views[name]
        self.marked.pop(name, None)

    def __getitem__(self, name: str) -> NodeView:
        node = self.marked.pop(name, None)
        if node is not None:
            view = self._views[name] = view_of(node, self.requests, self._views[name])
            return view
        found = self._views[name]
        if found is None:
            raise AssertionError(f"{name} was never marked")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __contains__(self, name: object) -> bool:
        return name in self._views
