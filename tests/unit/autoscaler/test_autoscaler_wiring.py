"""What a replica may use now, from what vertical scaling says; and the gauges of missing cards."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from autoscaler.functions import Keeper
from autoscaler.hands import World
from autoscaler.service import Autoscaler
from autoscaler.settings import AutoscalingSettings
from autoscaler.wiring import limit_milli, watch
from bus.ledger.state import LedgerState, RequestState
from bus.memory import InMemoryBus, MemoryServer
from contracts.decisions import Accepted, Placement
from contracts.functions import FunctionStatus, MissingCards
from contracts.requests import PodRequest, PodTemplate
from contracts.shares import NodeVertical, PodVertical
from contracts.units import NodeName, RequestUid
from contracts.workloads import Function

POD = PodTemplate(image="x")


def state(*, placed: bool) -> LedgerState:
    """One request, on node n1 or nowhere."""
    accepted = Accepted(uid=RequestUid("u"), namespace="ns", request=PodRequest(name="f-0", pod=POD))
    placement = Placement(node=NodeName("n1"), slices=()) if placed else None
    made = LedgerState()
    made.requests[RequestUid("u")] = RequestState(uid=RequestUid("u"), accepted=accepted, placement=placement)
    return made


@pytest.mark.parametrize(
    ("placed", "mode", "limit", "found"),
    [(True, "act", 700, 700), (True, "observe", 700, None), (True, "act", None, None), (False, "act", 700, None)],
)
def test_a_limit_counts_where_it_is_acted_on(placed: bool, mode: str, limit: int | None, found: int | None) -> None:
    """What is only observed lends nothing."""
    pods = (
        PodVertical(uid=RequestUid("other"), gpu_limit_milli=900),
        PodVertical(uid=RequestUid("u"), gpu_limit_milli=limit),
    )
    said = {"n1": NodeVertical(node=NodeName("n1"), mode="act" if mode == "act" else "observe", pods=pods)}

    assert limit_milli(state(placed=placed), said, "u") == found
    assert limit_milli(state(placed=placed), {}, "u") is None
    assert limit_milli(LedgerState(), said, "u") is None


async def test_missing_cards_are_counted_by_what_they_must_have() -> None:
    """Share, memory and models are attributes; a function that misses nothing is zero."""
    autoscaler = Autoscaler(InMemoryBus(MemoryServer(), "a"), AutoscalingSettings(), "a")
    world: World = autoscaler._world()
    missing = MissingCards(replicas=2, cards=4, share_milli=500, models=("A100", "H100"))
    for name, status in (("f", FunctionStatus(target=3, missing=missing)), ("g", FunctionStatus(target=1))):
        keeper = autoscaler.keepers["ns", name] = Keeper(world, "ns", Function(name=name, pod=POD))
        keeper.status = status
    reader = InMemoryMetricReader()
    watch(MeterProvider(metric_readers=[reader]).get_meter("test"), autoscaler)
    points = _points(reader, "gpubus.autoscaler.missing_cards")

    kind = {"share_milli": "500", "memory_mib": "by share", "models": "A100,H100"}
    assert points == [({"namespace": "ns", "function": "f", **kind}, 4), ({"namespace": "ns", "function": "g"}, 0)]


def _points(reader: InMemoryMetricReader, name: str) -> list[tuple[dict[str, object], float]]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
    points = [point for metric in metrics for point in metric.data.data_points if isinstance(point, NumberDataPoint)]
    return [(dict(point.attributes or {}), point.value) for point in points]
