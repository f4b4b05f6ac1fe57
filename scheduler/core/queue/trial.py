"""A state to try things in: what one member of a gang would get once the earlier ones have theirs.

In: the real state, records of nominations and of their fulfilment. Out: a state in which they are folded, by the fold
itself; the real one is untouched. It shares everything with the real one but what these records change.
"""

from __future__ import annotations

from copy import copy

from bus.ledger.fold import apply_record
from bus.ledger.snapshot import copy_node
from bus.ledger.state import LedgerState
from contracts.decisions import Nominated, Reserved


class Trial:
    """A state that shares everything with the real one but what nominations and their fulfilment change."""

    def __init__(self, state: LedgerState) -> None:
        self.state = copy(state)
        self.state.nodes, self.state.requests = dict(state.nodes), dict(state.requests)
        self.state.pending, self.state.nominated = dict(state.pending), dict(state.nominated)
        self.state.began, self.state.quotas = list(state.began), {}  # quotas are compared for the whole unit
        self.state.usage = {namespace: copy(use) for namespace, use in state.usage.items()}
        self.state.touched = copy(state.touched)
        self.state.touched.names, self.state.touched.moves = [], []
        self.changed: set[str] = set()

    def fold(self, record: Nominated | Reserved) -> None:
        """The record, on copies of what it changes."""
        state, name = self.state, record.placement.node
        victims = record.victims if isinstance(record, Nominated) else ()
        for uid in (record.uid, *victims):
            state.requests[uid] = copy(state.requests[uid])
            for waiting in (state.pending, state.nominated):
                if uid in waiting:
                    waiting[uid] = state.requests[uid]
        self._own(name)
        for uid in victims:
            placement = state.requests[uid].placement
            if placement is not None:
                self._own(placement.node)
        apply_record(state, record, state.sequence + 1)

    def _own(self, name: str) -> None:
        if name not in self.changed:
            self.state.nodes[name] = copy_node(self.state.nodes[name])
            self.changed.add(name)
            for uid in self.state.nodes[name].holds:
                held = self.state.nominated[uid] = copy(self.state.nominated[uid])
                self.state.requests[uid] = self.state.pending[uid] = held
