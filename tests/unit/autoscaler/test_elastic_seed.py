"""The dry run of PaddlePaddle EDL: every vector, and the faults that it is kept for."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from autoscaler.core.elastic_order import Standing, ascending, fulfillment
from autoscaler.core.elastic_seed import EndlessDryRun, SeedCluster, SeedJob, counted, mega, scale_all, scale_dry_run
from tests.unit.autoscaler.elastic_vectors import ALL, STEPS, AllVector, StepVector


def seed_cluster(totals: tuple[int, ...]) -> SeedCluster:
    """With one node that has room for everything."""
    cpu, cpu_used, memory, memory_used, *cards = totals
    gpu, gpu_used = cards or (0, 0)
    return SeedCluster(
        cpu_total=cpu,
        cpu_request=cpu_used,
        memory_total=memory,
        memory_request=memory_used,
        gpu_total=gpu,
        gpu_limit=gpu_used,
        idle={"node": (10**9, 10**9)},
    )


def seed_job(name: str, job: tuple[int, int, int, int, int, int]) -> SeedJob:
    cpu, memory, gpu, minimum, maximum, present = job
    return SeedJob(name=name, cpu=cpu, memory=memory, gpu=gpu, minimum=minimum, maximum=maximum, parallelism=present)


@pytest.mark.parametrize("vector", STEPS, ids=lambda v: v.name)
def test_one_step_of_one_job_is_as_published(vector: StepVector) -> None:
    """Growing, shrinking, and what is carried on from step to step."""
    cluster, job = seed_cluster(vector.cluster), seed_job("job", vector.job)

    found = [scale_dry_run(cluster, job, current, 1000, down=down) for current, down, _ in vector.steps]

    assert found == [expected for _, _, expected in vector.steps]


@pytest.mark.parametrize("vector", ALL, ids=lambda v: v.name)
def test_a_whole_dry_run_is_as_published(vector: AllVector) -> None:
    """Passes until nothing changes."""
    jobs = [seed_job(name, job) for name, job in vector.jobs.items()]

    assert scale_all(jobs, seed_cluster(vector.cluster), vector.m_milli) == vector.expected


def test_the_cluster_that_was_given_is_not_changed() -> None:
    """The source shared the maps of nodes with its caller."""
    given = seed_cluster((4000, 1000, 10_000, 0))
    scale_all([seed_job("a", (1000, 1, 0, 1, 9, 1))], given, 1000)

    assert given == seed_cluster((4000, 1000, 10_000, 0))


def test_it_adds_and_removes_until_a_leak_ends_it() -> None:
    """Ten cards, nine used, m = 0.9: the tenth is added, the load is too high, it is removed, 20 times over.

    Each addition takes 100 of the 2,000 idle milli-cores for good, and that is what ends it.
    """
    cluster = seed_cluster((10_000, 0, 10_000, 0, 10, 9))
    cluster.idle = {"node": (2000, 10**9)}
    job = seed_job("a", (100, 1, 1, 1, 9, 1))

    assert counted([job], cluster, 900, 1000) == ({"a": 0}, 21)


def test_without_such_a_leak_it_never_ends() -> None:
    """The same with trainers that ask for no CPU and no memory."""
    with pytest.raises(EndlessDryRun) as caught:
        counted([seed_job("a", (0, 0, 1, 1, 9, 1))], seed_cluster((10_000, 0, 10_000, 0, 10, 9)), 900, 500)

    assert caught.value.passes == 500


def test_above_its_maximum_a_job_comes_back_in_one_step_up() -> None:
    """The only negative way of growing, by more than one."""
    job = seed_job("a", (1, 1, 0, 1, 3, 6))

    assert scale_dry_run(seed_cluster((10, 0, 10, 0)), job, 0, 1000, down=False) == -3


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (100 * 1024 * 1024, 105), (1_000_000, 1), (1_000_001, 2)])
def test_megabytes_are_rounded_up(size: int, expected: int) -> None:
    """100 MiB are 104.86 million bytes."""
    assert mega(size) == expected


class Sorted(NamedTuple):
    """Names in the order that is expected."""

    name: str
    jobs: list[Standing]
    expected: str


def job(name: str, maximum: int, present: int, **trainer: int) -> Standing:
    return Standing(name=name, minimum=1, maximum=maximum, present=present, **trainer)


ORDERS = [
    Sorted(
        "least fulfilled first; what is not elastic is left out",
        [job("a", 2, 2), job("b", 20, 2), job("c", 10, 2), job("d", 1, 2)],
        "bca",
    ),
    Sorted(
        "then cards, CPU, memory, name",
        [
            job("a", 2, 1, gpu=1, cpu=1),
            job("b", 2, 1, cpu=1, memory=1),
            job("c", 2, 1, cpu=10),
            job("d", 2, 1, cpu=1, memory=2),
        ],
        "bdca",
    ),
    Sorted("names decide the rest", [job("y", 2, 1), job("x", 2, 1)], "xy"),
]


@pytest.mark.parametrize("case", ORDERS, ids=lambda c: c.name)
def test_the_order_of_jobs(case: Sorted) -> None:
    """The published vectors, and a total order."""
    elastic = [job for job in case.jobs if job.minimum < job.maximum]

    assert "".join(job.name for job in sorted(elastic, key=ascending)) == case.expected


@pytest.mark.parametrize(
    ("minimum", "maximum", "present", "percent"),
    [(1, 2, 2, 100), (1, 2, 1, 0), (1, 3, 2, 50), (3, 3, 3, 100), (1, 3, 5, 200), (3, 5, 2, -50)],
)
def test_fulfillment(minimum: int, maximum: int, present: int, percent: int) -> None:
    """Between the bounds from 0 to 1, and beyond them outside of that."""
    assert fulfillment(minimum, maximum, present) == percent * 10_000_000
