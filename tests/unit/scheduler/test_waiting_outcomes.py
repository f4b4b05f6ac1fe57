"""Why a placed request gets no further, in Kubernetes' words: recorded once, told as an event, shown by `explain`."""

from __future__ import annotations

from typing import Any

from bus.ledger.append import commit_after
from bus.ledger.state import RequestState
from contracts.decisions import Observed
from contracts.outcomes import Outcome
from contracts.requests import Withdraw
from scheduler.core.engine import Engine
from scheduler.core.explain import explain
from scheduler.events import of_commit
from tests.builders.ledger import Cluster, cluster, node, request

QUOTA = "quota: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"


def world() -> tuple[Cluster, RequestState, Engine]:
    one = cluster(node("n1").gpus(1))
    held = one.hold(request("a").share(100).gpu_memory(100), "n1", 0)
    return one, held, Engine(one.state, policy="packing")


def seen(held: RequestState, phase: Any, reason: str = "") -> Outcome:
    return Outcome(uid=held.uid, namespace="default", name="a", phase=phase, pod="a-x", reason=reason)


def test_what_keeps_it_is_recorded_once_and_shown() -> None:
    """It stays placed: nothing is freed by it, and it counts as never made."""
    _, held, engine = world()
    for _ in range(2):
        engine.outcome(seen(held, "waiting", QUOTA))

    [record] = engine.records
    assert record == Observed(uid=held.uid, phase="placed", detail=QUOTA)
    assert (held.phase, held.pod, held.detail) == ("placed", "", QUOTA)
    [reason] = explain(engine.state, held).reasons
    assert (reason.code, reason.text) == ("kubernetes", QUOTA)


def test_a_container_that_cannot_start_is_told_with_its_pod() -> None:
    one, held, engine = world()
    engine.outcome(seen(held, "bound", "ImagePullBackOff"))
    commit = commit_after(one.state, tuple(engine.records), author="test")
    [(_, event)] = of_commit(one.state, commit, 9)

    assert (event.phase, event.text) == ("waiting", "pod a-x on n1: ImagePullBackOff")


def test_when_it_runs_nothing_keeps_it() -> None:
    _, held, engine = world()
    engine.outcome(seen(held, "bound", "ImagePullBackOff"))
    engine.outcome(seen(held, "running"))

    assert (held.phase, held.detail) == ("running", "")
    assert explain(engine.state, held).reasons == ()


def test_nothing_goes_back() -> None:
    """An outcome from before a restart of somebody: what runs is not waiting."""
    _, held, engine = world()
    engine.outcome(seen(held, "running"))
    engine.outcome(seen(held, "waiting", QUOTA))

    assert (held.phase, held.detail) == ("running", "")


def test_a_withdrawn_one_keeps_the_reason_of_that() -> None:
    _, held, engine = world()
    engine.withdraw("default", Withdraw(name="a", reason="no longer needed"))
    engine.outcome(seen(held, "bound", "ImagePullBackOff"))

    assert (held.phase, held.detail) == ("bound", "no longer needed")
