"""A state machine over the scheduler's core: whatever happens in whatever order, the rules of the house hold.

Requests come, repeat and are withdrawn; nodes come, fall silent, lose cards and go; pods run, end and vanish; the
important ask others to leave, quotas come and go, time passes; the scheduler restarts, and commits are lost to another
author. After each step every invariant is checked on the committed state, which is folded from the commits alone.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bus.ledger.fold import apply, seal
from bus.ledger.snapshot import copy, digest, dump, load
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Commit, EpochStarted, HealthSet, Nominated, Record, Released, Reserved
from contracts.inventory import Card, CordonCard, NodeFacts, NodeInventory
from contracts.outcomes import Outcome
from contracts.priorities import priority_of
from contracts.quotas import NamespaceQuota
from contracts.requests import GangRef, GpuAsk, Locality, PodRequest, PodTemplate, Resize, Withdraw
from contracts.units import WHOLE_CARD, CardUuid, NodeName
from scheduler.core.engine import Engine
from scheduler.core.placer import Placer
from scheduler.core.policies import POLICIES
from scheduler.core.queue import quota
from scheduler.core.replay import replay

NODES = [NodeName(f"n{i}") for i in range(3)]
NAMES = [f"r{i}" for i in range(12)]
SPACES = ["ns", "other"]
MINUTE_MS = 60_000
TURNS = 40
SHARES = [1, 180, 250, 333, 500, 1000]

asks = st.builds(
    GpuAsk,
    cards=st.integers(0, 3),
    share_milli=st.sampled_from(SHARES),
    memory_mib=st.sampled_from([None, None, 1, 4_000, 16_000]),
)
requests = st.builds(
    PodRequest,
    name=st.sampled_from(NAMES),
    pod=st.builds(PodTemplate, image=st.just("i"), cpu_milli=st.sampled_from([0, 500, 4000])),
    gpu=asks,
    priority=st.sampled_from([0, 0, 10]),
    priority_class=st.sampled_from([None, None, "high", "critical", "low"]),
    expected_s=st.sampled_from([None, None, 60, 600]),
    policy=st.sampled_from([None, *sorted(POLICIES)]),
    gang=st.none()
    | st.builds(
        GangRef, name=st.sampled_from(["g", "h"]), size=st.integers(1, 3), min=st.sampled_from([None, None, 1])
    ),
    locality=st.builds(
        Locality,
        affinity=st.sampled_from([None, None, "x"]),
        anti_affinity=st.sampled_from([None, None, "y"]),
        exclusion=st.sampled_from([None, None, "z"]),
    ),
)


def inventory(node: NodeName, cards: int, memory_mib: int) -> NodeInventory:
    """A node with so many cards."""
    return NodeInventory(
        node=node,
        boot_id="b",
        incarnation="i",
        cards=tuple(
            Card(uuid=CardUuid(f"{node}-{i}"), index=i, model="m", memory_total_mib=memory_mib, memory_reserved_mib=3)
            for i in range(cards)
        ),
    )


class Scheduling(RuleBasedStateMachine):
    """The engine with a log behind it."""

    @initialize(nodes=st.sampled_from([0, 1, 2, 2, 2]), cards=st.integers(1, 3))
    def begin(self, nodes: int, cards: int) -> None:
        """An empty ledger begins an epoch; some nodes are there already."""
        self.log: list[Commit] = []
        self.committed = LedgerState()
        self.decided: Counter[tuple[str, int]] = Counter()
        self.now_ms = MINUTE_MS
        self.gangs: dict[str, tuple[str, GangRef]] = {}
        self.seated: dict[tuple[str, str], set[str]] = {}
        self.broken_gangs: dict[tuple[str, str], int] = {}
        self._store([EpochStarted(epoch="e1", reason="test")], "e1")
        self._restart()
        for node in NODES[:nodes]:
            self.engine.inventory(inventory(node, cards, 40_536))
            self.engine.facts(
                NodeFacts(node=node, uid="u", allocatable_cpu_milli=8_000, allocatable_memory_mib=100_000)
            )
            self.engine.health(HealthSet(node=node, health="fresh"))
        self._turn()

    # --- the service around the core -------------------------------------------------------------------------------

    def _store(self, records: list[Record] | tuple[Record, ...], epoch: str) -> None:
        state = self.committed
        commit = Commit(
            pool="default",
            epoch=epoch,
            number=state.number + 1,
            predecessor=state.sequence,
            author="a",
            at_ms=self.now_ms,
            records=tuple(records),
        )
        self._count(records)
        apply(state, commit, state.sequence + 1)
        self.log.append(commit)

    def _count(self, records: list[Record] | tuple[Record, ...]) -> None:
        """Decisions by request and attempt; members of gangs that have, or had, a place."""
        attempts = {uid: r.attempt for uid, r in self.committed.requests.items()}
        touched: dict[tuple[str, str], int] = {}
        for record in records:
            if isinstance(record, Accepted) and record.request.gang:
                self.gangs[record.uid] = (record.namespace, record.request.gang)
            elif isinstance(record, Reserved):
                self.decided[record.uid, attempts.get(record.uid, 0)] += 1
                if record.uid in self.gangs:
                    namespace, gang = self.gangs[record.uid]
                    self.seated.setdefault((namespace, gang.name), set()).add(record.uid)
                    touched[namespace, gang.name] = max(gang.needed, touched.get((namespace, gang.name), 0))
            elif isinstance(record, Released) and record.requeue:
                attempts[record.uid] += 1
                if record.uid in self.gangs:
                    namespace, gang = self.gangs[record.uid]
                    self.seated[namespace, gang.name].discard(record.uid)
        self.broken_gangs = {key: needed for key, needed in touched.items() if len(self.seated[key]) < needed}

    def _restart(self) -> None:
        self.engine = Engine(copy(self.committed), policy="packing")

    def _turn(self, *, lost: bool = False, most: int = TURNS) -> None:
        """Schedule, take, and store or lose the commit; with so many turns at most it comes to rest."""
        assert most, "decisions without end: a nomination ends and begins again"
        self.engine.schedule()
        records = self.engine.take()
        if not records:
            return
        if lost:
            self._restart()
            return
        self._store(records, "e1")
        seal(self.engine.state, self.log[-1], self.committed.sequence)
        self._turn(most=most - 1)  # a commit tells the time, and that may be news

    # --- what happens ----------------------------------------------------------------------------------------------

    @rule(
        batch=st.lists(requests, min_size=1, max_size=5),
        space=st.sampled_from(SPACES),
        lost=st.sampled_from([False, False, False, True]),
    )
    def submit(self, batch: list[PodRequest], space: str, *, lost: bool) -> None:
        """Some requests arrive together; their commit may be lost."""
        for request in batch:
            self.engine.submit(space, request, now_ms=self.now_ms)
        self._turn(lost=lost)

    @rule(minutes=st.sampled_from([1, 10, 100]))
    def time_passes(self, minutes: int) -> None:
        """An empty commit tells the time."""
        self.now_ms += minutes * MINUTE_MS
        self._store([], "e1")
        seal(self.engine.state, self.log[-1], self.committed.sequence)
        self._turn()

    @rule(
        space=st.sampled_from(SPACES),
        share=st.sampled_from([None, 0, 500, 2000]),
        memory=st.sampled_from([None, None, 20_000]),
        weight=st.sampled_from([1, 3]),
        removed=st.sampled_from([False, False, False, True]),
    )
    def quota(self, space: str, share: int | None, memory: int | None, weight: int, *, removed: bool) -> None:
        """An operator says what a namespace may hold."""
        word = NamespaceQuota(namespace=space, share_milli=share, memory_mib=memory, weight=weight, removed=removed)
        self.engine.quota(word)
        self._turn()

    @rule(name=st.sampled_from(NAMES))
    def withdraw(self, name: str) -> None:
        """A user changes their mind."""
        self.engine.withdraw("ns", Withdraw(name=name))
        self._turn()

    @rule(name=st.sampled_from(NAMES), share=st.sampled_from(SHARES), memory=st.sampled_from([1, 4_000, 40_000]))
    def resize(self, name: str, share: int, memory: int) -> None:
        """A user wants more or less of the cards they have."""
        self.engine.resize("ns", Resize(name=name, share_milli=share, memory_mib=memory))
        self._turn()

    @rule(node=st.sampled_from(NODES), cards=st.integers(0, 4), memory_mib=st.sampled_from([16_001, 40_536]))
    def cards_change(self, node: NodeName, cards: int, memory_mib: int) -> None:
        """A monitor starts, or its cards were replaced."""
        self.engine.inventory(inventory(node, cards, memory_mib))
        self._turn()

    @rule(
        node=st.sampled_from(NODES), ready=st.booleans(), gone=st.sampled_from([False, False, True]), cpu=st.just(8_000)
    )
    def node_changes(self, node: NodeName, *, ready: bool, gone: bool, cpu: int) -> None:
        """Kubernetes says something of a node."""
        facts = NodeFacts(
            node=node, uid="u", ready=ready, gone=gone, allocatable_cpu_milli=cpu, allocatable_memory_mib=100_000
        )
        self.engine.facts(facts)
        self._turn()

    @rule(node=st.sampled_from(NODES), fresh=st.booleans())
    def node_speaks_or_falls_silent(self, node: NodeName, *, fresh: bool) -> None:
        """Heartbeats come or stop."""
        self.engine.health(HealthSet(node=node, health="fresh" if fresh else "suspect"))
        self._turn()

    @rule(node=st.sampled_from(NODES), index=st.integers(0, 3), cordoned=st.booleans())
    def cordon(self, node: NodeName, index: int, *, cordoned: bool) -> None:
        """An operator takes a card out, or gives it back."""
        self.engine.cordon(CordonCard(node=node, card=CardUuid(f"{node}-{index}"), cordoned=cordoned))
        self._turn()

    @precondition(lambda self: self.committed.requests)
    @rule(data=st.data(), phase=st.sampled_from(["bound", "running", "ended", "gone", "rejected"]), twice=st.booleans())
    def outcome(self, data: st.DataObject, phase: str, *, twice: bool) -> None:
        """Kubernetes says something of a pod, perhaps twice."""
        request = self.committed.requests[data.draw(st.sampled_from(sorted(self.committed.requests)))]
        seen = Outcome(
            uid=request.uid,
            namespace=request.accepted.namespace,
            name=request.request.name,
            phase=phase,  # type: ignore[arg-type]  # drawn from its values
            pod="p",
            attempt=request.attempt,
        )
        for _ in range(1 + twice):
            self.engine.outcome(seen)
        self._turn()

    @rule()
    def restart(self) -> None:
        """The scheduler starts again, from a checkpoint."""
        self.committed = load(dump(self.committed))
        self._restart()

    @rule()
    def retry(self) -> None:
        """Another turn without news changes nothing that was decided."""
        before = digest(self.committed)
        self._turn()
        self._turn()
        if not self.engine.records and digest(self.committed) != before:
            assert self.log[-1].records

    # --- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def no_card_is_over_committed(self) -> None:
        """Sums over the placements, counted here and not taken from the state's own sums."""
        sold: dict[str, tuple[int, int]] = {}
        for request in self.committed.requests.values():
            slices = request.placement.slices if request.placement else ()
            pieces = [(str(p.card), p.share_milli, p.memory_mib) for p in slices]
            pieces += [(card, *amounts) for card, amounts in request.held.cards.items()] if request.held else []
            for card, share, memory in pieces:
                milli, mib = sold.get(card, (0, 0))
                sold[card] = (milli + share, mib + memory)
        for each in self.committed.cards():
            milli, mib = sold.get(each.card.uuid, (0, 0))
            assert (milli, mib) == (each.used_milli, each.used_mib)
            assert milli <= WHOLE_CARD

    @invariant()
    def every_accepted_request_is_in_exactly_one_place(self) -> None:
        """Pending, placed, withdrawn or ended: the counts add up."""
        state = self.committed
        assert state.totals.accepted == len(state.requests) + state.totals.withdrawn + state.totals.ended
        assert set(state.pending) == {u for u, r in state.requests.items() if r.placement is None}

    @invariant()
    def no_request_is_decided_twice(self) -> None:
        """One decision per request and attempt, in the whole log."""
        assert all(count == 1 for count in self.decided.values())

    @invariant()
    def gangs_are_all_or_nothing(self) -> None:
        """Every commit that places a member of a gang leaves as many placed, now or before, as the gang needs."""
        assert not self.broken_gangs

    @invariant()
    def the_assumed_state_is_the_committed_one(self) -> None:
        """Between turns nothing is assumed that is not committed."""
        assert digest(self.engine.state) == digest(self.committed)

    @invariant()
    def what_waits_has_reasons_with_numbers(self) -> None:
        """A pending answer names what is missing; that it will be tried is an answer only before it has been."""
        for request in self.engine.state.pending.values():
            reasons = self.engine.reasons(request)
            assert reasons
            assert all(reason.text for reason in reasons)
            assert self.engine.unfinished or reasons[0].code != "queued"

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        """Asked one by one and without the queue's index: no single request fits somewhere within its quota."""
        if self.engine.unfinished:
            return
        state, placer = self.engine.state, Placer(self.engine.state, "packing")
        for request in state.pending.values():
            found = placer.place(request) if request.request.gang is None and request.nomination is None else None
            if found is not None and quota.held_back(state, (request,)) is None:
                assert quota.beyond(state, request.accepted.namespace, (found.placement,)) is not None, request.uid

    @invariant()
    def nobody_gets_what_is_kept_for_another(self) -> None:
        """What is free of a nominated place is held for it, to the last thousandth that is not sold."""
        for node in self.committed.nodes.values():
            for uid, hold in node.holds.items():
                request = self.committed.pending[uid]
                assert request.nomination is not None
                assert request.held == hold
                for piece in request.nomination.placement.slices:
                    card = node.cards[piece.card]
                    assert hold.cards[piece.card][0] == piece.share_milli or card.free_milli <= 0

    @invariant()
    def only_lower_ones_leave_and_only_for_one(self) -> None:
        """Victims of the last commit are less important than whom they leave for, and are told once."""
        told: list[str] = []
        for record in self.log[-1].records:
            if isinstance(record, Nominated):
                wants = self.committed.get(record.uid)
                for uid in record.victims:
                    victim = self.committed.get(uid)
                    assert wants is not None
                    assert victim is not None
                    assert priority_of(victim.request) < priority_of(wants.request)
                told += record.victims
        assert len(told) == len(set(told))

    @invariant()
    def quotas_are_kept(self) -> None:
        """No decision of the last commit leaves a namespace above its quota; sums counted here."""
        decided = {r.uid for r in self.log[-1].records if isinstance(r, Reserved)}
        if not self.committed.quotas:
            return
        for space in {self.committed.requests[u].accepted.namespace for u in decided if u in self.committed.requests}:
            mine = [r for r in self.committed.requests.values() if r.accepted.namespace == space and r.placement]
            word = self.committed.quotas.get(space)
            assert word is not None
            assert not word.removed
            slices = [p for r in mine for p in (r.placement.slices if r.placement else ())]
            for limit, used in (
                (word.share_milli, sum(p.share_milli for p in slices)),
                (word.memory_mib, sum(p.memory_mib for p in slices)),
            ):
                assert limit is None or used <= limit

    @invariant()
    def whoever_begins_anew_decides_nothing_more(self) -> None:
        """No wake-up was missed: another scheduler on the same state finds nothing left to do."""
        fresh = Engine(copy(self.committed), policy="packing")
        fresh.schedule()
        left = fresh.take()
        assert left == (), left

    def teardown(self) -> None:
        """The log alone gives the same state again, and the same decisions."""
        if not hasattr(self, "log"):
            return
        again = LedgerState()
        for sequence, commit in enumerate(self.log, 1):
            apply(again, commit, sequence)
        assert digest(again) == digest(self.committed)
        replayed = replay((commit, sequence) for sequence, commit in enumerate(self.log, 1))
        assert replayed.differences == (), replayed.differences


Scheduling.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestScheduling = Scheduling.TestCase
