"""Samples to periods, counters to rates, /proc to CPU use."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.units import CardUuid
from contracts.usage import CardUsage, CpuUsage, ProcessUsage
from monitor import cpu
from monitor.usage import mean, over_period, peak, rise

A, B = CardUuid("GPU-a"), CardUuid("GPU-b")


def sample(uuid: CardUuid = A, **fields: object) -> tuple[CardUsage, ...]:
    return (CardUsage(uuid=uuid, **fields),)  # type: ignore[arg-type] # a table of fields


@pytest.mark.parametrize(
    ("values", "average", "largest"),
    [
        ((), None, None),
        ((None, None), None, None),
        ((0,), 0, 0),
        ((30, None, 35), 33, 35),
        ((1, 2), 2, 2),
        ((1, 1, 2), 1, 2),
        ((0, 0, 0, 1), 0, 1),
    ],
)
def test_unknown_samples_do_not_count(values: tuple[int | None, ...], average: int | None, largest: int | None) -> None:
    """Claim: mean (rounded half up) and peak are over the known ones; of nothing known nothing is known."""
    assert (mean(values), peak(values)) == (average, largest)


@pytest.mark.parametrize(
    ("before", "after", "risen"),
    [(None, 5, None), (5, None, None), (5, 5, 0), (5, 9, 4), (9, 5, None), (2**64 - 1, 3, None)],
    ids=["first sample", "missing", "stands", "rises", "reset", "wrapped"],
)
def test_counters(before: int | None, after: int | None, risen: int | None) -> None:
    """Claim: the first sample and a reset give no rate, never a negative or a huge one."""
    assert rise(before, after) == risen


def test_a_period_is_the_mean_of_compute_and_the_peak_of_memory() -> None:
    """Claim: each field by its rule, in one table."""
    samples = [
        sample(compute_percent=10, memory_used_mib=500, power_w=100, temperature_c=50),
        sample(compute_percent=None, memory_used_mib=900, power_w=None, temperature_c=60),
        sample(compute_percent=41, memory_used_mib=700, power_w=201, temperature_c=None),
    ]

    assert over_period([A], samples) == sample(
        compute_percent=26, memory_used_mib=900, power_w=151, temperature_c=60, processes=None
    )


def test_a_card_that_told_nothing_is_listed_with_nothing() -> None:
    """Claim: one entry for each card we hold, in that order, and none for a card we do not hold."""
    used = over_period([B, A], [sample(A, compute_percent=5), sample(CardUuid("GPU-x"), compute_percent=9)])

    assert used == (CardUsage(uuid=B), CardUsage(uuid=A, compute_percent=5))


def test_processes_are_those_of_the_newest_list() -> None:
    """Claim: who has ended is gone, who is there has mean and peak over its own samples; unknown lists do not count."""
    samples = [
        sample(processes=(ProcessUsage(pid=1, memory_mib=9), ProcessUsage(pid=2, memory_mib=50, compute_percent=10))),
        sample(processes=(ProcessUsage(pid=2, memory_mib=40, compute_percent=20), ProcessUsage(pid=3))),
        sample(processes=None),
    ]

    assert over_period([A], samples)[0].processes == (
        ProcessUsage(pid=2, memory_mib=50, compute_percent=15),
        ProcessUsage(pid=3),
    )
    assert over_period([A], [sample(processes=())])[0].processes == ()
    assert over_period([A], [sample(processes=None)])[0].processes is None


percents = st.one_of(st.none(), st.integers(0, 100))


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(percents, max_size=20))
def test_a_mean_lies_among_its_samples(values: list[int | None]) -> None:
    """Claim: between the least and the largest known value; so a per cent stays a per cent."""
    known = [value for value in values if value is not None]
    average = mean(values)

    assert average is None if not known else average is not None and min(known) <= average <= max(known)


# --- CPU ------------------------------------------------------------------------------------------------------------

STAT = """cpu  {user} 10 50 {idle} {iowait} 0 5 0 70 0
cpu0 1 1 1 1 1 1 1 1 1 1
cpu1 1 1 1 1 1 1 1 1 1 1
intr 12345 0
ctxt 999
btime 1700000000
"""
MEMINFO = "MemTotal:        2048000 kB\nMemFree:          100000 kB\nMemAvailable:    1024000 kB\n"


def look(user: int = 0, idle: int = 0, iowait: int = 0) -> cpu.HostCounters:
    return cpu.counters(STAT.format(user=user, idle=idle, iowait=iowait), MEMINFO)


@pytest.mark.parametrize(
    ("before", "after", "used_milli"),
    [
        (None, look(), None),
        (look(), look(), None),
        (look(user=100, idle=900), look(user=150, idle=950), 1000),
        (look(user=100, idle=900), look(user=200, idle=900), 2000),
        (look(user=100, idle=900), look(user=100, idle=900, iowait=100), 0),
        (look(user=100, idle=900), look(user=133, idle=967), 660),
        (look(user=100, idle=900), look(user=5, idle=7), None),
        (look(user=100, idle=900, iowait=9), look(user=100, idle=930, iowait=4), 0),
        (look(user=100, idle=900, iowait=9), look(user=110, idle=900, iowait=4), 2000),
    ],
    ids=[
        "first look", "no time between", "half", "all", "waiting is idle", "a third", "reset", "iowait goes back",
        "iowait goes back by half",
    ],
)  # fmt: skip
def test_cpu_use_between_two_looks(
    before: cpu.HostCounters | None, after: cpu.HostCounters, used_milli: int | None
) -> None:
    """Claim: cores × 1000 × busy / all, by hand; unknown after the first look, without time between, after a reset."""
    assert cpu.host_usage(before, after) == CpuUsage(
        cores=2, used_milli=used_milli, memory_total_mib=2000, memory_used_mib=1000
    )


def test_guests_are_not_counted_twice() -> None:
    """Claim: user time contains guest time: 100 ticks of user, all of them a guest's, beside 100 idle are a half."""
    host = look(user=100, idle=100)
    guest = cpu.counters(STAT.format(user=200, idle=200, iowait=0).replace("70 0", "170 0"), MEMINFO)

    assert cpu.host_usage(host, guest).used_milli == 1000


def test_s176_texts_that_do_not_tell_are_unknown(tmp_path: Path) -> None:
    """Claim: no cpu line, broken numbers and no MemAvailable are None; a /proc that cannot be read is no look."""
    empty = cpu.host_usage(cpu.counters("", ""), cpu.counters("cpu  a b\ncpu0 1\n", "MemTotal: 2048 kB\nMemAvail"))

    assert empty == CpuUsage(cores=1, used_milli=None, memory_total_mib=2, memory_used_mib=None)
    assert cpu.read(tmp_path) is None


def test_a_cpu_that_went_offline_makes_two_looks_incomparable() -> None:
    """Claim: with another number of cores the sums do not compare, so use is unknown for one period."""
    fewer = cpu.counters(STAT.format(user=900, idle=900, iowait=0).replace("cpu1", "xpu1"), MEMINFO)

    assert cpu.host_usage(look(), fewer).used_milli is None


def test_the_reader_reads_the_folder_it_is_given(tmp_path: Path) -> None:
    """Claim: stat and meminfo below the given folder, as a container that sees the host's /proc elsewhere needs."""
    (tmp_path / "stat").write_text(STAT.format(user=1, idle=2, iowait=3))
    (tmp_path / "meminfo").write_text(MEMINFO)

    assert cpu.read(tmp_path) == look(1, 2, 3)


@settings(deadline=None)  # a busy machine is no failure
@given(st.tuples(*[st.integers(0, 10**6)] * 6))
def test_cpu_use_is_never_negative_and_never_more_than_there_is(ticks: tuple[int, ...]) -> None:
    """Claim: for any two looks, None or 0 to cores × 1000."""
    used = cpu.host_usage(look(*ticks[:3]), look(*ticks[3:])).used_milli

    assert used is None or 0 <= used <= 2000


words = st.sampled_from(
    ["cpu", "cpu0", "MemTotal:", "MemAvailable:", "12", "-1", "9" * 5000, "9" * 19, "\u0663", "\n", " "]
)
texts = st.one_of(st.text(), st.lists(words).map(" ".join), st.lists(words).map("".join))


@settings(deadline=None)
@given(texts, texts, texts, texts)
def test_any_two_texts_give_a_message_that_readers_take(stat: str, later: str, meminfo: str, memory: str) -> None:
    """Claim: nothing raises, and what is made of it is legal for whoever decodes it."""
    usage = cpu.host_usage(cpu.counters(stat, meminfo), cpu.counters(later, memory))

    assert msgspec.json.decode(msgspec.json.encode(usage), type=CpuUsage) == usage
