"""The life of a training job in a cluster that does what it likes, with an autoscaler that is killed."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autoscaler.core.elastic_actions import actions
from autoscaler.core.elastic_life import AFTER, FINAL, Sight, step
from autoscaler.core.elastic_target import begun, retarget
from autoscaler.core.elastic_trainers import staying, trainer_index, trainer_name, unpack
from contracts.requests import PodTemplate
from contracts.workloads import Job

NOW = 1_000_000


ENDS: list[Sight] = ["succeeded", "failed", "lost"]


class Life(RuleBasedStateMachine):
    """A job in a cluster that places, runs, loses and ends trainers as it likes, with an autoscaler that is killed."""

    @initialize(least=st.integers(1, 3), more=st.integers(0, 3), limit=st.integers(0, 5))
    def publish(self, least: int, more: int, limit: int) -> None:
        self.job = Job(
            name="bert",
            pod=PodTemplate(image="train"),
            min_trainers=least,
            max_trainers=least + more,
            max_failures=limit,
        )
        self.now = NOW
        self.cluster: dict[str, Sight] = {}
        self.names: set[str] = set()
        self.before = self.status = begun(self.job, "team", 7, None, NOW)
        self.last = self.status

    def seen(self) -> dict[int, Sight]:
        return {i: self.cluster.get(trainer_name("bert", i), "absent") for i in unpack(self.status)}

    @rule()
    def look(self) -> None:
        """A round: a step, then what it wants is done; another step at once changes nothing."""
        self.last = self.status
        self.status = step(self.job, self.status, self.seen(), self.now)
        todo = actions(self.job, self.status, self.seen(), (), self.now)
        for request in todo.asks:
            assert request.name not in self.names, "a name was used twice"
            self.names.add(request.name)
            self.cluster[request.name] = "pending"
        for withdrawal in todo.withdrawals:
            waits = self.cluster[withdrawal.name] == "pending"
            self.cluster[withdrawal.name] = "lost" if waits else "going"

    @rule()
    def killed_between_writing_and_doing(self) -> None:
        """The status is written, nothing is done."""
        self.last = self.status
        self.status = step(self.job, self.status, self.seen(), self.now)

    @rule(size=st.integers(1, 6), notice=st.integers(0, 3))
    def resize(self, size: int, notice: int) -> None:
        if self.status.phase in ("running", "scaling") and not self.status.succeeded:
            self.last = self.status
            target = min(max(size, self.job.min_trainers), self.job.max_trainers)
            self.status = retarget(
                self.status, target, based_on=self.status.generation, rule="x", now_ms=self.now, notice_ms=notice
            )

    @rule(which=st.integers(0, 9), end=st.sampled_from(ENDS), wanted=st.booleans())
    def something_happens(self, which: int, end: Sight, wanted: bool) -> None:
        live = sorted(name for name, sight in self.cluster.items() if sight not in ENDS)
        if live:
            name = live[which % len(live)]
            after: dict[Sight, Sight] = {"pending": "placed", "placed": "running", "going": "lost"}
            self.cluster[name] = after.get(self.cluster[name], end) if wanted else end

    @rule()
    def time_passes(self) -> None:
        self.now += 2

    @precondition(lambda self: self.status.phase not in FINAL)
    @rule()
    def stop(self) -> None:
        self.job = msgspec.structs.replace(self.job, stopped=True)

    @invariant()
    def numbers_add_up(self) -> None:
        if not hasattr(self, "status"):
            return
        status, trainers = self.status, unpack(self.status)
        assert len(staying(trainers)) <= max(status.target, 0)
        assert status.target <= self.job.max_trainers
        assert all(index < status.next_index for index in trainers)
        at_once = AFTER["stopping"] if self.job.stopped else frozenset()  # nobody had to be waited for
        assert status.phase in {self.last.phase} | AFTER[self.last.phase] | at_once
        assert status.phase not in FINAL or not staying(trainers)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        """A trainer that lives is in the status: else it would hold its card for ever."""
        live = {
            trainer_index("bert", name) for name, sight in getattr(self, "cluster", {}).items() if sight not in ENDS
        }
        assert not live or live <= unpack(self.status).keys()

    def teardown(self) -> None:
        """Left alone it comes to rest, and then a round changes nothing."""
        if not hasattr(self, "status"):
            return
        for _ in range(40):
            self.now += 1_000_000  # every notice has ended, also one that is given only now
            self.look()
            for name, sight in self.cluster.items():
                after: dict[Sight, Sight] = {"pending": "running", "placed": "running", "going": "lost"}
                self.cluster[name] = after.get(sight, sight)
        rest = self.status
        self.look()
        assert self.status == rest
        assert rest.phase in FINAL or rest.phase == "running"


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestLife = Life.TestCase
