"""Logs: one JSON object a line whatever is thrown at it, trace ids inside a span, and a line for eyes."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.runtime import logs, telemetry
from bus.runtime.settings import LogSettings
from bus.runtime.tracing import span, traceparent_of


@pytest.fixture
def root():
    """The root logger, as it was before."""
    logger = logging.getLogger()
    before = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:], logger.level = before
    logging.captureWarnings(capture=False)


@pytest.fixture
def lines(root):
    """Log as JSON; calling it gives the parsed lines so far."""
    stream = io.StringIO()
    logs.configure(LogSettings(format="json"), "scheduler", stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def record(message="hello", *args, level=logging.INFO, exc_info=None, **extra) -> logging.LogRecord:
    return logging.getLogger("a.b").makeRecord("a.b", level, "f", 1, message, args, exc_info, extra=extra)


# --- JSON ------------------------------------------------------------------------------------------------------------


def test_a_line_has_time_level_service_logger_message_and_extras(lines):
    """Every field that a query needs; extras keep their types."""
    logging.getLogger("a.b").warning("%s of %d", "two", 3, extra={"uid": "u1", "numbers": [1, 2], "none": None})

    (line,) = lines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "service": "scheduler",
        "logger": "a.b",
        "message": "two of 3",
        "uid": "u1",
        "numbers": [1, 2],
        "none": None,
    }


def test_level_is_obeyed(root):
    """What is below the level is not written."""
    stream = io.StringIO()
    logs.configure(LogSettings(level="error", format="json"), "s", stream=stream)

    logging.getLogger("a").warning("no")
    logging.getLogger("a").error("yes")

    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["yes"]


def test_lines_inside_a_span_carry_its_ids(lines):
    """So that a log line leads to its trace, and back."""
    tele, _ = telemetry.start_in_memory()
    with span("decide") as current:
        logging.getLogger("a").info("inside")
        parent = traceparent_of(current)
    logging.getLogger("a").info("outside")
    tele.shutdown()

    inside, outside = lines()
    assert f"00-{inside['trace_id']}-{inside['span_id']}-" == parent[:-2]
    assert "trace_id" not in outside


def test_an_exception_is_one_line_with_its_traceback(lines):
    """A traceback does not break the line format."""
    try:
        int("boom")
    except ValueError:
        logging.getLogger("a").exception("it failed")

    (line,) = lines()
    assert line["message"] == "it failed"
    assert "ValueError: invalid literal" in line["exception"]
    assert "Traceback" in line["exception"]


def test_an_extra_cannot_replace_a_field_of_ours(lines):
    """`time` from a caller becomes `time_`."""
    logging.getLogger("a").info("x", extra={"time": "yesterday", "level": 9, "service": "other"})

    (line,) = lines()
    assert (line["time_"], line["level_"], line["service_"]) == ("yesterday", 9, "other")
    assert (line["level"], line["service"]) == ("info", "scheduler")


class Unfriendly:
    def __repr__(self) -> str:
        return "<unfriendly \udc80>"


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        {(1, 2): 3},
        "\udc80",
        b"\xff",
        10**40,
        float("nan"),
        Unfriendly(),
        [Unfriendly()],
        Exception("e"),
    ],
    ids=["object", "set", "odd keys", "surrogate", "bytes", "huge", "nan", "unfriendly", "nested", "exception"],
)
def test_what_cannot_be_encoded_is_written_as_text(value):
    """A log call never raises because of what it was given."""
    assert "x" in json.loads(logs.JsonFormatter("s").format(record(x=value)))


ODD = st.text(st.characters(), max_size=20)


@settings(deadline=None, max_examples=50)
@given(message=ODD, value=ODD | st.binary(max_size=9) | st.floats() | st.dictionaries(ODD, ODD, max_size=3))
def test_any_message_is_one_parsable_line(message, value):
    """Surrogates, newlines, control characters, NaN: one line of JSON, always."""
    line = logs.JsonFormatter("s").format(record(message.replace("%", "%%"), x=value))

    assert "\n" not in line
    assert json.loads(line)["logger"] == "a.b"


def test_warnings_of_the_warnings_module_are_logged(lines):
    """A deprecation seen in production ends up in the log, not as a stray line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old thing", UserWarning, stacklevel=1)

    (line,) = lines()
    assert line["logger"] == "py.warnings"
    assert "old thing" in line["message"]


def test_a_dead_collector_does_not_fill_the_log(lines):
    """The exporter repeats itself at each batch; the same text is written once a minute. Others are not held back."""
    for number in range(5):
        logging.getLogger("opentelemetry.exporter.x").error("Failed to export %s", number)
        logging.getLogger("ours").error("Failed to export %s", number)

    assert len([line for line in lines() if line["logger"].startswith("opentelemetry")]) == 1
    assert len([line for line in lines() if line["logger"] == "ours"]) == 5


def test_a_repetition_is_written_again_after_a_minute():
    """Judged by the time of the records."""
    repeat = logs.RepeatFilter("opentelemetry")
    records = [record() for _ in range(3)]
    for one, created in zip(records, (1000.0, 1059.9, 1060.0), strict=True):
        one.name, one.created = "opentelemetry.sdk", created

    assert [repeat.filter(one) for one in records] == [True, False, True]


# --- text ------------------------------------------------------------------------------------------------------------


def test_text_line_is_readable():
    """Clock, level, logger, message, fields."""
    line = logs.TextFormatter().format(record("placed", uid="u1", node="n1"))

    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} INFO    a\.b: placed  uid=u1  node=n1", line)


def test_text_of_strangers_cannot_forge_a_line():
    """Newlines and escape sequences are shown, not obeyed."""
    line = logs.TextFormatter().format(record("a\nERROR forged", name_="\x1b[31mred"))

    assert "\n" not in line
    assert "\x1b" not in line
    assert r"a\nERROR forged" in line


def test_format_auto_is_text_on_a_terminal_only(root):
    """A machine that collects stderr gets JSON without being asked."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(logs.configure(LogSettings(), "s", stream=Terminal()).formatter, logs.TextFormatter)
    assert isinstance(logs.configure(LogSettings(), "s", stream=io.StringIO()).formatter, logs.JsonFormatter)
