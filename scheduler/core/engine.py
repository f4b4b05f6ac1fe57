"""The queue and the commit being built: facts and requests in, records and answers out.

An engine owns an *assumed* state. Every record it makes is folded at once, so that the next decision sees it, and is
kept for the commit. When the commit is stored, the service seals it; when it is lost, the engine is dropped and a new
one begins from the committed state. Pure: no I/O, no clock; wall time comes in for display only.

Who is tried when:
    - a new request is tried at once, unless its shape is known not to fit and nothing has improved since;
    - a waiting one is tried again only when a node improved (a release, a new card, a node that came back) and its
      shape fits there: higher priority first, then the earlier acceptance;
    - a gang is tried when its last member arrives, and again when any node improved.

A commit is one message and messages have a limit: when the records are enough for one (`full`), the rest of the work
waits for the next commit (`unfinished`). Four thousand waiting pods and one large new node make several commits.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

import msgspec

from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import (
    Accepted,
    CardHealthSet,
    FactsSet,
    HealthSet,
    InventorySet,
    Observed,
    Record,
    Released,
    Resized,
    Withdrawn,
)
from contracts.inventory import CordonCard, NodeFacts, NodeInventory
from contracts.messages import Value, encode
from contracts.outcomes import Outcome, Reason, Refusal
from contracts.requests import PodRequest, Resize, Withdraw
from contracts.units import CardUuid, RequestUid, request_key
from scheduler.core.placer import Placer
from scheduler.core.request import Shape, shape_of

COMMIT_BYTES = 512 * 1024
"""Records of so many bytes are enough for one commit. The server takes 1 MiB; what one more input may add is at most
256 KiB (a node's facts), or the placements of one gang."""

COMMIT_RECORDS = 4000
"""And so many at most: a commit may hold 5,000."""


class Answer(Value, frozen=True, kw_only=True):
    """What a submit is told once the commit is stored: accepted (again), or refused."""

    uid: RequestUid = RequestUid("")
    duplicate: bool = False
    refusals: tuple[Refusal, ...] = ()
    ledger_sequence: int = 0
    """Filled in when the commit is stored."""


class Engine:
    """Decisions ahead of the log over one assumed state.

    Args:
        state: the assumed state; nobody else may change it.
        policy: name of the default placement policy.
    """

    def __init__(self, state: LedgerState, *, policy: str) -> None:
        self.state = state
        self.policy = policy
        self.placer = Placer(state, default_policy=policy)
        self.records: list[Record] = []
        self.size = 0
        """Bytes of the records, as they will be sent."""
        self._accepted = 0
        self._fresh: list[RequestUid] = []
        self._waiting: dict[Shape, dict[RequestUid, None]] = {}
        self._gangs: dict[tuple[str, str], dict[RequestUid, None]] = {}
        self._improved: dict[str, None] = {}
        for request in state.pending.values():
            self._enqueue(request)
        self._improved.update(dict.fromkeys(state.nodes))

    # --- what comes in ---------------------------------------------------------------------------------------------

    def submit(
        self, namespace: str, request: PodRequest, *, trace: str = "", sequence: int = 0, now_ms: int = 0
    ) -> Answer:
        """Accept a request, recognise it as one that lives already, or refuse a second one under a living name."""
        living = self.state.by_key.get(request_key(namespace, request.name))
        if living is not None:
            return self._again(self.state.requests[living], request)
        uid = RequestUid(f"{self.state.epoch}-{self.state.number + 1}-{self._accepted}")
        self._accepted += 1
        self._write(
            Accepted(
                uid=uid,
                namespace=namespace,
                request=request,
                trace=trace,
                request_sequence=sequence,
                submitted_ms=now_ms,
            )
        )
        if request.gang is None:
            self._fresh.append(uid)
        else:
            self._join(self.state.requests[uid])
        return Answer(uid=uid)

    @staticmethod
    def _again(living: RequestState, request: PodRequest) -> Answer:
        if _same(living.request, request):
            return Answer(uid=living.uid, duplicate=True)
        bound = "a name that no living request has, or the same content again"
        text = f"name: {request.name!r} is taken by {living.uid} ({living.phase}), which asks for something else"
        return Answer(refusals=(Refusal(field="name", value=request.name, bound=bound, text=text),))

    def withdraw(self, namespace: str, message: Withdraw) -> Answer:
        """Take a living request back; a second time is no error."""
        uid = self.state.by_key.get(request_key(namespace, message.name))
        if uid is None:
            return Answer(refusals=(_nobody(namespace, message.name),))
        request = self.state.requests[uid]
        if request.withdrawn:
            return Answer(uid=uid, duplicate=True)
        self._dequeue(request)
        self._write(Withdrawn(uid=uid, reason=message.reason))
        return Answer(uid=uid)

    def resize(self, namespace: str, message: Resize) -> Answer:
        """Change the slices of a placed request on the cards that it has, or say how much is missing where."""
        uid = self.state.by_key.get(request_key(namespace, message.name))
        request = self.state.requests[uid] if uid is not None else None
        if request is None or request.placement is None or not request.placement.slices:
            return Answer(refusals=(_nobody(namespace, message.name, "placed on a card"),))
        node = self.state.nodes[request.placement.node]
        for piece in request.placement.slices:
            card = node.cards[piece.card]
            room_milli = card.free_milli + piece.share_milli
            room_mib = card.free_mib + piece.memory_mib
            if message.share_milli > max(room_milli, piece.share_milli):
                return Answer(refusals=(_no_room("share_milli", message.share_milli, room_milli, piece.card),))
            if message.memory_mib > max(room_mib, piece.memory_mib):
                return Answer(refusals=(_no_room("memory_mib", message.memory_mib, room_mib, piece.card),))
        self._write(Resized(uid=request.uid, share_milli=message.share_milli, memory_mib=message.memory_mib))
        self._improved[node.name] = None
        return Answer(uid=request.uid)

    def outcome(self, seen: Outcome) -> None:
        """Evidence from Kubernetes. What is known already, or is of a request long gone, changes nothing."""
        request = self.state.requests.get(seen.uid)
        if request is None or request.placement is None or request.key != request_key(seen.namespace, seen.name):
            return
        if seen.phase in ("bound", "running"):
            if _ORDER[request.phase] < _ORDER[seen.phase]:
                self._write(Observed(uid=seen.uid, phase=_observed(seen.phase), pod=seen.pod))
            return
        self._write(Released(uid=seen.uid, evidence=_evidence(seen.phase), detail=seen.reason))
        self._improved[request.placement.node] = None

    def inventory(self, seen: NodeInventory) -> None:
        """Cards of a node, if they changed."""
        node = self.state.nodes.get(seen.node)
        if node is None or node.inventory != seen:
            self._write(InventorySet(inventory=seen))
            self._improved[seen.node] = None

    def facts(self, seen: NodeFacts) -> None:
        """A node as Kubernetes has it, if it changed."""
        node = self.state.nodes.get(seen.node)
        if node is None and seen.gone:
            return
        if node is None or node.facts != seen:
            self._write(FactsSet(facts=seen))
            self._improved[seen.node] = None

    def health(self, change: HealthSet) -> None:
        """A node fell silent or came back."""
        node = self.state.nodes.get(change.node)
        fresh = change.health == "fresh"
        if node is None or node.fresh != fresh or (not fresh and node.reason != change.reason):
            self._write(change)
            if fresh:
                self._improved[change.node] = None

    def cordon(self, order: CordonCard) -> None:
        """An operator's word on one card; of a card that is not there it is ignored."""
        node = self.state.nodes.get(order.node)
        card = node.cards.get(order.card) if node else None
        if card is None or card.cordoned == order.cordoned:
            return
        health: Literal["cordoned", "healthy"] = "cordoned" if order.cordoned else "healthy"
        record = CardHealthSet(node=order.node, card=CardUuid(order.card), health=health, reason=order.reason)
        self._write(record)
        self._improved[order.node] = None

    # --- deciding --------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Place what can be placed now: woken waiters by priority and age, then gangs, then what just came.

        Ends when the commit is full; `unfinished` tells that more could be placed in the next one.
        """
        improved, self._improved = list(self._improved), {}
        if improved:
            self._retry(improved)
            for members in list(self._gangs.values()):
                if not self.full:
                    self._try_gang(members)
            if self.full:
                self._improved.update(dict.fromkeys(improved))
        fresh, self._fresh = self._fresh, []
        for request in sorted((self.state.pending[u] for u in fresh if u in self.state.pending), key=_priority):
            shape = shape_of(request.request)
            if self.full and shape not in self._waiting:
                self._fresh.append(request.uid)
            elif shape in self._waiting or not self._try(request):
                self._waiting.setdefault(shape, {})[request.uid] = None

    def _retry(self, improved: list[str]) -> None:
        """Waiting shapes that an improved node can take, one request after the other until it cannot."""
        woken = [s for s in self._waiting if self.placer.fits_any(s, improved)]
        queue = sorted((self.state.pending[u] for s in woken for u in self._waiting[s]), key=_priority)
        stuck: set[Shape] = set()
        for request in queue:
            if self.full:
                return
            shape = shape_of(request.request)
            if shape in stuck:
                continue
            if self._try(request):
                self._forget_waiting(shape, request.uid)
            else:
                stuck.add(shape)

    def _try(self, request: RequestState) -> bool:
        reserved = self.placer.place(request)
        if reserved is None:
            return False
        self._write(reserved)
        if request.request.locality.affinity is not None:
            self._improved[reserved.placement.node] = None  # its card is open to its group from now on
        return True

    def _try_gang(self, members: dict[RequestUid, None]) -> None:
        requests = [self.state.pending[uid] for uid in members]
        gang = requests[0].request.gang
        if gang is None or len(requests) < gang.size:
            return
        placed = self.placer.place_gang(requests)
        if placed is None:
            return
        del self._gangs[requests[0].accepted.namespace, gang.name]
        for reserved in placed:
            self._write(reserved)

    def reasons(self, request: RequestState) -> tuple[Reason, ...]:
        """Why a pending request is pending, with numbers."""
        return self.placer.reasons(request)

    @staticmethod
    def reason_key(request: RequestState) -> Hashable:
        """Requests with the same key wait for the same reasons."""
        gang = request.request.gang
        return (request.accepted.namespace, gang) if gang else shape_of(request.request)

    # --- the commit being built ------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the records so far are enough for one commit."""
        return self.size >= COMMIT_BYTES or len(self.records) >= COMMIT_RECORDS

    @property
    def unfinished(self) -> bool:
        """Whether something could be placed without any further input."""
        return bool(self._improved or self._fresh)

    def take(self) -> tuple[Record, ...]:
        """The records since the last take; they are folded already."""
        records, self.records, self.size, self._accepted = tuple(self.records), [], 0, 0
        return records

    def _write(self, record: Record) -> None:
        apply_record(self.state, record, self.state.sequence + 1)
        self.records.append(record)
        self.size += len(encode(record))

    # --- the queue -------------------------------------------------------------------------------------------------

    def _enqueue(self, request: RequestState) -> None:
        if request.request.gang is None:
            self._waiting.setdefault(shape_of(request.request), {})[request.uid] = None
        else:
            self._join(request)

    def _join(self, request: RequestState) -> None:
        gang = request.request.gang
        if gang is None:
            return
        members = self._gangs.setdefault((request.accepted.namespace, gang.name), {})
        members[request.uid] = None
        self._try_gang(members)

    def _dequeue(self, request: RequestState) -> None:
        self._forget_waiting(shape_of(request.request), request.uid)
        gang = request.request.gang
        if gang is not None:
            key = (request.accepted.namespace, gang.name)
            members = self._gangs.get(key, {})
            members.pop(request.uid, None)
            if not members:
                self._gangs.pop(key, None)

    def _forget_waiting(self, shape: Shape, uid: RequestUid) -> None:
        waiting = self._waiting.get(shape)
        if waiting is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._waiting[shape]


def _priority(request: RequestState) -> tuple[int, int, int]:
    """Queue order: higher priority, then earlier acceptance (commit number, index in it: both in the uid)."""
    _, number, index = request.uid.rsplit("-", 2)
    return (-request.request.priority, int(number), int(index))


_ORDER = {"pending": 0, "placed": 0, "bound": 1, "running": 2}


def _observed(phase: str) -> Literal["bound", "running"]:
    return "running" if phase == "running" else "bound"


def _evidence(phase: str) -> Literal["ended", "gone", "rejected"]:
    if phase == "ended":
        return "ended"
    return "rejected" if phase == "rejected" else "gone"


def _same(one: PodRequest, other: PodRequest) -> bool:
    """Equal content; what caused it does not count."""
    return one == other or msgspec.structs.replace(one, cause="") == msgspec.structs.replace(other, cause="")


def _nobody(namespace: str, name: str, what: str = "living") -> Refusal:
    bound = f"the name of a request of namespace {namespace} that is {what}"
    return Refusal(field="name", value=name, bound=bound, text=f"name: {namespace}/{name} is not {what}")


def _no_room(field: str, asked: int, room: int, card: str) -> Refusal:
    bound = f"at most {room} on card {card}"
    return Refusal(field=field, value=str(asked), bound=bound, text=f"{field}: {asked} asked, {bound}")
