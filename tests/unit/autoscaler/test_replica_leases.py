"""How long a replica holds its card without a word, and that whatever is lost or dies, none is held for ever."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from autoscaler.core.replicas import Replica, counts, is_active
from autoscaler.core.warm import Plan, plan
from autoscaler.leases import Hearing, hearing, lapsed
from autoscaler.roster import WARM, Heard, Role, Roster, deaf, heard, order_of, replica_request, roster, told, value_of
from contracts.callrules import obey
from contracts.decisions import Released, Withdrawn
from contracts.functions import WorkerOrder, WorkerPhase, WorkerReport
from contracts.requests import GpuAsk
from contracts.units import RequestUid
from contracts.workloads import Scaling
from tests.builders.ledger import cluster, node
from tests.unit.autoscaler.function_world import function

S = 1000
LEASES = Scaling(start_s=30, silent_s=60, drain_s=20)
SPOKE_MS = 100 * S


def standing(**fields: Any) -> Roster:
    """One replica that has a place, was first seen at 100 s, and was ready then."""
    plain: dict[str, Any] = {"phase": "Running", "node": "n1", "ready_ms": SPOKE_MS, "created_ms": SPOKE_MS}
    return Roster(replicas=(Replica(name="web-0", **{**plain, **fields}),))


def words() -> dict[str, Heard]:
    """Its worker spoke at 100 s, and not since."""
    return {"web-0": heard(None, WorkerReport(worker="w", phase="ready", sequence=1), SPOKE_MS)}


NEVER = {"ready_ms": None}
ROWS: list[tuple[str, dict[str, Any], Scaling, int, int | None]] = [
    # (claim, what is different, leases, since when we hear, when it is given back)
    ("never spoke", NEVER, LEASES, 0, 130),
    ("never spoke, and may take as long as it takes", NEVER, Scaling(), 0, None),
    ("no place, no card to give back", {**NEVER, "node": ""}, LEASES, 0, None),
    ("fell silent", {}, LEASES, 0, 160),
    ("we hear only since 150 s", {}, LEASES, 150, 210),
    ("by default a quarter of an hour", {}, Scaling(), 0, 1000),
    ("a warm one as well", {"warm": True}, LEASES, 0, 160),
    ("one that drains has its own end", {"draining_since_ms": 0}, LEASES, 0, None),
    ("one that is fresh speaks", {"ready": True}, LEASES, 0, None),
    ("one that goes already", {"deleting": True}, LEASES, 0, None),
]


@pytest.mark.parametrize(("claim", "fields", "scaling", "since_s", "at_s"), ROWS, ids=[row[0] for row in ROWS])
def test_when_a_silent_replica_gives_its_card_back(
    claim: str, fields: dict[str, Any], scaling: Scaling, since_s: int, at_s: int | None
) -> None:
    """At that second and not one before; None = not within an hour."""
    spoken = {} if fields.get("ready_ms", SPOKE_MS) is None else words()

    def given_back(now_s: int) -> list[str]:
        found = lapsed(standing(**fields), spoken, scaling, since_ms=since_s * S, now_ms=now_s * S)
        return [name for name, _ in found]

    assert given_back((at_s or 3600) - 1) == []
    assert given_back(at_s or 3600) == (["web-0"] if at_s else [])


def test_our_own_silence_is_nobodys() -> None:
    """The bus away, or we ourselves for more than half a lease: from then on it counts anew."""
    looks = [(0, True), (20, True), (50, True), (60, False), (70, True), (100, True), (131, True), (140, True)]
    found, since = None, []
    for now_s, answered in looks:
        found = hearing(found, LEASES, answered=answered, now_ms=now_s * S)
        since.append(found.since_ms // S)
    assert since == [0, 0, 0, 60, 60, 60, 131, 131]


class Pod(msgspec.Struct):
    """What runs in a place: a worker that speaks once it has started, until it hangs or is gone."""

    uid: str
    name: str
    warm: bool
    phase: WorkerPhase | None = None
    """None = it has not started."""
    hangs: bool = False
    sequence: int = 0


class Lives(RuleBasedStateMachine):
    """Replicas of one function, looked after by what the service decides with: `roster`, `lapsed`, `plan`, `deaf`.

    Any order of workers that start, hang and crash, of reports, orders, requests and withdrawals that are lost, of an
    autoscaler that is killed and remembers nothing, of a bus that is away. With `start_s` no replica holds a card for
    ever: left alone, exactly the wanted ones are there, each of them speaks, and nothing is left to do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hearing: Hearing | None = None
        self.roster = Roster()
        self.words: dict[str, Heard] = {}

    @initialize(serving=st.integers(0, 3), warm=st.integers(0, 2))
    def publish(self, serving: int, warm: int) -> None:
        gpu = GpuAsk(share_milli=100, memory_mib=100)
        self.function = function(gpu=gpu, warm_replicas=warm, scaling=LEASES)
        self.target = serving
        self.ledger = cluster(node("n1").gpus(4))
        self.pods: dict[str, Pod] = {}
        self.now_ms = 0
        self.restart()

    def look(self, *, loses: frozenset[str] = frozenset(), answered: bool = True) -> Plan:
        """One look, and what it brings about; `loses`: which kinds of messages get lost on their way."""
        self.hearing = hearing(self.hearing, LEASES, answered=answered, now_ms=self.now_ms)
        self.see()
        since_ms = self.hearing.since_ms
        for name, _ in list(lapsed(self.roster, self.words, LEASES, since_ms=since_ms, now_ms=self.now_ms)):
            self.withdraw(name, loses)
        self.see()
        steps = plan(
            "web",
            self.roster.replicas,
            target=self.target,
            warm_target=self.function.warm_replicas,
            now_ms=self.now_ms,
            drain_ms=LEASES.drain_s * S,
        )
        roles: tuple[tuple[tuple[str, ...], Role], ...] = (
            (steps.promote, "ready"),
            (steps.demote, "warm"),
            (steps.drain, "draining"),
        )
        for names, role in roles:
            for name in names:
                self.roster = told(self.roster, name, role, self.now_ms)
                self.order(name, order_of(role), loses)
        for name in steps.withdraw:
            self.withdraw(name, loses)
        for names, is_warm in ((steps.create, False), (steps.create_warm, True)):
            for name in names if "request" not in loses else ():
                self.place(name, warm=is_warm)
        for name, order in deaf(self.roster, self.words):
            self.order(name, order, loses)
        return steps

    def see(self) -> None:
        self.roster = roster(
            self.ledger.state,
            "default",
            self.function,
            self.roster,
            self.words,
            highest=40,
            now_ms=self.now_ms,
            fresh_ms=5 * S,
        )
        self.words = {name: word for name, word in self.words.items() if name in self.roster.seen}

    def place(self, name: str, *, warm: bool) -> None:
        request = replica_request("default", self.function, name, warm=warm)
        held = self.ledger.hold(request, "n1", len(self.pods) % 4)
        self.pods[held.uid] = Pod(uid=held.uid, name=name, warm=value_of(request, WARM) == "1")

    def withdraw(self, name: str, loses: frozenset[str]) -> None:
        """The pod, hanging or not, is killed by its node."""
        for pod in [pod for pod in self.pods.values() if pod.name == name and "withdrawal" not in loses]:
            self.ledger.fold(Withdrawn(uid=RequestUid(pod.uid)))
            self.gone(pod)

    def gone(self, pod: Pod) -> None:
        self.ledger.fold(Released(uid=RequestUid(pod.uid), evidence="gone"))
        del self.pods[pod.uid]

    def order(self, name: str, order: WorkerOrder, loses: frozenset[str]) -> None:
        for pod in self.pods.values():
            if pod.name == name and pod.phase is not None and not pod.hangs and "order" not in loses:
                pod.phase = obey(pod.phase, order)

    def speak(self, pod: Pod) -> None:
        if pod.phase is not None and not pod.hangs:
            pod.sequence += 1
            report = WorkerReport(worker=f"w-{pod.uid}", replica=pod.name, phase=pod.phase, sequence=pod.sequence)
            self.words[pod.name] = heard(self.words.get(pod.name), report, self.now_ms)

    @rule(loses=st.frozensets(st.sampled_from(["order", "request", "withdrawal"])), answered=st.booleans())
    def looks(self, loses: frozenset[str], answered: bool) -> None:
        self.look(loses=loses, answered=answered)
        assert {r.name for r in self.roster.replicas} >= {pod.name for pod in self.pods.values()} - self.fresh()

    def fresh(self) -> set[str]:
        """Made in this very look."""
        return {pod.name for pod in self.pods.values() if pod.name not in self.roster.seen}

    @precondition(lambda self: self.pods)
    @rule(which=st.integers(0, 9), dies=st.booleans())
    def speaks_or_dies(self, which: int, dies: bool) -> None:
        pod = list(self.pods.values())[which % len(self.pods)]
        if dies:
            self.gone(pod)
        elif pod.phase is None:
            pod.phase = "warm" if pod.warm else "ready"
        self.speak(pod)

    @precondition(lambda self: self.pods)
    @rule(which=st.integers(0, 9), spoke=st.booleans())
    def hangs(self, which: int, spoke: bool) -> None:
        """Before its first word, or after it began to serve."""
        pod = list(self.pods.values())[which % len(self.pods)]
        if spoke:
            pod.phase = pod.phase or ("warm" if pod.warm else "ready")
            self.speak(pod)
        pod.hangs = True

    @rule(seconds=st.sampled_from([1, 6, 25, 70]))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * S

    @rule(serving=st.integers(0, 3))
    def wants(self, serving: int) -> None:
        self.target = serving

    @rule()
    def restart(self) -> None:
        """Killed; the next one knows the ledger and hears what is said from now on."""
        self.roster = Roster()
        self.words = {}
        self.hearing = None

    def teardown(self) -> None:
        """Whatever happened, it comes to rest; then one hangs and comes to rest; then one hangs that is to go."""
        if not hasattr(self, "ledger"):
            return
        self.rests()
        for pod in list(self.pods.values())[:1]:
            pod.hangs = True
        self.rests()
        for pod in [pod for pod in self.pods.values() if pod.phase == "ready"][:1]:
            pod.hangs = True
            self.target -= 1
        self.rests()

    def rests(self) -> None:
        """Left alone: whoever can start and speak does, nothing is lost any more."""
        for _ in range(16):
            self.now_ms += 10 * S
            for pod in list(self.pods.values()):
                pod.phase = pod.phase or ("warm" if pod.warm else "ready")
                self.speak(pod)
            steps = self.look()
        found = counts(self.roster.replicas)
        assert (found.hot_ready, found.warm_ready) == (self.target, self.function.warm_replicas)
        assert len(self.pods) == len(self.ledger.state.requests) == self.target + self.function.warm_replicas
        assert all(is_active(replica) and replica.ready for replica in self.roster.replicas)
        assert not any(pod.hangs for pod in self.pods.values())
        assert [pod.phase for pod in self.pods.values()].count("ready") == self.target, "who was told, does it"
        assert steps == Plan()


Lives.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestLives = Lives.TestCase
