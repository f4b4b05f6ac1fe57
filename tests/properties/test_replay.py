"""The log prefix alone gives the same decision again, byte for byte, whoever decides it and whenever they begin."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.ledger.fold import apply, seal
from bus.ledger.snapshot import copy, dump, load
from bus.ledger.state import LedgerState
from contracts.decisions import Commit, EpochStarted, HealthSet, Record, Reserved
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.outcomes import Outcome
from contracts.requests import GangRef, GpuAsk, Locality, PodRequest, PodTemplate
from contracts.units import CardUuid, NodeName
from scheduler.core.engine import Engine
from scheduler.core.policies import POLICIES
from scheduler.core.replay import replay

asks = st.tuples(
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([100, 333, 500, 1000]),
    st.sampled_from([100, 4000]),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from([None, None, None, "g"]),
    st.sampled_from([None, None, "x"]),
)


class Log:
    """An engine, its log, and a committed state beside it."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.committed = LedgerState()
        self.store([EpochStarted(epoch="e", reason="test")])
        self.engine = Engine(copy(self.committed), policy="packing")

    def store(self, records: list[Record]) -> None:
        """The next commit."""
        state = self.committed
        commit = Commit(
            pool="default",
            epoch="e",
            number=state.number + 1,
            predecessor=state.sequence,
            author="a",
            records=tuple(records),
        )
        apply(state, commit, state.sequence + 1)
        self.commits.append(commit)

    def turn(self) -> None:
        """Decide and store."""
        self.engine.schedule()
        if records := self.engine.take():
            self.store(list(records))
            seal(self.engine.state, self.commits[-1], self.committed.sequence)

    def restart(self) -> None:
        """Another process goes on from a checkpoint."""
        self.engine = Engine(load(dump(self.committed)), policy="packing")


def world(log: Log) -> None:
    """Six nodes of two kinds."""
    for index in range(6):
        name = NodeName(f"n{index}")
        cards = tuple(
            Card(uuid=CardUuid(f"{name}-{i}"), index=i, model="AB"[index % 2], memory_total_mib=40_537)
            for i in range(2 + index % 3)
        )
        log.engine.inventory(NodeInventory(node=name, boot_id="b", incarnation="i", cards=cards))
        log.engine.facts(NodeFacts(node=name, uid="u", allocatable_cpu_milli=32_000, allocatable_memory_mib=200_000))
        log.engine.health(HealthSet(node=name, health="fresh"))
    log.turn()


@settings(max_examples=25)
@given(
    batches=st.lists(st.lists(asks, min_size=1, max_size=12), min_size=2, max_size=12),
    restarts=st.sets(st.integers(0, 11)),
    ends=st.lists(st.integers(0, 200), max_size=20),
)
def test_every_decision_of_a_log_is_computed_again_equal(
    batches: list[list[tuple[int, int, int, str, str | None, str | None]]], restarts: set[int], ends: list[int]
) -> None:
    """Batches, releases and restarts in any order; a replay with no knowledge of them finds nothing different."""
    log = Log()
    world(log)
    number = 0
    for turn, batch in enumerate(batches):
        if turn in restarts:
            log.restart()
        for cards, share, cpu, policy, gang, tag in batch:
            request = PodRequest(
                name=f"r{number}",
                pod=PodTemplate(image="i", cpu_milli=cpu),
                gpu=GpuAsk(cards=cards, share_milli=share),
                policy=policy,
                gang=GangRef(name=f"{gang}{turn}", size=2) if gang else None,
                locality=Locality(affinity=tag),
            )
            log.engine.submit("ns", request)
            number += 1
        for end in ends[turn::12]:
            for uid, held in list(log.engine.state.requests.items())[end : end + 1]:
                name = held.request.name
                log.engine.outcome(Outcome(uid=uid, namespace="ns", name=name, phase="ended", pod="p"))
        log.turn()

    found = replay((commit, sequence) for sequence, commit in enumerate(log.commits, 1))

    assert found.decisions == sum(isinstance(r, Reserved) for c in log.commits for r in c.records)
    assert found.differences == ()


def test_members_of_a_gang_that_name_policies_of_their_own_are_decided_again() -> None:
    """The first one names another policy than the service has: the second one is decided by the service's."""
    log = Log()
    world(log)
    for name, policy in (("a", "seed-best-fit"), ("b", None)):
        pod, gang = PodTemplate(image="i"), GangRef(name="g", size=2)
        log.engine.submit("ns", PodRequest(name=name, pod=pod, gpu=GpuAsk(share_milli=500), policy=policy, gang=gang))
    log.turn()

    found = replay((commit, sequence) for sequence, commit in enumerate(log.commits, 1))

    decided = [r.rationale.policy for c in log.commits for r in c.records if isinstance(r, Reserved)]
    assert (len(set(decided)), found.decisions, found.differences) == (2, 2, ())


def test_a_decision_that_was_tampered_with_is_found() -> None:
    """The replay can see: a placement moved to another card that also fits comes out otherwise."""
    log = Log()
    world(log)
    log.engine.submit("ns", PodRequest(name="r", pod=PodTemplate(image="i"), gpu=GpuAsk(share_milli=500)))
    log.turn()
    *before, last = log.commits
    [accepted, decided] = last.records
    assert isinstance(decided, Reserved)
    other = next(n for n in log.committed.nodes.values() if n.name != decided.placement.node)
    piece = msgspec.structs.replace(decided.placement.slices[0], card=CardUuid(next(iter(other.cards))))
    moved = msgspec.structs.replace(decided.placement, node=NodeName(other.name), slices=(piece,))
    forged = msgspec.structs.replace(last, records=(accepted, msgspec.structs.replace(decided, placement=moved)))

    found = replay((commit, sequence) for sequence, commit in enumerate([*before, forged], 1))

    assert [d.again for d in found.differences] == [decided]
