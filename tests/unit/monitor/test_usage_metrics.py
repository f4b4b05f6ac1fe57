"""The last usage message as Prometheus sees it: names it knows, parts that add up, nothing left of who is gone."""

from __future__ import annotations

from collections import defaultdict

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from bus.runtime import telemetry
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage, ContainerUsage, NodeUsage, SliceUsage
from monitor.metrics import gauges

A, B = CardUuid("GPU-a"), CardUuid("GPU-b")


def piece(pod: str, busy: int | None, mib: int | None, share: int = 500) -> SliceUsage:
    return SliceUsage(
        uid=RequestUid(f"u-{pod}"), namespace="team", pod=pod, share_milli=share, limit_mib=8000,
        compute_percent=busy, memory_used_mib=mib, average_milli=busy and 10 * busy,
    )  # fmt: skip


def container(pod: str, *, own: bool | None = True, cpu: int | None = 250, limit: int | None = 500) -> ContainerUsage:
    return ContainerUsage(
        container="7f" * 32, pod_uid=f"uid-{pod}", uid=RequestUid(f"u-{pod}"), namespace="team", pod=pod, own=own,
        cpu_used_milli=cpu, cpu_average_milli=cpu, cpu_limited=limit is not None, cpu_limit_milli=limit,
        memory_working_mib=64,
    )  # fmt: skip


def usage(*cards: CardUsage, containers: tuple[ContainerUsage, ...] = ()) -> NodeUsage:
    return NodeUsage(
        node=NodeName("n1"), incarnation="m", sequence=1, period_ms=1000, cards=cards, containers=containers
    )


def shown(message: NodeUsage | None) -> dict[str, dict[tuple[str, ...], float]]:
    return {gauge.name: dict(gauge.series) for gauge in gauges(message) if gauge.series}


def test_s173_one_series_a_pod_and_they_add_up_to_the_card() -> None:
    """Claim: two pods on one card with 70 % and 9,000 MiB used: each has its own, and the rest has no pod."""
    found = shown(
        usage(
            CardUsage(
                uuid=A, compute_percent=70, memory_used_mib=9000, slices=(piece("p", 20, 3000), piece("q", 30, 5000))
            )
        )
    )

    assert found["DCGM_FI_DEV_GPU_UTIL"] == {
        ("n1", A, "team", "p"): 20, ("n1", A, "team", "q"): 30, ("n1", A, "", ""): 20,
    }  # fmt: skip
    assert found["DCGM_FI_DEV_FB_USED"] == {
        ("n1", A, "team", "p"): 3000, ("n1", A, "team", "q"): 5000, ("n1", A, "", ""): 1000,
    }  # fmt: skip


def test_s176_what_is_unknown_has_no_series() -> None:
    """Claim: no pod's part, no card's figure and no container's number is shown as 0."""
    found = shown(
        usage(
            CardUsage(uuid=A, compute_percent=50, slices=(piece("p", None, None),)),
            CardUsage(uuid=B),
            containers=(container("p", cpu=None, limit=None),),
        )
    )

    assert found["DCGM_FI_DEV_GPU_UTIL"] == {("n1", A, "", ""): 50}
    assert "DCGM_FI_DEV_FB_USED" not in found
    assert "gpubus_container_cpu_used_milli" not in found
    assert found["kuscale_limit"] == {("GPU", "team/p", "n1"): 50}


def test_kuscales_series_are_per_pod_and_resource_in_percent() -> None:
    """Claim: the own container's CPU, not the sandbox's; the card's parts summed over cards; percent of one."""
    found = shown(
        usage(
            CardUsage(uuid=A, slices=(piece("p", 20, 1, share=500),)),
            CardUsage(uuid=B, slices=(piece("p", 30, 1, share=250),)),
            containers=(container("p"), container("p", own=False, cpu=3, limit=None)),
        )
    )

    assert found["kuscale_usage"] == {("CPU", "team/p", "n1"): 25, ("GPU", "team/p", "n1"): 50}
    assert found["kuscale_avg_usage"] == {("CPU", "team/p", "n1"): 25, ("GPU", "team/p", "n1"): 50}
    assert found["kuscale_limit"] == {("CPU", "team/p", "n1"): 50, ("GPU", "team/p", "n1"): 75}


def test_s174_a_series_vanishes_with_its_pod() -> None:
    """Claim: over a real scrape: what the last message does not hold is not there, whatever was there before."""
    said: list[NodeUsage | None] = [None]
    process = telemetry.start(telemetry.TelemetrySettings(), "monitor", "monitor-0")
    try:
        process.scrape(lambda: gauges(said[0]))
        empty = process.metrics_text().decode()
        said[0] = usage(CardUsage(uuid=A, compute_percent=20, power_w=300, slices=(piece("gone-soon", 20, 1),)))
        full = process.metrics_text().decode()
        said[0] = usage(CardUsage(uuid=A, compute_percent=0))
        after = process.metrics_text().decode()
    finally:
        process.shutdown()

    assert "DCGM" not in empty
    assert 'DCGM_FI_DEV_GPU_UTIL{Hostname="n1",UUID="GPU-a",namespace="team",pod="gone-soon"} 20.0' in full
    assert 'DCGM_FI_DEV_POWER_USAGE{Hostname="n1",UUID="GPU-a"} 300.0' in full
    assert "gone-soon" not in after
    assert 'DCGM_FI_DEV_GPU_UTIL{Hostname="n1",UUID="GPU-a",namespace="",pod=""} 0.0' in after


percents = st.one_of(st.none(), st.integers(0, 100))


@settings(deadline=None)  # a busy machine is no failure
@given(percents, st.lists(st.integers(0, 20), max_size=5))
def test_series_of_a_card_add_up(whole: int | None, parts: list[int]) -> None:
    """Claim: to the card wherever the parts fit into it, which the attribution sees to."""
    slices = tuple(piece(f"p{n}", busy, None) for n, busy in enumerate(parts))
    sums: dict[str, float] = defaultdict(float)
    for (_, uuid, _, _), number in (
        shown(usage(CardUsage(uuid=A, compute_percent=whole, slices=slices))).get("DCGM_FI_DEV_GPU_UTIL", {}).items()
    ):
        sums[uuid] += number

    if whole is not None and sum(parts) <= whole:
        assert sums == {A: whole}


@settings(deadline=None)
@given(st.text(max_size=20))
def test_any_pod_name_is_escaped(pod: str) -> None:
    """Claim: what Prometheus' own parser reads back is what was said."""
    process = telemetry.start(telemetry.TelemetrySettings(), "monitor", "monitor-0")
    try:
        process.scrape(lambda: gauges(usage(CardUsage(uuid=A, slices=(piece(pod, 20, 1),)))))
        text = process.metrics_text().decode()
    finally:
        process.shutdown()
    (family,) = (f for f in text_string_to_metric_families(text) if f.name == "DCGM_FI_DEV_GPU_UTIL")

    assert [sample.labels["pod"] for sample in family.samples] == [pod]
    assert msgspec.to_builtins(family.samples[0].value) == 20
