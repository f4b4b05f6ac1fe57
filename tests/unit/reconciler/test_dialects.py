"""The words of other schedulers as ours: tables of examples, and what happens when two of them disagree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.dialects import dialects, merged

GPU, MEM, PCT, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
ALIYUN = "aliyun.com/gpu-mem"

EXAMPLES: list[tuple[str, dict[str, str], dict[str, Any], dict[str, Any]]] = [
    ("KAI: half a card", {"gpu-fraction": "0.5"}, {}, {"share_milli": 500, "memory_milli": 500}),
    ("KAI: finer", {"gpu-fraction": ".125"}, {}, {"share_milli": 125, "memory_milli": 125}),
    ("KAI: memory", {"gpu-memory": "2000"}, {}, {"memory_mib": 2000, "share_milli": 100}),
    (
        "KAI: of two cards",
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
        {},
        {"share_milli": 500, "memory_milli": 500, "cards": 2},
    ),
    (
        "HAMi: memory and cores",
        {},
        {GPU: 1, MEM: 3000, CORES: 30},
        {"cards": 1, "memory_mib": 3000, "share_milli": 300},
    ),
    ("HAMi: percent of memory", {}, {GPU: "2", PCT: "50"}, {"cards": 2, "memory_milli": 500, "share_milli": 100}),
    ("HAMi: no promise of cores", {}, {MEM: 3000, CORES: 0}, {"memory_mib": 3000, "share_milli": 100}),
    ("HAMi: cores alone", {}, {CORES: "100"}, {"share_milli": 1000}),
    ("HAMi: thousands", {}, {MEM: "3k"}, {"memory_mib": 3000, "share_milli": 100}),
    ("gpushare: three GiB", {}, {ALIYUN: "3"}, {"cards": 1, "memory_mib": 3072, "share_milli": 100}),
    ("device plugin: two whole cards", {}, {GPU: "2"}, {"cards": 2}),
    ("nothing", {}, {"cpu": "1"}, {}),
    ("only a number of devices is no ask", {"gpu-fraction-num-devices": "2"}, {}, {}),
]


@pytest.mark.parametrize(("claim", "annotations", "limits", "ask"), EXAMPLES, ids=[row[0] for row in EXAMPLES])
def test_example(claim: str, annotations: dict[str, str], limits: dict[str, Any], ask: dict[str, Any]) -> None:
    assert merged({}, dialects(annotations, {"c": limits})) == (ask, []), claim


CONFLICTS: list[tuple[str, dict[str, Any], dict[str, str], dict[str, Any], str]] = [
    ("ours against KAI", {"share_milli": 300}, {"gpu-fraction": "0.5"}, {}, "gpubus.dev says 300, KAI says 500"),
    ("KAI against HAMi", {}, {"gpu-memory": "2000"}, {MEM: 3000}, "KAI says 2000, HAMi says 3000"),
    (
        "MiB and thousandths",
        {"memory_mib": 5},
        {"gpu-fraction": "0.5"},
        {},
        "gpubus.dev says 5 MiB, KAI 500 thousandths",
    ),
    ("two ways of KAI", {}, {"gpu-fraction": "0.5", "gpu-memory": "1"}, {}, "one of the two"),
    ("both of HAMi's memories", {}, {}, {MEM: 1, PCT: 1}, "HAMi says 1 MiB, HAMi 10 thousandths"),
    ("more than a card", {}, {}, {CORES: 150}, "150 percent is more than a card"),
    ("a whole fraction", {}, {"gpu-fraction": "1"}, {}, "above 0 and below 1"),
    ("none", {}, {"gpu-fraction": "0.000"}, {}, "above 0 and below 1"),
    ("finer than a thousandth", {}, {"gpu-fraction": "0.1234"}, {}, "above 0 and below 1"),
    ("no number", {}, {"gpu-memory": "2Gb"}, {}, "is not a whole number"),
    ("half a device", {}, {}, {GPU: "500m"}, "is not a whole number"),
    ("HAMi's models", {}, {"nvidia.com/use-gputype": "A100"}, {}, "gpubus.dev/models"),
    ("a MIG instance", {}, {}, {"nvidia.com/mig-1g.10gb": 1}, "ask for a share of a card"),
]


@pytest.mark.parametrize(
    ("claim", "own", "annotations", "limits", "says"), CONFLICTS, ids=[row[0] for row in CONFLICTS]
)
def test_conflict(
    claim: str, own: dict[str, Any], annotations: dict[str, str], limits: dict[str, Any], says: str
) -> None:
    _, faults = merged(own, dialects(annotations, {"c": limits}))

    assert any(says in fault.text for fault in faults), (claim, faults)


def test_the_same_thing_said_twice_is_said_once() -> None:
    ask, faults = merged({"share_milli": 500}, dialects({"gpu-fraction": "0.5"}, {"c": {GPU: 1}}))

    assert (ask, faults) == ({"share_milli": 500, "memory_milli": 500, "cards": 1}, [])


def test_a_share_of_our_own_goes_before_the_one_that_only_follows() -> None:
    assert merged({"share_milli": 700}, dialects({}, {"c": {MEM: 1}}))[0]["share_milli"] == 700


def test_our_own_memory_alone_means_the_whole_compute() -> None:
    """As in a request; only the words of who promises no compute mean a tenth."""
    assert merged({"memory_mib": 5}, dialects({}, {"c": {GPU: 1}})) == ({"memory_mib": 5, "cards": 1}, [])


def test_two_containers_that_ask_are_refused() -> None:
    [said] = dialects({}, {"a": {GPU: 1}, "b": {GPU: 1}})

    assert "a, b" in said.faults[0].text


@given(
    st.dictionaries(st.sampled_from(["gpu-fraction", "gpu-memory"]), st.text(max_size=8)),
    st.dictionaries(st.sampled_from([GPU, MEM, PCT, CORES, ALIYUN]), st.text(max_size=8) | st.integers(-5, 10**6)),
)
def test_nothing_that_somebody_writes_raises(annotations: dict[str, str], limits: dict[str, Any]) -> None:
    ask, faults = merged({}, dialects(annotations, {"c": limits}))

    assert faults or all(isinstance(value, int) and value >= 0 for value in ask.values())
