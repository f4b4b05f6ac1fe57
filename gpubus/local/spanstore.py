"""Spans in memory: OTLP in, Jaeger's shape out; the oldest spans go first when it is full. Pure but for its memory.

What flows in: decoded OTLP export requests. What flows out: one trace as Jaeger's query API shows it. A span that is
exported twice (an exporter repeats what it had no answer for) is kept once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp

from gpubus.jaeger import Log, Process, Reference, Span, Tag, TagValue, Trace

MAX_SPANS = 100_000
"""Some 100 MB at worst; a demo makes ten thousand."""

_KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
_Stored = tuple[Span, Process]


class SpanStore:
    """The last `max_spans` spans."""

    def __init__(self, max_spans: int = MAX_SPANS) -> None:
        self._max = max_spans
        self._spans: OrderedDict[tuple[str, str], _Stored] = OrderedDict()
        self._traces: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, request: ExportTraceServiceRequest) -> int:
        """Keep what is in one export; returns how many spans."""
        count = 0
        for span, process in _spans_of(request):
            self._put(span, process)
            count += 1
        return count

    def trace(self, trace_id: str) -> Trace | None:
        """One trace, spans by start time; None when nothing of it is here. Leading zeros may be left out."""
        key = trace_id.lower().zfill(32)
        if key not in self._traces:
            return None
        return _as_trace(key, [self._spans[key, span_id] for span_id in self._traces[key]])

    def traces(self, service: str = "", limit: int = 20) -> list[Trace]:
        """The newest traces, of one service or of all."""
        newest: list[Trace] = []
        for trace_id in reversed(self._traces):
            trace = self.trace(trace_id)
            if trace and (not service or service in {p.service_name for p in trace.processes.values()}):
                newest.append(trace)
            if len(newest) == limit:
                break
        return newest

    def services(self) -> list[str]:
        """Who has sent spans."""
        return sorted({process.service_name for _, process in self._spans.values()})

    def _put(self, span: Span, process: Process) -> None:
        key = (span.trace_id, span.span_id)
        self._spans[key] = (span, process)
        self._traces.setdefault(span.trace_id, set()).add(span.span_id)
        while len(self._spans) > self._max:
            (trace_id, span_id), _ = self._spans.popitem(last=False)
            self._traces[trace_id].discard(span_id)
            if not self._traces[trace_id]:
                del self._traces[trace_id]


def _as_trace(trace_id: str, stored: Iterable[_Stored]) -> Trace:
    processes: dict[str, Process] = {}
    names: dict[Process, str] = {}
    spans = []
    for span, process in sorted(stored, key=lambda s: (s[0].start_time, s[0].span_id)):
        name = names.setdefault(process, f"p{len(names) + 1}")
        processes[name] = process
        spans.append(replace(span, process_id=name))
    return Trace(trace_id=trace_id, spans=tuple(spans), processes=processes)


# --- OTLP to Jaeger --------------------------------------------------------------------------------------------------


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[_Stored]:
    for resource in request.resource_spans:
        process = _process(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span(span), process


def _process(attributes: Iterable[KeyValue]) -> Process:
    tags = _tags(attributes)
    name = next((str(tag.value) for tag in tags if tag.key == "service.name"), "?")
    return Process(service_name=name, tags=tuple(t for t in tags if t.key != "service.name"))


def _span(span: otlp.Span) -> Span:
    trace_id = span.trace_id.hex()
    start = span.start_time_unix_nano // 1000
    return Span(
        trace_id=trace_id,
        span_id=span.span_id.hex(),
        operation_name=span.name,
        references=tuple(_references(span, trace_id)),
        start_time=start,
        duration=max(0, span.end_time_unix_nano // 1000 - start),
        tags=(*_tags(span.attributes), *_status(span)),
        logs=tuple(_log(event) for event in span.events),
    )


def _references(span: otlp.Span, trace_id: str) -> Iterator[Reference]:
    if span.parent_span_id:
        yield Reference(trace_id=trace_id, span_id=span.parent_span_id.hex())
    for link in span.links:
        yield Reference(ref_type="FOLLOWS_FROM", trace_id=link.trace_id.hex(), span_id=link.span_id.hex())


def _status(span: otlp.Span) -> Iterator[Tag]:
    yield Tag(key="span.kind", value=_KINDS.get(span.kind, "unspecified"))
    if span.status.code == otlp.Status.STATUS_CODE_ERROR:
        yield Tag(key="error", type="bool", value=True)
        if span.status.message:
            yield Tag(key="otel.status_description", value=span.status.message)


def _log(event: otlp.Span.Event) -> Log:
    name = Tag(key="event", value=event.name)
    return Log(timestamp=event.time_unix_nano // 1000, fields=(name, *_tags(event.attributes)))


def _tags(attributes: Iterable[KeyValue]) -> tuple[Tag, ...]:
    return tuple(_tag(attribute.key, attribute.value) for attribute in attributes)


def _tag(key: str, value: AnyValue) -> Tag:
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return Tag(key=key, type="bool", value=value.bool_value)
    if kind == "int_value":
        return Tag(key=key, type="int64", value=value.int_value)
    if kind == "double_value":
        return Tag(key=key, type="float64", value=value.double_value)
    return Tag(key=key, value=_text(value))


def _text(value: AnyValue) -> TagValue:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return ", ".join(str(_tag("", item).value) for item in value.array_value.values)
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return value.string_value if kind == "string_value" else ""
