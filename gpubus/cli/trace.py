"""`gpubus trace`: the way of a request through all parts, as a tree of spans."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bus.runtime.tracing import span_context_from
from gpubus.cli.common import Common, Format, Namespace, address, connected, run, show, show_json
from gpubus.cli.exits import Exit
from gpubus.client import Client
from gpubus.errors import AnswerIsNo, UsageError
from gpubus.render.spans import tree
from gpubus.settings import ClientSettings
from gpubus.tracequery import fetch


def trace(
    name: str,
    /,
    *,
    namespace: Namespace = None,
    jaeger: Annotated[str | None, Parameter(show_default=False)] = None,
    attributes: bool = True,
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Show the span tree of a request, from the submit to the running container.

    The spans come from Jaeger's query API: --jaeger, GPUBUS_JAEGER_URL, or the span store of the running gpubus local.
    Exit status 1 when the request or its trace is not there.

    Try:

    ```
    gpubus trace train
    gpubus trace team/train --jaeger http://127.0.0.1:16686
    ```

    Args:
        name: NAME or NAMESPACE/NAME.
        namespace: Namespace of the request.
        jaeger: Base URL of Jaeger's query API.
        attributes: Show attributes, links and events of each span.
        output: table or json (as Jaeger answers).
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    base = jaeger or settings.gpubus.jaeger_url
    if not base:
        raise UsageError("no span store is known; name one with --jaeger or GPUBUS_JAEGER_URL")
    space, name = address(name, namespace, settings)
    return run(_trace(space, name, base, settings, attributes=attributes, as_json=output == "json"))


async def _trace(
    namespace: str, name: str, base: str, settings: ClientSettings, *, attributes: bool, as_json: bool
) -> Exit:
    async with connected(settings) as client:
        trace_id = await trace_of(client, namespace, name)
    found = await fetch(base, trace_id)
    if found is None:
        raise AnswerIsNo(f"trace {trace_id} of {namespace}/{name} is not at {base} (not sampled, or too old)")
    if as_json:
        show_json(found)
    else:
        show(tree(found, attributes=attributes))
    return Exit.OK


async def trace_of(client: Client, namespace: str, name: str) -> str:
    """The id of a request's trace.

    Raises:
        AnswerIsNo: no such request, or it has no trace.
    """
    answer = await client.explain(name, namespace=namespace)
    if not answer.known:
        raise AnswerIsNo(f"there is no request {namespace}/{name}")
    context = span_context_from(answer.trace)
    if context is None:
        raise AnswerIsNo(f"{namespace}/{name} has no trace")
    return f"{context.trace_id:032x}"
