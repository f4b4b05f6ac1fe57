"""Whole ledgers for tests: a log written commit by commit, legal histories drawn at random, and a judge of states.

`Log` chains and folds commits and keeps them as stored messages; `tell(steps)` makes a legal history of numbers that
Hypothesis draws; `validate(state)` counts every sum and every index of a state again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from bus.ledger.append import commit_after
from bus.ledger.fold import apply, apply_record, tell_time
from bus.ledger.proof import conservation
from bus.ledger.snapshot import copy
from bus.ledger.state import LedgerState, NodeState, RequestState
from bus.protocol import Received
from contracts.decisions import (
    Accepted,
    Adopted,
    Candidate,
    CardHealthSet,
    CardSlice,
    Commit,
    EpochStarted,
    FactsSet,
    HealthSet,
    InventorySet,
    Observed,
    Placement,
    Rationale,
    Record,
    Released,
    Reserved,
    Resized,
    Withdrawn,
)
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.messages import encode
from contracts.requests import GangRef, GpuAsk, PodRequest, PodTemplate
from contracts.subjects import LEDGER
from contracts.units import WHOLE_CARD, CardUuid, NodeName, RequestUid

EPOCH = "e0000000"


class Log:
    """Commits in a chain; `messages` is the stream."""

    def __init__(self, *, pool: str = "default", epoch: str = EPOCH, author: str = "a") -> None:
        self.state = LedgerState(pool=pool)
        self.messages: list[Received] = []
        self.commits: list[tuple[Commit, int]] = []
        self.author = author
        self.write(EpochStarted(epoch=epoch, reason="test"), epoch=epoch)

    def write(self, *records: Record, gap: int = 0, **fields: Any) -> Commit:
        """One more commit, `gap` sequences after the next one."""
        commit = commit_after(self.state, records, **{"author": self.author, **fields})
        sequence = self.state.sequence + 1 + gap
        apply(self.state, commit, sequence)
        self.commits.append((commit, sequence))
        self.messages.append(as_message(commit, sequence))
        return commit

    def replay(self, until: int | None = None) -> LedgerState:
        """A state folded from the first `until` commits."""
        state = LedgerState(pool=self.state.pool)
        for commit, sequence in self.commits[:until]:
            apply(state, commit, sequence)
        return state


def as_message(commit: Commit, sequence: int) -> Received:
    """A commit as the stream has it."""
    return Received(subject=LEDGER.subject(pool=commit.pool), data=encode(commit), sequence=sequence)


def rationale(node: str) -> Rationale:
    """Something to stand in a decision."""
    return Rationale(policy="test", chosen=Candidate(node=NodeName(node), score=0), feasible_nodes=1, rejected_nodes=0)


def reserve(request: RequestState, node: str, *slices: CardSlice, **placement: Any) -> Reserved:
    """A decision, with the CPU and host memory that were asked for unless told otherwise."""
    pod = request.request.pod
    fields = {"cpu_milli": pod.cpu_milli, "memory_mib": pod.memory_mib, **placement}
    where = Placement(node=NodeName(node), slices=slices, **fields)
    return Reserved(uid=request.uid, placement=where, rationale=rationale(node))


def piece(card: str, share_milli: int, memory_mib: int = 0) -> CardSlice:
    """A slice of a card."""
    return CardSlice(card=CardUuid(card), share_milli=share_milli, memory_mib=memory_mib)


def inventory(name: str, *uuids: str, memory_mib: int = 81_920) -> InventorySet:
    """A node with these cards, in this order."""
    cards = tuple(
        Card(uuid=CardUuid(uuid), index=i, model="A100", memory_total_mib=memory_mib) for i, uuid in enumerate(uuids)
    )
    return InventorySet(inventory=NodeInventory(node=NodeName(name), boot_id="b", incarnation="i", cards=cards))


def accepted(uid: str, name: str, **fields: Any) -> Accepted:
    """An acceptance of a small request, in namespace `default`."""
    request = PodRequest(name=name, pod=PodTemplate(image="i"))
    return Accepted(uid=RequestUid(uid), namespace="default", request=request, **fields)


def adopted(uid: str, *slices: CardSlice, on: str = "n1", **fields: Any) -> Adopted:
    """A placement found in Kubernetes."""
    return Adopted(uid=RequestUid(uid), placement=Placement(node=NodeName(on), slices=slices), **fields)


# --- random histories ----------------------------------------------------------------------------------------------

NODES = ("n1", "n2", "n3")
NAMES = 12
SHARES = (1, 100, 180, 250, 333, 500, 1000)
MEMORIES = (0, 1, 2_000, 8_000)
CARD_MEMORY = (16_000, 24_000)

Step = tuple[str, int, int]


class Story:
    """A log and the state that its author assumes; what cannot happen is left out."""

    def __init__(self) -> None:
        self.log = Log()
        self.assumed = copy(self.log.state)
        self._records: list[Record] = []
        self._accepted = 0

    def take(self, step: Step) -> None:
        """What happens next."""
        kind, a, b = step
        if kind == "commit":
            self.commit()
            return
        for record in list(getattr(self, f"_{kind}")(a, b)):
            apply_record(self.assumed, record, self.assumed.sequence + 1)
            self._records.append(record)

    def commit(self) -> None:
        """Write what has happened since the last commit."""
        self.log.write(*self._records)
        self._records, self._accepted = [], 0
        self.assumed.sequence, self.assumed.number = self.log.state.sequence, self.log.state.number
        tell_time(self.assumed, 0)

    def _node(self, a: int) -> NodeState | None:
        return self.assumed.nodes.get(NODES[a % len(NODES)])

    def _request(self, a: int, *, placed: bool) -> RequestState | None:
        fits = [r for r in self.assumed.requests.values() if (r.placement is not None) == placed]
        return fits[a % len(fits)] if fits else None

    def _cards(self, a: int, b: int) -> Iterable[Record]:
        name = NODES[a % len(NODES)]
        cards = [
            Card(uuid=CardUuid(f"{name}-{i}"), index=i, model="m", memory_total_mib=CARD_MEMORY[b % 2])
            for i in range(b % 4)
        ]
        if b % 5 == 0:
            cards.append(Card(uuid=CardUuid("shared"), index=9, model="m", memory_total_mib=16_000))
        inventory = NodeInventory(node=NodeName(name), boot_id="b", incarnation="i", cards=tuple(cards))
        yield InventorySet(inventory=inventory)

    def _facts(self, a: int, b: int) -> Iterable[Record]:
        yield FactsSet(
            facts=NodeFacts(
                node=NodeName(NODES[a % len(NODES)]),
                uid="u",
                gone=b % 7 == 0,
                allocatable_cpu_milli=4_000 + b,
                allocatable_memory_mib=8_000,
                allocatable_pods=6,
                foreign_pods=b % 3,
            )
        )

    def _health(self, a: int, b: int) -> Iterable[Record]:
        yield HealthSet(node=NodeName(NODES[a % len(NODES)]), health="suspect" if b % 4 == 0 else "fresh")

    def _card_health(self, a: int, b: int) -> Iterable[Record]:
        node = self._node(a)
        if node is not None and node.cards:
            uuid = list(node.cards)[b % len(node.cards)]
            health = ("healthy", "healthy", "suspect", "failed", "cordoned")[(a + b) % 5]
            yield CardHealthSet(node=NodeName(node.name), card=CardUuid(uuid), health=health)  # type: ignore[arg-type]

    def _accept(self, a: int, b: int) -> Iterable[Record]:
        name = f"r{a % NAMES}"
        if f"ns/{name}" in self.assumed.by_key:
            return
        memory = MEMORIES[b % len(MEMORIES)]
        yield Accepted(
            uid=RequestUid(f"{EPOCH}-{self.assumed.number + 1}-{self._accepted}"),
            namespace="ns",
            request=PodRequest(
                name=name,
                pod=PodTemplate(image="i", cpu_milli=100 * (b % 9), memory_mib=b % 500),
                gpu=GpuAsk(cards=a % 3, share_milli=SHARES[(a + b) % len(SHARES)], memory_mib=memory),
                gang=GangRef(name=f"g{a % 2}", size=2) if b % 3 == 0 else None,
            ),
        )
        self._accepted += 1

    def _place(self, a: int, _b: int) -> Iterable[Record]:
        request = self._request(a, placed=False)
        gang = request.request.gang if request else None
        if request is not None and gang is None:
            yield from first_fit(self.assumed, [request])
        elif gang is not None:
            pending = [r for r in self.assumed.pending.values() if r.request.gang == gang]
            if len(pending) >= gang.size:
                yield from first_fit(self.assumed, pending)

    def _adopt(self, a: int, b: int) -> Iterable[Record]:
        for record in self._accept(a, b):
            yield record
            assert isinstance(record, Accepted)
            uuid = f"{NODES[b % 3]}-{a % 5}"
            placement = Placement(
                node=NodeName(NODES[b % 3]), slices=(piece(uuid, SHARES[b % 7], 5_000),), cpu_milli=50
            )
            yield Adopted(uid=record.uid, placement=placement, pod="p", running=a % 2 == 0)

    def _withdraw(self, a: int, b: int) -> Iterable[Record]:
        request = self._request(a, placed=b % 2 == 0)
        if request is not None:
            yield Withdrawn(uid=request.uid, reason="changed my mind")

    def _observe(self, a: int, b: int) -> Iterable[Record]:
        request = self._request(a, placed=True)
        if request is not None:
            yield Observed(uid=request.uid, phase="running" if b % 2 else "bound", pod=f"p{b}")

    def _release(self, a: int, b: int) -> Iterable[Record]:
        request = self._request(a, placed=True)
        if request is not None:
            evidence = ("ended", "gone", "never-created", "node-gone", "rejected")[b % 5]
            yield Released(uid=request.uid, evidence=evidence)  # type: ignore[arg-type]

    def _resize(self, a: int, b: int) -> Iterable[Record]:
        request = self._request(a, placed=True)
        if request is None or request.placement is None or not request.placement.slices:
            return
        cards = self.assumed.nodes[request.placement.node].cards
        share, memory = SHARES[b % len(SHARES)], MEMORIES[b % len(MEMORIES)]
        held = request.placement.slices
        if all(share - p.share_milli <= max(0, cards[p.card].free_milli) for p in held) and all(
            memory - p.memory_mib <= max(0, cards[p.card].free_mib) for p in held
        ):
            yield Resized(uid=request.uid, share_milli=share, memory_mib=memory)


def first_fit(state: LedgerState, requests: Sequence[RequestState]) -> list[Record]:
    """Decisions for all of `requests` on the first nodes that take them, or none at all. A scheduler in 20 lines."""
    trial, decided = copy(state), list[Record]()
    for request in requests:
        for name in sorted(trial.nodes):
            found = _fit(trial.nodes[name], request)
            if found is not None:
                apply_record(trial, found, trial.sequence + 1)
                decided.append(found)
                break
        else:
            return []
    return decided


def _fit(node: NodeState, request: RequestState) -> Reserved | None:
    gpu, pod = request.request.gpu, request.request.pod
    memory = gpu.memory_mib or 0
    facts = node.facts
    if facts is None or facts.gone or not node.fresh or node.free_pods < 1:
        return None
    if max(pod.cpu_milli, 0) > max(0, node.free_cpu_milli) or pod.memory_mib > max(0, node.free_memory_mib):
        return None
    cards = [c for c in node.cards.values() if c.usable and c.free_milli >= gpu.share_milli and c.free_mib >= memory]
    if len(cards) < gpu.cards:
        return None
    return reserve(request, node.name, *(piece(c.card.uuid, gpu.share_milli, memory) for c in cards[: gpu.cards]))


KINDS = (
    *("cards", "facts", "health") * 2,
    *("accept", "place") * 4,
    *("commit", "release", "observe") * 2,
    *("card_health", "adopt", "withdraw", "resize"),
)
_OPENING: tuple[Step, ...] = (("cards", 0, 3), ("facts", 0, 1), ("health", 0, 1), ("cards", 1, 2), ("facts", 1, 2))

steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 59), st.integers(0, 59)), max_size=50)
"""Histories: what happens, and two numbers that say to whom and how much."""


def tell(history: Sequence[Step]) -> Story:
    """A legal history, all of it committed."""
    story = Story()
    for step in (*_OPENING, ("health", 1, 1), *history, ("commit", 0, 0)):
        story.take(step)
    return story


# --- judging a state -----------------------------------------------------------------------------------------------


def validate(state: LedgerState) -> None:
    """Every sum and every index of a state, counted again from the requests. Raises AssertionError."""
    assert conservation(state)
    assert state.pending == {u: r for u, r in state.requests.items() if r.placement is None}
    assert all(state.requests[u] is r for u, r in state.pending.items())
    assert state.by_key == {r.key: u for u, r in state.requests.items()}
    assert state.recent_by_key == {r.key: u for u, r in state.recent.items()}
    assert all((r.phase == "pending") == (r.placement is None) for r in state.requests.values())
    assert all(r.phase in ("withdrawn", "ended") and r.ending for r in state.recent.values())
    for node in state.nodes.values():
        _validate_node(state, node)
    homes = {u: n.name for n in state.nodes.values() for u, c in n.cards.items() if c.present and not c.rival}
    assert state.homes == homes


def _validate_node(state: LedgerState, node: NodeState) -> None:
    here = {r.uid: r.placement for r in state.requests.values() if r.placement and r.placement.node == node.name}
    assert node.residents == here
    assert node.used_cpu_milli == sum(p.cpu_milli for p in here.values())
    assert node.used_memory_mib == sum(p.memory_mib for p in here.values())
    assert not (node.facts and node.facts.gone and not here), "a node that is gone and empty is forgotten"
    pieces = {u: {p.card: p for p in placement.slices} for u, placement in here.items()}
    assert {p for by_card in pieces.values() for p in by_card} <= node.cards.keys()
    for uuid, card in node.cards.items():
        assert card.residents == {u: by_card[uuid] for u, by_card in pieces.items() if uuid in by_card}
        assert card.used_milli == sum(p.share_milli for p in card.residents.values())
        assert card.used_mib == sum(p.memory_mib for p in card.residents.values())
        assert card.present or card.residents
        assert not (card.rival and card.usable)


def over(state: LedgerState) -> list[str]:
    """Cards over a whole one by decisions alone: none of their residents was adopted."""
    found = []
    for card in state.cards():
        decided = all(state.requests[uid].rationale is not None for uid in card.residents)
        if decided and card.used_milli > WHOLE_CARD:
            found.append(card.card.uuid)
    return found
