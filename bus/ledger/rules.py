"""What a record must keep, as checks that raise: nothing sold twice, nothing sold that is not there, gangs whole.

In: a state, and what a record would do to it. Out: nothing, or the error that names record, place and numbers.
Nothing is changed here.

    LedgerError
    ├── ChainBroken          a commit does not follow the one before it
    └── InvariantBroken      a record would over-commit, decide twice, or speak of what is not there
"""

from __future__ import annotations

from collections.abc import Iterable

from bus.ledger.state import CardState, LedgerState, NodeState, RequestState, Use
from contracts.decisions import Accepted, CardSlice, Commit, EpochStarted, Nominated, Placement, Record, Reserved
from contracts.inventory import NodeFacts
from contracts.messages import Value
from contracts.priorities import priority_of
from contracts.units import WHOLE_CARD, RequestUid


class LedgerError(Exception):
    """The log does not add up."""


class ChainBroken(LedgerError):  # noqa: N818 - named by what is the case
    """A commit does not follow the one before it."""


class InvariantBroken(LedgerError):  # noqa: N818 - named by what is the case
    """A record that must not be: the state before it is named in the text."""


def check_chain(state: LedgerState, commit: Commit, sequence: int) -> None:
    """The commit follows what is folded: same log, next number, no gap, same epoch unless it starts one.

    Raises:
        ChainBroken: it does not; the text names both sides.
        InvariantBroken: it would hand requests back that are handled already.
    """
    if commit.pool != state.pool:
        raise ChainBroken(f"commit at {sequence} is of pool {commit.pool!r}, the state of {state.pool!r}")
    if commit.predecessor != state.sequence or sequence <= state.sequence:
        raise ChainBroken(f"commit at {sequence} follows {commit.predecessor}, the state is at {state.sequence}")
    if commit.number != state.number + 1:
        raise ChainBroken(f"commit at {sequence} has number {commit.number}, expected {state.number + 1}")
    _check_epoch(state, commit, sequence)
    if commit.epoch == state.epoch and commit.requests_through < state.requests_through:
        raise InvariantBroken(
            f"requests_through goes back from {state.requests_through} to {commit.requests_through} at {sequence}"
        )


def _check_epoch(state: LedgerState, commit: Commit, sequence: int) -> None:
    first = commit.records[0] if commit.records else None
    if isinstance(first, EpochStarted):
        if commit.epoch != first.epoch or not commit.epoch or commit.epoch == state.epoch:
            raise ChainBroken(
                f"commit at {sequence} of epoch {commit.epoch!r} starts {first.epoch!r} after {state.epoch!r}"
            )
    elif commit.epoch != state.epoch or not state.epoch:
        raise ChainBroken(f"commit at {sequence} is of epoch {commit.epoch!r}, the state of {state.epoch!r}")


def check_room(node: NodeState, placement: Placement, at: int) -> None:
    """The node is alive and known, and has the room that the placement takes.

    Raises:
        InvariantBroken: with what was asked and what is free.
    """
    facts = node.facts
    if facts is None or facts.gone or not node.fresh:
        raise InvariantBroken(f"{node.name} takes a placement at {at} and may not: {_why_not(node, facts)}")
    cpu = facts.allocatable_cpu_milli - facts.foreign_cpu_milli - node.used_cpu_milli
    memory = facts.allocatable_memory_mib - facts.foreign_memory_mib - node.used_memory_mib
    pods = facts.allocatable_pods - facts.foreign_pods - len(node.residents)
    # As the kubelet does: who asks for none of it fits, even where others have taken more than there is.
    if placement.cpu_milli > max(0, cpu):
        raise _short(node, placement.cpu_milli, cpu, "milli-cores", at)
    if placement.memory_mib > max(0, memory):
        raise _short(node, placement.memory_mib, memory, "MiB of host memory", at)
    if pods < 1:
        raise _short(node, 1, pods, "pods", at)
    check_distinct(placement, at)
    for piece in placement.slices:
        _check_card(node, piece, at)


def _why_not(node: NodeState, facts: NodeFacts | None) -> str:
    if facts is None:
        return "Kubernetes has not been heard of it"
    return "it is gone" if facts.gone else node.reason or "it is not fresh"


def _short(node: NodeState, asked: int, free: int, unit: str, at: int) -> InvariantBroken:
    return InvariantBroken(f"{node.name} is over-committed at {at}: {asked} {unit} asked, {free} free")


def check_distinct(placement: Placement, at: int) -> None:
    """No card twice in one placement. Raises InvariantBroken."""
    pieces = placement.slices
    if len(pieces) > 1 and len({piece.card for piece in pieces}) < len(pieces):
        raise InvariantBroken(f"a placement at {at} on {placement.node} names a card twice")


def _check_card(node: NodeState, piece: CardSlice, at: int) -> None:
    card = node.cards.get(piece.card)
    if card is None or not card.usable:
        why = ": no placeholder holds it" if card is not None and card.unacquired else ""
        raise InvariantBroken(f"card {piece.card} of {node.name} is sold at {at} and may not be{why}")
    if piece.share_milli > WHOLE_CARD - card.used_milli or piece.memory_mib > card.capacity_mib - card.used_mib:
        raise InvariantBroken(
            f"card {piece.card} is over-committed at {at}: {piece.share_milli} thousandths and {piece.memory_mib} MiB "
            f"asked, {card.free_milli} and {card.free_mib} free"
        )


def check_growth(card: CardState, old: CardSlice, new: CardSlice, uid: RequestUid, at: int) -> None:
    """What a resize adds has room on its card; giving back is always possible. Raises InvariantBroken."""
    milli, mib = new.share_milli - old.share_milli, new.memory_mib - old.memory_mib
    if milli > max(0, card.free_milli) or mib > max(0, card.free_mib):
        raise InvariantBroken(
            f"card {new.card} is over-committed by the resize of {uid} at {at}: {milli} thousandths and {mib} MiB more "
            f"asked, {card.free_milli} and {card.free_mib} free"
        )


def check_cpu_growth(node: NodeState, old_milli: int, new_milli: int, uid: RequestUid, at: int) -> None:
    """What a resize adds has room on its node; giving back is always possible. Raises InvariantBroken."""
    more = new_milli - old_milli
    if more > max(0, node.free_cpu_milli):
        raise InvariantBroken(
            f"the resize of {uid} at {at} asks for {more} milli-cores more of {node.name}, {node.free_cpu_milli} free"
        )


# --- quotas ----------------------------------------------------------------------------------------------------------


class OverQuota(Value, frozen=True, kw_only=True):
    """What a namespace holds, what is asked for, and the limit that this would exceed."""

    namespace: str
    field: str
    """`share_milli`, `memory_mib`, or `mapping` when quotas are on and it has none."""
    used: int
    asked: int
    limit: int


def over_quota(state: LedgerState, namespace: str, share_milli: int, memory_mib: int) -> OverQuota | None:
    """The first limit that so much more would exceed; None when it is within, or when quotas are off.

    No mapping is a limit of nothing, and so is 0: also for a request that asks for no card.
    """
    if not state.quotas:
        return None
    use = state.usage.get(namespace, _NO_USE)
    quota = state.quotas.get(namespace)
    if quota is None or quota.removed:
        return OverQuota(namespace=namespace, field="mapping", used=use.share_milli, asked=share_milli, limit=0)
    for field, limit, used, asked in (
        ("share_milli", quota.share_milli, use.share_milli, share_milli),
        ("memory_mib", quota.memory_mib, use.memory_mib, memory_mib),
    ):
        if limit is not None and (limit == 0 or used + asked > limit):
            return OverQuota(namespace=namespace, field=field, used=used, asked=asked, limit=limit)
    return None


_NO_USE = Use()


def check_quota(state: LedgerState, namespace: str, placement: Placement, at: int) -> None:
    """The namespace may hold this placement too. Raises InvariantBroken."""
    if not state.quotas:
        return
    share = sum(piece.share_milli for piece in placement.slices)
    memory = sum(piece.memory_mib for piece in placement.slices)
    over = over_quota(state, namespace, share, memory)
    if over is not None:
        raise InvariantBroken(
            f"namespace {namespace} is over its quota at {at}: {over.asked} of {over.field} more, it holds {over.used} "
            f"of {over.limit}"
        )


# --- nominations -----------------------------------------------------------------------------------------------------


def check_victims(state: LedgerState, node: NodeState, request: RequestState, record: Nominated, at: int) -> None:
    """Only lower ones have to leave, only once, and when they have, the place is there.

    Raises:
        InvariantBroken: whom it may not send away, or what would still be missing.
    """
    priority = priority_of(request.request)
    for uid in record.victims:
        victim = state.requests.get(uid)
        if victim is None or victim.placement is None or victim.leaving:
            raise InvariantBroken(f"{uid} has to leave for {request.uid} at {at}, and holds nothing or leaves already")
        if priority_of(victim.request) >= priority:
            raise InvariantBroken(f"{uid} has to leave for {request.uid} at {at}, which is not more important")
    staying = [] if record.why == "drains" else _staying(state, node, record)
    facts = node.facts
    cpu = facts.allocatable_cpu_milli - facts.foreign_cpu_milli if facts else 0
    memory = facts.allocatable_memory_mib - facts.foreign_memory_mib if facts else 0
    wanted = record.placement
    if wanted.cpu_milli > max(0, cpu - sum(p.cpu_milli for p in staying)):
        raise _no_home(node, request, "milli-cores", at)
    if wanted.memory_mib > max(0, memory - sum(p.memory_mib for p in staying)):
        raise _no_home(node, request, "MiB of host memory", at)
    for piece in wanted.slices:
        taken = [other for p in staying for other in p.slices if other.card == piece.card]
        if piece.share_milli > WHOLE_CARD - sum(other.share_milli for other in taken):
            raise _no_home(node, request, f"thousandths of {piece.card}", at)
        if piece.memory_mib > node.cards[piece.card].capacity_mib - sum(other.memory_mib for other in taken):
            raise _no_home(node, request, f"MiB of {piece.card}", at)


def _staying(state: LedgerState, node: NodeState, record: Nominated) -> list[Placement]:
    """What will still be held here, or is promised to others, when the victims and whoever leaves anyway are gone."""
    going = {uid for uid in node.residents if state.requests[uid].leaving}.union(record.victims)
    seated = [placement for uid, placement in node.residents.items() if uid not in going]
    promised = (state.nominated[uid].nomination for uid in node.holds)
    return [*seated, *(other.placement for other in promised if other is not None)]


def _no_home(node: NodeState, request: RequestState, what: str, at: int) -> InvariantBroken:
    return InvariantBroken(f"{request.uid} is nominated for {node.name} at {at}, which will not have the {what}")


# --- gangs -----------------------------------------------------------------------------------------------------------


def check_gangs(state: LedgerState, records: Iterable[Record], at: int) -> None:
    """A gang is all or nothing: who places one member places, or has placed, as many as it needs to begin.

    The same answer before the records are folded and after, so that an author can ask before it is too late.

    Raises:
        InvariantBroken: a part of a gang is placed.
    """
    placed: dict[tuple[str, str], set[RequestUid]] = {}
    sizes: dict[tuple[str, str], int] = {}
    fresh: dict[RequestUid, Accepted] = {}
    for record in records:
        if isinstance(record, Accepted):
            fresh[record.uid] = record
        elif isinstance(record, Reserved):
            accepted = fresh.get(record.uid) or _accepted(state, record.uid)
            if accepted is not None and accepted.request.gang is not None:
                key = (accepted.namespace, accepted.request.gang.name)
                placed.setdefault(key, set()).add(record.uid)
                sizes[key] = max(accepted.request.gang.needed, sizes.get(key, 0))
    for key, size in sizes.items():
        if len(placed[key]) < size and (count := len(placed[key] | _ever_placed(state, *key))) < size:
            raise InvariantBroken(f"{count} of {size} members of gang {'/'.join(key)} are placed at {at}")


def _accepted(state: LedgerState, uid: RequestUid) -> Accepted | None:
    request = state.get(uid)
    return request.accepted if request is not None else None


def _ever_placed(state: LedgerState, namespace: str, gang: str) -> set[RequestUid]:
    """Members that hold a placement or held one. A scan, needed only when a lost member is placed again."""

    def member(request: RequestState) -> bool:
        ref = request.request.gang
        return ref is not None and ref.name == gang and request.accepted.namespace == namespace

    both = (*state.requests.values(), *state.recent.values())
    return {request.uid for request in both if request.decided_at and member(request)}
