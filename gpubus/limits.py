"""Limits that follow use, as the autoscaler says them: node by node, on a subject that nobody keeps.

In: a bus, and the nodes to wait for. Out: the newest `NodeVertical` of each that was spoken of, and a row for each pod.
A node where somebody asks for such limits is spoken of every second, others every 15.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from bus.protocol import Bus, Received
from contracts.messages import Value
from contracts.shares import NodeVertical, PodVertical
from contracts.subjects import VERTICAL

PATIENCE_S = 16.0
"""Then every node has been spoken of, if there is anybody who speaks."""


class LimitRow(Value, frozen=True, kw_only=True):
    """One pod on its node; `observe`: what is next is what it would get."""

    node: str
    mode: Literal["observe", "act"]
    pod: PodVertical


async def heard(bus: Bus, nodes: Collection[str], timeout_s: float = PATIENCE_S) -> dict[str, NodeVertical]:
    """What is said of these nodes: until all were spoken of, or the time is up."""
    found: dict[str, NodeVertical] = {}
    news = asyncio.Event()

    async def hear(message: Received) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            said = msgspec.json.decode(message.data, type=NodeVertical)
            found[said.node] = said
            news.set()

    async with bus.subscribe(VERTICAL.wildcard, hear):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not found.keys() >= set(nodes):
                    news.clear()
                    await news.wait()
    return found


def rows(said: Mapping[str, NodeVertical], namespace: str = "") -> list[LimitRow]:
    """Those of a namespace, or all: who asked for it first, then by name."""
    found = [
        LimitRow(node=one.node, mode=one.mode, pod=pod)
        for one in said.values()
        for pod in one.pods
        if namespace in ("", pod.namespace)
    ]
    return sorted(found, key=lambda row: (not row.pod.managed, row.pod.namespace, row.pod.pod, row.pod.uid))
