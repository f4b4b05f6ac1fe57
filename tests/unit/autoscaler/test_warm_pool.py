"""From a target to steps: promote before creating, drain before deleting, refill behind, give back under pressure."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.replicas import Replica, counts, has_served, is_active, is_busy
from autoscaler.core.warm import Plan, plan

NOW_MS = 1_000_000
DRAIN_MS = 60_000


def up(index: int, **fields: Any) -> Replica:
    """Ready, hot, idle, on its own node; the larger the index, the younger."""
    plain: dict[str, Any] = {
        "uid": f"u{index}",
        "node": f"n{index}",
        "phase": "Running",
        "ready": True,
        "ready_ms": NOW_MS - 900_000 // 3**index,
        "in_flight": 0,
    }
    return Replica(name=f"web-{index}", **{**plain, **fields})


def planned(replicas: list[Replica], target: int, *, warm: int = 0, **fields: Any) -> Plan:
    return plan("web", replicas, target=target, warm_target=warm, now_ms=NOW_MS, drain_ms=DRAIN_MS, **fields)


WARM, BUSY = {"warm": True}, {"in_flight": 3}
COMING: dict[str, Any] = {"ready": False, "ready_ms": None, "phase": "Pending", "node": "", "in_flight": None}
SILENT: dict[str, Any] = {"ready": False, "in_flight": None}
OVERDUE = {"draining_since_ms": NOW_MS - DRAIN_MS}
LEAVING = {"draining_since_ms": NOW_MS - 10_000}

TWO_WARM = [up(0, **WARM), up(1, **WARM)]
PRESSED = {"pressure": True}
ONE: dict[str, Any] = {"warm": 1}
ROWS: list[tuple[str, list[Replica], int, dict[str, Any], Plan]] = [
    ("nothing to do", [up(0), up(1)], 2, {}, Plan()),
    ("from nothing", [], 2, {}, Plan(create=("web-0", "web-1"))),
    ("reserved names first", [up(0)], 3, {"reserved": ["web-7"]}, Plan(create=("web-7", "web-1"))),
    ("an ended one's name is taken while it is listed", [up(0, phase="Failed")], 1, {}, Plan(create=("web-1",))),
    ("a warm one is promoted", [up(0), up(1, **WARM)], 2, {}, Plan(promote=("web-1",))),
    ("and the pool refilled behind it", [up(0, **WARM)], 1, ONE, Plan(promote=("web-0",), create_warm=("web-1",))),
    ("then creation makes up the rest", [up(0, **WARM)], 3, {}, Plan(promote=("web-0",), create=("web-1", "web-2"))),
    ("ready before starting", [up(0, **WARM), up(1, **WARM, **COMING)], 1, ONE, Plan(promote=("web-0",))),
    ("starting before creating", [up(1, **WARM, **COMING)], 1, {}, Plan(promote=("web-1",))),
    ("a draining one is called back first", [up(0, **LEAVING), up(1, **WARM)], 1, ONE, Plan(promote=("web-0",))),
    ("the pool is filled", [up(0)], 1, {"warm": 2}, Plan(create_warm=("web-1", "web-2"))),
    ("what starts warm counts", [up(0), up(1, **WARM, **COMING)], 1, ONE, Plan()),
    ("the last to go becomes warm", [up(0), up(1), up(2)], 1, ONE, Plan(demote=("web-1",), drain=("web-2",))),
    ("a starting one is not", [up(0), up(1, **COMING)], 1, ONE, Plan(withdraw=("web-1",), create_warm=("web-2",))),
    ("what has not started is withdrawn", [up(0), up(1, **COMING)], 1, {}, Plan(withdraw=("web-1",))),
    ("ready ones drain, idle too", [up(0), up(1)], 1, {}, Plan(drain=("web-1",))),
    ("idle before busy", [up(0), up(1, **BUSY)], 1, {}, Plan(drain=("web-0",))),
    ("silent is busy", [up(0), up(1, in_flight=None)], 1, {}, Plan(drain=("web-0",))),
    ("one that fell silent may work", [up(0), up(1, **SILENT)], 1, {}, Plan(drain=("web-0",))),
    ("and is drained, not killed", [up(0, **BUSY), up(1, **SILENT)], 0, {}, Plan(drain=("web-1", "web-0"))),
    ("until its time is up", [up(0, **SILENT, **LEAVING)], 0, {}, Plan()),
    ("a spare warm one finishes first", [up(0), up(1, **WARM, **BUSY)], 1, {}, Plan(drain=("web-1",))),
    ("S129: drained, not killed", [up(0, **BUSY), up(1, **BUSY)], 0, {}, Plan(drain=("web-1", "web-0"))),
    ("S129: goes on draining", [up(0, **BUSY, **LEAVING)], 0, {}, Plan()),
    ("done draining", [up(0, **LEAVING)], 0, {}, Plan(withdraw=("web-0",))),
    ("S129: a limit on drain time", [up(0, **BUSY, **OVERDUE)], 0, {}, Plan(withdraw=("web-0",))),
    ("overdue is not called back", [up(0, **OVERDUE)], 1, {}, Plan(create=("web-1",), withdraw=("web-0",))),
    ("pressure gives the warm back", [up(0), up(1, **WARM)], 1, {**ONE, **PRESSED}, Plan(withdraw=("web-1",))),
    ("pressure promotes first", TWO_WARM, 1, PRESSED, Plan(promote=("web-0",), withdraw=("web-1",))),
    ("pressure demotes nobody", [up(0), up(1)], 1, {**ONE, **PRESSED}, Plan(drain=("web-1",))),
    ("too many warm", TWO_WARM, 0, ONE, Plan(withdraw=("web-1",))),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "replicas", "target", "fields", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_steps(claim: str, replicas: list[Replica], target: int, fields: dict[str, Any], expected: Plan) -> None:
    """One situation each."""
    assert planned(replicas, target, **fields) == expected


@st.composite
def situations(draw: st.DrawFn) -> list[Replica]:
    """Any mix of hot, warm, coming, draining and ended replicas."""
    kinds: list[dict[str, Any]] = [
        {}, BUSY, SILENT, {"in_flight": None}, COMING, {**WARM, **BUSY},
        WARM, {**WARM, **COMING}, LEAVING, {**LEAVING, **BUSY},
        {"draining_since_ms": 0, **BUSY}, {"phase": "Failed"}, {"deleting": True},
    ]  # fmt: skip
    return [up(i, **draw(st.sampled_from(kinds))) for i in range(draw(st.integers(0, 7)))]


def carried_out(replicas: list[Replica], steps: Plan, now_ms: int) -> list[Replica]:
    """What is there once all steps are done, everything has started and every call is answered."""
    changed: dict[str, dict[str, Any]] = {
        **{name: {"warm": False, "draining_since_ms": None} for name in steps.promote},
        **{name: {"warm": True} for name in steps.demote},
        **{name: {"draining_since_ms": now_ms, "in_flight": 0} for name in steps.drain},
    }
    kept = [msgspec.structs.replace(r, **changed.get(r.name, {})) for r in replicas if r.name not in steps.withdraw]
    kept = [msgspec.structs.replace(r, ready=True, in_flight=0) for r in kept if is_active(r)]
    made = [*((name, False) for name in steps.create), *((name, True) for name in steps.create_warm)]
    return [*kept, *(msgspec.structs.replace(up(9, warm=warm), name=name) for name, warm in made)]


@given(situations(), st.integers(0, 7), st.integers(0, 3), st.booleans())
def test_steps_lead_to_the_target_and_harm_nobody(
    replicas: list[Replica], target: int, warm: int, pressure: bool
) -> None:
    """Every step names a known replica once; nothing ready goes undrained; twice carried out, nothing is left to do."""
    steps = planned(replicas, target, warm=warm, pressure=pressure)
    known = {replica.name: replica for replica in replicas}
    named = [*steps.promote, *steps.demote, *steps.drain, *steps.withdraw]
    made = [*steps.create, *steps.create_warm]

    assert len({*named, *made}) == len([*named, *made])
    assert set(named) <= {name for name, replica in known.items() if is_active(replica)}
    assert not set(made) & set(known)
    for name in steps.withdraw:
        replica = known[name]
        overdue = replica.draining_since_ms is not None and NOW_MS - replica.draining_since_ms >= DRAIN_MS
        assert overdue or not is_busy(replica)
        assert replica.warm or not has_served(replica) or replica.draining_since_ms is not None
    once = carried_out(replicas, steps, NOW_MS)
    twice = carried_out(once, planned(once, target, warm=warm, pressure=pressure), NOW_MS)

    assert counts(twice).planned == target
    assert counts(twice).warm == (0 if pressure else warm)
    assert counts(twice).draining == 0
    assert planned(twice, target, warm=warm, pressure=pressure) == Plan()


def test_a_promotion_costs_no_creation() -> None:
    """Three warm ones meet a step from one to four without a cold start."""
    steps = planned([up(0), *(up(i, **WARM) for i in (1, 2, 3))], 4)

    assert (len(steps.promote), steps.create) == (3, ())
