"""A monitor through a year of pods: each is there for two messages and two scrapes, and then nothing of it may be left.

All that a monitor keeps between two periods is in it: whose what is, meters, running means, damping, the last message
and the series made of it. The host is made up, because a hundred thousand folders would measure the file system.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Collection
from pathlib import Path

from bench.node_cards import NODE, Cards, card_of
from bench.rows import Row
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.units import RequestUid
from monitor import metrics
from monitor.attribution import Seen
from monitor.cgroups.paths import Home
from monitor.cgroups.stats import Reading
from monitor.cgroups.tree import Found
from monitor.measuring import Measuring, of_shares
from monitor.procs.reading import Process
from monitor.report import Identity
from monitor.settings import MonitoringSettings
from monitor.survey import Survey

LIVES, AT_ONCE = 100_000, 64
FILLED = 100
"""Generations of pods after which every pool and cache of the interpreter is filled."""


class Churn:
    """A host on which 64 pods live for two looks each, and are never seen again."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def generation(self) -> int:
        """Of the pods that are there now."""
        return self.looks // 2

    def told(self) -> NodeShares:
        """What is sold to them."""
        pods = [(RequestUid(f"e-{self.generation}-{n}"), f"{self.generation:012x}-{n:04x}") for n in range(AT_ONCE)]
        pieces = (
            ShareAssignment(uid=uid, namespace="team", pod=name, card=card_of(n), share_milli=125, memory_mib=9000)
            for n, (uid, name) in enumerate(pods)
        )
        on_node = (PodOnNode(uid=uid, pod_uid=name, container_id=name) for uid, name in pods)
        return NodeShares(node=NODE, epoch="e", ledger_sequence=1, assignments=tuple(pieces), pods=tuple(on_node))

    def pids(self) -> list[int]:
        """One of each pod."""
        return [self.generation * AT_ONCE + n for n in range(AT_ONCE)]

    def look(self, pids: Collection[int], pods: Collection[str]) -> Survey:
        """All of it, with counters that rise."""
        at = self.looks
        homes = zip(pids, sorted(pods), strict=True) if pids else ()
        seen = {p: Process(pid=p, started_ticks=1, command="train", home=Home(pod_uid=name)) for p, name in homes}
        reading = Reading(cpu_ns=at, periods=at, throttled_periods=0, throttled_ns=0)
        found = tuple(Found(pod_uid=name, container=name, runtime="", reading=reading) for name in sorted(pods))
        return Survey(at_ns=at * 10**9, processes=Seen(processes=seen), containers=found)


async def lifetimes() -> Row:
    """100,000 pods, 64 at a time, each in two messages and two scrapes: what they cost, and what is left of them."""
    churn, kept = Churn(), MonitoringSettings(node=NODE)
    measuring = Measuring(Identity(node=NODE, boot_id="b", incarnation="bench"), kept, host=churn)
    before_kib, began, series = 0, time.process_time(), 0
    for generation in range(LIVES // AT_ONCE):
        measuring.told = of_shares(churn.told())
        cards = Cards(churn.pids())
        if generation == FILLED:
            before_kib = _resident_kib()
        for _ in range(2):
            usage = await measuring.period(cards.held, [cards.sample()], cards)
            measuring.strangers(usage)
            encode(usage)
            series = sum(len(gauge.series) for gauge in metrics.gauges(usage))
            churn.looks += 1
            await asyncio.sleep(0)  # as between two periods: what is done is let go of by the loop
    spent_s = time.process_time() - began
    left = f"{len(usage.containers or ())} containers in {series} series"
    return Row(
        name="a thousand pods come and go",
        value=spent_s * 1000 / (LIVES / 1000),
        unit="ms",
        note=f"{LIVES:,} of them: {left} at the end, resident memory grew {_resident_kib() - before_kib} KiB",
    )


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() // 1024
