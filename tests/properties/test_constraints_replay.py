"""Constraints in the engine: decided again from the log they are equal, and what waits for a neighbour is woken."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.constraints import (
    Expression,
    NodeAffinity,
    NodeTerm,
    PodAffinity,
    PodSelector,
    PodTerm,
    PreferredNodeTerm,
    PreferredPodTerm,
    TopologySpread,
)
from contracts.decisions import HealthSet, Reserved
from contracts.inventory import Card, NodeFacts, NodeInventory, Taint
from contracts.outcomes import Outcome
from contracts.requests import GangRef, GpuAsk, PodRequest, PodTemplate
from contracts.units import CardUuid, NodeName
from scheduler.core.replay import replay
from tests.properties.test_replay import Log

ZONE = "zone"
OTHERS = PodSelector(match_labels={"app": "b"})
TERM = PodTerm(topology_key=ZONE)

WISHES: list[dict[str, Any]] = [
    {},
    {},
    {"topology_spread": (TopologySpread(topology_key=ZONE),)},
    {"topology_spread": (TopologySpread(topology_key="kubernetes.io/hostname", when_unsatisfiable="ScheduleAnyway"),)},
    {"pod_affinity": PodAffinity(required=(PodTerm(topology_key=ZONE, selector=OTHERS),))},
    {"pod_affinity": PodAffinity(preferred=(PreferredPodTerm(weight=9, term=TERM),))},
    {"pod_anti_affinity": PodAffinity(required=(PodTerm(topology_key="kubernetes.io/hostname"),))},
    {"pod_anti_affinity": PodAffinity(required=(PodTerm(topology_key=ZONE, selector=OTHERS),))},
    {
        "node_affinity": NodeAffinity(
            required=(NodeTerm(match_expressions=(Expression(key=ZONE, operator="Exists"),)),),
            preferred=(
                PreferredNodeTerm(
                    weight=3,
                    term=NodeTerm(match_expressions=(Expression(key=ZONE, operator="In", values=("y",)),)),
                ),
            ),
        )
    },
]

asks = st.tuples(
    st.integers(0, len(WISHES) - 1),
    st.sampled_from(["a", "b"]),
    st.sampled_from([100, 500, 1000]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(["packing", "packing", "spreading", "random"]),
    st.sampled_from([None, None, None, "node", "nvlink", "domain"]),
)


def world(log: Log) -> None:
    """Five nodes in three zones, one of them discouraged; pairs of cards are linked."""
    for index, zone in enumerate("xxyyz"):
        name = NodeName(f"n{index}")
        cards = tuple(
            Card(uuid=CardUuid(f"{name}-{i}"), index=i, model="A", memory_total_mib=40_537, nvlink_group=i // 2)
            for i in range(3)
        )
        log.engine.inventory(NodeInventory(node=name, boot_id="b", incarnation="i", cards=cards))
        log.engine.facts(
            NodeFacts(
                node=name,
                uid="u",
                labels={ZONE: zone},
                taints=(Taint(key="old", effect="PreferNoSchedule"),) if index == 1 else (),
                allocatable_cpu_milli=32_000,
                allocatable_memory_mib=200_000,
            )
        )
        log.engine.health(HealthSet(node=name, health="fresh"))
    log.turn()


def submit(log: Log, name: str, ask: tuple[int, str, int, int, str, str | None], turn: int) -> None:
    """One request; two of a turn that stand together are a gang."""
    wish, label, share, cards, policy, within = ask
    gang = None
    if within is not None:
        key = ZONE if within == "domain" else None
        gang = GangRef(name=f"g{turn}-{within}", size=2, within=within, topology_key=key)  # type: ignore[arg-type]  # drawn
    log.engine.submit(
        "ns",
        PodRequest(
            name=name,
            pod=PodTemplate(image="i", labels={"app": label}),
            gpu=GpuAsk(cards=cards, share_milli=share, nvlink="prefer" if cards > 1 else "any"),
            policy=policy,
            gang=gang,
            **WISHES[wish],
        ),
    )


@settings(max_examples=12, deadline=None)
@given(
    batches=st.lists(st.lists(asks, min_size=1, max_size=8), min_size=2, max_size=8),
    restarts=st.sets(st.integers(0, 7)),
    ends=st.lists(st.integers(0, 40), max_size=24),
)
def test_decisions_with_constraints_are_computed_again_equal(
    batches: list[list[tuple[int, str, int, int, str, str | None]]], restarts: set[int], ends: list[int]
) -> None:
    """Batches, releases and restarts in any order; a replay with no knowledge of them finds nothing different."""
    log = Log()
    world(log)
    number = 0
    for turn, batch in enumerate(batches):
        if turn in restarts:
            log.restart()
        for ask in batch:
            submit(log, f"r{number}", ask, turn)
            number += 1
        for end in ends[turn::8]:
            for uid, held in list(log.engine.state.requests.items())[end : end + 1]:
                name = held.request.name
                log.engine.outcome(Outcome(uid=uid, namespace="ns", name=name, phase="ended", pod="p"))
        log.turn()
        log.turn()

    found = replay((commit, sequence) for sequence, commit in enumerate(log.commits, 1))

    assert found.decisions == sum(isinstance(r, Reserved) for c in log.commits for r in c.records)
    assert found.differences == ()


def _placed(log: Log, name: str) -> str | None:
    held = next(r for r in log.engine.state.requests.values() if r.request.name == name)
    return held.placement.node if held.placement else None


def _submit(log: Log, name: str, label: str, **wishes: Any) -> None:
    pod = PodTemplate(image="i", labels={"app": label})
    log.engine.submit("ns", PodRequest(name=name, pod=pod, gpu=GpuAsk(share_milli=100), **wishes))


def _end(log: Log, name: str) -> None:
    held = next(r for r in log.engine.state.requests.values() if r.request.name == name)
    log.engine.outcome(Outcome(uid=held.uid, namespace="ns", name=name, phase="ended", pod="p"))


def test_who_waits_for_a_neighbour_is_tried_again_when_it_arrives() -> None:
    """No node improved; a placement is what it waited for."""
    log = Log()
    world(log)
    _submit(log, "waits", "a", pod_affinity=PodAffinity(required=(PodTerm(topology_key=ZONE, selector=OTHERS),)))
    log.turn()
    before = _placed(log, "waits")
    _submit(log, "neighbour", "b")
    log.turn()
    log.turn()

    assert before is None
    assert _placed(log, "waits") is not None


def test_who_is_kept_away_does_not_hold_up_its_like_and_is_tried_when_the_other_goes() -> None:
    """Same shape, other label: placed at once. The one that was kept away: as soon as its repeller has ended."""
    log = Log()
    world(log)
    for index in range(5):
        alone = PodAffinity(required=(PodTerm(topology_key="kubernetes.io/hostname", selector=OTHERS),))
        same = NodeAffinity(
            required=(NodeTerm(match_expressions=(Expression(key=ZONE, operator="In", values=("xxyyz"[index],)),)),)
        )
        away = PodAffinity(required=(*alone.required, PodTerm(topology_key="kubernetes.io/hostname")))
        _submit(log, f"alone-{index}", "a", pod_anti_affinity=away, node_affinity=same)
    log.turn()
    _submit(log, "kept-away", "b")
    _submit(log, "its-like", "c")
    log.turn()
    before = (_placed(log, "kept-away"), _placed(log, "its-like") is not None)
    left = _placed(log, "alone-4")
    _end(log, "alone-4")
    log.turn()

    assert before == (None, True)
    assert _placed(log, "kept-away") == left
