"""A resize that Kubernetes refuses is put back, so that the ledger counts what is there. Pure.

In: the state, a placed request, an outcome that says which change of its CPU will not come. Out: the record that takes
the resize back, or None: nothing to take back, or nothing that can be.

One resize is one wish, so all of it goes back: CPU to what the container has, share and memory to what they were. What
the wish gave back may be sold by now; then share and memory stay as they are and only the CPU goes back, and where not
even that has room the refusal stands as it is told and Kubernetes is asked again.

The outcome names the CPU that was refused. One that is late, after another resize, changes nothing.
"""

from __future__ import annotations

from bus.ledger.state import LedgerState, NodeState, RequestState
from contracts.decisions import Placement, Resized
from contracts.outcomes import Outcome, ResizeRefused
from contracts.requests import Resize
from scheduler.core.queue import quota


def put_back(state: LedgerState, request: RequestState, seen: Outcome) -> Resized | None:
    """The record that the refusal in `seen` asks for."""
    refused, now = seen.resize_refused, request.placement
    if refused is None or now is None or not now.slices or refused.wanted_milli != now.cpu_milli:
        return None
    node, cpu_milli = state.nodes[now.node], _cpu(refused, request.before_resize)
    if cpu_milli is None or cpu_milli == now.cpu_milli or cpu_milli - now.cpu_milli > max(0, node.free_cpu_milli):
        return None
    share_milli, memory_mib = _piece(state, node, request, now)
    return Resized(
        uid=request.uid, share_milli=share_milli, memory_mib=memory_mib, cpu_milli=cpu_milli, reason=seen.reason
    )


def _cpu(refused: ResizeRefused, before: Placement | None) -> int | None:
    if refused.has_milli is not None:
        return refused.has_milli
    return before.cpu_milli if before is not None else None


def _piece(state: LedgerState, node: NodeState, request: RequestState, now: Placement) -> tuple[int, int]:
    """Share and memory of each card: as before the resize, if there is room and quota for it; else as they are.

    A record gives every card the same. Pieces that were of different sizes cannot come back.
    """
    stays = (now.slices[0].share_milli, now.slices[0].memory_mib)
    before = (
        {(piece.share_milli, piece.memory_mib) for piece in request.before_resize.slices}
        if request.before_resize
        else set()
    )
    if len(before) != 1:
        return stays
    [(share_milli, memory_mib)] = before
    for piece in now.slices:
        card = node.cards[piece.card]
        milli, mib = share_milli - piece.share_milli, memory_mib - piece.memory_mib
        if milli > max(0, card.free_milli) or mib > max(0, card.free_mib):
            return stays
    wish = Resize(name=request.request.name, share_milli=share_milli, memory_mib=memory_mib)
    return stays if quota.growth(state, request, wish) is not None else (share_milli, memory_mib)
