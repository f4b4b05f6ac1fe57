"""`gpubus explain`: why is it where it is, or nowhere? And where would it go?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from contracts.answers import Explanation
from contracts.functions import FunctionStatus
from contracts.workloads import JobStatus
from gpubus import requestfile
from gpubus.cli.common import Common, Format, Namespace, address, connected, run, show_all, show_json
from gpubus.cli.exits import Exit
from gpubus.cli.submit import read_text
from gpubus.errors import AnswerIsNo, UsageError
from gpubus.functions import Again, decisions
from gpubus.render import scaling
from gpubus.render.enforced import of_request
from gpubus.render.explain import explanation
from gpubus.settings import ClientSettings
from gpubus.workloads import standing


def explain(
    name: str | None = None,
    /,
    *,
    what_if: Annotated[str | None, Parameter(show_default=False)] = None,
    namespace: Namespace = None,
    output: Format = "table",
    common: Common | None = None,
) -> int:
    """Tell why a request is where it is, or why it waits.

    Placed: node, cards, policy, the score of the choice and of the runner-up.
    Pending: what is needed, what is free, where it came closest, and the nearest change that would fit.
    A function or job: how it stands, its last scale decisions, what they were made from, and whether that gives the
    same again.
    Exit status 1 when there is nothing of that name.

    Try:

    ```
    gpubus explain train
    gpubus explain team/train -o json
    gpubus explain --what-if request.toml
    ```

    Args:
        name: NAME or NAMESPACE/NAME.
        what_if: A file with one request: tell where it would go now, and change nothing; - is standard input.
        namespace: Namespace of the request.
        output: table or json.
        common: Connection.
    """
    settings = (common or Common()).loaded().settings
    if (name is None) == (what_if is None):
        raise UsageError("give the NAME of a request, or --what-if FILE")
    if what_if is not None:
        return run(_what_if(what_if, namespace or settings.gpubus.namespace, settings, output))
    space, name = address(name or "", namespace, settings)
    return run(_explain(space, name, settings, output))


async def _explain(namespace: str, name: str, settings: ClientSettings, output: str) -> Exit:
    async with connected(settings) as client:
        answer = await client.explain(name, namespace=namespace)
        node = answer.placement.node if answer.placement and output != "json" else ""
        reports = await client.enforcement(node) if node else []
        decided = [] if answer.known else await decisions(client, namespace, name)
        now = await standing(client, namespace, name) if decided and output != "json" else None
    if decided:
        return _tell_scaling(decided, now, output)
    if not answer.known:
        raise AnswerIsNo(f"there is no request, function or job {namespace}/{name}")
    _show(answer, output, what_if=False)
    cards = [piece.card for piece in answer.placement.slices] if answer.placement else []
    show_all(Text(f"enforced  {line}") for report in reports for line in of_request(answer.uid, cards, report))
    return Exit.OK


def _tell_scaling(decided: list[Again], now: FunctionStatus | JobStatus | None, output: str) -> Exit:
    """A function or a job has no place of its own; what there is to tell is why it has the size it has."""
    if output == "json":
        show_json(decided)
    else:
        show_all([*scaling.standing(now), *scaling.story(decided)])
    return Exit.OK


async def _what_if(file: str, namespace: str, settings: ClientSettings, output: str) -> Exit:
    wanted = requestfile.read(read_text(file), file)
    if len(wanted) != 1:
        raise UsageError(f"{file}: --what-if takes one request, this file holds {len(wanted)}")
    async with connected(settings) as client:
        answer = await client.what_if(wanted[0].data, namespace=namespace)
    _show(answer, output, what_if=True)
    return Exit.OK if answer.placement is not None else Exit.NO


def _show(answer: Explanation, output: str, *, what_if: bool) -> None:
    if output == "json":
        show_json(answer)
    else:
        show_all(explanation(answer, what_if=what_if))
