"""What this node should enforce, from what it was told and which cards it has. Pure.

In: shares and limits as they come, in stream order, and the cards as the inventory publishes them. Out: a `Standing`,
the newest of both that may be believed with the reason when the last one was not, and `Work`, who is to be held to what
on which card by which mode, with a refusal for each assignment that cannot be of this node.

    other node            refused: it is not ours, whoever sent it
    epoch seen before     refused: a ledger that was given up does not come back
    lower sequence        refused: it was taken from an older state of the same ledger
    same or higher        taken, as a whole; what it does not list is over
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from contracts.inventory import Card, IsolationMode
from contracts.isolation import CannotIsolate, mode_of
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.shares import NodeCpuLimits, PodEnforcement
from contracts.units import CardUuid, RequestUid

PAST_EPOCHS = 16


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The newest desired state that was believed."""

    shares: NodeShares | None = None
    limits: NodeCpuLimits | None = None
    past: tuple[str, ...] = ()
    """Epochs that are over, the latest last."""
    refused: str = ""
    """Why the newest message was not taken; empty = it was."""


class CardShares(msgspec.Struct, frozen=True, kw_only=True):
    """One card and who holds what of it, by uid."""

    card: Card
    assignments: tuple[ShareAssignment, ...] = ()
    limits: Mapping[RequestUid, int] = {}
    """The most that one may use, in thousandths, where another limit than its share is wanted."""


class PodCpu(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's container and its CPU limit."""

    uid: RequestUid
    pod_uid: str
    container_id: str
    spec_milli: int | None
    """What Kubernetes enforces; None = no limit."""
    limit_milli: int | None
    """What is wanted instead; None = nothing else."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """All that is to be done."""

    cards: Mapping[IsolationMode, tuple[CardShares, ...]] = {}
    """Every card of the node, under its mode."""
    cpu: tuple[PodCpu, ...] = ()
    refused: tuple[PodEnforcement, ...] = ()


def take_shares(standing: Standing, told: NodeShares, node: str) -> Standing:
    """Believe a snapshot of shares, or say why not."""
    held = standing.shares
    if told.node != node:
        return replace(standing, refused=f"shares of {told.node} were sent to {node}")
    if told.epoch in standing.past:
        return replace(standing, refused=f"shares of epoch {told.epoch}, which is over")
    if held is None:
        return replace(standing, shares=told, refused="")
    if told.epoch != held.epoch:
        past = (*standing.past, held.epoch)[-PAST_EPOCHS:]
        return replace(standing, shares=told, past=past, refused="")
    if told.ledger_sequence < held.ledger_sequence:
        behind = f"shares of ledger sequence {told.ledger_sequence}, {held.ledger_sequence} is in force"
        return replace(standing, refused=behind)
    return replace(standing, shares=told, refused="")


def take_limits(standing: Standing, told: NodeCpuLimits, node: str) -> Standing:
    """Believe a snapshot of CPU limits, or say why not. One of an epoch to come waits for its shares."""
    held = standing.limits
    if told.node != node:
        return replace(standing, refused=f"limits of {told.node} were sent to {node}")
    if told.epoch in standing.past:
        return replace(standing, refused=f"limits of epoch {told.epoch}, which is over")
    if held is not None and told.epoch == held.epoch and told.sequence < held.sequence:
        return replace(standing, refused=f"limits {told.sequence}, {held.sequence} are in force")
    return replace(standing, limits=told, refused="")


def work(standing: Standing, cards: Iterable[Card]) -> Work:
    """What to do on these cards, isolation modes as the inventory says them."""
    listed = {card.uuid: card for card in cards}
    shares = standing.shares
    if shares is None:
        return Work(cards=_by_mode(listed.values(), ()))
    refused = _refusals(shares, listed)
    no = {(one.uid, one.what) for one in refused}
    kept = [one for one in shares.assignments if (one.uid, one.card) not in no]
    cards_by_mode = _by_mode(listed.values(), kept, _of_cards(standing, shares))
    return Work(cards=cards_by_mode, cpu=tuple(_cpu(standing, shares)), refused=refused)


# --- who holds what --------------------------------------------------------------------------------------------------


def _by_mode(
    cards: Iterable[Card],
    assignments: Iterable[ShareAssignment],
    limits: Mapping[str, Mapping[RequestUid, int]] = {},
) -> dict[IsolationMode, tuple[CardShares, ...]]:
    held: dict[str, list[ShareAssignment]] = {}
    for one in sorted(assignments, key=lambda one: one.uid):
        held.setdefault(one.card, []).append(one)
    found: dict[IsolationMode, list[CardShares]] = {}
    for card in sorted(cards, key=lambda card: (card.index, card.uuid)):
        shares = CardShares(
            card=card, assignments=tuple(held.get(card.uuid, ())), limits=dict(limits.get(card.uuid, {}))
        )
        found.setdefault(card.isolation, []).append(shares)
    return {mode: tuple(shares) for mode, shares in found.items()}


def _refusals(shares: NodeShares, listed: Mapping[CardUuid, Card]) -> tuple[PodEnforcement, ...]:
    """Each assignment that is not done, with the reason."""
    parents = {card.parent for card in listed.values() if card.parent}
    mixed = _mixed(shares, listed)
    ports: dict[int, str] = {}
    found = []
    for one in sorted(shares.assignments, key=lambda one: (one.card, one.uid)):
        reason = _foreign(one, listed, parents) or mixed.get(one.uid, "") or _taken(one, ports)
        if reason:
            found.append(PodEnforcement(uid=one.uid, what=one.card, state="refused", reason=reason))
        elif one.port:
            ports[one.port] = one.uid
    return tuple(found)


def _foreign(one: ShareAssignment, listed: Container[str], parents: Container[str]) -> str:
    if one.card in listed:
        return ""
    cut = "; it is cut into MIG instances, which are given out one by one" if one.card in parents else ""
    return f"this node has no card {one.card}{cut}"


def _taken(one: ShareAssignment, ports: Mapping[int, str]) -> str:
    holder = ports.get(one.port, one.uid)
    return f"port {one.port} is that of {holder}" if holder != one.uid else ""


def _mixed(shares: NodeShares, listed: Mapping[CardUuid, Card]) -> dict[str, str]:
    """Pods whose cards are shared in different ways."""
    modes: dict[str, list[IsolationMode]] = {}
    for one in shares.assignments:
        card = listed.get(CardUuid(one.card))
        if card is not None:
            modes.setdefault(one.uid, []).append(card.isolation)
    return {uid: reason for uid, found in modes.items() if (reason := _mix_of(found, uid))}


def _mix_of(modes: list[IsolationMode], uid: str) -> str:
    try:
        mode_of(modes, uid)
    except CannotIsolate as error:
        return str(error)
    return ""


def _of_cards(standing: Standing, shares: NodeShares) -> dict[str, dict[RequestUid, int]]:
    """Limits by card and uid; those of another epoch are of other pods."""
    found: dict[str, dict[RequestUid, int]] = {}
    for one in standing.limits.cards if standing.limits and standing.limits.epoch == shares.epoch else ():
        found.setdefault(one.card, {})[one.uid] = one.limit_milli
    return found


def _cpu(standing: Standing, shares: NodeShares) -> Iterable[PodCpu]:
    limits = standing.limits
    wanted = {q.uid: q.limit_milli for q in limits.limits} if limits and limits.epoch == shares.epoch else {}
    known = {pod.uid for pod in shares.pods}
    yield from (_pod_cpu(pod, wanted.get(pod.uid)) for pod in shares.pods)
    # one that is not placed here has no container that could be found: it is told as waiting, by its uid
    yield from (_pod_cpu(PodOnNode(uid=uid), wanted[uid]) for uid in sorted(wanted.keys() - known))


def _pod_cpu(pod: PodOnNode, limit_milli: int | None) -> PodCpu:
    return PodCpu(
        uid=pod.uid,
        pod_uid=pod.pod_uid,
        container_id=pod.container_id,
        spec_milli=pod.cpu_limit_milli or None,
        limit_milli=limit_milli,
    )
