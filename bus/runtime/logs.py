"""Structured logs on stderr: one JSON object a line for machines, or a readable line for eyes.

What flows in: standard `logging` records; what a caller passes as `extra={...}` becomes fields of the line.
What flows out: time, level, logger, message, those fields, and trace_id and span_id while a span is active.
No record may break the program: what cannot be encoded is written as its repr.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
from opentelemetry import trace

from bus.runtime.settings import LogSettings

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = ("time", "level", "service", "logger", "message", "trace_id", "span_id", "exception", "stack")
REPEAT_S = 60.0


def configure(settings: LogSettings, service: str, *, stream: TextIO | None = None) -> logging.Handler:
    """Make it the one handler of the process; warnings of the `warnings` module go there too."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter(service))
    handler.addFilter(RepeatFilter("opentelemetry"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    logging.captureWarnings(capture=True)
    return handler


# --- formats ---------------------------------------------------------------------------------------------------------


class JsonFormatter(logging.Formatter):
    """One JSON object, one line, whatever is in the record."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
            **_trace_fields(),
            **dict(_tracebacks(self, record)),
        }
        try:
            return _encoder.encode(fields).decode()
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError, RecursionError):
            return _encoder.encode({_printable(k): _printable(v) for k, v in fields.items()}).decode()


class TextFormatter(logging.Formatter):
    """`16:24:01.123 WARNING scheduler.service: message  key=value  trace=0af7651916cd43dd`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on lines of its own."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{clock}.{int(record.msecs):03d} {record.levelname:<7} {record.name}: {_safe(record.getMessage())}"
        fields = "".join(f"  {key}={_safe(str(value))}" for key, value in _extras(record).items())
        traced = _trace_fields().get("trace_id", "")
        tail = "".join(f"\n{text}" for _, text in _tracebacks(self, record))
        return line + fields + (f"  trace={traced[:16]}" if traced else "") + tail


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed as `extra`; a name of ours gets an underscore instead of replacing it."""
    given = ((key, value) for key, value in vars(record).items() if key not in _STANDARD)
    return {f"{key}_" if key in _OURS else key: value for key, value in given}


def _trace_fields() -> dict[str, str]:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _tracebacks(formatter: logging.Formatter, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
    if record.exc_info and record.exc_info[0]:
        yield "exception", formatter.formatException(record.exc_info)
    if record.stack_info:
        yield "stack", formatter.formatStack(record.stack_info)


def _unknown(value: Any) -> str:
    return repr(value)


def _printable(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "backslashreplace").decode()


def _safe(text: str) -> str:
    """Without control characters: a message of a stranger cannot forge a second line or colour the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_encoder = msgspec.json.Encoder(enc_hook=_unknown)


class RepeatFilter(logging.Filter):
    """Under one logger, the same message text at most once a minute: a collector that is down says so each second."""

    def __init__(self, logger: str) -> None:
        super().__init__()
        self._logger = logger
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a repetition. Keyed by the unformatted text, of which there are few."""
        if record.name != self._logger and not record.name.startswith(f"{self._logger}."):
            return True
        key = (record.name, str(record.msg))
        fresh = record.created - self._last.get(key, float("-inf")) >= REPEAT_S
        if fresh:
            self._last[key] = record.created
        return fresh
