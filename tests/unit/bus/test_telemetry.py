"""Traces and metrics: what is recorded, what is passed on, and how little time the end may take."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import StatusCode, get_current_span

from bus.runtime import semconv, telemetry, tracing
from bus.runtime.settings import TelemetrySettings
from bus.runtime.tracing import SpanKind, context_from, links_to, span, span_context_from, traceparent_of

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.fixture
def spans():
    """Recording in memory; calling it gives the finished spans by name."""
    tele, exporter = telemetry.start_in_memory()
    yield lambda: {s.name: s for s in exporter.get_finished_spans()}
    tele.shutdown()


# --- spans -----------------------------------------------------------------------------------------------------------


def test_spans_nest(spans):
    """The inner one is the child of the current one, and the outer is current again after it."""
    with span("outer") as outer:
        with span("inner"):
            pass
        assert outer is get_current_span()

    found = spans()
    assert found["inner"].parent.span_id == found["outer"].context.span_id
    assert found["outer"].parent is None


def test_a_span_continues_the_trace_of_a_message(spans):
    """Parent from a traceparent, also inside another span, with attributes and kind."""
    with (
        span("unrelated"),
        span(
            "decide", parent=REMOTE, attributes={semconv.NODE: "n1", semconv.CARDS: ("a", "b")}, kind=SpanKind.CONSUMER
        ),
    ):
        pass

    decide = spans()["decide"]
    assert REMOTE[:-2] == f"00-{decide.context.trace_id:032x}-{decide.parent.span_id:016x}-"
    assert dict(decide.attributes) == {"gpubus.node": "n1", "gpubus.cards": ("a", "b")}
    assert SpanKind.CONSUMER is decide.kind


def test_a_message_without_trace_begins_one(spans):
    """An empty parent is a new trace, not a child of whatever happens to be current."""
    with span("unrelated"), span("handle", parent=""):
        pass

    found = spans()
    assert found["handle"].parent is None
    assert found["handle"].context.trace_id != found["unrelated"].context.trace_id


def test_a_span_can_be_the_child_of_a_span(spans):
    """For work that is handed to another task."""
    with span("a") as a:
        pass
    with span("b", parent=a):
        pass

    assert spans()["b"].parent.span_id == spans()["a"].context.span_id


def test_links_name_what_was_relied_on(spans):
    """One per distinct sound traceparent; broken and empty ones are left out."""
    with span("commit", links=["", REMOTE, "broken", OTHER, REMOTE]):
        pass

    assert [
        f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-{link.context.trace_flags:02x}"
        for link in spans()["commit"].links
    ] == [REMOTE, OTHER]


def test_links_are_bounded():
    """A commit of five hundred decisions does not make a span of five hundred links."""
    many = [f"00-0af7651916cd43dd8448eb211c80319c-{n:016x}-01" for n in range(1, 500)]

    assert len(links_to(many)) == tracing.MAX_LINKS


def test_an_exception_marks_the_span_and_passes_through(spans):
    """Status and event; the exception is not swallowed."""
    with pytest.raises(ValueError, match="boom"), span("decide"):
        raise ValueError("boom")

    decide = spans()["decide"]
    assert (decide.status.status_code, decide.status.description) == (StatusCode.ERROR, "ValueError: boom")
    assert [event.name for event in decide.events] == ["exception"]


def test_cancellation_ends_a_span_without_an_error(spans):
    """A service that stops has not failed."""
    with pytest.raises(GeneratorExit), span("wait"):
        raise GeneratorExit

    assert StatusCode.UNSET is spans()["wait"].status.status_code


def test_a_span_may_begin_in_the_past(spans):
    """The wait of a request in the queue is known only at its end."""
    with span("queued", start_ns=1_000):
        pass

    assert spans()["queued"].start_time == 1_000


def test_the_resource_names_service_and_instance(spans):
    """What the trace view groups by."""
    with span("x"):
        pass

    assert {
        "service.name": "gpubus-test",
        "service.instance.id": "test-0",
        "service.namespace": "gpubus",
    }.items() <= dict(spans()["x"].resource.attributes).items()


# --- trace context ---------------------------------------------------------------------------------------------------


def test_traceparent_of_the_current_span(spans):
    """Default: the current one; outside there is none."""
    with span("x") as current:
        assert traceparent_of() == traceparent_of(current)
    assert traceparent_of() == ""


def test_flags_are_passed_on_as_they_are(spans):
    """03 (random trace id) is as good as 01."""
    context = span_context_from(REMOTE)

    assert context.trace_flags == 3
    assert context.is_remote


@settings(deadline=None)
@given(trace=st.integers(1, 2**128 - 1), parent=st.integers(1, 2**64 - 1), flags=st.integers(0, 255))
def test_a_traceparent_survives_the_round_trip(trace, parent, flags):
    """String to context and back is the identity."""
    text = f"00-{trace:032x}-{parent:016x}-{flags:02x}"

    assert text == traceparent_of(get_current_span(context_from(text)))


@settings(deadline=None)
@given(text=st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.?", fullmatch=True))
@example("00-00000000000000000000000000000000-b7ad6b7169203331-01")
@example("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01")
@example("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
@example(REMOTE + "\n")
@example(REMOTE.upper())
def test_no_text_raises(text):
    """It comes from strangers: sound or not, the answer is a context."""
    context = span_context_from(text)

    assert context is None or context.is_valid
    assert (context is None) == (not context_from(text))


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        (REMOTE, True),
        ("01" + REMOTE[2:] + "-what-comes-later", True),
        (REMOTE + "-more", False),
        ("ff" + REMOTE[2:], False),
        (REMOTE.upper(), False),
        (REMOTE + "\n", False),
        (" " + REMOTE, False),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", False),
    ],
)
def test_traceparents_are_read_as_the_standard_says(text, sound):
    """Version ff is invalid, 00 has four parts, later versions may have more, zeros are no ids."""
    assert sound == (span_context_from(text) is not None)


# --- off, sampled out ------------------------------------------------------------------------------------------------


def test_without_endpoint_context_is_passed_on_unchanged():
    """A service that records nothing does not break the trace of others."""
    tele = telemetry.start(TelemetrySettings(), "scheduler", "i")
    with span("decide", parent=REMOTE) as current:
        passed = traceparent_of(current), traceparent_of()
    with span("alone") as current:
        alone = traceparent_of(current)
    tele.shutdown()

    assert passed == (REMOTE, REMOTE)
    assert alone == ""


def test_sampling_follows_the_beginning_of_the_trace():
    """With ratio 0 nothing that begins here is recorded, what was begun elsewhere as sampled is, unsampled is not."""
    tele, exporter = telemetry.start_in_memory(settings=TelemetrySettings(sample_ratio=0.0))
    for name, parent in (("root", ""), ("sampled", REMOTE), ("unsampled", UNSAMPLED)):
        with span(name, parent=parent):
            pass
    tele.shutdown()

    assert [s.name for s in exporter.get_finished_spans()] == ["sampled"]


def test_after_shutdown_everything_is_a_no_op(spans):
    """Late spans of a drain that was cut do no harm; a later start begins anew."""
    first, _ = telemetry.start_in_memory()
    second, exporter = telemetry.start_in_memory()
    first.shutdown()
    with span("recorded by the second"):
        pass
    second.shutdown()
    with span("late") as late:
        tracing.meter().create_counter("gpubus.late").add(1)

    assert [s.name for s in exporter.get_finished_spans()] == ["recorded by the second"]
    assert traceparent_of(late) == ""


# --- OTLP over HTTP --------------------------------------------------------------------------------------------------


class Collector:
    """An OTLP/HTTP collector that keeps what it gets; `hang` makes it accept and never answer."""

    def __init__(self, *, hang: bool = False) -> None:
        self.paths: list[str] = []
        self.names: list[str] = []
        self.release = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hang:
                    collector.release.wait(20)
                    return
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        self.paths.append(path)
        request = ExportTraceServiceRequest.FromString(body)
        self.names += [s.name for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def test_spans_reach_the_collector_at_shutdown(collector):
    """Nothing that was recorded is lost by an orderly end."""
    tele = telemetry.start(TelemetrySettings(otlp_endpoint=collector.url + "/"), "scheduler", "i")
    for number in range(600):  # more than one batch
        with span(f"s{number}"):
            pass

    assert tele.shutdown(timeout_s=10)
    assert {"/v1/traces"} == set(collector.paths)
    assert {f"s{number}" for number in range(600)} == set(collector.names)


def dead_port() -> Iterator[str]:
    with socket.socket() as bound:  # bound and not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def hanging() -> Iterator[str]:
    running = Collector(hang=True)
    yield running.url
    running.close()


@pytest.mark.parametrize("endpoint", [dead_port, hanging])
def test_shutdown_is_bounded_whatever_the_collector_does(endpoint):
    """The exporter retries for ten seconds; the end of the process does not wait for that, and says what was lost."""
    world = endpoint()
    tele = telemetry.start(TelemetrySettings(otlp_endpoint=next(world)), "scheduler", "i")
    with span("x"):
        pass

    began = time.monotonic()
    flushed = tele.shutdown(timeout_s=0.3)
    took = time.monotonic() - began
    next(world, None)

    assert not flushed
    assert 0.3 <= took < 1.5


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_of_two_lives_do_not_mix():
    """Each start has its own registry, so that tests and restarts begin at zero."""
    texts = []
    for _ in range(2):
        tele = telemetry.start(TelemetrySettings(), "scheduler", "i")
        tracing.meter().create_counter("gpubus.refusals").add(1, {"reason": "card-share"})
        texts.append(tele.metrics_text().decode())
        tele.shutdown()

    assert all('gpubus_refusals_total{reason="card-share"} 1.0' in text for text in texts)


def test_attribute_names_are_unique():
    """Two meanings under one name cannot be told apart in a trace."""
    names = [value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)]

    assert len(names) == len(set(names))
