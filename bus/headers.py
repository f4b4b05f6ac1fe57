"""W3C trace context in message headers, so that one trace goes from submit to running container.

In: the current OpenTelemetry context, or the headers of a message. Out: headers with `traceparent` (and
`tracestate`), or the sender's traceparent, to be kept in a record or continued (`bus.runtime.tracing`). Only trace
context travels, no baggage: what strangers put into headers must not reach our spans.
"""

from __future__ import annotations

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bus.protocol import NO_HEADERS, Headers

TRACEPARENT = "traceparent"
_propagator = TraceContextTextMapPropagator()


def inject(headers: Headers = NO_HEADERS) -> dict[str, str]:
    """The headers with the current trace context added; unchanged outside of any trace."""
    carrier = dict(headers)
    _propagator.inject(carrier)
    return carrier


def traceparent_in(headers: Headers) -> str:
    """The sender's traceparent as it came, well formed or not; empty when there is none.

    Names are compared without case: clients in Go write `Traceparent`.
    """
    if not headers:
        return ""
    return next((value for key, value in headers.items() if key.lower() == TRACEPARENT), "")
