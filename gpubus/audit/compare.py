"""The comparison: one snapshot in, everything that does not add up out. Pure.

    decisions           each one computed again from the log before it comes out equal, byte for byte
    ledger itself       the chain, every invariant at every sequence (the proof), every accepted request in one place
    scheduler           what it answers is what the log folds to
    Kubernetes          every pod that holds a card is a placement, every placement past `placed` has its pod, on the
                        same node and cards; and the pods alone, without the ledger, do not oversell a card
    monitors            cards that are sold are cards that are there; what monitors were told is what is sold; memory
                        that is sold is not held by processes of nobody

The world moves while it is read: a pod may be gone a moment before the ledger knows. So a difference between witnesses
counts only if it stays (`settled`), and what the ledger did while the others were asked is left out here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from bus.ledger.state import LedgerState, RequestState
from contracts.answers import Summary
from contracts.decisions import Reserved
from contracts.outcomes import Allocation
from contracts.units import WHOLE_CARD
from gpubus import use
from gpubus.audit.snapshot import Counts, Finding, Report, Snapshot

PAST_PLACED = frozenset({"bound", "running"})


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Everything, in the order of the table above."""
    for rule in _RULES:
        yield from rule(snapshot)


def settled(rounds: Iterable[Iterable[Finding]]) -> tuple[Finding, ...]:
    """The findings of the last round that every round had."""
    seen = [{(f.kind, f.subject): f for f in one} for one in rounds]
    if not seen:
        return ()
    return tuple(f for key, f in seen[-1].items() if all(key in one for one in seen))


def report(snapshot: Snapshot, stayed: tuple[Finding, ...], rounds: int) -> Report:
    """The result of an audit."""
    return Report(
        sound=not stayed,
        counts=counts(snapshot),
        findings=stayed,
        proof=snapshot.proof,
        replayed=snapshot.replayed,
        epoch=snapshot.state.epoch,
        rounds=rounds,
        processes=use.listed(snapshot.usage),
        strangers=tuple(use.strangers(snapshot.usage)),
    )


def counts(snapshot: Snapshot) -> Counts:
    """How many requests are where, from the log."""
    state = snapshot.state
    return Counts(
        accepted=state.totals.accepted,
        placed=state.placed_count(),
        running=sum(r.phase == "running" for r in state.requests.values()),
        pending=len(state.pending),
        ended=state.totals.ended,
        withdrawn=state.totals.withdrawn,
        refused=snapshot.refused,
        dead_letters=snapshot.dead_letters,
        over_commits=len({f.subject for f in _over_commits(snapshot)}),
        cards=sum(len(node.cards) for node in state.nodes.values()),
        nodes=len(state.nodes),
    )


# --- the ledger and the scheduler -------------------------------------------------------------------------------------


def _silent(snapshot: Snapshot) -> Iterator[Finding]:
    for witness, why in sorted(snapshot.silent.items()):
        yield Finding(kind="not-heard", subject=witness, text=f"{witness} could not be asked: {why}")


def _ledger(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.proof.broken:
        yield Finding(kind="ledger-broken", subject="ledger", text=snapshot.proof.broken)
    if not snapshot.conserved:
        totals = snapshot.state.totals
        text = f"{totals.accepted} were accepted, which is not the sum of pending, placed, withdrawn and ended"
        yield Finding(kind="unaccounted", subject="ledger", text=text)


def _replay(snapshot: Snapshot) -> Iterator[Finding]:
    for difference in snapshot.replayed.differences:
        logged, again = difference.logged, difference.again
        now = f"on {again.placement.node}" if again else "nowhere"
        what = "decided for" if isinstance(logged, Reserved) else "kept a place on"
        text = f"{what} {logged.placement.node} at {difference.sequence}; computed again it goes {now}"
        yield Finding(kind="not-reproduced", subject=logged.uid, text=text)


def _scheduler(snapshot: Snapshot) -> Iterator[Finding]:
    said, state = snapshot.summary, snapshot.state
    if said is None or snapshot.summary_sequence != state.sequence:
        return
    folded = Summary(
        accepted=state.totals.accepted,
        pending=len(state.pending),
        placed=state.placed_count(),
        withdrawn=state.totals.withdrawn,
        ended=state.totals.ended,
    )
    for field in ("accepted", "pending", "placed", "withdrawn", "ended"):
        ours, theirs = getattr(folded, field), getattr(said, field)
        if ours != theirs:
            text = f"at sequence {state.sequence} the scheduler says {theirs} {field}, the log folds to {ours}"
            yield Finding(kind="scheduler-differs", subject=field, text=text)


def _over_commits(snapshot: Snapshot) -> Iterator[Finding]:
    """By the ledger now, by the ledger ever, and by the pods that run."""
    for card in snapshot.state.overcommits():
        sold = f"{card.used_milli}/{WHOLE_CARD} and {card.used_mib}/{card.capacity_mib} MiB sold"
        yield Finding(kind="over-commit", subject=str(card.card.uuid), text=f"card of {card.node}: {sold}")
    for peak in snapshot.proof.peaks:
        if peak.share_milli > WHOLE_CARD:
            text = f"{peak.share_milli}/{WHOLE_CARD} were sold once"
            yield Finding(kind="over-commit-ever", subject=str(peak.card), text=text)
    yield from _over_sold_by_pods(snapshot)


def _squeezed(snapshot: Snapshot) -> Iterator[Finding]:
    """Sold memory that is not there, because somebody outside of the ledger took it after it was sold."""
    for card in snapshot.state.cards():
        if card.squeezed_mib:
            text = f"card of {card.node}: {card.squeezed_mib} MiB of what is sold are held by {card.card.unmanaged_by}"
            yield Finding(kind="squeezed", subject=str(card.card.uuid), text=text)


def _over_sold_by_pods(snapshot: Snapshot) -> Iterator[Finding]:
    milli: Counter[str] = Counter()
    mib: Counter[str] = Counter()
    for allocation in snapshot.allocations or ():
        for piece in allocation.slices:
            milli[piece.card] += piece.share_milli
            mib[piece.card] += piece.memory_mib
    sellable = {c.uuid: c.owned_mib for i in snapshot.inventories.values() for c in i.cards}
    for card in sorted(milli):
        room = sellable.get(card)  # type: ignore[call-overload]  # CardUuid is a str
        if milli[card] > WHOLE_CARD or (room is not None and mib[card] > room):
            text = f"the pods that run hold {milli[card]}/{WHOLE_CARD} and {mib[card]}/{room} MiB of it"
            yield Finding(kind="over-commit-in-kubernetes", subject=card, text=text)


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def _pods(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.allocations is None:
        return
    for pod in snapshot.unreadable:
        yield Finding(kind="pod-unreadable", subject=pod.partition(":")[0], text=f"it carries our label: {pod}")
    by_uid: defaultdict[str, list[Allocation]] = defaultdict(list)
    for allocation in snapshot.allocations:
        by_uid[allocation.uid].append(allocation)
    for uid, pods in sorted(by_uid.items()):
        yield from _of_uid(snapshot.state, uid, pods)
    yield from _without_pod(snapshot, by_uid.keys())


def _of_uid(state: LedgerState, uid: str, pods: list[Allocation]) -> Iterator[Finding]:
    names = ", ".join(sorted(f"{p.namespace}/{p.pod}" for p in pods))
    if len(pods) > 1:
        yield Finding(kind="two-pods", subject=uid, text=f"one request has {len(pods)} pods: {names}")
    request = state.requests.get(uid)  # type: ignore[call-overload]  # RequestUid is a str
    if request is None or request.placement is None:
        text = f"pod {names} holds cards on {pods[0].node}, the ledger has no placement of {uid}"
        yield Finding(kind="pod-without-placement", subject=names, text=text)
        return
    for pod in pods:
        yield from _elsewhere(request, pod)


def _elsewhere(request: RequestState, pod: Allocation) -> Iterator[Finding]:
    placement = request.placement
    if placement is None:
        return
    if placement.node != pod.node:
        text = f"pod {pod.pod} is on {pod.node}, the ledger says {placement.node}"
        yield Finding(kind="other-node", subject=request.key, text=text)
    elif {p.card for p in placement.slices} != {p.card for p in pod.slices}:
        theirs, ours = (", ".join(sorted(p.card for p in slices)) for slices in (pod.slices, placement.slices))
        text = f"pod {pod.pod} has cards {theirs}, the ledger says {ours}"
        yield Finding(kind="other-cards", subject=request.key, text=text)


def _without_pod(snapshot: Snapshot, seen: Iterable[str]) -> Iterator[Finding]:
    pods = set(seen)
    for uid, request in snapshot.state.requests.items():
        if request.phase in PAST_PLACED and uid not in pods and uid in snapshot.before:
            text = f"the ledger says {request.phase}, Kubernetes has no pod of it ({request.pod or 'pod unknown'})"
            yield Finding(kind="placement-without-pod", subject=request.key, text=text)


# --- monitors --------------------------------------------------------------------------------------------------------


def _monitors(snapshot: Snapshot) -> Iterator[Finding]:
    for name, node in sorted(snapshot.state.nodes.items()):
        inventory = snapshot.inventories.get(name)
        if inventory is None:
            if node.cards:
                yield Finding(
                    kind="no-inventory", subject=name, text="the ledger sells its cards, no monitor lists them"
                )
            continue
        listed = {card.uuid for card in inventory.cards}
        for uuid, card in sorted(node.cards.items()):
            if card.residents and card.card.uuid not in listed:
                text = f"{len(card.residents)} requests hold it, the monitor of {name} does not list it"
                yield Finding(kind="orphan-card", subject=uuid, text=text)


def _shares(snapshot: Snapshot) -> Iterator[Finding]:
    for name, shares in sorted(snapshot.shares.items()):
        node = snapshot.state.nodes.get(name)
        sold = {
            (uid, piece.card, piece.share_milli, piece.memory_mib)
            for uid, placement in (node.residents if node else {}).items()
            for piece in placement.slices
        }
        told = {(a.uid, a.card, a.share_milli, a.memory_mib) for a in shares.assignments}
        if shares.epoch == snapshot.state.epoch and sold != told:
            text = f"its monitor was told of {len(told)} slices, {len(sold)} are sold; {len(sold ^ told)} differ"
            yield Finding(kind="shares-differ", subject=name, text=text)


_RULES: tuple[Callable[[Snapshot], Iterator[Finding]], ...] = (
    _silent,
    _ledger,
    _replay,
    _scheduler,
    _over_commits,
    _squeezed,
    _pods,
    _monitors,
    _shares,
)
"""The ledger first: when it is broken, what follows is read with doubt."""
