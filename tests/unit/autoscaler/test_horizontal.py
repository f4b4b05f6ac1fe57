"""Decisions about the number of replicas: each rule alone, then stories in virtual time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.faults import faults
from autoscaler.core.horizontal import RULES, decide, wanted
from autoscaler.core.numbers import Inputs, Memory
from autoscaler.core.record import after_restart, inputs_of, message, replay
from autoscaler.core.replicas import Counts
from autoscaler.core.windows import Samples
from contracts.messages import encode
from contracts.workloads import ScaleDecision, Scaling
from tests.unit.autoscaler.function_world import World, function, inputs

BEGAN_WITH_9 = {"period_target": 9, "period_since_ms": 990_000}

ROWS: list[tuple[str, Inputs, int, str]] = [
    ("frozen: nothing moves, whatever the load", inputs(90_000, frozen=1), 3, "frozen"),
    ("frozen beats the maximum", inputs(frozen=1, max_replicas=1), 3, "frozen"),
    ("S134: a rival is not fought", inputs(90_000, rival=1), 3, "rival"),
    ("off by maximum", inputs(max_replicas=0), 0, "off"),
    ("off by hand, though a minimum is given", inputs(fixed=0, min_replicas=2), 0, "off"),
    ("fixed: load does not matter", inputs(90_000, fixed=5), 5, "fixed"),
    ("fixed below the minimum", inputs(fixed=1, min_replicas=2), 2, "fixed"),
    ("fixed above the maximum", inputs(fixed=200), 100, "fixed+max"),
    ("S134: a number by hand is adopted", inputs(by_hand=7, adopt=1), 7, "adopted"),
    ("S134: and stands for a window", inputs(last_target=7, adopt=1, adopted_until_ms=1_000_001), 7, "adopted"),
    ("S134: not longer", inputs(last_target=7, adopted_until_ms=1_000_000), 4, "down"),
    ("S134: a number by hand is reverted", inputs(by_hand=7), 3, "steady+reverted"),
    ("calls are counted", inputs(90_000, counted=1, calls=5), 5, "maxcount"),
    ("a low water", inputs(0, counted=2, low=4, high=6, calls=0), 6, "watermark"),
    ("S154, S158: the first call wakes one", inputs(0, hot_ready=0, busy=0, waiting=1), 1, "wake"),
    ("S158: twenty calls wake one", inputs(20_000, hot_ready=0, busy=0, waiting=20), 1, "wake"),
    ("S158: and one only", inputs(20_000, hot_ready=0, coming=1, busy=0, waiting=20, last_target=1), 1, "waking"),
    ("S156: the queue wakes without any metric", inputs(None, hot_ready=0, busy=0, waiting=1), 1, "wake"),
    ("wake meets the minimum", inputs(0, hot_ready=0, busy=0, waiting=1, min_replicas=3), 3, "wake"),
    ("S130: no metric holds", inputs(None, silent_ms=299_999, last_target=3), 3, "missing-hold"),
    ("S130: and stays without a fallback", inputs(None, silent_ms=300_000, last_target=3), 3, "missing-fallback"),
    ("S157: the fallback starts one", inputs(None, silent_ms=300_000, hot_ready=0, fallback=1), 1, "missing-fallback"),
    ("the fallback takes nothing away", inputs(None, silent_ms=300_000, fallback=1), 3, "missing-fallback"),
    ("zero after the grace", inputs(0, busy=0, idle_since_ms=940_000), 0, "zero"),
    ("not within it", inputs(0, busy=0, idle_since_ms=940_001, hot_ready=1), 1, "steady"),
    ("S129: not while a call is in progress", inputs(0, busy=1, idle_since_ms=0, hot_ready=1), 1, "steady"),
    ("not below the minimum", inputs(0, busy=0, idle_since_ms=0, min_replicas=1, hot_ready=1), 1, "steady"),
    ("idle at zero, whatever the windows remember", inputs(9000, hot_ready=0, busy=0), 0, "idle"),
    ("a new function gets its minimum", inputs(None, hot_ready=0, busy=0, min_replicas=2), 2, "missing-hold+min"),
    ("S136: no numbers of another card model", inputs(90_000, capacity_milli=None), 3, "no-profile"),
    ("S136: nobody stays for nothing", inputs(0, busy=0, capacity_milli=None, idle_since_ms=1), 0, "zero"),
    ("a burst: the short window alone", inputs(2000, panic_milli=4200, hot_ready=3), 6, "panic"),
    ("below 200 % it is none", inputs(2000, panic_milli=4199, hot_ready=3), 3, "steady"),
    ("panic never goes down", inputs(100, panic_at_ms=940_001), 3, "panic"),
    ("panic lasts a stable window", inputs(100, panic_at_ms=940_000), 2, "down+down-rate"),
    ("up by the long window", inputs(2400), 4, "up"),
    ("not by a peak that is over", inputs(9000, panic_milli=2000), 3, "steady"),
    ("within the tolerance nothing moves", inputs(2310), 3, "steady"),
    ("just above it something does", inputs(2311), 4, "up"),
    ("S126: two at 70 % each stay two", inputs(1400, hot_ready=2), 2, "steady"),
    ("two with 1.26 calls stay three minus one", inputs(1260), 2, "down"),
    ("two with more stay three", inputs(1261), 3, "steady"),
    ("S132: after a restart nothing goes", inputs(100, stable_full=0, last_target=3), 3, "window-filling"),
    ("S132: but more may come", inputs(2400, stable_full=0, last_target=3), 4, "up"),
    ("fewer only after a delay", inputs(100, lower_since_ms=970_001), 3, "delay"),
    ("the delay is over", inputs(100, lower_since_ms=970_000), 2, "down+down-rate"),
    ("a lower short window alone takes nothing", inputs(2000, panic_milli=0), 3, "steady"),
    ("a higher short window keeps", inputs(100, panic_milli=2000), 3, "steady"),
    ("coming replicas are capacity", inputs(2400, hot_ready=3, coming=1), 4, "steady"),
    ("S138: coming ones are cancelled at once", inputs(100, hot_ready=1, coming=7), 1, "down"),
    ("S140: never above the maximum", inputs(90_000, max_replicas=5), 5, "panic+up-rate+max"),
    ("S140: also when the maximum is lowered", inputs(2000, max_replicas=2), 2, "steady+max"),
    ("never below the minimum", inputs(100, min_replicas=2), 2, "down+down-rate"),
    ("a raised minimum", inputs(2000, min_replicas=9), 9, "steady+min"),
    ("at most four times as many a period", inputs(90_000, hot_ready=10), 40, "panic+up-rate"),
    ("or four more", inputs(90_000, hot_ready=1), 5, "panic+up-rate"),
    ("at least half stay", inputs(100, hot_ready=9), 5, "down+down-rate"),
    ("a period's start counts", inputs(100, hot_ready=5, **BEGAN_WITH_9), 5, "down+down-rate"),
    ("S128: capacity cannot be read", inputs(2400, placeable=None), 3, "up+capacity-unknown"),
    ("S128: budget cannot be read", inputs(2400, budget=None), 3, "up+budget-unknown"),
    ("S128: also from zero", inputs(0, hot_ready=0, busy=0, waiting=1, placeable=None), 0, "wake+capacity-unknown"),
    ("S128: going down needs neither", inputs(1260, placeable=None, budget=None), 2, "down"),
    ("what fits is made", inputs(90_000, placeable=2), 5, "panic+up-rate+no-room"),
    ("what is paid for is made", inputs(90_000, budget=1), 4, "panic+up-rate+over-budget"),
    ("S142: no replicas and no load divide nothing", inputs(0, hot_ready=0, busy=0), 0, "idle"),
    ("a dead replica is made again", inputs(2000, hot_ready=2, last_target=3), 3, "steady"),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "given_inputs", "target", "rule"), ROWS, ids=[row[0] for row in ROWS])
def test_each_rule_decides_alone(claim: str, given_inputs: Inputs, target: int, rule: str) -> None:
    """Scenarios S124-S158 as far as a number of replicas answers them."""
    decision = decide(given_inputs)

    assert (decision.target, decision.rule) == (target, rule)


def test_every_rule_is_in_the_table() -> None:
    """A rule without an example is one nobody has seen fire."""
    shown = {row[3].split("+")[0] for row in ROWS}

    assert shown == {name for name, _ in RULES} | {"frozen", "rival"}


def some_inputs() -> st.SearchStrategy[Inputs]:
    """Any of what a message may carry, small enough that limits meet."""
    small, load, time = (
        st.integers(0, 12),
        st.none() | st.integers(0, 30_000),
        st.none() | st.integers(900_000, 1_000_000),
    )
    return st.builds(
        inputs,
        load,
        panic_milli=load,
        min_replicas=st.integers(0, 3),
        max_replicas=st.integers(3, 12),
        fixed=st.none() | small,
        capacity_milli=st.none() | st.integers(1, 3000),
        fallback=st.none() | small,
        adopt=st.integers(0, 1),
        by_hand=st.none() | small,
        stable_full=st.integers(0, 1),
        silent_ms=st.integers(0, 600_000),
        waiting=st.none() | small,
        hot_ready=small,
        coming=small,
        busy=small,
        placeable=st.none() | small,
        budget=st.none() | small,
        frozen=st.integers(0, 1),
        last_target=st.none() | small,
        panic_at_ms=time,
        lower_since_ms=time,
        idle_since_ms=time,
        period_since_ms=time,
        period_target=st.none() | small,
        adopted_until_ms=time,
    )


@given(some_inputs())
def test_no_input_breaks_the_promises(given_inputs: Inputs) -> None:
    """Bounds hold, ignorance adds nothing, a freeze moves nothing, and a message is enough to decide again."""
    decision = decide(given_inputs)
    grows = max(0, decision.target - given_inputs.planned)

    assert replay(message("a", "b", given_inputs, decision)) == decision
    assert decision.target >= 0
    if given_inputs.frozen:
        assert decision == decide(msgspec.structs.replace(given_inputs, panic_milli=None))
        assert decision.target == given_inputs.planned
        return
    assert decision.target <= given_inputs.max_replicas
    assert grows <= min(given_inputs.placeable or 0, given_inputs.budget or 0)
    assert decision.target <= wanted(given_inputs)
    assert decision.memory.target == wanted(given_inputs)
    if "off" not in decision.rule:
        assert wanted(given_inputs) >= given_inputs.min_replicas
    if given_inputs.panic_milli is None and given_inputs.fixed is None and given_inputs.by_hand is None:
        assert wanted(given_inputs) >= min(given_inputs.current, given_inputs.max_replicas)


@given(some_inputs())
def test_a_second_look_at_the_same_numbers_changes_nothing(given_inputs: Inputs) -> None:
    """S133: no growth at each loop. What was decided, seen again at the same time, is decided again."""
    first = decide(given_inputs)
    memory = {f"last_{k}" if k == "target" else k: getattr(first.memory, k) for k in Memory.__struct_fields__}
    again = decide(msgspec.structs.replace(given_inputs, **memory))

    assert again.target == first.target


def test_the_message_carries_whole_numbers_only_and_survives_the_wire() -> None:
    """Encoded, decoded and decided again: the same. What is not known is absent."""
    given_inputs = inputs(None, silent_ms=5)
    decided = message("team-a", "web", given_inputs, decide(given_inputs), at_ms=17, cause="tick")
    wired = msgspec.json.decode(encode(decided), type=ScaleDecision)

    assert replay(wired) == decide(given_inputs)
    assert "panic_milli" not in wired.inputs
    assert (wired.present, wired.target, wired.rule, wired.kind) == (3, 3, "missing-hold", "function")


def test_a_message_with_other_inputs_is_refused_by_name() -> None:
    """A decision of another kind, or of a stranger."""
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        replay(ScaleDecision(namespace="a", name="b", kind="job", target=1, present=1, rule="x", inputs={"now_ms": 1}))


def test_a_restart_keeps_what_was_wanted_not_what_fitted() -> None:
    """S132: two of five fitted; after a restart still five are wanted. Clocks of the old process are forgotten."""
    given_inputs = inputs(90_000, hot_ready=1, placeable=1, panic_at_ms=5)
    decided = message("a", "web", given_inputs, decide(given_inputs))

    assert decided.target == 2
    assert after_restart(decided) == Memory(target=5)
    assert after_restart(None) == Memory()


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"min_replicas": 11}, "min_replicas is 11: at most 10, which is max_replicas"),
    ({"replicas": 11}, "replicas is 11: at most 10, which is max_replicas"),
    ({"scaling": Scaling(fallback_replicas=11)}, "scaling.fallback_replicas is 11: at most 10, which is max_replicas"),
    ({"scaling": Scaling(panic_s=61)}, "scaling.panic_s is 61: at most 60, which is scaling.stable_s"),
    ({"target_percent": 0}, "target_percent is 0: at least 1"),
]


@pytest.mark.parametrize(("fields", "said"), FAULTS)
def test_settings_that_contradict_each_other_are_named(fields: dict[str, Any], said: str) -> None:
    """Field, value and bound."""
    assert faults(function(**fields)) == (said,)
    assert faults(function()) == ()


def test_a_setting_at_its_bound_is_no_fault() -> None:
    """All at once."""
    at_bounds = Scaling(fallback_replicas=10, panic_s=60)

    assert faults(function(min_replicas=10, replicas=10, target_percent=1, scaling=at_bounds)) == ()


def test_for_rates_the_function_wins_over_the_measurement() -> None:
    """And without either nobody knows."""

    def capacity(rate_milli: int | None, measured: int | None) -> int | None:
        wanted_function = function(Scaling(metric="rate", rate_milli=rate_milli))
        none: dict[str, Any] = {"now_ms": 0, "waiting": 0, "placeable": 0, "budget": 0}
        return inputs_of(wanted_function, Memory(), Samples(), Counts(), capacity_milli=measured, **none).capacity_milli

    assert (capacity(5, 7), capacity(None, 7), capacity(None, None)) == (5, 7, None)


# ---- stories ---------------------------------------------------------------------------------------------------------


def test_from_zero_to_many_and_back_to_zero() -> None:
    """S158, then a burst, then quiet: one wake-up, growth once the first is ready, zero after grace, no flapping."""
    world = World(function(max_replicas=50))
    world.run(12, calls=20)

    assert world.targets == [1, 4]
    world.run(60, calls=20)
    assert world.ready == 29
    world.run(300, calls=0)
    assert world.ready == 0
    peak = world.targets.index(29)
    assert world.targets == sorted(world.targets[: peak + 1]) + sorted(world.targets[peak + 1 :], reverse=True)


def test_a_call_one_second_after_zero_wakes_at_once() -> None:
    """S154: no dead time after scaling down."""
    world = World(function())
    world.run(30, calls=1)
    while world.tick(0).target:
        pass

    assert world.tick(1).rule == "wake"


def test_a_first_replica_that_waits_for_a_card_is_not_given_up_while_somebody_waits() -> None:
    """S153: five minutes without a card. S138: given up once the caller is gone, within the grace."""
    world = World(function(), start_s=10_000)
    world.run(300, calls=1)

    assert (world.ready, len(world.starting)) == (0, 1)
    world.run(61 + 6, calls=0)
    assert world.planned == 0


def test_an_hour_without_room_then_no_load_leaves_no_plan_behind() -> None:
    """S138: eight wanted, two fit; when the load is gone everything is back to normal, and works again."""
    world = World(function(max_replicas=20), room=2, tick_s=5)
    world.run(3600, calls=6)

    assert world.planned == 2
    assert world.rules[-1].endswith("no-room")
    world.run(400, calls=0)
    assert (world.planned, world.memory.target) == (0, 0)
    world.room = 20
    world.run(60, calls=6)
    assert world.ready >= 8


def test_the_metric_source_is_down_for_five_minutes() -> None:
    """S130: the number stays, also though the load was low for a while before."""
    world = World(function(), lie=lambda now_s, calls: None if 100 <= now_s < 400 else calls)
    world.run(99, calls=5)
    before = world.ready
    world.run(300, calls=0)

    assert world.ready == before == 8


def test_traffic_that_ends_together_with_its_metric_goes_to_zero() -> None:
    """S125: the bus answers and counts nothing, so no report is needed."""
    world = World(function())
    world.run(90, calls=5)
    world.run(180, calls=0)

    assert world.ready == 0


def test_a_restart_at_the_peak_keeps_the_replicas() -> None:
    """S132: only the first samples of a new process exist, and they look quiet."""
    world = World(function(max_replicas=50))
    world.run(200, calls=20)
    _, given_inputs, decision = world.decisions[-1]
    world.memory = after_restart(message("a", "web", given_inputs, decision))
    world.samples = Samples()
    before = world.ready
    world.run(40, calls=2)

    assert world.ready == before
    world.run(240, calls=2)
    assert world.ready == 4


def test_an_adopted_number_stands_for_one_window() -> None:
    """S134: somebody writes 7 at a load of 2; a minute later the load decides again, and nothing is stuck."""
    world = World(function(Scaling(by_hand="adopt")))
    world.run(150, calls=2)
    world.tick(2, by_hand=7)
    world.run(58, calls=2)

    assert world.ready == 7
    world.run(120, calls=2)
    assert world.ready == 4


def test_a_freeze_stops_and_its_end_goes_on() -> None:
    """Nothing moves for five minutes of changing load; then the load of now decides."""
    world = World(function(max_replicas=50))
    world.run(150, calls=2)
    before = world.ready
    for second in range(300):
        world.tick(second % 40, frozen=True)

    assert world.ready == before
    world.run(60, calls=20)
    assert world.ready > before


def test_load_that_flaps_faster_than_the_delay_moves_nothing() -> None:
    """Ten seconds of eight calls, ten of four: after the first minutes no replica comes or goes."""
    world = World(function(max_replicas=50))
    for second in range(1200):
        world.tick(8 if second // 10 % 2 else 4)
    late = {decision.target for at_s, _, decision in world.decisions if at_s > 300}

    assert len(late) == 1
