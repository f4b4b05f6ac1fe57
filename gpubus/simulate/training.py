"""The published experiment with elastic training jobs, run again on virtual time: fixed, as theirs, as ours.

PaddlePaddle EDL (github.com/PaddlePaddle/PaddleCloud, doc/autoscale/experiment) ran jobs on 133 nodes, first with 60
trainers each, then with 2 to 60 as its autoscaler decided, and told for how long jobs waited and how much of the CPU
was asked for. The raw logs stand beside the report, and tell what it leaves out:

    a trainer asks for 5 cores, each of ten parameter servers for 4, the master for 1; Nginx for 3
    20 jobs come 18 s after each other (10 s and the time of submitting)
    nothing ever ends: every pass is stopped after some 690 s, and a job that still waits has waited until then
    a job waits until its first trainer runs
    the averages of the report are sums of ten passes divided by eleven: 308.5 and 47.2 s, not 280.5 and 42.9

The mixed case: six jobs, 15 trainers each or 2 to 60, and 400 Nginx pods that become 100 and 400 again in steps.
"""

from __future__ import annotations

import msgspec

from contracts.messages import Value
from gpubus.simulate.training_policies import (
    MASTER_MILLI,
    PERIOD_S,
    SERVER_MILLI,
    SERVERS,
    Fixed,
    Ours,
    Policy,
    Seed,
    pod,
)
from gpubus.simulate.training_world import TrainingWorld

NGINX_MILLI = 3000
OFF_PEAK = 100


class Case(Value, frozen=True, kw_only=True):
    """What is submitted when; seconds from the beginning."""

    name: str
    jobs: int
    every_s: int
    first_s: int
    until_s: int
    fixed: int
    """Trainers of a job that is not elastic."""
    services: tuple[tuple[int, int], ...] = ()
    """From a second on, so many Nginx pods."""


ALONE = Case(name="training only", jobs=20, every_s=18, first_s=10, until_s=690, fixed=60)
MIXED = Case(
    name="with services",
    jobs=6,
    every_s=10,
    first_s=45,
    until_s=735,
    fixed=15,
    services=((0, 400), (155, 300), (245, 200), (338, 100), (428, 200), (522, 300), (613, 400)),
)
CASES = (ALONE, MIXED)
LEAST, MOST = 2, 60

PUBLISHED: dict[tuple[str, str], tuple[float, float, float | None]] = {
    ("training only", "fixed"): (308.5, 76.2, None),
    ("training only", "seed"): (47.2, 76.3, None),
    ("with services", "fixed"): (1.5, 61.9, 44.9),
    ("with services", "seed"): (51.5, 83.4, 79.4),
}
"""Seconds of waiting, percent of the CPU, and of that while there are few Nginx pods; means of ten passes."""


class Measured(Value, frozen=True, kw_only=True):
    """One case under one policy."""

    case: str
    policy: str
    pending_s: float
    """A job's mean wait for its first trainer; one that never had one has waited to the end."""
    cpu_percent: float
    """Asked for by placed pods, mean over the whole time."""
    off_peak_percent: float | None = None
    """The same while there are 100 Nginx pods."""
    service_wait_s: float | None = None
    """Mean wait of an Nginx pod that is added back, until it runs or the end."""
    withdrawn: int = 0
    """Trainers that were told to stop."""
    published: tuple[float, float, float | None] | None = None


def policies(case: Case) -> dict[str, Policy]:
    """By name."""
    return {
        "fixed": lambda world: Fixed(world, case.fixed),
        "seed": lambda world: Seed(world, LEAST, MOST),
        "ours": lambda world: Ours(world, LEAST, MOST),
    }


def measure(case: Case, policy: str, seed: int) -> Measured:
    """One pass."""
    return _Pass(case, policy, seed).run()


class _Pass:
    def __init__(self, case: Case, policy: str, seed: int) -> None:
        self.case = case
        self.policy = policy
        self.world = TrainingWorld(seed)
        self.trained = policies(case)[policy](self.world)
        self.submitted: dict[str, int] = {}
        self.ran: dict[str, int] = {}
        self.services: list[str] = []
        self.asked: dict[str, int] = {}
        self.served: dict[str, int] = {}

    def run(self) -> Measured:
        """From the first second to the last."""
        used: list[int] = []
        quiet: list[int] = []
        for second in range(self.case.until_s):
            self._submit(second)
            self._serve(second)
            if second % PERIOD_S == 0:
                self.trained.look()
            self.world.tick()
            self._watch(second)
            used.append(self.world.used_milli)
            if len(self.services) == OFF_PEAK:
                quiet.append(self.world.used_milli)
        return self._told(used, quiet)

    def _submit(self, second: int) -> None:
        number, off = divmod(second - self.case.first_s, self.case.every_s)
        if off == 0 and 0 <= number < self.case.jobs:
            name = f"job{number:02d}"
            self.submitted[name] = second
            self.world.ask(pod(f"{name}-master", MASTER_MILLI))
            for index in range(SERVERS):
                self.world.ask(pod(f"{name}-ps{index}", SERVER_MILLI))
            self.trained.begin(name)

    def _serve(self, second: int) -> None:
        wanted = dict(self.case.services).get(second)
        if wanted is None:
            return
        for name in self.services[wanted:]:
            self.world.withdraw(name)
        added = [f"nginx-{second}-{index}" for index in range(len(self.services), wanted)]
        for name in added:
            self.world.ask(pod(name, NGINX_MILLI))
        self.services = self.services[:wanted] + added
        self.asked.update(dict.fromkeys(added if second else (), second))

    def _watch(self, second: int) -> None:
        for name in self.submitted.keys() - self.ran.keys():
            if self.trained.trainers(name):
                self.ran[name] = second
        for name in self.asked.keys() - self.served.keys():
            if self.world.running(name):
                self.served[name] = second

    def _told(self, used: list[int], quiet: list[int]) -> Measured:
        end = self.case.until_s
        waits = [self.ran.get(name, end) - at for name, at in self.submitted.items()]
        served = [self.served.get(name, end) - at for name, at in self.asked.items()]
        return Measured(
            case=self.case.name,
            policy=self.policy,
            pending_s=sum(waits) / len(waits),
            cpu_percent=self._percent(used),
            off_peak_percent=self._percent(quiet) if quiet else None,
            service_wait_s=sum(served) / len(served) if served else None,
            withdrawn=self.world.told,
            published=PUBLISHED.get((self.case.name, self.policy)),
        )

    def _percent(self, used: list[int]) -> float:
        return 100 * sum(used) / len(used) / self.world.total_milli


def mean(passes: list[Measured]) -> Measured:
    """Of passes of one case under one policy."""

    def over(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return msgspec.structs.replace(
        passes[0],
        pending_s=sum(p.pending_s for p in passes) / len(passes),
        cpu_percent=sum(p.cpu_percent for p in passes) / len(passes),
        off_peak_percent=over([p.off_peak_percent for p in passes]),
        service_wait_s=over([p.service_wait_s for p in passes]),
        withdrawn=round(sum(p.withdrawn for p in passes) / len(passes)),
    )


class Experiment(Value, frozen=True, kw_only=True):
    """All cases under all policies; means of so many passes."""

    seeds: int
    measured: tuple[Measured, ...]
