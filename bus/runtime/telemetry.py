"""Traces and metrics of one process: OTLP over HTTP when an endpoint is set, Prometheus text always.

What flows in: `TelemetrySettings`, the name of the service and of this instance.
What flows out: `span(...)`, a context manager; `traceparent_of(span)`, the string that travels in messages and pod
annotations; `meter()`, whose instruments appear at /metrics.

One Telemetry is current per process; before `start` and after `shutdown` everything is a no-op. Without an endpoint
nothing is recorded, yet a received trace context is passed on unchanged. Code that only makes spans imports
`tracing.py`, whose helpers are repeated here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NoOpTracer, Tracer
from prometheus_client import CollectorRegistry, generate_latest

from bus.runtime import semconv, tracing
from bus.runtime.settings import TelemetrySettings
from bus.runtime.tracing import SCOPE, SpanKind, context_from, span, traceparent_of

EXPORT_TIMEOUT_S: Final = 10.0
"""For one batch, with its retries. A collector that is down costs a thread this long, never the event loop."""
QUEUE_SPANS: Final = 8192
"""Four seconds of 2,000 spans; older ones are dropped, newest kept out, never blocking."""
BATCH_DELAY_MS: Final = 1000

_log = logging.getLogger(__name__)


class Telemetry:
    """The tracer, the meter and what must be flushed at the end."""

    def __init__(
        self, tracer: Tracer, meter: Meter, registry: CollectorRegistry, closers: Mapping[str, Callable[[], object]]
    ) -> None:
        self.tracer = tracer
        self.meter = meter
        self._registry = registry
        self._closers = closers

    def metrics_text(self) -> bytes:
        """All instruments in the Prometheus text format."""
        return generate_latest(self._registry)

    def shutdown(self, timeout_s: float = 2.0) -> bool:
        """Flush and close within `timeout_s`; False when something was left unsent. Blocks: call it in a thread.

        The exporter retries a dead collector for longer than a process may take to exit, and its own shutdown waits
        up to 30 s; so each part closes in a daemon thread that is abandoned when the time is up.
        """
        if tracing.tracer() is self.tracer:
            tracing.use(None, None)
        threads = [
            threading.Thread(target=close, name=f"close-{name}", daemon=True) for name, close in self._closers.items()
        ]
        for thread in threads:
            thread.start()
        done = _join_all(threads, timeout_s)
        if not done:
            _log.warning("telemetry was not flushed in time", extra={"timeout_s": timeout_s})
        return done


def _join_all(threads: list[threading.Thread], timeout_s: float) -> bool:
    finished = threading.Event()

    def wait() -> None:
        for thread in threads:
            thread.join()
        finished.set()

    threading.Thread(target=wait, name="close-telemetry", daemon=True).start()
    return finished.wait(timeout_s)


# --- starting --------------------------------------------------------------------------------------------------------


def start(
    settings: TelemetrySettings, service: str, instance: str, *, exporter: SpanExporter | None = None
) -> Telemetry:
    """Build the providers and make them current.

    `exporter` (tests) receives each span as it ends, in place of OTLP.
    """
    resource = Resource.create(
        {
            semconv.SERVICE_NAME: settings.service_name or f"gpubus-{service}",
            semconv.SERVICE_NAMESPACE: "gpubus",
            semconv.SERVICE_INSTANCE: instance,
            semconv.SERVICE_VERSION: version(),
        }
    )
    registry = CollectorRegistry()
    meters = MeterProvider(_readers(settings, registry), resource, shutdown_on_exit=False)
    processor = _processor(settings, exporter)
    tracer, close_traces = _tracing(settings, resource, processor)
    meter = meters.get_meter(SCOPE)
    tracing.use(tracer, meter)
    return Telemetry(tracer, meter, registry, {"traces": close_traces, "metrics": meters.shutdown})


def start_in_memory(
    service: str = "test", settings: TelemetrySettings | None = None
) -> tuple[Telemetry, InMemorySpanExporter]:
    """For tests: `exporter.get_finished_spans()` is what was recorded."""
    exporter = InMemorySpanExporter()
    return start(settings or TelemetrySettings(), service, f"{service}-0", exporter=exporter), exporter


def version() -> str:
    """Of the installed distribution."""
    try:
        return metadata.version("gpubus")
    except metadata.PackageNotFoundError:
        return "0.0.0"


def _readers(settings: TelemetrySettings, registry: CollectorRegistry) -> list[MetricReader]:
    readers: list[MetricReader] = [
        PrometheusMetricReader(registry=registry, disable_target_info=True, scope_info_enabled=False)
    ]
    if settings.metrics_interval_s:
        push = OTLPMetricExporter(endpoint=_url(settings, "metrics"), timeout=EXPORT_TIMEOUT_S)
        readers.append(PeriodicExportingMetricReader(push, settings.metrics_interval_s * 1000))
    return readers


def _processor(settings: TelemetrySettings, exporter: SpanExporter | None) -> SpanProcessor | None:
    if exporter is not None:
        return SimpleSpanProcessor(exporter)
    if not settings.otlp_endpoint:
        return None
    otlp = OTLPSpanExporter(endpoint=_url(settings, "traces"), timeout=EXPORT_TIMEOUT_S)
    return BatchSpanProcessor(otlp, max_queue_size=QUEUE_SPANS, schedule_delay_millis=BATCH_DELAY_MS)


def _url(settings: TelemetrySettings, signal: str) -> str:
    return f"{settings.otlp_endpoint.rstrip('/')}/v1/{signal}"


def _tracing(
    settings: TelemetrySettings, resource: Resource, processor: SpanProcessor | None
) -> tuple[Tracer, Callable[[], object]]:
    if processor is None:
        return NoOpTracer(), lambda: None
    sampler = ParentBased(TraceIdRatioBased(settings.sample_ratio))
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider.get_tracer(SCOPE), provider.shutdown


__all__ = [
    "SpanKind",
    "Telemetry",
    "context_from",
    "span",
    "start",
    "start_in_memory",
    "traceparent_of",
    "version",
]
