"""The shape of a trace in Jaeger's query API: what `gpubus trace` reads, and what the local span store answers with."""

from __future__ import annotations

import msgspec

TagValue = str | int | float | bool | None


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Why a span belongs to another: `CHILD_OF` its parent, `FOLLOWS_FROM` what it links to."""

    ref_type: str = msgspec.field(default="CHILD_OF", name="refType")
    trace_id: str = msgspec.field(default="", name="traceID")
    span_id: str = msgspec.field(default="", name="spanID")


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute."""

    key: str
    type: str = "string"
    value: TagValue = None


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """One event within a span; microseconds since 1970."""

    timestamp: int = 0
    fields: tuple[Tag, ...] = ()


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span; times in microseconds."""

    trace_id: str = msgspec.field(default="", name="traceID")
    span_id: str = msgspec.field(name="spanID")
    operation_name: str = msgspec.field(name="operationName")
    references: tuple[Reference, ...] = ()
    start_time: int = msgspec.field(default=0, name="startTime")
    duration: int = 0
    tags: tuple[Tag, ...] = ()
    logs: tuple[Log, ...] = ()
    process_id: str = msgspec.field(default="", name="processID")
    warnings: tuple[str, ...] | None = None

    @property
    def parent(self) -> str:
        """Span id of the parent within the same trace, or an empty string."""
        return next((r.span_id for r in self.references if self.is_parent(r)), "")

    @property
    def links(self) -> tuple[Reference, ...]:
        """What it relied on elsewhere."""
        return tuple(r for r in self.references if not self.is_parent(r))

    @property
    def failed(self) -> bool:
        """Whether its status is an error."""
        return any(tag.key == "error" and tag.value in (True, "true") for tag in self.tags)

    def is_parent(self, reference: Reference) -> bool:
        """Whether a reference names the parent."""
        return reference.ref_type == "CHILD_OF" and reference.trace_id in ("", self.trace_id)


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent spans."""

    service_name: str = msgspec.field(default="?", name="serviceName")
    tags: tuple[Tag, ...] = ()


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One trace."""

    trace_id: str = msgspec.field(default="", name="traceID")
    spans: tuple[Span, ...] = ()
    processes: dict[str, Process] = {}


class ApiError(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no data."""

    code: int
    msg: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What `/api/traces` and `/api/traces/<id>` answer."""

    data: tuple[Trace, ...] | None = None
    total: int = 0
    limit: int = 0
    offset: int = 0
    errors: tuple[ApiError, ...] | None = None
