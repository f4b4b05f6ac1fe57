"""A trace in the shape of Jaeger's query API, drawn as a tree with offsets and durations.

What flows in: the decoded JSON of `/api/traces/<id>`. What flows out: one tree. A span
whose parent never arrived hangs at the top and says so; a cycle of parents is cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
from rich.text import Text
from rich.tree import Tree

from gpubus.jaeger import Process, Span, Tag, Trace

HIDDEN = ("otel.", "internal.", "span.kind", "telemetry.", "messaging.system")
"""Tags that say nothing about the request."""


def tree(trace: Trace, *, attributes: bool = True) -> Tree:
    """The whole trace, roots by start time."""
    children, roots = _families(trace.spans)
    begin = min((s.start_time for s in trace.spans), default=0)
    services = len({p.service_name for p in trace.processes.values()})
    top = Tree(Text(f"trace {trace.trace_id}", style="bold").append(f"  {len(trace.spans)} spans, {services} services"))
    for span in roots:
        _add(top, span, _Drawing(trace=trace, children=children, begin=begin, attributes=attributes), frozenset())
    return top


class _Drawing(msgspec.Struct, frozen=True, kw_only=True):
    trace: Trace
    children: dict[str, list[Span]]
    begin: int
    attributes: bool


def _families(spans: Sequence[Span]) -> tuple[dict[str, list[Span]], list[Span]]:
    """Children by parent, and the tops: spans without a parent here, and one of each circle of parents."""
    ordered = sorted(spans, key=lambda s: (s.start_time, s.span_id))
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in ordered:
        children[span.parent].append(span)
    roots = [span for span in ordered if span.parent not in known]
    reached = {span.span_id for root in roots for span in _below(root, children)}
    for span in ordered:
        if span.span_id not in reached:
            roots.append(span)
            reached |= {one.span_id for one in _below(span, children)}
    return children, roots


def _below(root: Span, children: dict[str, list[Span]]) -> Iterator[Span]:
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        span = waiting.pop()
        if span.span_id not in seen:
            seen.add(span.span_id)
            yield span
            waiting += children.get(span.span_id, ())


def _add(at: Tree, span: Span, drawing: _Drawing, above: frozenset[str]) -> None:
    if span.span_id in above:
        return
    known = {s.span_id for s in drawing.trace.spans}
    branch = at.add(_span_line(span, drawing, orphan=bool(span.parent) and span.parent not in known))
    for child in drawing.children.get(span.span_id, ()):
        _add(branch, child, drawing, above | {span.span_id})


def _span_line(span: Span, drawing: _Drawing, *, orphan: bool) -> Text:
    service = drawing.trace.processes.get(span.process_id, Process()).service_name
    line = Text(span.operation_name, style="bold red" if span.failed else "bold")
    line.append(f"  {service}", style="cyan")
    line.append(f"  +{_ms(span.start_time - drawing.begin)}  took {_ms(span.duration)}", style="dim")
    if orphan:
        line.append("  (its parent never arrived)", style="yellow")
    if drawing.attributes:
        for words in _details(span):
            line.append(f"\n  {words}", style="dim")
    return line


def _details(span: Span) -> Iterator[str]:
    shown = [f"{t.key}={_value(t)}" for t in span.tags if not t.key.startswith(HIDDEN)]
    if shown:
        yield "  ".join(sorted(shown))
    for link in span.links:
        yield f"link → trace {link.trace_id} span {link.span_id}"
    for log in span.logs:
        words = "  ".join(f"{t.key}={_value(t)}" for t in log.fields)
        yield f"event +{_ms(log.timestamp - span.start_time)}  {words}"


def _value(tag: Tag) -> str:
    text = str(tag.value).lower() if isinstance(tag.value, bool) else str(tag.value)
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - one terminal line


def _ms(microseconds: int) -> str:
    return f"{microseconds / 1000:.1f} ms"
