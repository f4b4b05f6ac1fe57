"""A node as a room that waiting requests are packed into. Pure.

In: the node as it is seen, and as the ledger has it. Out: its bins: cards of ours that nobody is on, as many unknown
ones as are on their way, and those that could be got. Nobody can choose which card a placeholder gets, so one on its
way stands for the first that is free; where cards differ and it turns out to be another, the request asks again.
"""

from __future__ import annotations

from bus.ledger.state import CardState, NodeState
from reconciler.placeholders.demand import Bin, Room, a_bin
from reconciler.placeholders.values import NodeSeen


def room(seen: NodeSeen, known: NodeState | None, *, paused: bool) -> Room | None:
    """None: nothing can be packed there. `paused`: nothing new may be got there for a while."""
    if known is None or known.facts is None or known.facts.mode != seen.mode or not known.fresh:
        return None
    return Room(
        name=seen.name,
        facts=known.facts,
        cpu_milli=known.free_cpu_milli,
        memory_mib=known.free_memory_mib,
        pods=known.free_pods,
        left=0 if paused or seen.against else seen.free,
        bins=_bins(seen, known),
    )


def _bins(seen: NodeSeen, known: NodeState) -> list[Bin]:
    sound = [card for card in known.cards.values() if _sound(card) and card.card.uuid not in seen.tenants]
    settled = {each.card for each in seen.placeholders if each.card and each.state != "leaving"}
    staying = {each.card for each in seen.placeholders if each.card in settled and not each.releasing}
    idle = [card for card in sound if card.card.uuid in staying]
    unknown = [card for card in sound if card.card.uuid not in settled and card.card.uuid not in seen.taken]
    coming = sum(each.state == "starting" and not each.card for each in seen.placeholders)
    return [
        *(a_bin(card, ours=True) for card in idle),
        *(a_bin(card, ours=True) for card in unknown[:coming]),
        *(a_bin(card, ours=False) for card in unknown[coming:]),
    ]


def _sound(card: CardState) -> bool:
    """It could be sold if it were ours."""
    whole = card.present and card.health == "healthy" and not card.card.mig_enabled
    return whole and not card.cordoned and not card.rival
