"""One round over a ledger: who takes part, what counts as free, and what jobs do about those who wait."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from autoscaler.core import elastic_again as again
from autoscaler.core import elastic_round as rounds
from autoscaler.core.elastic_life import step
from autoscaler.core.elastic_load import Limits
from autoscaler.core.elastic_observe import load_of, room_of, waiting_of
from autoscaler.core.elastic_shape import Shape
from autoscaler.core.elastic_sight import sights, strays
from autoscaler.core.elastic_target import begun, retarget
from autoscaler.core.elastic_trainers import request_of, unpack
from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Nominated, Observed, Released, Withdrawn
from contracts.requests import GpuAsk, PodTemplate
from contracts.units import RequestUid, request_key
from contracts.workloads import Job, JobStatus
from scheduler.core.placer import Placer
from tests.builders.ledger import cluster, node

LIMITS = Limits()
NOW = 1_000_000


class Lab:
    """Jobs on a ledger that the scheduler's own placing fills; what is placed runs."""

    def __init__(self, *nodes: Any) -> None:
        self.state: LedgerState = cluster(*nodes).state
        self.placer = Placer(self.state, "packing")
        self.entries: dict[str, rounds.Entry] = {}
        self.number = 0

    def fold(self, record: Any) -> None:
        apply_record(self.state, record, 1)

    def asks(self, request: Any) -> None:
        self.number += 1
        self.fold(Accepted(uid=RequestUid(f"e-{self.number}-0"), namespace="default", request=request))

    def places(self) -> None:
        for request in list(self.state.pending.values()):
            alone = msgspec.structs.replace(request.request, gang=None)
            request.accepted = msgspec.structs.replace(request.accepted, request=alone)
            if (reserved := self.placer.place(request)) is not None:
                self.fold(reserved)
                self.fold(Observed(uid=request.uid, phase="running"))

    def job(self, name: str, least: int, most: int, target: int | None = None, cards: int = 1, **more: Any) -> Job:
        pod = PodTemplate(image="train", cpu_milli=100, memory_mib=10)
        job = Job(name=name, pod=pod, gpu=GpuAsk(cards=cards), min_trainers=least, max_trainers=most, **more)
        status = begun(job, "default", 1, None, NOW)
        if target is not None:
            status = retarget(status, target, based_on=status.generation, rule="test", now_ms=NOW)
        for index in unpack(status):
            self.asks(request_of(job, status, index))
        self.places()
        self.entries[name] = rounds.Entry(job, status)
        self.look()
        return job

    def look(self) -> None:
        for name, entry in self.entries.items():
            status = step(entry.job, entry.status, sights(self.state, entry.status, {}), NOW)
            self.entries[name] = rounds.Entry(entry.job, status)

    def put(self, name: str, status: JobStatus) -> None:
        self.entries[name] = rounds.Entry(self.entries[name].job, status)

    def deltas(self) -> dict[str, int]:
        found = rounds.dry_run(self.state, list(self.entries.values()), LIMITS)
        return {name.removeprefix("default/"): delta for name, delta in found.deltas.items()}


def test_a_running_job_grows_into_what_is_free() -> None:
    """Four cards, one taken."""
    lab = Lab(node("n1").gpus(4))
    lab.job("a", 1, 9)

    assert lab.deltas() == {"a": 3}


def test_a_job_that_begins_takes_no_part_and_the_others_make_room_for_it() -> None:
    """Its least is waited for as a whole: two cards."""
    lab = Lab(node("n1").gpus(4))
    lab.job("a", 1, 9, target=4)
    lab.job("b", 2, 3)

    assert (lab.entries["b"].status.phase, lab.deltas()) == ("creating", {"a": -2})


def test_seats_of_trainers_that_were_told_to_go_are_not_given_up_twice() -> None:
    """The ledger does not know of the notice yet; once it knows of the withdrawal it counts the same."""
    lab = Lab(node("n1").gpus(4))
    lab.job("a", 1, 9, target=4)
    lab.job("b", 2, 3)
    status = lab.entries["a"].status
    lab.put("a", retarget(status, 2, based_on=status.generation, rule="yields", now_ms=NOW, notice_ms=9000))
    assert lab.deltas() == {"a": 0}

    for index in (2, 3):
        uid = lab.state.by_key[request_key("default", f"a-t{index}")]
        lab.fold(Withdrawn(uid=uid))
    lab.look()
    assert lab.deltas() == {"a": 0}


def test_nobody_leaves_for_a_trainer_that_its_job_can_do_without() -> None:
    """B runs with its least and waits for one more: a keeps its trainers."""
    lab = Lab(node("n1").gpus(4))
    lab.job("a", 1, 3, target=3)
    lab.job("b", 1, 9, target=2)

    assert (lab.entries["b"].status.waiting, lab.deltas()) == (1, {"a": 0})


def test_while_nobody_waits_a_job_in_the_middle_of_a_change_is_left_alone() -> None:
    """One trainer is bound and does not run yet, another node is free."""
    lab = Lab(node("n1").gpus(4))
    lab.job("a", 1, 9)
    status = lab.entries["a"].status
    lab.put("a", retarget(status, 2, based_on=status.generation, rule="room", now_ms=NOW))

    assert lab.deltas() == {"a": 0}


@pytest.mark.parametrize("change", [{"stopped": True}, {"paused": True}])
def test_a_job_that_is_held_does_not_change(change: dict[str, bool]) -> None:
    """Stopped ones take no part, paused ones are counted and stay."""
    lab = Lab(node("n1").gpus(4))
    job = lab.job("a", 1, 9, target=2)
    lab.entries["a"] = rounds.Entry(msgspec.structs.replace(job, **change), lab.entries["a"].status)

    assert lab.deltas().get("a", 0) == 0


def test_nodes_that_are_not_heard_of_or_cordoned_count_for_nothing() -> None:
    """Neither their room nor their totals; a card that failed neither."""
    lab = Lab(
        node("good").gpus(2),
        node("silent").gpus(4).stale(),
        node("unknown").gpus(4).unknown(),
        node("closed").gpus(4).facts(unschedulable=True),
        node("broken").gpus(2).card_health(0, "failed"),
    )
    load = load_of(lab.state, [], LIMITS)

    assert sorted(room_of(lab.state).by_name) == ["broken", "good"]
    assert load.total.card_milli == 3000


def test_foreign_pods_take_of_the_total() -> None:
    """As much as Kubernetes would not admit."""
    load = load_of(Lab(node("n1").cpu(10_000, foreign=4000)).state, [], LIMITS)

    assert load.total.cpu_milli == 6000


def test_waiting_ones_come_by_priority_then_age_and_a_gang_as_one() -> None:
    """And not when somebody was told to leave for them already."""
    lab = Lab(node("n1").gpus(1))
    lab.job("first", 1, 1)
    lab.job("gang", 3, 3)
    lab.job("urgent", 1, 1, priority=5)
    gang = lab.entries["gang"]
    for index, request in zip(range(3), lab.state.pending.values(), strict=False):  # placing one by one took it off
        again = request_of(gang.job, gang.status, index)
        request.accepted = msgspec.structs.replace(request.accepted, request=again)
    found = [(asks.key, asks.count, asks.priority) for asks in waiting_of(lab.state, frozenset())]

    assert found == [("default/urgent-t0", 1, 5), ("default/gang-g0/gang", 3, 0)]


@pytest.mark.parametrize(("why", "waits"), [("preempts", 0), ("ending", 0), ("drains", 1)])
def test_one_with_a_place_in_sight_waits_only_when_nobody_was_told_to_leave_it(why: Any, waits: int) -> None:
    """What is held of that place is counted once, as waiting; room and load add up."""
    lab = Lab(node("n1").gpus(2))
    lab.job("a", 1, 2, target=2)
    seat = lab.state.requests[lab.state.by_key[request_key("default", "a-t1")]].placement
    assert seat is not None
    lab.job("b", 1, 1, priority=1)
    uid, holder = (lab.state.by_key[request_key("default", name)] for name in ("b-t0", "a-t1"))
    if why == "ending":
        lab.fold(Withdrawn(uid=holder))
    lab.fold(Nominated(uid=uid, placement=seat, why=why, victims=(holder,) if why == "preempts" else ()))
    waiting = waiting_of(lab.state, frozenset())

    assert len(waiting) == waits
    assert load_of(lab.state, waiting, LIMITS).used.card_milli == 2000 + 1000 * waits
    assert room_of(lab.state).take(Shape(cpu_milli=100, gpu=GpuAsk())) is None


def test_how_a_trainer_is_seen() -> None:
    """From acceptance to its end; an exit code that nobody has looked up is no answer."""
    lab = Lab(node("n1").gpus(1))
    lab.job("a", 1, 9, target=2)
    status, key = lab.entries["a"].status, request_key("default", "a-t0")
    uid = lab.state.by_key[key]
    assert sights(lab.state, status, {}) == {0: "running", 1: "pending"}
    lab.fold(Released(uid=uid, evidence="ended"))

    assert sights(lab.state, status, {}) == {1: "pending"}
    assert sights(lab.state, status, {key: 0})[0] == "succeeded"
    assert sights(lab.state, status, {key: 3})[0] == "failed"
    assert sights(lab.state, status, {key: None})[0] == "failed"


@pytest.mark.parametrize(("evidence", "sight"), [("node-gone", "lost"), ("gone", "lost"), ("rejected", "failed")])
def test_who_ends_without_an_exit_code(evidence: Any, sight: str) -> None:
    """A node that is gone is no failure of the trainer; a pod that Kubernetes will never run is."""
    lab = Lab(node("n1").gpus(1))
    lab.job("a", 1, 1)
    lab.fold(Released(uid=lab.state.by_key[request_key("default", "a-t0")], evidence=evidence))

    assert sights(lab.state, lab.entries["a"].status, {}) == {0: sight}


def test_a_trainer_that_no_status_knows_is_found() -> None:
    """It was told to go before the ledger had it; a request of somebody else with such a name is left alone."""
    lab = Lab(node("n1").gpus(4))
    job = lab.job("a", 1, 9)
    status = lab.entries["a"].status
    lab.asks(request_of(job, status, 7))
    lab.asks(msgspec.structs.replace(request_of(job, status, 8), cause="somebody"))

    assert strays(lab.state, {"default/a": status}) == [("default", "a-t7")]


def test_a_change_that_contradicts_itself_keeps_the_job_as_it_is() -> None:
    """Four trainers, and suddenly at least five of at most two: four, and the status says why."""
    lab = Lab(node("n1").gpus(8))
    job = msgspec.structs.replace(lab.job("a", 1, 9, target=4), min_trainers=5, max_trainers=2)
    held = again.paused(job, lab.entries["a"].status)
    told = again.adopted(lab.entries["a"].status, 9, "min_trainers 5: at most max_trainers, 2")

    assert (held.min_trainers, held.max_trainers, held.paused) == (4, 4, True)
    assert (told.job_sequence, told.reason) == (
        9,
        "the last change is not taken: min_trainers 5: at most max_trainers, 2",
    )


def test_a_refused_trainer_ends_a_job_that_begins_and_only_limits_one_that_runs() -> None:
    """A quota allows three: the job goes on with three."""
    lab = Lab(node("n1").gpus(8))
    job = lab.job("a", 1, 9, target=3)
    status = lab.entries["a"].status
    grown = retarget(status, 5, based_on=status.generation, rule="room", now_ms=NOW)
    smaller = again.without_refused(job, grown, "quota", NOW)
    fresh = again.without_refused(job, begun(job, "default", 1, None, NOW), "quota", NOW)

    assert (smaller.target, sorted(unpack(smaller)), smaller.history[-1].rule) == (3, [0, 1, 2], "refused")
    assert (fresh.phase, fresh.reason) == ("failed", "a trainer was refused: quota")
