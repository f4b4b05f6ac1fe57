"""Three ways to run a training job: with a fixed number of trainers, as PaddlePaddle EDL did, and as we do.

In: a world, jobs that begin, a period. Out: pods asked for and taken back. Ours is the code of the autoscaler, every
decision of it; theirs is its dry run with the rest of its controller as far as its numbers depend on it: a job is
looked at when it runs, or when any job waits; the change is added to the number of trainers it has then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from autoscaler.core import elastic_round as rounds
from autoscaler.core.elastic_actions import actions
from autoscaler.core.elastic_life import Sight, step
from autoscaler.core.elastic_load import Limits
from autoscaler.core.elastic_runner import Plan
from autoscaler.core.elastic_seed import SeedCluster, SeedJob, scale_all
from autoscaler.core.elastic_settle import decide, wants_to_grow
from autoscaler.core.elastic_sight import sights
from autoscaler.core.elastic_target import begun, retarget
from autoscaler.core.elastic_trainers import probe_of, trainer_name, unpack
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.workloads import Job, JobStatus
from gpubus.simulate.training_world import NAMESPACE, TrainingWorld

TRAINER_MILLI, SERVER_MILLI, MASTER_MILLI = 5000, 4000, 1000
SERVERS = 10
"""Pods of one job besides its trainers, from the logs: ten parameter servers and a master."""
PERIOD_S = 5
LOAD_MILLI = 970


def pod(name: str, cpu_milli: int) -> PodRequest:
    """A pod of the experiment."""
    return PodRequest(
        name=name, pod=PodTemplate(image="lab", cpu_milli=cpu_milli, memory_mib=1024), gpu=GpuAsk(cards=0)
    )


class Trained(Protocol):
    """How trainers are looked after."""

    def begin(self, name: str) -> None:
        """A job is submitted; its other pods are asked for already."""
        ...

    def look(self) -> None:
        """Once in a period."""
        ...

    def trainers(self, name: str) -> int:
        """Of one job, running."""
        ...


class Fixed:
    """As many trainers as were asked for, come what may."""

    def __init__(self, world: TrainingWorld, count: int) -> None:
        self.world = world
        self.count = count

    def begin(self, name: str) -> None:
        """All at once."""
        for index in range(self.count):
            self.world.ask(pod(trainer_name(name, index), TRAINER_MILLI))

    def look(self) -> None:
        """Nothing is decided."""

    def trainers(self, name: str) -> int:
        """Running ones."""
        return sum(self.world.running(trainer_name(name, index)) for index in range(self.count))


class Seed:
    """The autoscaler of PaddlePaddle EDL."""

    def __init__(self, world: TrainingWorld, least: int, most: int) -> None:
        self.world = world
        self.least, self.most = least, most
        self.pods: dict[str, list[str]] = {}
        self.made: dict[str, int] = {}
        self.phase: dict[str, str] = {}

    def begin(self, name: str) -> None:
        """With the minimum."""
        self.pods[name], self.made[name], self.phase[name] = [], 0, "creating"
        self._add(name, self.least)

    def _add(self, name: str, count: int) -> None:
        for index in range(self.made[name], self.made[name] + count):
            self.pods[name].append(trainer_name(name, index))
            self.world.ask(pod(trainer_name(name, index), TRAINER_MILLI))
        self.made[name] += max(0, count)

    def trainers(self, name: str) -> int:
        """Running ones."""
        return sum(map(self.world.running, self.pods[name]))

    def look(self) -> None:
        """One cycle: phases, candidates, dry run, change."""
        for name in self.pods:
            if self.trainers(name) == len(self.pods[name]) and self._others_run(name):
                self.phase[name] = "running"
        pending = any(self._waits(name) for name in self.pods)
        chosen = [name for name in self.pods if pending or self.phase[name] == "running"]
        for name, change in scale_all([self._job(name) for name in chosen], self._cluster(), LOAD_MILLI).items():
            if change:
                self.phase[name] = "scaling"
                self._add(name, change)
                for gone in [self.pods[name].pop() for _ in range(-change)]:
                    self.world.withdraw(gone)

    def _others_run(self, name: str) -> bool:
        return all(self.world.running(f"{name}-ps{index}") for index in range(SERVERS))

    def _waits(self, name: str) -> bool:
        """A fault tolerant job waits when its master does."""
        master = self.world.find(f"{name}-master")
        return master is not None and master.phase == "pending"

    def _job(self, name: str) -> SeedJob:
        return SeedJob(
            name=name,
            cpu=TRAINER_MILLI,
            memory=1074,
            minimum=self.least,
            maximum=self.most,
            parallelism=len(self.pods[name]),
        )

    def _cluster(self) -> SeedCluster:
        """Requests of all pods that are not gone, also of those that wait or are being stopped."""
        nodes = self.world.state.nodes.values()
        waiting = self.world.state.pending.values()
        return SeedCluster(
            cpu_total=self.world.total_milli,
            cpu_request=self.world.used_milli + sum(r.request.pod.cpu_milli for r in waiting),
            memory_total=10**9,
            memory_request=0,
            idle={node.name: (node.free_cpu_milli, node.free_memory_mib) for node in nodes},
        )


class Ours:
    """The autoscaler of this project: its round, its phases, its actions."""

    def __init__(self, world: TrainingWorld, least: int, most: int) -> None:
        self.world = world
        self.least, self.most = least, most
        self.entries: dict[str, rounds.Entry] = {}

    def begin(self, name: str) -> None:
        """With the minimum. Its gang is placed one by one here."""
        template = pod(name, TRAINER_MILLI)
        job = Job(
            name=name,
            pod=template.pod,
            gpu=template.gpu,
            min_trainers=self.least,
            max_trainers=self.most,
            notice_s=0,
        )
        self.entries[name] = rounds.Entry(job, begun(job, NAMESPACE, 1, None, self.world.now_ms))
        self._act(name)

    def trainers(self, name: str) -> int:
        """Running ones."""
        status = self.entries[name].status
        return sum(self.world.running(trainer_name(name, index)) for index in unpack(status))

    def look(self) -> None:
        """One round."""
        for name, entry in self.entries.items():
            self._put(name, step(entry.job, entry.status, self._seen(entry.status), self.world.now_ms))
        entries = list(self.entries.values())
        found = rounds.dry_run(self.world.state, entries, Limits(cpu_milli=LOAD_MILLI, memory_milli=LOAD_MILLI))
        for entry in entries:
            if entry.takes_part:
                self._settle(entry, found)
        for name in self.entries:
            self._act(name)

    def _settle(self, entry: rounds.Entry, found: Plan) -> None:
        change = found.changes.get(entry.name)
        inputs = rounds.inputs_of(entry, change, pace=rounds.Pace(), now_ms=self.world.now_ms, ledger=0)
        if wants_to_grow(inputs):
            fits = self.world.would_place(probe_of(entry.job))
            inputs = rounds.answered(inputs, max(0, (inputs.wish or 0) - inputs.present) if fits else 0)
        target, rule = decide(inputs)
        if target != inputs.present or inputs.moves:
            status = retarget(
                entry.status,
                target,
                based_on=inputs.generation,
                rule=rule,
                now_ms=self.world.now_ms,
                leave=rounds.leaving(change, rule),
            )
            self._put(entry.job.name, status)

    def _put(self, name: str, status: JobStatus) -> None:
        self.entries[name] = msgspec.structs.replace(self.entries[name], status=status)

    def _seen(self, status: JobStatus) -> dict[int, Sight]:
        return sights(self.world.state, status, {})

    def _act(self, name: str) -> None:
        entry = self.entries[name]
        todo = actions(entry.job, entry.status, self._seen(entry.status), (), self.world.now_ms)
        for request in todo.asks:
            self.world.ask(msgspec.structs.replace(request, gang=None))
        for withdrawal in todo.withdrawals:
            self.world.withdraw(withdrawal.name)


Policy = Callable[[TrainingWorld], Trained]
