"""The local span store keeps what exporters send and answers as Jaeger does."""

from __future__ import annotations

import aiohttp
import msgspec
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, set_span_in_context

from gpubus.jaeger import Page, Reference, Tag
from gpubus.local.spanserver import PROTOBUF, serving
from gpubus.local.spanstore import SpanStore


def recorded(service: str = "scheduler", *, children: int = 1) -> list:
    """Finished spans of one trace: a root and its children."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": service, "host": "h"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("t")
    root = tracer.start_span("submit", kind=SpanKind.SERVER, start_time=1_000_000_000)
    for number in range(children):
        child = tracer.start_span(
            f"decide-{number}",
            context=set_span_in_context(root),
            links=[Link(root.get_span_context())],
            attributes={"gpubus.node": "n1", "gpubus.score": 7, "ok": True, "part": 0.5, "cards": ["a", "b"]},
            start_time=1_000_500_000 + number,
        )
        child.add_event("scored", {"rule": "packing"}, timestamp=1_000_600_000)
        child.set_status(Status(StatusCode.ERROR, "no room"))
        child.end(1_002_000_000)
    root.end(1_003_000_000)
    return list(exporter.get_finished_spans())


def trace_id(spans: list) -> str:
    """Of the recorded trace."""
    return f"{spans[0].context.trace_id:032x}"


def test_a_span_keeps_its_parent_times_attributes_links_events_and_status() -> None:
    """Nanoseconds become microseconds; an array becomes words."""
    spans, store = recorded(), SpanStore()
    store.add(encode_spans(spans))
    trace = store.trace(trace_id(spans))
    assert trace is not None
    root, child = trace.spans

    assert (root.operation_name, root.start_time, root.duration, root.parent) == ("submit", 1_000_000, 3000, "")
    assert (child.parent, child.duration, child.failed) == (root.span_id, 1500, True)
    assert child.links == (Reference(ref_type="FOLLOWS_FROM", trace_id=trace.trace_id, span_id=root.span_id),)
    assert {t.key: t.value for t in child.tags} == {
        "gpubus.node": "n1",
        "gpubus.score": 7,
        "ok": True,
        "part": 0.5,
        "cards": "a, b",
        "span.kind": "internal",
        "error": True,
        "otel.status_description": "no room",
    }
    assert child.logs[0].fields == (Tag(key="event", value="scored"), Tag(key="rule", value="packing"))
    assert trace.processes[child.process_id].service_name == "scheduler"


def test_a_span_that_is_exported_twice_is_kept_once() -> None:
    """Exporters repeat what they had no answer for."""
    spans, store = recorded(), SpanStore()
    store.add(encode_spans(spans))
    store.add(encode_spans(spans))

    assert len(store) == 2


def test_the_oldest_spans_go_first_when_it_is_full() -> None:
    """Bounded: a trace whose last span went is gone."""
    old, new, store = recorded(children=3), recorded(children=3), SpanStore(max_spans=5)
    store.add(encode_spans(old))
    store.add(encode_spans(new))
    kept = store.trace(trace_id(old))

    assert len(store) == 5
    assert kept is not None
    assert len(kept.spans) == 1


def test_services_and_newest_traces_can_be_listed() -> None:
    """As Jaeger's search does."""
    store = SpanStore()
    one, two = recorded("a"), recorded("b")
    store.add(encode_spans(one))
    store.add(encode_spans(two))

    assert store.services() == ["a", "b"]
    assert [t.trace_id for t in store.traces(limit=1)] == [trace_id(two)]
    assert [t.trace_id for t in store.traces("a")] == [trace_id(one)]


async def test_over_http_it_takes_otlp_and_answers_as_jaeger_does() -> None:
    """The exporter's content type is taken, garbage is refused, a trace that is not there is 404."""
    spans, store = recorded(), SpanStore()
    body = encode_spans(spans).SerializeToString()
    async with serving(store) as base, aiohttp.ClientSession() as session:

        async def post(data: bytes, kind: str) -> int:
            async with session.post(f"{base}/v1/traces", data=data, headers={"Content-Type": kind}) as answer:
                return answer.status

        statuses = [
            await post(body, PROTOBUF),
            await post(b"\xff garbage", PROTOBUF),
            await post(b"{}", "application/json"),
        ]
        async with session.get(f"{base}/api/traces/{trace_id(spans)}") as answer:
            page = msgspec.json.decode(await answer.read(), type=Page)
        async with session.get(f"{base}/api/traces/{'0' * 32}") as answer:
            missing = answer.status

    assert statuses == [200, 400, 415]
    assert page.data is not None
    assert [s.operation_name for s in page.data[0].spans] == ["submit", "decide-0"]
    assert missing == 404
