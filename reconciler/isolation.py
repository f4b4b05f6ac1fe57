"""How the cards of a placement are shared, and what that sets in its pod. Pure.

In: the ledger's state, a request with its placement, and what its node has reported. Out: the mode of its cards, the
changes of the pod, and whether the node is ready for it. A pod whose backend is not ready is made and not bound: its
container would hang in a driver that waits for a daemon, or run without any limit.
"""

from __future__ import annotations

import msgspec

from bus.ledger.state import LedgerState, RequestState
from contracts.inventory import IsolationMode
from contracts.isolation import Assigned, HostPaths, PodChanges, mode_of, needs_node, pod_changes
from contracts.shares import CPU, NodeEnforcement, state_of
from reconciler.plan import pod_of

NOTHING = PodChanges()


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod needs before it may be bound, and what is set in it."""

    mode: IsolationMode = "none"
    changes: PodChanges = NOTHING
    waits_for: str = ""
    """What its node has not done yet; empty = nothing."""


def mode_for(state: LedgerState, request: RequestState) -> IsolationMode:
    """Of the cards that it was given. Raises CannotIsolate: they are shared in different ways."""
    if request.placement is None:
        return "none"
    node = state.nodes.get(request.placement.node)
    cards = node.cards if node else {}
    held = (cards[piece.card].card.isolation for piece in request.placement.slices if piece.card in cards)
    return mode_of(held, pod_of(request))


def isolation(state: LedgerState, request: RequestState, report: NodeEnforcement | None, paths: HostPaths) -> Isolation:
    """For one placed request. Raises CannotIsolate: nothing can hold this placement apart."""
    mode = mode_for(state, request)
    if mode == "none" or request.placement is None:
        return Isolation()
    told = report if report is not None and report.epoch == state.epoch else None
    port = next((one.port for one in (told.pods if told else ()) if one.uid == request.uid and one.what != CPU), 0)
    assigned = Assigned(
        pod=f"{request.accepted.namespace}/{pod_of(request)}", slices=request.placement.slices, port=port
    )
    changes = pod_changes(mode, assigned, paths)
    return Isolation(mode=mode, changes=changes, waits_for=_waits_for(mode, request, told))


def _waits_for(mode: IsolationMode, request: RequestState, told: NodeEnforcement | None) -> str:
    if not needs_node(mode):
        return ""
    how_far, reason = state_of(told, request.uid)
    if how_far == "applied":
        return ""
    node = request.placement.node if request.placement else ""
    if how_far is None:
        return f"{node} has not prepared {mode} for it yet"
    return f"{mode} on {node} is {how_far}: {reason}"
