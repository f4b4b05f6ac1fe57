"""Whoever waits for whose place: the log gives every nomination again, and a restart finds nothing left to do.

A world that is too small for all who ask: important and unimportant ones, gangs, tags, linked cards of two models,
known and unknown ends, and time that passes.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.decisions import Nominated
from contracts.inventory import Card
from contracts.requests import GangRef, GpuAsk, Locality, PodRequest, PodTemplate
from contracts.units import CardUuid
from tests.builders.ledger import Node, node
from tests.builders.scene import Scene

asks = st.builds(
    PodRequest,
    name=st.just("r"),
    pod=st.builds(PodTemplate, image=st.just("i"), cpu_milli=st.sampled_from([0, 0, 3000])),
    gpu=st.builds(
        GpuAsk,
        cards=st.sampled_from([1, 1, 2]),
        share_milli=st.sampled_from([300, 500, 1000, 1000]),
        models=st.sampled_from([(), (), ("A",), ("B",)]),
        nvlink=st.sampled_from(["any", "any", "require"]),
    ),
    priority=st.just(0),
    priority_class=st.sampled_from([None, "low", "low", "high", "critical"]),
    expected_s=st.sampled_from([None, 60, 600]),
    gang=st.none() | st.builds(GangRef, name=st.just("g"), size=st.integers(2, 3), min=st.sampled_from([None, 1])),
    locality=st.builds(
        Locality, anti_affinity=st.sampled_from([None, None, "x"]), exclusion=st.sampled_from([None, None, None, "z"])
    ),
)
steps = st.lists(
    st.tuples(st.sampled_from(["submit", "submit", "running", "ended", "gone", "withdraw", "wait"]), st.integers(0, 9)),
    min_size=8,
    max_size=24,
)


def _node(name: str, model: str) -> Node:
    """Three cards: two linked ones, and one of the other model."""
    cards = (
        Card(
            uuid=CardUuid(f"{name}-{i}"),
            index=i,
            model=model if i < 2 else "C",
            memory_total_mib=8_000,
            nvlink_group=1 if i < 2 else None,
        )
        for i in range(3)
    )
    return node(name).with_cards(cards).cpu(8000)


def _play(scene: Scene, what: str, which: int, asked: list[PodRequest], living: list[str]) -> None:
    if what == "submit":
        request = asked[which % len(asked)]
        name = f"r{len(scene.answers)}"
        scene.submit(PodRequest(**{**{f: getattr(request, f) for f in request.__struct_fields__}, "name": name}))
        living.append(name)
    elif what == "wait":
        scene.wait(which * 100 + 1)
    elif living:
        name = living[which % len(living)]
        placed = scene[name].placement is not None
        if what == "withdraw" and scene[name].live:
            scene.withdraw(name)
        elif what in ("running", "ended", "gone") and placed and scene[name].live:
            scene.seen(name, what)  # type: ignore[arg-type]  # one of its values


@given(asked=st.lists(asks, min_size=3, max_size=6), played=steps)
@settings(max_examples=60, deadline=None)
def test_every_nomination_comes_out_again(asked: list[PodRequest], played: list[tuple[str, int]]) -> None:
    """Claim: whatever happened before it, and whoever was looked for in vain before it."""
    scene = Scene(_node("n1", "A"), _node("n2", "B"))
    living: list[str] = []
    for what, which in played:
        _play(scene, what, which, asked, living)
    scene.judge()
    assert all(record.version for record in scene.records(Nominated))
