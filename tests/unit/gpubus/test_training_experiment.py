"""The training experiment on virtual time: small cases whose answer is known, and what stands beside it."""

from __future__ import annotations

import pytest

from gpubus.cli.training import training
from gpubus.errors import UsageError
from gpubus.render.training import TITLES, markdown, rows
from gpubus.simulate.training import ALONE, MIXED, PUBLISHED, Case, Measured, mean, measure, policies
from gpubus.simulate.training_policies import TRAINER_MILLI, pod
from gpubus.simulate.training_world import LARGE, SMALL, START_S, STOP_S, TrainingWorld

BRIEF = Case(name="brief", jobs=2, every_s=10, first_s=5, until_s=60, fixed=2)


def test_the_cluster_is_the_one_that_the_logs_tell_of() -> None:
    """133 nodes, 2,352 cores, 2.1 % of them taken."""
    world = TrainingWorld(1)

    assert (len(world.state.nodes), world.total_milli) == (SMALL[0] + LARGE[0], 2_352_000)
    assert round(100 * world.used_milli / world.total_milli, 1) == 2.1


def test_a_pod_waits_starts_and_goes_by_the_clock() -> None:
    """It runs two seconds after it was placed and is gone five seconds after it was told to stop."""
    world = TrainingWorld(1)
    idle = world.used_milli
    world.ask(pod("one", TRAINER_MILLI))
    for _ in range(START_S):
        world.tick()
    assert not world.running("one")
    world.tick()
    assert world.running("one")
    world.withdraw("one")
    for _ in range(STOP_S - 1):
        world.tick()
    assert world.used_milli == idle + TRAINER_MILLI
    world.tick()
    assert (world.used_milli, world.told) == (idle, 1)


@pytest.mark.parametrize("policy", list(policies(BRIEF)))
def test_on_an_empty_cluster_no_policy_makes_a_job_wait(policy: str) -> None:
    """Placed at once, and running some seconds later."""
    found = measure(BRIEF, policy, 1)

    assert found.pending_s < 10
    assert found.withdrawn == 0


def test_a_pass_is_the_same_again() -> None:
    """Byte for byte."""
    assert measure(BRIEF, "ours", 3) == measure(BRIEF, "ours", 3)


def test_a_full_cluster_makes_fixed_jobs_wait_and_elastic_ones_make_room() -> None:
    """Seven jobs of 60 trainers do not fit; the last one of ours has a trainer within seconds."""
    case = Case(name="crowded", jobs=8, every_s=12, first_s=5, until_s=150, fixed=60)
    fixed, ours = (measure(case, policy, 1).pending_s for policy in ("fixed", "ours"))

    assert ours < 8 < fixed


def test_means_leave_out_what_was_not_measured() -> None:
    """None is not zero."""
    one = Measured(case="c", policy="p", pending_s=1.0, cpu_percent=50.0, off_peak_percent=10.0)
    two = Measured(case="c", policy="p", pending_s=3.0, cpu_percent=70.0)
    found = mean([one, two])

    assert (found.pending_s, found.cpu_percent, found.off_peak_percent, found.service_wait_s) == (2.0, 60.0, 10.0, None)


def test_the_table_has_a_dash_where_there_is_nothing_to_tell() -> None:
    """And the published figure beside ours."""
    line = Measured(case="c", policy="p", pending_s=1.0, cpu_percent=50.0, published=(2.0, 60.0, None))

    assert rows([line]) == [("c", "p", "1.0 s", "2.0 s", "50.0 %", "60.0 %", "-", "0", "-")]
    assert markdown([line]).splitlines()[0] == f"| {' | '.join(TITLES)} |"


def test_the_number_of_passes_has_bounds() -> None:
    """The flag, the value and the bound."""
    with pytest.raises(UsageError, match="--seeds 0: from 1 to 100"):
        training(seeds=0)


def test_published_figures_stand_beside_every_policy_that_was_published() -> None:
    """Of both cases: fixed jobs and their autoscaler, and no other."""
    pairs = {(case.name, policy) for case in (ALONE, MIXED) for policy in policies(case) if policy != "ours"}

    assert set(PUBLISHED) == pairs
