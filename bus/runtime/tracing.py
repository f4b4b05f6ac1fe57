"""Spans and trace context, as the code that does the work sees them: light to import, a no-op until telemetry starts.

What flows in: names, attributes, traceparents out of messages and annotations (written by strangers, so nothing here
raises on a broken one). What flows out: spans of the tracer in use, and the traceparent to send along.
Exporters, providers and their lifetime are in `telemetry.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import Meter, NoOpMeter
from opentelemetry.trace import Link, NoOpTracer, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

SCOPE: Final = "gpubus"
MAX_LINKS: Final = 64

Attributes = Mapping[str, AttributeValue]

_NO_TRACER: Final = NoOpTracer()
_NO_METER: Final = NoOpMeter(SCOPE)
_tracer: Tracer = _NO_TRACER
_meter: Meter = _NO_METER


def use(tracer: Tracer | None, meter: Meter | None) -> None:
    """Make them the ones of this process; None = record nothing.

    Ours and not OpenTelemetry's global providers, because those can be set only once.
    """
    global _tracer, _meter
    _tracer, _meter = tracer or _NO_TRACER, meter or _NO_METER


def tracer() -> Tracer:
    """The tracer of this process."""
    return _tracer


def meter() -> Meter:
    """The meter of this process. Create instruments in constructors: what is made at import is a no-op for ever."""
    return _meter


class span:  # noqa: N801 - used as a verb: `with span("decide") as s`
    """A span that is current inside the `with` block; an exception that leaves the block marks it as failed.

    Args:
        name: low cardinality: `decide`, not `decide team-a/job-7`.
        parent: a traceparent (an empty or broken one begins a new trace), a span or a Context; None = the current span.
        links: traceparents of other traces this one relied on; empty and broken ones are left out, the first 64 kept.
        attributes: names from `semconv`.
        kind: PRODUCER around a publish, CONSUMER around a handler.
        start_ns: wall clock of the beginning in nanoseconds, when that was earlier than now.
    """

    __slots__ = ("_span", "_token")

    def __init__(
        self,
        name: str,
        *,
        parent: str | Span | Context | None = None,
        links: Iterable[str] = (),
        attributes: Attributes | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        start_ns: int | None = None,
    ) -> None:
        self._span = _tracer.start_span(
            name,
            context=_as_context(parent),
            kind=kind,
            attributes=attributes,
            links=links_to(links) if links else None,
            start_time=start_ns,
        )

    def __enter__(self) -> Span:
        self._token = attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        detach(self._token)
        if isinstance(error, Exception):
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        self._span.end()


def _as_context(parent: str | Span | Context | None) -> Context | None:
    if isinstance(parent, str):
        return context_from(parent)
    if isinstance(parent, Span):
        return trace.set_span_in_context(parent, Context())
    return parent


def links_to(traceparents: Iterable[str]) -> list[Link]:
    """Links to spans elsewhere; duplicates, empty and broken ones are left out."""
    found = (span_context_from(text) for text in dict.fromkeys(traceparents))
    return [Link(context) for context in found if context is not None][:MAX_LINKS]


# --- W3C trace context as one string ---------------------------------------------------------------------------------

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def traceparent_of(what: Span | None = None) -> str:
    """`00-<trace>-<span>-<flags>` of a span (default: the current one); empty when there is none.

    Flags are passed on as they are: 03 (sampled, random trace id) is as good as 01.
    """
    context = (what or trace.get_current_span()).get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def span_context_from(traceparent: str) -> SpanContext | None:
    """What a traceparent names, or None when it is empty or broken. It comes from strangers: nothing raises."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    context = SpanContext(
        int(match[2], 16), int(match[3], 16), is_remote=True, trace_flags=trace.TraceFlags(int(match[4], 16))
    )
    return context if context.is_valid else None


def context_from(traceparent: str) -> Context:
    """A Context with that remote parent; an empty Context (a new trace) when it is empty or broken."""
    context = span_context_from(traceparent)
    return trace.set_span_in_context(trace.NonRecordingSpan(context), Context()) if context else Context()


__all__ = [
    "Attributes",
    "Context",
    "Span",
    "SpanContext",
    "SpanKind",
    "context_from",
    "links_to",
    "meter",
    "span",
    "span_context_from",
    "traceparent_of",
    "tracer",
    "use",
]
