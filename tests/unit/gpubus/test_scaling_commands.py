"""`gpubus scale`, `get functions` and `explain` of a function: what is meant, and what is shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rich.console import Console

from autoscaler.core.horizontal import decide
from autoscaler.core.numbers import Memory
from autoscaler.core.record import inputs_of, message
from autoscaler.core.replicas import Counts
from autoscaler.core.windows import Samples
from contracts.functions import FunctionStatus, MissingCards
from contracts.requests import GpuAsk, PodTemplate
from contracts.workloads import Function, ScaleDecision, Scaling
from gpubus.cli.requestflags import RequestFlags
from gpubus.cli.scale import changed
from gpubus.errors import UsageError
from gpubus.functions import FunctionView, again
from gpubus.render import scaling

BEFORE = Function(
    name="f",
    pod=PodTemplate(image="old", cpu_milli=500),
    gpu=GpuAsk(share_milli=250),
    replicas=3,
    scaling=Scaling(stable_s=30),
)


def text(*parts: Any) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get()


def test_what_is_not_given_stays_as_it_is() -> None:
    found = changed(BEFORE, RequestFlags(name="f", gpu_share="0.5"), {"max_replicas": 7, "replicas": None}, 4)
    assert found == msgspec.structs.replace(
        BEFORE,
        gpu=GpuAsk(share_milli=500),
        max_replicas=7,
        replicas=None,
        scaling=Scaling(stable_s=30, concurrency=4),
    )


def test_a_new_function_needs_its_image_only() -> None:
    found = changed(None, RequestFlags(name="f", image="x:1"), {}, None)
    assert found == Function(name="f", pod=PodTemplate(image="x:1"))


def test_what_is_out_of_bounds_is_told_with_its_field() -> None:
    with pytest.raises(UsageError, match="max_replicas"):
        changed(BEFORE, RequestFlags(name="f"), {"max_replicas": -1}, None)


def test_bounds_that_contradict_each_other_are_told_with_both() -> None:
    with pytest.raises(UsageError, match="min_replicas is 9: at most 2, which is max_replicas"):
        changed(BEFORE, RequestFlags(name="f"), {"min_replicas": 9, "max_replicas": 2}, None)


def decided(**more: Any) -> ScaleDecision:
    """A decision as the autoscaler writes it: one call waits and nobody serves."""
    inputs = inputs_of(BEFORE, Memory(), Samples(), Counts(), now_ms=1, waiting=1, placeable=5, budget=5)
    return msgspec.structs.replace(message("ns", "f", inputs, decide(inputs), at_ms=1_790_000_000_000), **more)


def test_a_decision_made_again_is_the_same_and_one_that_is_not_is_shown() -> None:
    """By its inputs alone; a message that says something else than they give is told of, and so is one of no sense."""
    assert again(decided()).same
    assert not again(decided(target=9)).same
    assert not again(decided(inputs={})).same
    assert not again(decided(kind="job")).same
    story = text(*scaling.story([again(decided()), again(decided(target=9))]))
    assert "1 of 2 come out differently" in story
    assert "0 -> 9  fixed" in story
    assert "(now: 3 fixed)" in story
    assert "all the same" in text(*scaling.story([again(decided())]))


def test_what_is_missing_stands_in_the_table_and_what_is_not_known_is_no_zero() -> None:
    missing = MissingCards(replicas=2, cards=4, share_milli=500, models=("H100", "A100"), reason="no card is free")
    status = FunctionStatus(target=3, rule="up+no-room", ready=1, waiting=None, missing=missing)
    rows = [
        FunctionView(namespace="ns", function=BEFORE, status=status),
        FunctionView(namespace="ns", function=msgspec.structs.replace(BEFORE, name="new")),
    ]
    shown = text(scaling.functions(rows, wide=True))
    assert "4 x 500/1000 of H100 or A100: no card is free" in shown
    assert [line.split()[2:8] for line in shown.splitlines()[1:3]] == [["3", "1", "0", "0", "0", "?"], ["?"] * 6]
