"""The life of a training job: phases, targets, trainers that die, and what has to be done for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from autoscaler.core.elastic_actions import Actions, actions
from autoscaler.core.elastic_life import Sight, step
from autoscaler.core.elastic_target import HISTORY, Stale, begun, impatient, retarget
from autoscaler.core.elastic_trainers import (
    Trainer,
    is_leaving,
    pack,
    probe_of,
    request_of,
    trainer_index,
    trainer_name,
    unpack,
)
from contracts.requests import EnvVar, GpuAsk, PodTemplate
from contracts.workloads import Job, JobStatus, TrainerSpan

NOW = 1_000_000
POD = PodTemplate(image="train")


def job(least: int = 1, most: int = 4, **more: Any) -> Job:
    return Job(name="bert", pod=POD, gpu=GpuAsk(), min_trainers=least, max_trainers=most, **more)


def start(of: Job) -> JobStatus:
    return begun(of, "team", 7, None, NOW)


def all_seen(status: JobStatus, sight: Sight, **others: Sight) -> dict[int, Sight]:
    """Every trainer the same, but for `t<index>`."""
    return {**dict.fromkeys(unpack(status), sight), **{int(name[1:]): other for name, other in others.items()}}


def youngest_failed(status: JobStatus) -> dict[int, Sight]:
    """All run but the last one."""
    return {**all_seen(status, "running"), max(unpack(status)): "failed"}


def running(of: Job, target: int | None = None) -> JobStatus:
    """A job whose trainers all run."""
    status = start(of)
    status = step(of, status, all_seen(status, "running"), NOW)
    if target is not None and target != status.target:
        status = retarget(status, target, based_on=status.generation, rule="test", now_ms=NOW)
        status = step(of, status, all_seen(status, "running"), NOW)
    return status


def by_state(status: JobStatus) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for index, trainer in sorted(unpack(status).items()):
        found.setdefault(trainer.state, []).append(index)
    return found


# --- beginning --------------------------------------------------------------------------------------------------------


def test_it_begins_with_its_minimum_as_one_gang() -> None:
    """Three are asked for, and none is placed without the others."""
    status = start(job(3, 9))
    requests = [request_of(job(3, 9), status, index) for index in range(4)]

    assert (status.phase, status.target, by_state(status)) == ("creating", 3, {"asked": [0, 1, 2]})
    assert {(r.gang.name, r.gang.size) for r in requests[:3] if r.gang} == {("bert-g0", 3)}
    assert requests[3].gang is None


def test_one_trainer_alone_is_no_gang() -> None:
    """Nothing has to be placed together."""
    assert request_of(job(), start(job()), 0).gang is None


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (job(5, 2), "min_trainers 5: at most max_trainers, 2"),
        (job(300, 300), "min_trainers 300: at most 256 trainers can be started together"),
        (
            job(1, 2, fault_tolerant=False),
            "fault_tolerant false: a job that changes its number of trainers loses some while it runs",
        ),
        (
            msgspec.structs.replace(job(), name="b" * 50),
            "name of 50 characters: its trainers' names would have 57, at most 50",
        ),
        (
            msgspec.structs.replace(job(), pod=PodTemplate(image="i", env=(EnvVar(name="A"),) * 125)),
            "pod.env of 125 variables: at most 124, four are added",
        ),
    ],
)
def test_a_job_that_cannot_be_carried_out_fails_with_field_value_and_bound(wrong: Job, reason: str) -> None:
    """No trainer is asked for."""
    status = start(wrong)

    assert (status.phase, status.reason, status.trainers) == ("failed", reason, ())


def test_a_trainer_is_told_its_job_and_index_and_not_how_many_there_are() -> None:
    """That changes while it runs; a variable of its own with the same name wins."""
    own = msgspec.structs.replace(job(), pod=PodTemplate(image="i", env=(EnvVar(name="JOB_NAME", value="mine"),)))

    assert [(v.name, v.value) for v in request_of(job(), start(job()), 0).pod.env] == [
        ("JOB_NAME", "bert"),
        ("TRAINER_INDEX", "0"),
        ("JOB_NAMESPACE", start(job()).namespace),
    ]
    assert [(v.name, v.value) for v in request_of(own, start(own), 0).pod.env] == [
        ("JOB_NAME", "mine"),
        ("TRAINER_INDEX", "0"),
        ("JOB_NAMESPACE", start(job()).namespace),
    ]
    assert probe_of(job()).name == "bert-t"


def test_only_a_trainer_that_was_told_to_go_is_leaving() -> None:
    """A word that somebody has saved its work is no answer before that."""
    spans = (TrainerSpan(first=0, last=1, state="known"), TrainerSpan(first=2, last=2, state="leaving"))
    status = msgspec.structs.replace(start(job()), trainers=spans)

    assert [is_leaving(status, index) for index in (0, 2, 3)] == [False, True, False]
    assert not is_leaving(None, 0)


# --- targets ----------------------------------------------------------------------------------------------------------


def test_a_target_from_an_older_generation_is_refused() -> None:
    """Two dry runs at once: the second one has not seen what the first one did."""
    status = running(job())
    first = retarget(status, 3, based_on=status.generation, rule="room", now_ms=NOW)
    with pytest.raises(Stale) as caught:
        retarget(first, 4, based_on=status.generation, rule="room", now_ms=NOW)

    assert (caught.value.based_on, caught.value.present) == (status.generation, first.generation)


def test_a_target_is_absolute() -> None:
    """Growing to three asks for two more; growing to three again asks for none."""
    status = running(job())
    once = retarget(status, 3, based_on=status.generation, rule="room", now_ms=NOW)
    twice = retarget(once, 3, based_on=once.generation, rule="room", now_ms=NOW)

    assert by_state(once) == by_state(twice) == {"known": [0], "asked": [1, 2]}


def test_the_youngest_leave_first_and_the_leader_last() -> None:
    """Of four two go: the last two; of those the rest is told."""
    status = running(job(1, 4), 4)
    smaller = retarget(status, 2, based_on=status.generation, rule="x", now_ms=NOW, notice_ms=500)

    assert by_state(smaller) == {"known": [0, 1], "leaving": [2, 3]}
    assert unpack(smaller)[3] == Trainer("leaving", NOW + 500)


def test_those_chosen_for_their_seats_leave_and_the_leader_stays_even_if_chosen() -> None:
    """The dry run wants 0 and 1 to leave: 1 does, and the youngest instead of the leader."""
    status = running(job(1, 4), 4)
    smaller = retarget(status, 2, based_on=status.generation, rule="x", now_ms=NOW, leave={0, 1})

    assert by_state(smaller) == {"known": [0, 2], "leaving": [1, 3]}


def test_a_trainer_that_moves_is_replaced() -> None:
    """The number stays, one leaves, one is asked for."""
    status = running(job(1, 4), 3)
    moved = retarget(status, 3, based_on=status.generation, rule="moves", now_ms=NOW, leave={1})

    assert by_state(moved) == {"known": [0, 2], "leaving": [1], "asked": [3]}


def test_the_history_is_bounded() -> None:
    """The latest changes."""
    status = running(job(1, 40))
    for target in range(2, 32):
        status = retarget(status, target, based_on=status.generation, rule="room", now_ms=NOW)

    assert [record.after for record in status.history] == list(range(12, 32))
    assert len(status.history) == HISTORY


def test_who_waits_too_long_is_given_up() -> None:
    """Two of four wait for 2 minutes: the target is two again; never below the minimum."""
    of = job(1, 4)
    status = running(of, 2)
    grown = retarget(status, 4, based_on=status.generation, rule="room", now_ms=NOW)
    waiting = step(of, grown, all_seen(grown, "running", t2="pending", t3="pending"), NOW + 1)

    assert (waiting.phase, waiting.waiting, waiting.waiting_since_ms) == ("scaling", 2, NOW + 1)
    assert impatient(of, waiting, NOW + 120_000) is None
    assert impatient(of, waiting, NOW + 120_001) == 2
    assert impatient(job(3, 4), waiting, NOW + 120_001) == 3


# --- what is seen -----------------------------------------------------------------------------------------------------


def test_it_runs_when_all_of_its_trainers_do() -> None:
    """And scales until those that were added do."""
    of = job(2, 4)
    status = start(of)
    half = step(of, status, all_seen(status, "running", t1="placed"), NOW)
    full = step(of, half, all_seen(half, "running"), NOW)
    more = retarget(full, 3, based_on=full.generation, rule="room", now_ms=NOW)

    assert [s.phase for s in (half, full, more)] == ["creating", "running", "scaling"]
    assert step(of, more, all_seen(more, "running", t2="pending"), NOW).reason == "2 of 3 trainers are running"
    assert step(of, more, all_seen(more, "running"), NOW).phase == "running"


def test_a_trainer_that_fails_is_replaced_under_a_new_name() -> None:
    """Until as many have failed as there may be trainers."""
    of = job(1, 2)
    status = running(of, 2)
    for failures in (1, 2):
        youngest = max(unpack(status))
        status = step(of, status, youngest_failed(status), NOW)
        assert (status.failed, status.phase, max(unpack(status))) == (failures, "scaling", youngest + 1)
    status = step(of, status, youngest_failed(status), NOW)

    assert (status.phase, status.reason) == ("failed", "3 trainers failed, at most 2 may")


def test_a_job_that_is_not_fault_tolerant_fails_with_its_first_trainer() -> None:
    """The others are withdrawn at once."""
    of = job(2, 2)
    status = running(of)
    after = step(of, status, all_seen(status, "running", t1="failed"), NOW)

    assert (after.phase, by_state(after)) == ("failed", {"leaving": [0]})


@pytest.mark.parametrize("least", [1, 2])
def test_a_trainer_that_lost_its_node_is_replaced_and_is_no_failure(least: int) -> None:
    """Whether the job is fault tolerant or not."""
    of = job(least, 2)
    status = running(of, 2)
    after = step(of, status, all_seen(status, "running", t1="lost"), NOW)

    assert (after.failed, by_state(after)) == (0, {"known": [0], "asked": [2]})


def test_one_that_the_ledger_does_not_know_any_more_is_lost() -> None:
    """It was there: a name that was asked for is absent only until it is taken."""
    of = job(1, 2)
    status = running(of, 2)

    assert by_state(step(of, status, all_seen(status, "running", t1="absent"), NOW)) == {"known": [0], "asked": [2]}
    assert by_state(step(of, start(of), {0: "absent"}, NOW)) == {"asked": [0]}


def test_when_the_work_is_done_none_is_added_and_the_last_one_ends_it() -> None:
    """Three trainers finish one by one; a failure meanwhile is not replaced either."""
    of = job(1, 3)
    status = running(of, 3)
    first = step(of, status, all_seen(status, "running", t2="succeeded"), NOW)
    second = step(of, first, {0: "running", 1: "failed"}, NOW)
    third = step(of, second, {0: "succeeded"}, NOW)

    assert [(s.target, s.phase) for s in (first, second, third)] == [(2, "running"), (1, "running"), (0, "succeeded")]
    assert third.trainers == ()


def test_one_that_was_told_to_go_counts_neither_as_success_nor_as_failure() -> None:
    """Whatever its exit code after SIGTERM."""
    of = job(1, 4)
    status = running(of, 3)
    smaller = retarget(status, 1, based_on=status.generation, rule="x", now_ms=NOW)
    after = step(of, smaller, all_seen(smaller, "running", t1="succeeded", t2="failed"), NOW)

    assert (after.succeeded, after.failed, after.phase) == (0, 0, "running")


def test_stopping_gives_notice_and_ends_when_all_are_gone() -> None:
    """Also of a job that waits for its first trainers."""
    of = job(2, 3, stopped=True, notice_s=9)
    status = step(of, running(job(2, 3)), {0: "running", 1: "running"}, NOW)

    assert (status.phase, unpack(status)[0]) == ("stopping", Trainer("leaving", NOW + 9000))
    assert step(of, status, {0: "going", 1: "lost"}, NOW).phase == "stopping"
    assert step(of, status, {0: "lost", 1: "lost"}, NOW).phase == "stopped"


def test_published_again_it_begins_anew_and_forgets_nobody_who_is_left() -> None:
    """Old trainers are still leaving; names go on."""
    of = job(2, 2)
    failed = step(of, running(of), {0: "running", 1: "failed"}, NOW)
    again = begun(of, "team", 9, failed, NOW)

    assert (again.phase, by_state(again), again.gang_first) == ("creating", {"leaving": [0], "asked": [2, 3]}, 2)


def test_a_trainer_that_has_not_been_looked_up_stays_as_it_is() -> None:
    """Its exit code is not known yet: neither success nor failure."""
    status = running(job(1, 2), 2)

    assert unpack(step(job(1, 2), status, {0: "running"}, NOW)) == unpack(status)


# --- what has to be done ----------------------------------------------------------------------------------------------


def doing(status: JobStatus, seen: dict[int, Sight], saved: frozenset[int] = frozenset(), at: int = NOW) -> Actions:
    return actions(job(1, 4), status, seen, saved, at)


def test_asked_ones_are_asked_for_until_the_ledger_has_them() -> None:
    """A process that was killed after it wrote the status asks for them when it comes back."""
    status = start(job(2, 4))

    assert [r.name for r in doing(status, all_seen(status, "absent")).asks] == ["bert-t0", "bert-t1"]
    assert doing(status, all_seen(status, "pending")).asks == ()


def test_leaving_ones_are_told_and_withdrawn_at_their_deadline_or_when_they_have_saved() -> None:
    """Three leave: one has checkpointed, one waits for a card and has nothing to save, one has until its deadline."""
    status = running(job(1, 4), 4)
    smaller = retarget(status, 1, based_on=status.generation, rule="x", now_ms=NOW, notice_ms=500)
    seen = all_seen(smaller, "running", t2="pending")
    todo = doing(smaller, seen, frozenset({1}))

    assert [w.name for w in todo.withdrawals] == ["bert-t1", "bert-t2"]
    assert todo.notice is not None
    assert (todo.notice.trainers, todo.notice.deadline_ms, todo.again_ms) == ((3,), NOW + 500, NOW + 500)
    assert [w.name for w in doing(smaller, seen, at=NOW + 500).withdrawals] == ["bert-t1", "bert-t2", "bert-t3"]
    assert doing(smaller, all_seen(smaller, "going")).withdrawals == ()


def test_a_final_job_asks_for_nobody() -> None:
    """Trainers that were asked for and never came are withdrawn if they come after all."""
    status = msgspec.structs.replace(start(job(2, 4)), phase="failed")

    assert doing(status, all_seen(status, "absent")) == Actions()


def test_spans_and_trainers_are_the_same_thing() -> None:
    """Ten thousand equal trainers are one entry."""
    many = dict.fromkeys(range(10_000), Trainer("known"))
    mixed = {0: Trainer("known"), 1: Trainer("leaving", 5), 2: Trainer("leaving", 6), 4: Trainer("asked")}

    assert len(pack(many)) == 1
    assert unpack(msgspec.structs.replace(start(job()), trainers=pack(mixed))) == mixed


@pytest.mark.parametrize(
    ("name", "index"),
    [("bert-t0", 0), ("bert-t12", 12), ("bert-t012", None), ("bert-t", None), ("bert-x-t1", None), ("bert-t-1", None)],
)
def test_a_name_tells_the_trainer_of_this_job_only(name: str, index: int | None) -> None:
    """A request of somebody else is never taken for one of ours."""
    assert trainer_index("bert", name) == index
    assert index is None or trainer_name("bert", index) == name
