"""Containers over time: use, throttling, limits; resets; and nothing left of those that are gone."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.units import MAX_MEMORY_MIB, RequestUid
from contracts.usage import ContainerUsage
from monitor.attribution import Owner
from monitor.cgroups.stats import Limit, Reading
from monitor.cgroups.tree import Found
from monitor.meters import Meter, measured

S = 10**9
OWNER = Owner(uid=RequestUid("e-1-0"), namespace="team", pod="train-abcde")
OWNERS = {"pod-1": OWNER}


def found(container: str = "c1", pod: str = "pod-1", **reading: object) -> Found:
    return Found(pod_uid=pod, container=container, runtime="containerd", reading=Reading(**reading))  # type: ignore[arg-type] # a table of fields


def two_looks(before: Found, after: Found, seconds: int = 1):
    _, meters = measured({}, [before], OWNERS, at_ns=0)
    (usage,), _ = measured(meters, [after], OWNERS, at_ns=seconds * S)
    return usage


def test_what_a_container_did_between_two_looks() -> None:
    """Claim: use in milli-cores, throttling in time and in thousandths of periods, limits and memory as they are."""
    usage = two_looks(
        found(cpu_ns=0, periods=100, throttled_periods=10, throttled_ns=0),
        found(
            cpu_ns=3 * S, periods=120, throttled_periods=15, throttled_ns=250_000_000,
            cpu_limit_milli=Limit(value=2000), memory_mib=700, working_mib=650, memory_limit_mib=Limit(),
        ),
        seconds=2,
    )  # fmt: skip

    assert (usage.cpu_used_milli, usage.cpu_average_milli) == (1500, 1500)
    assert (usage.throttled_ms, usage.throttled_permille) == (250, 250)
    assert (usage.cpu_limited, usage.cpu_limit_milli) == (True, 2000)
    assert (usage.memory_mib, usage.memory_working_mib) == (700, 650)
    assert (usage.memory_limited, usage.memory_limit_mib) == (False, None)
    assert (usage.uid, usage.namespace, usage.pod, usage.pod_uid) == (OWNER.uid, "team", "train-abcde", "pod-1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (found(), found()),
        (
            found(cpu_ns=9 * S, periods=9, throttled_periods=9, throttled_ns=9),
            found(cpu_ns=S, periods=1, throttled_ns=1),
        ),
        (found("c0", cpu_ns=0, throttled_ns=0, periods=0, throttled_periods=0), found("c1", cpu_ns=S, periods=5)),
    ],
    ids=["nothing to read", "counters went back", "another container"],
)
def test_what_is_not_known_is_none(before: Found, after: Found) -> None:
    """Claim: no use, no throttling and no limit is made up; a restarted container begins anew."""
    usage = two_looks(before, after)

    assert usage.cpu_used_milli is None
    assert (usage.throttled_ms, usage.throttled_permille, usage.cpu_limited, usage.memory_limited) == (None,) * 4


def test_a_container_without_a_limit_has_no_periods_to_be_held_back_in() -> None:
    """Claim: no periods passed, so the part of them is unknown; the time is a known 0."""
    still = {"periods": 0, "throttled_periods": 0, "throttled_ns": 0, "cpu_limit_milli": Limit()}

    usage = two_looks(found(**still), found(**still))

    assert (usage.throttled_ms, usage.throttled_permille, usage.cpu_limited) == (0, None, False)


def test_pods_of_others_are_not_told() -> None:
    """Claim: what is not ours is neither in the message nor kept."""
    usages, meters = measured({}, [found(pod="stranger", cpu_ns=1)], OWNERS, at_ns=0)

    assert (usages, meters) == ((), {})


def test_s174_many_short_pods_leave_nothing_behind() -> None:
    """Claim: 20,000 pods, 200 at a time: the state holds the last 200, and memory does not grow with their number."""
    at_once, generations, meters, sizes = 200, 100, dict[str, Meter](), []
    tracemalloc.start()
    try:
        for generation in range(generations):
            pods = [found(f"c-{generation}-{n}", cpu_ns=n, periods=n, throttled_ns=0) for n in range(at_once)]
            _, meters = measured(meters, pods, OWNERS, at_ns=generation * S)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert len(meters) == at_once
    assert sizes[-1] < sizes[2] + 64 * 1024


numbers = st.one_of(st.none(), st.integers(0, 2**64))
limits = st.one_of(st.none(), st.builds(Limit, value=numbers))
readings = st.builds(
    Reading, cpu_ns=numbers, periods=numbers, throttled_periods=numbers, throttled_ns=numbers, cpu_limit_milli=limits,
    memory_mib=st.integers(0, MAX_MEMORY_MIB), working_mib=st.none(), memory_limit_mib=limits,
)  # fmt: skip


@settings(deadline=None)  # a busy machine is no failure
@given(readings, readings, st.integers(1, 10**12))
def test_any_two_readings_give_a_message_that_readers_take(before: Reading, after: Reading, elapsed_ns: int) -> None:
    """Claim: whatever a kernel writes, no number is beyond what the contract allows."""
    one, two = (Found(pod_uid="pod-1", container="c", runtime="docker", reading=r) for r in (before, after))
    _, meters = measured({}, [one], OWNERS, at_ns=0)
    (usage,), _ = measured(meters, [two], OWNERS, at_ns=elapsed_ns)

    assert msgspec.json.decode(msgspec.json.encode(usage), type=ContainerUsage) == usage
