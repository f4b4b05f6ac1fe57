"""The files of cgroups as numbers, both versions; what cannot be read is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.cgroups.stats import (
    Limit,
    Reading,
    TextsV1,
    TextsV2,
    cfs_quota,
    cpu_max,
    memory_limit,
    number,
    reading_v1,
    reading_v2,
    table,
)

MIB = 1024 * 1024
CPU_STAT_V2 = """usage_usec 81234567
user_usec 71234567
system_usec 10000000
nr_periods 420
nr_throttled 42
throttled_usec 1234567
nr_bursts 0
burst_usec 0
"""
CPU_STAT_V1 = "nr_periods 420\nnr_throttled 42\nthrottled_time 1234567000\n"


def test_the_same_container_reads_the_same_in_both_versions() -> None:
    """Claim: microseconds and nanoseconds, `max` and -1 and 2^63: one reading."""
    v2 = reading_v2(
        TextsV2(
            cpu_stat=CPU_STAT_V2,
            cpu_max="150000 100000\n",
            memory_current=f"{100 * MIB + 1}\n",
            memory_stat=f"anon 5\nfile 10\ninactive_file {40 * MIB}\n",
            memory_max="max\n",
        )
    )
    v1 = reading_v1(
        TextsV1(
            cpuacct_usage="81234567000\n",
            cpu_stat=CPU_STAT_V1,
            cfs_quota_us="150000\n",
            cfs_period_us="100000\n",
            memory_usage=f"{100 * MIB + 1}\n",
            memory_stat=f"inactive_file 1\ntotal_inactive_file {40 * MIB}\n",
            memory_limit="9223372036854771712\n",
        )
    )

    assert v1 == v2
    assert v2 == Reading(
        cpu_ns=81_234_567_000,
        periods=420,
        throttled_periods=42,
        throttled_ns=1_234_567_000,
        cpu_limit_milli=Limit(value=1500),
        memory_mib=101,
        working_mib=61,
        memory_limit_mib=Limit(),
    )


@pytest.mark.parametrize("reading", [reading_v1(TextsV1()), reading_v2(TextsV2())])
def test_files_that_are_not_there_are_unknown(reading: Reading) -> None:
    """Claim: of a cgroup that vanished everything is None; none of it is zero."""
    assert reading == Reading()


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max 100000\n", Limit()),
        ("max\n", Limit()),
        ("50000 100000\n", Limit(value=500)),
        ("1000 100000", Limit(value=10)),
        ("600000 100000", Limit(value=6000)),
        ("50000 0", None),
        ("50000", None),
        ("-1 100000", None),
        ("5e4 100000", None),
        ("", None),
        (None, None),
    ],
)
def test_cpu_max(text: str | None, limit: Limit | None) -> None:
    """Claim: quota over period; `max` is no limit, which is not unknown."""
    assert cpu_max(text) == limit


@pytest.mark.parametrize(
    ("quota", "period", "limit"),
    [
        ("-1\n", "100000\n", Limit()),
        ("50000", "100000", Limit(value=500)),
        ("20000", "50000", Limit(value=400)),
        ("50000", None, None),
        (None, "100000", None),
        ("-", "100000", None),
        ("x", "100000", None),
    ],
)
def test_cfs_quota(quota: str | None, period: str | None, limit: Limit | None) -> None:
    """Claim: -1 is none; half of a pair is unknown."""
    assert cfs_quota(quota, period) == limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max", Limit()), (str(2**63 - 4096), Limit()), (str(512 * MIB + 5), Limit(value=512)), ("", None), ("a", None)],
)
def test_memory_limits(text: str, limit: Limit | None) -> None:
    """Claim: rounded down, and v1's huge number is none."""
    assert memory_limit(text) == limit


def test_lines_that_are_no_numbers_are_left_out() -> None:
    """Claim: a broken line costs itself, and the first of two equal keys counts."""
    assert table("a 1\nb two\nc\n\nd 4\na 9\ne -5\nf ٣\n") == {"a": 1, "d": 4}


words = st.sampled_from(["max", "-1", "9" * 30, "usage_usec", "12", "\n", " "])
anything = st.one_of(st.none(), st.text(), st.lists(words).map("".join))


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(anything, min_size=7, max_size=7))
def test_any_text_gives_a_reading(texts: list[str | None]) -> None:
    """Claim: nothing raises, no number is negative."""
    a, b, c, d, e, f, g = texts
    v1 = TextsV1(
        cpuacct_usage=a, cpu_stat=b, cfs_quota_us=c, cfs_period_us=d, memory_usage=e, memory_stat=f, memory_limit=g
    )
    v2 = TextsV2(cpu_stat=a, cpu_max=b, memory_current=c, memory_stat=d, memory_max=e)
    for reading in (reading_v1(v1), reading_v2(v2)):
        values = (reading.cpu_ns, reading.memory_mib, reading.working_mib, reading.throttled_ns)

        assert all(value is None or value >= 0 for value in values)


@settings(deadline=None)
@given(st.text())
def test_a_number_is_digits_and_nothing_else(text: str) -> None:
    """Claim: what `number` takes, the kernel could have written."""
    found = number(text)

    assert found is None or found == 0 or str(found) == text.strip().lstrip("0")


def test_a_million_digits_are_no_number() -> None:
    """Claim: a text that would take seconds to convert is refused by its length."""
    assert number("9" * 1_000_000) is None
