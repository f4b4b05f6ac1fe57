"""What each pod may use on the cards of a node: a full snapshot from the ledger, for the monitor of that node. Pure."""

from __future__ import annotations

from bus.ledger.state import LedgerState, RequestState
from contracts.outcomes import NodeShares, ShareAssignment
from contracts.units import NodeName
from reconciler.plan import pod_of


def node_shares(state: LedgerState, node: str) -> NodeShares:
    """Every slice that the ledger holds on `node`, by card and request; empty for a node that it does not know."""
    residents = state.nodes[node].residents if node in state.nodes else {}
    found = (state.requests[uid] for uid in residents if uid in state.requests)
    assignments = [one for request in found for one in _assignments(request)]
    return NodeShares(
        node=NodeName(node),
        epoch=state.epoch,
        ledger_sequence=state.sequence,
        assignments=tuple(sorted(assignments, key=lambda one: (one.card, one.uid))),
    )


def _assignments(request: RequestState) -> list[ShareAssignment]:
    slices = request.placement.slices if request.placement else ()
    return [
        ShareAssignment(
            uid=request.uid,
            namespace=request.accepted.namespace,
            pod=pod_of(request),
            card=piece.card,
            share_milli=piece.share_milli,
            memory_mib=piece.memory_mib,
        )
        for piece in slices
    ]


def same_shares(one: NodeShares | None, other: NodeShares) -> bool:
    """Whether they say the same; that they were taken at different sequences of one epoch is no news."""
    return one is not None and (one.epoch, one.assignments) == (other.epoch, other.assignments)
