"""W3C trace context in message headers, so that one trace goes from submit to running container.

In: the current OpenTelemetry context, or the headers of a message. Out: headers with `traceparent` (and
`tracestate`), or the context to continue, or a link when one decision answers many requests. Only trace context
travels, no baggage: what strangers put into headers must not reach our spans. The flags byte may be 03 (random
trace id), so nothing here compares it with 01.
"""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.trace import Link, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bus.protocol import NO_HEADERS, Headers

TRACEPARENT = "traceparent"
_FIELDS = (TRACEPARENT, "tracestate")
_propagator = TraceContextTextMapPropagator()


def inject(headers: Headers = NO_HEADERS, context: Context | None = None) -> dict[str, str]:
    """The headers with the trace context added; unchanged outside of any trace."""
    carrier = dict(headers)
    _propagator.inject(carrier, context)
    return carrier


def extract(headers: Headers) -> Context:
    """The context that the sender was in; an empty one when there is none or it is not well formed.

    Names are compared without case: clients in Go write `Traceparent`.
    """
    carrier = {key.lower(): value for key, value in headers.items() if key.lower() in _FIELDS}
    return _propagator.extract(carrier, Context())


def traceparent_in(headers: Headers) -> str:
    """The sender's traceparent as it came, well formed or not; empty when there is none. Names as in `extract`."""
    return next((value for key, value in headers.items() if key.lower() == TRACEPARENT), "")


def traceparent(context: Context | None = None) -> str:
    """The current trace as one string, to be kept in a record; empty outside of any trace."""
    return inject(NO_HEADERS, context).get(TRACEPARENT, "")


def from_traceparent(text: str) -> Context:
    """The context behind a kept string."""
    return extract({TRACEPARENT: text}) if text else Context()


def link(headers: Headers) -> Link | None:
    """A link to the sender's span, None when it named none."""
    span = get_current_span(extract(headers)).get_span_context()
    return Link(span) if span.is_valid else None
