"""The queue and the commit being built: facts and requests in, records and answers out.

An engine owns an *assumed* state. Every record it makes is folded at once, so that the next decision sees it, and is
kept for the commit. When the commit is stored, the service seals it; when it is lost, the engine is dropped and a new
one begins from the committed state. Pure: no I/O, no clock; wall time comes in for display only.

Here is what facts and requests do to the ledger; who is tried when, who holds whose place, and who has to leave for
whom is the queue's (`scheduler.core.queue`).

A commit is one message and messages have a limit: when the records are enough for one (`full`), the rest of the work
waits for the next commit (`unfinished`). Four thousand waiting pods and one large new node make several commits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal

import msgspec

from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import (
    Accepted,
    FactsSet,
    HealthSet,
    InventorySet,
    Observed,
    QuotaSet,
    Record,
    Refused,
    Released,
    Resized,
    Withdrawn,
)
from contracts.inventory import CordonCard, NodeFacts, NodeInventory
from contracts.messages import Value, encode
from contracts.outcomes import Outcome, Reason, Refusal
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest, Resize, Withdraw
from contracts.units import RequestUid, request_key
from scheduler.core.cordons import cordoning, outdated
from scheduler.core.message_room import MESSAGE_BYTES
from scheduler.core.placer import Placer
from scheduler.core.putback import put_back
from scheduler.core.queue import quota, told
from scheduler.core.queue.desk import always
from scheduler.core.queue.queue import Queue, QueueRules
from scheduler.core.queue.waiting import kind_of

COMMIT_BYTES = 512 * 1024
"""Records of so many bytes are enough for one commit. The server takes 1 MiB; what one more input may add is at most
256 KiB (a node's facts). A gang that does not fit the rest waits for the next one (`scheduler.core.message_room`)."""

COMMIT_RECORDS = 1000
"""And so many at most, though a commit may hold 5,000: a turn of the loop ends with its commit, and whoever decides for
longer than the lease lasts loses it. At 2,000 records a second, on a machine that is busy with other things, 1,000 take
half a second."""


class Answer(Value, frozen=True, kw_only=True):
    """What a submit is told once the commit is stored: accepted (again), or refused."""

    uid: RequestUid = RequestUid("")
    duplicate: bool = False
    refusals: tuple[Refusal, ...] = ()
    ledger_sequence: int = 0
    """Filled in when the commit is stored."""


DEFAULT_RULES = QueueRules()

MAX_TEXT = 1024
"""Characters of a `ShortText`."""


class Engine:
    """Decisions ahead of the log over one assumed state.

    Args:
        state: the assumed state; nobody else may change it.
        policy: name of the default placement policy.
        rules: what an operator chose for the queue.
    """

    def __init__(self, state: LedgerState, *, policy: str, rules: QueueRules = DEFAULT_RULES) -> None:
        self.state = state
        self.policy = policy
        self.placer = Placer(state, default_policy=policy)
        self.records: list[Record] = []
        self.size = 0
        """Bytes of the records, as they will be sent."""
        self._accepted = 0
        self.rules = rules
        self.queue = Queue(state, self.placer, self._write, lambda: self.full, rules=rules, policy=policy)
        self.queue.desk.room = lambda: MESSAGE_BYTES - self.size

    # --- what comes in ---------------------------------------------------------------------------------------------

    def submit(
        self, namespace: str, request: PodRequest, *, trace: str = "", sequence: int = 0, now_ms: int = 0
    ) -> Answer:
        """Accept a request, recognise it as one that lives already, or refuse a second one under a living name."""
        living = self.state.by_key.get(request_key(namespace, request.name))
        if living is not None:
            return self._again(self.state.requests[living], request)
        if (refusal := quota.too_important(self.state, namespace, request)) is not None:
            return Answer(refusals=(refusal,))
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
        self.queue.entered(self.state.requests[uid])
        return Answer(uid=uid)

    @staticmethod
    def _again(living: RequestState, request: PodRequest) -> Answer:
        if _same(living.request, request):
            return Answer(uid=living.uid, duplicate=True)
        bound = "a name that no living request has, or the same content again"
        text = f"name: {request.name!r} is taken by {living.uid} ({living.phase}), which asks for something else"
        return Answer(refusals=(Refusal(field="name", value=request.name, bound=bound, text=text),))

    def refuse(self, namespace: str, name: str, refusals: tuple[Refusal, ...], *, sequence: int) -> None:
        """Say in the commit that a message of the requests stream is not accepted, and why."""
        told = tuple(map(_bounded, refusals))
        self._write(Refused(namespace=namespace, name=name, request_sequence=sequence, refusals=told))

    def withdraw(self, namespace: str, message: Withdraw) -> Answer:
        """Take a living request back; a second time is no error."""
        uid = self.state.by_key.get(request_key(namespace, message.name))
        if uid is None:
            return Answer(refusals=(_nobody(namespace, message.name),))
        request = self.state.requests[uid]
        if request.withdrawn:
            return Answer(uid=uid, duplicate=True)
        if request.placement is None:
            self.queue.left(request)
            held_on = request.nomination.placement.node if request.nomination is not None else ""
        else:
            held_on = ""
            self.queue.leaving(request.placement.node)
        self._write(Withdrawn(uid=uid, reason=message.reason))
        self.queue.gone(request)
        if held_on:
            self.queue.improved(held_on)
        return Answer(uid=uid)

    def resize(self, namespace: str, message: Resize) -> Answer:
        """Change the slices of a placed request on the cards that it has, or say how much is missing where."""
        uid = self.state.by_key.get(request_key(namespace, message.name))
        request = self.state.requests[uid] if uid is not None else None
        if request is None or request.placement is None or not request.placement.slices:
            return Answer(refusals=(_nobody(namespace, message.name, "placed on a card"),))
        node = self.state.nodes[request.placement.node]
        for piece in request.placement.slices:
            card, where = node.cards[piece.card], f"card {piece.card}"
            room_milli = card.free_milli + piece.share_milli
            room_mib = card.free_mib + piece.memory_mib
            if message.share_milli > max(room_milli, piece.share_milli):
                return Answer(refusals=(_no_room("share_milli", message.share_milli, room_milli, where),))
            if message.memory_mib > max(room_mib, piece.memory_mib):
                return Answer(refusals=(_no_room("memory_mib", message.memory_mib, room_mib, where),))
        room_cpu = node.free_cpu_milli + request.placement.cpu_milli
        if message.cpu_milli is not None and message.cpu_milli > max(room_cpu, request.placement.cpu_milli):
            return Answer(refusals=(_no_room("cpu_milli", message.cpu_milli, room_cpu, f"node {node.name}"),))
        if (over := quota.growth(self.state, request, message)) is not None:
            return Answer(refusals=(quota.refusal(over),))
        record = Resized(
            uid=request.uid,
            share_milli=message.share_milli,
            memory_mib=message.memory_mib,
            cpu_milli=message.cpu_milli,
        )
        self._resized(request, record)
        return Answer(uid=request.uid)

    def _resized(self, request: RequestState, record: Resized) -> None:
        self._write(record)
        if request.placement is not None:
            self.queue.improved(request.placement.node)
        self.queue.namespace_changed(request.accepted.namespace)

    def outcome(self, seen: Outcome) -> None:
        """Evidence from Kubernetes. What is known already, or is of a request long gone, changes nothing."""
        request = self.state.requests.get(seen.uid)
        if request is None or request.placement is None or request.key != request_key(seen.namespace, seen.name):
            return
        if seen.attempt != request.attempt:
            return  # of a pod that had to leave, and was told before
        if seen.phase in _ORDER:
            if _is_news(request, seen):
                phase, pod = _observed(seen.phase), seen.pod if seen.phase != "waiting" else ""
                self._write(Observed(uid=seen.uid, phase=phase, pod=pod, detail=seen.reason))
            if seen.resize_refused is not None and (back := put_back(self.state, request, seen)) is not None:
                self._resized(request, back)
            return
        node, requeue = request.placement.node, self._waits_again(request, seen)
        self._write(Released(uid=seen.uid, evidence=_evidence(seen.phase), detail=seen.reason, requeue=requeue))
        self.queue.gone(request)
        self.queue.improved(node)
        if requeue:
            self.queue.entered(request)

    def _waits_again(self, request: RequestState, seen: Outcome) -> bool:
        """It had to leave for another one, and has not come to its own end meanwhile."""
        done = seen.phase == "rejected" or (seen.phase == "ended" and seen.exit_code == 0)
        return self.rules.requeue and request.evicted_for != "" and not request.withdrawn and not done

    def inventory(self, seen: NodeInventory) -> None:
        """Cards of a node, if they changed; a copy of what its monitor said earlier changes nothing."""
        node = self.state.nodes.get(seen.node)
        if node is None or (node.inventory != seen and not outdated(seen, node.inventory)):
            self._write(InventorySet(inventory=seen))
            self.queue.cards_changed()
            self.queue.improved(seen.node)

    def facts(self, seen: NodeFacts) -> None:
        """A node as Kubernetes has it, if it changed."""
        node = self.state.nodes.get(seen.node)
        if node is None and seen.gone:
            return
        if node is None or node.facts != seen:
            self._write(FactsSet(facts=seen))
            self.queue.cards_changed()
            self.queue.improved(seen.node)

    def health(self, change: HealthSet) -> None:
        """A node fell silent or came back."""
        node = self.state.nodes.get(change.node)
        fresh = change.health == "fresh"
        if node is None or node.fresh != fresh or (not fresh and node.reason != change.reason):
            self._write(change)
            if fresh:
                self.queue.improved(change.node)

    def cordon(self, order: CordonCard) -> None:
        """An operator's word on one card, if it changes something; of a node that is not there it is ignored."""
        node = self.state.nodes.get(order.node)
        record = cordoning(node, order) if node is not None else None
        if record is None:
            return
        self._write(record)
        self.queue.improved(order.node)

    def quota(self, word: NamespaceQuota) -> None:
        """An operator's word on a namespace, if it is news."""
        if self.state.quotas.get(word.namespace) != word:
            self._write(QuotaSet(quota=word))
            self.queue.namespace_changed(word.namespace)

    # --- deciding --------------------------------------------------------------------------------------------------

    def schedule(self, may_go_on: Callable[[], bool] = always) -> None:
        """Place what can be placed now, nominate what must wait for others to leave; `scheduler.core.queue` tells who.

        Ends when the commit is full or `may_go_on`, asked after each unit, says no; `unfinished` tells that more could
        be done in the next one. What is decided follows from the log; where it is cut into commits may follow from
        time. One unit, a gang that asks others to leave, is the least: 0.6 s for 32 x 8 cards on 1,000 full nodes.
        """
        self.queue.turn(may_go_on)

    def prepare(self, nodes: int) -> bool:
        """Make ready what a first search for victims would make: of so many nodes, 0.2 ms each; whether there are more.

        To be called when nothing else is to be done: it changes no decision, only how long the first one takes.
        """
        return self.rules.preemption and self.queue.desk.search.loads.prepare(nodes)

    def reasons(self, request: RequestState) -> tuple[Reason, ...]:
        """Why a pending request is pending, with numbers: what the queue says of it, then what the nodes do."""
        found = told.reasons(self.state, request)
        if request.nomination is not None:
            return found
        found += self.placer.reasons(request)
        return found or told.beyond(self.state, request, self.queue.would_get(request)) or told.NEXT_IN_TURN

    @staticmethod
    def reason_key(request: RequestState) -> Hashable:
        """Requests with the same key wait for the same reasons."""
        gang = request.request.gang
        if request.nomination is not None:
            return request.uid
        return (request.accepted.namespace, gang.name) if gang else kind_of(request)

    # --- the commit being built ------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the records so far are enough for one commit."""
        return self.size >= COMMIT_BYTES or len(self.records) >= COMMIT_RECORDS

    @property
    def laden(self) -> bool:
        """Whether what came in fills half a commit.

        The other half is for decisions, or a backlog would be accepted whole before its first request is placed. And
        nothing comes in before a gang has been tried that wants a commit for itself.
        """
        if self.queue.gangs.crowded:
            return True
        return 2 * self.size >= COMMIT_BYTES or 2 * len(self.records) >= COMMIT_RECORDS

    @property
    def unfinished(self) -> bool:
        """Whether something could be placed without any further input."""
        return self.queue.unfinished

    def take(self) -> tuple[Record, ...]:
        """The records since the last take; they are folded already."""
        records, self.records, self.size, self._accepted = tuple(self.records), [], 0, 0
        return records

    def _write(self, record: Record) -> None:
        apply_record(self.state, record, self.state.sequence + 1)
        self.records.append(record)
        self.size += len(encode(record)) + 1


_ORDER = {"pending": 0, "placed": 0, "waiting": 0, "bound": 1, "running": 2}


def _is_news(request: RequestState, seen: Outcome) -> bool:
    """It has come further, or gets no further for another reason."""
    stuck = seen.reason != request.detail and not request.withdrawn
    return _ORDER[request.phase] < _ORDER[seen.phase] or (_ORDER[request.phase] == _ORDER[seen.phase] and stuck)


def _observed(phase: str) -> Literal["placed", "bound", "running"]:
    if phase == "waiting":
        return "placed"
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


def _bounded(refusal: Refusal) -> Refusal:
    """As long as a record may be: what cannot be read back must not get into the log."""
    if max(map(len, msgspec.structs.astuple(refusal))) <= MAX_TEXT:
        return refusal
    return Refusal(**{key: text[:MAX_TEXT] for key, text in msgspec.structs.asdict(refusal).items()})


def _no_room(field: str, asked: int, room: int, where: str) -> Refusal:
    bound = f"at most {room} on {where}"
    return Refusal(field=field, value=str(asked), bound=bound, text=f"{field}: {asked} asked, {bound}")
