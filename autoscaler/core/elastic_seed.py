"""The dry run of PaddlePaddle EDL as it was, for comparison. Nothing of ours decides by it.

In: sums over the cluster, idle room per node, jobs, the highest load m in thousandths. Out: by how many trainers each
job would change. Kept with what is wrong in it: growing fills memory and cards to the brim while shrinking begins above
m, so that a card is added and taken away for ever; the loop ends only because an added trainer takes idle room of a
node and a removed one does not give it back; GPUs, taints and readiness of nodes are not looked at. What was not
determined there (the order of nodes, remaining ties of the order of jobs) goes by name here.

Units as there: milli-cores, megabytes of 10^6 bytes rounded up, whole cards.
"""

from __future__ import annotations

import msgspec

from autoscaler.core.elastic_order import Standing, ascending

MEGA = 1_000_000
MAX_PASSES = 100_000


class EndlessDryRun(RuntimeError):  # noqa: N818 - named by what is the case
    """Passes went on changing something, `passes` times: the source would never have come back."""

    def __init__(self, passes: int) -> None:
        super().__init__(f"the dry run still changes something after {passes} passes")
        self.passes = passes


class SeedCluster(msgspec.Struct, kw_only=True):
    """Totals, what is asked for, and what is idle per node; changed by a dry run."""

    cpu_total: int
    cpu_request: int
    memory_total: int
    memory_request: int
    gpu_total: int = 0
    gpu_limit: int = 0
    idle: dict[str, tuple[int, int]] = {}
    """Milli-cores and megabytes by node."""


class SeedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An elastic job as the dry run sees it: what one trainer asks for, bounds and present parallelism."""

    name: str
    cpu: int
    memory: int
    gpu: int = 0
    minimum: int = 1
    maximum: int = 1
    parallelism: int = 1

    @property
    def standing(self) -> Standing:
        """How it is sorted."""
        return Standing(
            name=self.name,
            minimum=self.minimum,
            maximum=self.maximum,
            present=self.parallelism,
            gpu=self.gpu,
            cpu=self.cpu,
            memory=self.memory,
        )


def mega(size_bytes: int) -> int:
    """Megabytes, rounded up: 100 MiB are 105."""
    return -(-size_bytes // MEGA)


def scale_dry_run(cluster: SeedCluster, job: SeedJob, current: int, m_milli: int, *, down: bool) -> int:
    """One step for one job that stands at parallelism + `current`; the cluster is changed by what it returns."""
    planned = job.parallelism + current
    node = None
    if down:
        change = _down(cluster, job, planned, m_milli)
    elif planned >= job.maximum:
        change = job.maximum - planned  # the one step up that may be negative, and by more than one
    else:
        change, node = _up(cluster, job, m_milli)
    _account(cluster, job, change, node)
    return change


def scale_all(jobs: list[SeedJob], cluster: SeedCluster, m_milli: int, max_passes: int = MAX_PASSES) -> dict[str, int]:
    """Passes of one step up for each, least fulfilled first, and one down, most fulfilled first, until none changes.

    Raises:
        EndlessDryRun: after `max_passes`; the source has no such end.
    """
    return counted(jobs, cluster, m_milli, max_passes)[0]


def counted(jobs: list[SeedJob], cluster: SeedCluster, m_milli: int, max_passes: int) -> tuple[dict[str, int], int]:
    """`scale_all`, and how many passes it took."""
    room = msgspec.structs.replace(cluster, idle=dict(cluster.idle))
    elastic = [job for job in jobs if job.minimum < job.maximum]
    order = sorted(elastic, key=lambda job: ascending(job.standing))
    diff = {job.name: 0 for job in order}
    for number in range(1, max_passes + 1):
        if not _pass(order, diff, room, m_milli):
            return diff, number
    raise EndlessDryRun(max_passes)


def _pass(order: list[SeedJob], diff: dict[str, int], room: SeedCluster, m_milli: int) -> bool:
    changed = False
    for jobs, down in ((order, False), (order[::-1], True)):
        for job in jobs:
            change = scale_dry_run(room, job, diff[job.name], m_milli, down=down)
            diff[job.name] += change
            changed = changed or change != 0
    return changed


def _down(cluster: SeedCluster, job: SeedJob, planned: int, m_milli: int) -> int:
    if planned > job.maximum:
        return -1
    overloaded = (
        cluster.gpu_limit > cluster.gpu_total * m_milli // 1000
        or cluster.cpu_request > cluster.cpu_total * m_milli // 1000
        or cluster.memory_request > cluster.memory_total * m_milli // 1000
    )
    return -1 if overloaded and planned > job.minimum else 0


def _up(cluster: SeedCluster, job: SeedJob, m_milli: int) -> tuple[int, str | None]:
    if cluster.memory_total - cluster.memory_request <= job.memory:
        return 0, None
    node = next((n for n in sorted(cluster.idle) if _holds(cluster.idle[n], job)), None)
    if node is None:
        return 0, None
    cpu = cluster.cpu_total * m_milli // 1000 - cluster.cpu_request >= job.cpu
    gpu = job.gpu == 0 or cluster.gpu_total - cluster.gpu_limit >= job.gpu
    return int(cpu and gpu), node


def _holds(idle: tuple[int, int], job: SeedJob) -> bool:
    return idle[0] >= job.cpu and idle[1] >= job.memory


def _account(cluster: SeedCluster, job: SeedJob, change: int, node: str | None) -> None:
    cluster.gpu_limit += job.gpu * change
    cluster.cpu_request += job.cpu * change
    cluster.memory_request += job.memory * change
    if node is not None:
        cpu, memory = cluster.idle[node]
        cluster.idle[node] = (cpu - job.cpu * change, memory - job.memory * change)
