"""Limits that follow use, as people see them: what would be done is shown where nothing is done."""

from __future__ import annotations

import asyncio
import io

from rich.console import Console

from bus.memory import InMemoryBus, MemoryServer
from contracts.messages import encode
from contracts.shares import NodeVertical, PodVertical
from contracts.subjects import VERTICAL
from contracts.units import NodeName, RequestUid
from gpubus.limits import heard, rows
from gpubus.render.limits import limits

ASKS = PodVertical(
    uid=RequestUid("e-2-0"), namespace="team", pod="train", managed=True, rule="bound", income_milli=300_000,
    savings_milli=12_500, cpu_sold_milli=500, cpu_used_milli=480, cpu_next_milli=700, cards=1, gpu_sold_milli=250,
    gpu_used_milli=None, gpu_next_milli=0,
)  # fmt: skip
QUIET = PodVertical(
    uid=RequestUid("e-1-0"), namespace="team", pod="a", cpu_sold_milli=100, cpu_next_milli=100, reason="at its floor"
)
OTHER = PodVertical(uid=RequestUid("e-3-0"), namespace="other", pod="b", managed=True, rule="free")


def said(node: str, *pods: PodVertical, mode: str = "observe") -> NodeVertical:
    return NodeVertical(node=NodeName(node), mode="act" if mode == "act" else "observe", pods=pods)


def lines(*nodes: NodeVertical, namespace: str = "", wide: bool = False) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=200, color_system=None, legacy_windows=False)
    console.print(limits(rows({one.node: one for one in nodes}, namespace), wide=wide))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_what_would_be_done_stands_beside_what_was_sold_and_that_it_is_not_done() -> None:
    """Who asked for it comes first; unknown is a question mark, and who holds no card has none to be limited on."""
    assert lines(said("n1", QUIET, ASKS)) == [
        "NAMESPACE  NAME   NODE  DONE               CPU SOLD  USED  NEXT  GPU SOLD  USED  NEXT  REASON",
        "team       train  n1    no: only observed  500m      480m  700m  250       ?     -     bound",
        "team       a      n1    no: not asked for  100m      ?     100m  -         -     -     at its floor",
    ]
    assert lines(said("n1", ASKS, mode="act"))[1].split()[3] == "yes"
    assert lines(said("n1", ASKS), wide=True)[1].endswith("300       12.5")


def test_a_namespace_sees_its_own() -> None:
    """All of them with none named; those who asked first, then by name, whatever the nodes are called."""
    both = {"n2": said("n2", OTHER), "n1": said("n1", QUIET, ASKS)}

    assert [row.pod.pod for row in rows(both)] == ["b", "train", "a"]
    assert [row.pod.pod for row in rows(both, "team")] == ["train", "a"]


async def test_all_nodes_are_waited_for_and_no_longer() -> None:
    """Garbage is passed by; a node that nobody speaks of costs the patience that was given, not for ever."""
    server = MemoryServer()
    mouth, ear = InMemoryBus(server, "autoscaler"), InMemoryBus(server, "user")

    async def speak() -> None:
        await mouth.publish(VERTICAL.subject(node="n1"), b"{")
        await mouth.publish(VERTICAL.subject(node="n1"), encode(said("n1", ASKS)))
        await mouth.publish(VERTICAL.subject(node="n2"), encode(said("n2", OTHER)))

    listening = asyncio.create_task(heard(ear, {"n1", "n2"}, 60.0), name="listening")
    while not listening.done():
        await speak()
        await asyncio.sleep(0)
    found = listening.result()

    assert {node: [pod.pod for pod in one.pods] for node, one in found.items()} == {"n1": ["train"], "n2": ["b"]}
    assert await heard(ear, {"n1"}, 0.01) == {}
