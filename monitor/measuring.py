"""From one period to one statement: what the monitor keeps between two usage messages, and the I/O around them.

In: the samples of the cards, a look at the host (`Surveyor`), and what is sold on this node. Out: a `NodeUsage` a
period, and what of each card's memory belongs to nobody, damped, for the inventory. The decisions are pure and lie
elsewhere: `usage` (samples), `attribution` (whose), `meters` (containers), `unmanaged` (damping).

Simulated cards have simulated processes: whose they are is known from the shares, and no /proc is asked for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from contracts.inventory import Card
from contracts.outcomes import NodeShares
from contracts.units import CardUuid
from contracts.usage import CardUsage, ContainerUsage, CpuUsage, NodeUsage
from monitor import attribution, cpu, meters, report, unmanaged
from monitor.attribution import Owner, Seen, Told
from monitor.cards.protocol import CardProvider, TakesShares
from monitor.cards.runner import Inline, Runner
from monitor.cards.simulated import pid_of
from monitor.cgroups.paths import Home
from monitor.cpu import HostCounters
from monitor.meters import Averages, Meters
from monitor.procs.reading import Process
from monitor.report import Identity
from monitor.settings import MonitoringSettings
from monitor.survey import Looks, Survey, Surveyor
from monitor.unmanaged import Damped, Patience
from monitor.usage import Sample, over_period

log = logging.getLogger(__name__)

SIMULATED = "simulated"
LANE = "host"


class Measuring:
    """One node's measurements. Made inside the event loop; `period` is for one caller."""

    def __init__(
        self, who: Identity, settings: MonitoringSettings, runner: Runner | None = None, host: Looks | None = None
    ) -> None:
        self.last: NodeUsage | None = None
        """What was said last: metrics are made from it when somebody asks."""
        self.told: Told | None = None
        """What is sold here; None until it was read."""
        self.unmanaged: dict[CardUuid, Damped] = {}
        self._who = who
        self._settings = settings
        self._runner = runner or Inline()
        self._surveyor = host or Surveyor(Path(settings.proc_path), Path(settings.cgroup_path), settings.cgroup_root)
        self._patience = Patience(
            rise_ms=round(settings.unmanaged_after_s * 1000), fall_ms=round(settings.unmanaged_until_s * 1000)
        )
        self._host: HostCounters | None = None
        self._meters: Meters = {}
        self._averages: Averages = {}
        self._sequence = 0
        self._began = asyncio.get_running_loop().time()
        self._out: asyncio.Future[Survey] | None = None
        self._trouble = ""

    async def start(self) -> None:
        """The first look, from which the first period is counted."""
        self._host = (await self._survey((), ())).host
        self._began = asyncio.get_running_loop().time()

    async def period(self, held: Iterable[Card], samples: list[Sample], provider: CardProvider) -> NodeUsage:
        """What the period that ends now was, for the cards that the node holds."""
        cards = over_period((card.uuid for card in held), samples)
        of = self.told
        survey = await self._survey(attribution.listed_pids(cards), (of.pods if of else {}).keys())
        now = asyncio.get_running_loop().time()
        self._sequence += 1
        self.last = report.usage(
            self._who,
            self._attributed(cards, survey, provider),
            sequence=self._sequence,
            period_ms=round((now - self._began) * 1000),
            cpu=self._cpu(survey),
            containers=self._containers(survey, of),
            provider=provider.name,
        )
        self._began = now
        return self.last

    # --- what belongs to nobody --------------------------------------------------------------------------------------

    def remember(self, cards: tuple[Card, ...]) -> None:
        """What an earlier monitor of this boot said stands until it is seen otherwise."""
        self.unmanaged = unmanaged.remembered(cards) | self.unmanaged

    def strangers(self, usage: NodeUsage) -> bool:
        """Fold one period into what the inventory says of unmanaged memory; whether that is another now."""
        before = unmanaged.said(self.unmanaged)
        self.unmanaged = unmanaged.observe(
            self.unmanaged,
            {card.uuid: card.unmanaged_mib for card in usage.cards},
            unmanaged.strangers(usage.cards),
            now_ms=round(asyncio.get_running_loop().time() * 1000),
            patience=self._patience,
        )
        after = unmanaged.said(self.unmanaged)
        for uuid in sorted(before.keys() | after.keys()):
            self._say(uuid, before.get(uuid, 0), after.get(uuid, 0))
        return before != after

    def _say(self, uuid: CardUuid, before: int, after: int) -> None:
        extra = {"card": uuid, "before_mib": before, "memory_mib": after, "by": self.unmanaged[uuid].by}
        if after > before:
            log.warning("processes that belong to nobody hold memory of a card; it is not sold", extra=extra)
        elif after < before:
            log.info("memory of a card is free of strangers again", extra=extra)

    # --- the host ----------------------------------------------------------------------------------------------------

    async def _survey(self, pids: Iterable[int], pods: Iterable[str]) -> Survey:
        """One look; an empty one when the kernel does not answer. A look that hangs is waited for before the next."""
        wanted, ours = tuple(pids), frozenset(pods)
        if await self._answered(self._out):
            self._out = self._runner.start(LANE, lambda: self._surveyor.look(wanted, ours))
            if await self._answered(self._out):
                survey, self._out = self._out.result(), None
                self._tell(_missing(survey, self._settings) if wanted or ours else self._trouble)
                return survey
        self._tell(f"/proc and cgroups have not answered for {self._settings.driver_deadline_s:g} s")
        return Survey()

    async def _answered(self, out: asyncio.Future[Survey] | None) -> bool:
        if out is not None and not out.done():
            await asyncio.wait({out}, timeout=self._settings.driver_deadline_s)
        return out is None or out.done()

    def _tell(self, trouble: str) -> None:
        """Each trouble once, when it begins."""
        if trouble and trouble != self._trouble:
            log.warning("whose use is whose cannot be told", extra={"reason": trouble})
        self._trouble = trouble

    def _attributed(
        self, cards: tuple[CardUsage, ...], survey: Survey, provider: CardProvider
    ) -> tuple[CardUsage, ...]:
        of = self.told
        if of is not None and isinstance(provider, TakesShares):
            whose = attribution.attributed(cards, *simulated(of))
        else:
            whose = attribution.attributed(cards, survey.processes or Seen(), of)
        averaged, self._averages = meters.with_averages(self._averages, whose)
        return averaged

    def _cpu(self, survey: Survey) -> CpuUsage | None:
        before, self._host = self._host, survey.host
        return cpu.host_usage(before, survey.host) if survey.host else None

    def _containers(self, survey: Survey, of: Told | None) -> tuple[ContainerUsage, ...] | None:
        if survey.containers is None or of is None:
            return None
        used, self._meters = meters.measured(self._meters, survey.containers, of.pods, at_ns=survey.at_ns)
        return used


def of_shares(shares: NodeShares | None) -> Told:
    """What is sold here, once the stream was read to its end; a node of which nobody ever spoke has sold nothing."""
    return attribution.told(shares) if shares else Told()


def simulated(of: Told) -> tuple[Seen, Told]:
    """The processes that simulated cards list, one for each piece; the pod of each is called as its request."""
    held = [assignment for pieces in of.slices.values() for assignment in pieces]
    owners = {a.uid: Owner(uid=a.uid, namespace=a.namespace, pod=a.pod) for a in held}
    processes = {
        pid_of(a): Process(pid=pid_of(a), started_ticks=0, command=SIMULATED, home=Home(pod_uid=a.uid)) for a in held
    }
    return Seen(processes=processes), replace(of, pods=owners)


def _missing(survey: Survey, settings: MonitoringSettings) -> str:
    """What an operator must give, or an empty string."""
    if survey.processes is None:
        return f"{settings.proc_path} is not the host's: the pod of the monitor needs hostPID: true"
    if survey.containers is None:
        return f"no cgroups below {settings.cgroup_path}: mount the host's /sys/fs/cgroup there (read only is enough)"
    return ""
