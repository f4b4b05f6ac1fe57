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
import time
from collections.abc import Callable, Iterable, Sequence
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
from bus.runtime.series import Gauge, Scraped
from bus.runtime.settings import TelemetrySettings
from bus.runtime.tracing import SCOPE, SpanKind, context_from, span, traceparent_of

EXPORT_TIMEOUT_S: Final = 10.0
"""For one batch, with its retries. A collector that is down costs a thread this long, never the event loop."""
QUEUE_SPANS: Final = 8192
"""Four seconds of 2,000 spans; older ones are dropped, newest kept out, never blocking."""
BATCH_DELAY_MS: Final = 1000

log = logging.getLogger(__name__)


class Telemetry:
    """The tracer, the meter and what must be flushed at the end."""

    def __init__(
        self,
        tracer: Tracer,
        meter: Meter,
        *,
        registry: CollectorRegistry,
        closers: Sequence[Callable[[], object]],
        abort: Callable[[], object],
    ) -> None:
        self.tracer = tracer
        self.meter = meter
        self._registry = registry
        self._closers = closers
        self._abort = abort

    def metrics_text(self) -> bytes:
        """All instruments in the Prometheus text format."""
        return generate_latest(self._registry)

    def scrape(self, source: Callable[[], Iterable[Gauge]]) -> None:
        """Ask `source` at each scrape of /metrics, beside the instruments."""
        self._registry.register(Scraped(source))

    def shutdown(self, timeout_s: float = 2.0) -> bool:
        """Flush and close within `timeout_s`; False when something was left unsent. Blocks.

        The exporter retries a dead collector for longer than a process may take to exit, and its own shutdown waits
        up to 30 s; so each part closes in a daemon thread that is abandoned when the time is up.
        """
        if tracing.tracer() is self.tracer:
            tracing.use(None, None)
        done = _within(timeout_s, self._closers)
        if not done:
            self._abort()
            log.warning("telemetry was not flushed in time", extra={"timeout_s": timeout_s})
        return done


def _within(timeout_s: float, calls: Sequence[Callable[[], object]]) -> bool:
    """Make all calls at the same time; False when one of them takes longer."""
    threads = [threading.Thread(target=call, name="close-telemetry", daemon=True) for call in calls]
    until = time.monotonic() + timeout_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


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
    exporter = exporter or _otlp(settings)
    tracer, close_traces = _tracing(settings, resource, exporter)
    meter = meters.get_meter(SCOPE)
    tracing.use(tracer, meter)
    return Telemetry(
        tracer,
        meter,
        registry=registry,
        closers=(close_traces, meters.shutdown),
        abort=exporter.shutdown if exporter else lambda: None,
    )


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


def _otlp(settings: TelemetrySettings) -> SpanExporter | None:
    if not settings.otlp_endpoint:
        return None
    return OTLPSpanExporter(endpoint=_url(settings, "traces"), timeout=EXPORT_TIMEOUT_S)


def _url(settings: TelemetrySettings, signal: str) -> str:
    return f"{settings.otlp_endpoint.rstrip('/')}/v1/{signal}"


def _tracing(
    settings: TelemetrySettings, resource: Resource, exporter: SpanExporter | None
) -> tuple[Tracer, Callable[[], object]]:
    if exporter is None:
        return NoOpTracer(), lambda: None
    sampler = ParentBased(TraceIdRatioBased(settings.sample_ratio))
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    provider.add_span_processor(_processor(exporter))
    return provider.get_tracer(SCOPE), provider.shutdown


def _processor(exporter: SpanExporter) -> SpanProcessor:
    if not isinstance(exporter, OTLPSpanExporter):
        return SimpleSpanProcessor(exporter)
    return BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS, schedule_delay_millis=BATCH_DELAY_MS)


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
