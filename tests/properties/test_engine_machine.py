"""A state machine over the scheduler's core: whatever happens in whatever order, the rules of the house hold.

Requests come, repeat and are withdrawn; nodes come, fall silent, lose cards and go; pods run, end and vanish; the
scheduler restarts, and commits are lost to another author. After each step every invariant is checked on the committed
state, which is folded from the commits alone.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bus.ledger.fold import apply, seal
from bus.ledger.snapshot import copy, digest, dump, load
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Commit, EpochStarted, HealthSet, Record, Reserved
from contracts.inventory import Card, CordonCard, NodeFacts, NodeInventory
from contracts.outcomes import Outcome
from contracts.requests import GangRef, GpuAsk, Locality, PodRequest, PodTemplate, Resize, Withdraw
from contracts.units import WHOLE_CARD, CardUuid, NodeName
from scheduler.core.engine import Engine
from scheduler.core.policies import POLICIES

NODES = [NodeName(f"n{i}") for i in range(3)]
NAMES = [f"r{i}" for i in range(12)]
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
    policy=st.sampled_from([None, *sorted(POLICIES)]),
    gang=st.none() | st.builds(GangRef, name=st.sampled_from(["g", "h"]), size=st.integers(1, 3)),
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

    @initialize()
    def begin(self) -> None:
        """An empty ledger begins an epoch."""
        self.log: list[Commit] = []
        self.committed = LedgerState()
        self.decided: Counter[str] = Counter()
        self._store([EpochStarted(epoch="e1", reason="test")], "e1")
        self._restart()

    # --- the service around the core -------------------------------------------------------------------------------

    def _store(self, records: list[Record] | tuple[Record, ...], epoch: str) -> None:
        state = self.committed
        commit = Commit(
            pool="default",
            epoch=epoch,
            number=state.number + 1,
            predecessor=state.sequence,
            author="a",
            records=tuple(records),
        )
        apply(state, commit, state.sequence + 1)
        self.log.append(commit)
        self.decided.update(r.uid for r in records if isinstance(r, Reserved))

    def _restart(self) -> None:
        self.engine = Engine(copy(self.committed), policy="packing")

    def _turn(self, *, lost: bool = False) -> None:
        """Schedule, take, and store or lose the commit."""
        self.engine.schedule()
        records = self.engine.take()
        if not records:
            return
        if lost:
            self._restart()
            return
        self._store(records, "e1")
        seal(self.engine.state, self.log[-1], self.committed.sequence)

    # --- what happens ----------------------------------------------------------------------------------------------

    @rule(batch=st.lists(requests, min_size=1, max_size=5), lost=st.sampled_from([False, False, False, True]))
    def submit(self, batch: list[PodRequest], *, lost: bool) -> None:
        """Some requests arrive together; their commit may be lost."""
        for request in batch:
            self.engine.submit("ns", request)
        self._turn(lost=lost)

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
            namespace="ns",
            name=request.request.name,
            phase=phase,  # type: ignore[arg-type]  # drawn from its values
            pod="p",
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
            for piece in request.placement.slices if request.placement else ():
                milli, mib = sold.get(piece.card, (0, 0))
                sold[piece.card] = (milli + piece.share_milli, mib + piece.memory_mib)
        for card in self.committed.cards():
            milli, mib = sold.get(card.card.uuid, (0, 0))
            assert (milli, mib) == (card.used_milli, card.used_mib)
            assert milli <= WHOLE_CARD

    @invariant()
    def every_accepted_request_is_in_exactly_one_place(self) -> None:
        """Pending, placed, withdrawn or ended: the counts add up."""
        state = self.committed
        assert state.totals.accepted == len(state.requests) + state.totals.withdrawn + state.totals.ended
        assert set(state.pending) == {u for u, r in state.requests.items() if r.placement is None}

    @invariant()
    def no_request_is_decided_twice(self) -> None:
        """One decision per request, in the whole log."""
        assert all(count == 1 for count in self.decided.values())

    @invariant()
    def gangs_are_all_or_nothing(self) -> None:
        """Every commit that places a member of a gang places as many as the gang has."""
        for commit in self.log[-1:]:
            placed = {r.uid for r in commit.records if isinstance(r, Reserved)}
            accepted = {r.uid: r for c in self.log for r in c.records if isinstance(r, Accepted)}
            gangs = Counter(accepted[u].request.gang for u in placed if accepted[u].request.gang)
            assert all(count >= gang.size for gang, count in gangs.items() if gang)

    @invariant()
    def the_assumed_state_is_the_committed_one(self) -> None:
        """Between turns nothing is assumed that is not committed."""
        assert digest(self.engine.state) == digest(self.committed)

    @invariant()
    def what_waits_has_reasons_with_numbers(self) -> None:
        """A pending answer names what is missing."""
        for request in self.engine.state.pending.values():
            reasons = self.engine.reasons(request)
            assert reasons
            assert all(reason.text for reason in reasons)

    def teardown(self) -> None:
        """The log alone gives the same state again."""
        if not hasattr(self, "log"):
            return
        again = LedgerState()
        for sequence, commit in enumerate(self.log, 1):
            apply(again, commit, sequence)
        assert digest(again) == digest(self.committed)


Scheduling.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestScheduling = Scheduling.TestCase
