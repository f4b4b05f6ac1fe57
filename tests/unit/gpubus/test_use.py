"""What monitors say, as people see it: use by request, strangers, and what of a local installation is real."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from bus.memory import InMemoryBus, MemoryServer
from contracts.answers import CardView, Summary
from contracts.inventory import Card
from contracts.messages import encode
from contracts.subjects import USAGE
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage, ContainerUsage, NodeUsage, ProcessUsage, SliceUsage
from gpubus.hearing import Hearing
from gpubus.local.parts import Parts, PartUse, name_of
from gpubus.render import tables
from gpubus.render.top import View, frame
from gpubus.render.use import by_whom, cards_columns, processes, strangers
from gpubus.use import Listed, RequestUse, Stranger, cards, listed, request_use
from gpubus.use import strangers as strangers_of

U1, U2 = RequestUid("e-1-0"), RequestUid("e-2-0")


def text(*parts: RenderableType) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=220, color_system=None, highlight=False, legacy_windows=False)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def piece(uid: RequestUid, busy: int | None, mib: int | None) -> SliceUsage:
    return SliceUsage(
        uid=uid, namespace="team", pod=f"p-{uid}", share_milli=500, limit_mib=8000, compute_percent=busy,
        average_milli=busy and 10 * busy, memory_used_mib=mib,
    )  # fmt: skip


def container(uid: RequestUid, name: str = "c", *, own: bool = True, cpu: int | None = 250) -> ContainerUsage:
    return ContainerUsage(
        container=name, pod_uid=f"pod-{uid}", uid=uid, namespace="team", pod=f"p-{uid}", own=own, cpu_used_milli=cpu,
        cpu_limited=True, cpu_limit_milli=500, throttled_permille=125, memory_working_mib=64,
    )  # fmt: skip


CARD = CardUsage(
    uuid=CardUuid("GPU-a"),
    compute_percent=80,
    memory_used_mib=9000,
    processes=(
        ProcessUsage(pid=10, belongs="request", request=U1),
        ProcessUsage(pid=11, belongs="unknown"),
        ProcessUsage(pid=30, belongs="nobody", command="miner", memory_mib=700),
    ),
    slices=(piece(U1, 20, 3000), piece(U2, None, None)),
    unmanaged_mib=700,
)
USAGE_OF = NodeUsage(
    node=NodeName("n1"),
    incarnation="m",
    sequence=3,
    period_ms=1000,
    cards=(CARD,),
    containers=(container(U1), container(U1, "pause", own=False, cpu=1)),
)


def test_a_row_a_request_and_card_the_busiest_first() -> None:
    """Claim: GPU of the slice, CPU of its own container and not of the sandbox; unknown stays unknown and is last."""
    first, second = request_use({"n1": USAGE_OF})

    assert first == RequestUse(
        namespace="team", pod=f"p-{U1}", uid=U1, node="n1", card="GPU-a", share_milli=500, compute_percent=20,
        average_milli=200, memory_used_mib=3000, limit_mib=8000, cpu_used_milli=250, cpu_limit_milli=500,
        cpu_limited=True, throttled_permille=125, host_memory_mib=64,
    )  # fmt: skip
    assert (second.uid, second.compute_percent, second.cpu_used_milli) == (U2, None, None)


def test_a_request_without_cards_has_a_row_too() -> None:
    """Claim: its CPU is measured all the same."""
    (row,) = request_use({"n1": replaced(cards=(), containers=(container(U2),))})

    assert (row.uid, row.card, row.cpu_used_milli) == (U2, "", 250)


def test_strangers_are_named_and_all_are_counted() -> None:
    """Claim: by node, card, pid and program; whose the others are, in numbers."""
    found = {"n1": USAGE_OF}

    assert strangers_of(found) == [Stranger(node="n1", card="GPU-a", pid=30, command="miner", memory_mib=700)]
    assert listed(found) == Listed(ours=1, nobodys=1, unknown=1, heard=1)
    assert text(strangers(strangers_of(found)), processes(listed(found))) == [
        "NODE  CARD   PID  PROGRAM  MEMORY   OF",
        "n1    GPU-a  30   miner    700 MiB  -",
        "on cards 1 processes of requests, 1 of nobody, 1 unknown  (as 1 monitors said)",
    ]


def view(**fields: object) -> View:
    shown = CardView(
        node="n1", card=Card(uuid=CARD.uuid, index=3, model="T4", memory_total_mib=15_000), used_milli=1000,
        used_mib=16_000, sellable_mib=15_000, residents=("team/a", "team/b"),
    )  # fmt: skip
    return View(cards=[shown], summary=Summary(), **fields)  # type: ignore[arg-type] # a table of fields


def test_top_shows_use_strangers_and_the_real_processes_of_a_local_installation() -> None:
    """Claim: what is unknown is a question mark; what is real is said to be, beside what is simulated."""
    drawn = view(
        requests=request_use({"n1": USAGE_OF}),
        strangers=strangers_of({"n1": USAGE_OF}),
        parts=[PartUse(name="scheduler", pid=7, cpu_milli=125, memory_mib=60)],
    )

    assert text(frame(drawn, busiest=5))[6:] == [
        "NAMESPACE  POD      NODE  CARD  SHARE     GPU   GPU AVG  GPU MEMORY     CPU       HELD BACK  MEMORY",
        "team       p-e-1-0  n1    3     500/1000  20 %  20.0 %   3000/8000 MiB  250/500m  12.5 %     64 MiB",
        "team       p-e-2-0  n1    3     500/1000  ?     ?        ?/8000 MiB     ?         ?          ?",
        "",
        "processes of nobody:",
        "NODE  CARD   PID  PROGRAM  MEMORY   OF",
        "n1    GPU-a  30   miner    700 MiB  -",
        "",
        "this machine, real: scheduler 12.5 % 60 MiB   (cards and pods are simulated)",
    ]
    assert text(frame(drawn, busiest=1))[8] == "… and 1 that use less"


def test_wide_cards_show_who_uses_what() -> None:
    """Claim: per request, beside what is sold; a card of which nobody spoke is unknown and not idle."""
    silent = text(tables.cards(view().cards, wide=True, extra=cards_columns({})))
    heard = text(tables.cards(view().cards, wide=True, extra=cards_columns(cards({"n1": USAGE_OF}))))

    assert " GPU  USED  NOBODY'S  BY " in silent[0]
    assert " ?    ?     ?         ? " in silent[1] + " "
    assert "80 %  9000 MiB  700 MiB" in heard[1]
    assert by_whom(CARD) == "team/p-e-1-0 20 % 3000 MiB, team/p-e-2-0 ? ?"


async def test_the_newest_word_of_each_node_is_kept() -> None:
    """Claim: a late copy does not go back, another life of the monitor begins anew, garbage changes nothing."""
    server = MemoryServer()
    bus, hearing = InMemoryBus(server, "monitor"), Hearing(InMemoryBus(server, "ear"))
    subject = USAGE.subject(node="n1")
    async with hearing.listening():
        for said in (USAGE_OF, replaced(sequence=2), replaced(sequence=1, incarnation="m2")):
            await bus.publish(subject, encode(said))
        await bus.publish(subject, b"{")
        await bus.publish(USAGE.subject(node="n2"), encode(replaced(node=NodeName("n2"))))
        await hearing.heard({"n1", "n2"}, 10)

    assert {name: (u.incarnation, u.sequence) for name, u in hearing.usage.items()} == {"n1": ("m2", 1), "n2": ("m", 3)}


def replaced(**fields: object) -> NodeUsage:
    return msgspec.structs.replace(USAGE_OF, **fields)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["/usr/bin/python3", "-m", "scheduler"], "scheduler"),
        (["/opt/nats/nats-server", "-c", "x"], "nats-server"),
        (["sh", "-m"], "sh"),
        ([""], "comm"),
        ([], "comm"),
    ],
)
def test_processes_are_called_as_people_call_them(command: list[str], name: str) -> None:
    """Claim: a module run by Python has the module's name."""
    assert name_of(command, "comm") == name


def test_a_real_child_is_measured() -> None:
    """Claim: on this machine, a child that spins has CPU and memory after the second look, and is gone at its end."""
    parts = Parts(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            until = time.monotonic() + 20
            used: PartUse | None = None
            while time.monotonic() < until and not (used and used.cpu_milli):
                used = next((part for part in parts.look() if part.pid == child.pid), None)
        finally:
            child.kill()
            child.wait()

    assert used is not None
    assert (used.cpu_milli or 0) > 0
    assert (used.memory_mib or 0) > 0
    assert child.pid not in {part.pid for part in parts.look()}
    assert Parts(os.getpid(), proc=Path("/nowhere")).look() == []
