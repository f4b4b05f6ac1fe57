"""From settings to a running enforcer: all backends, on this node's cgroups and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bus.protocol import Bus
from contracts.inventory import Card
from monitor.cards.runner import Runner
from monitor.cgroups.tree import CgroupTree
from monitor.enforce import listeners
from monitor.enforce.backend import Backend
from monitor.enforce.cpu import CpuLimits
from monitor.enforce.enforcer import Enforcer
from monitor.enforce.gemini import Gemini
from monitor.enforce.hami import HamiCore
from monitor.enforce.mig import MigInstances
from monitor.enforce.modes import with_modes
from monitor.enforce.mps import MpsDaemon
from monitor.enforce.none import NoIsolation
from monitor.enforce.settings import EnforceSettings
from monitor.report import Identity
from monitor.settings import MonitoringSettings

Cards = Callable[[], tuple[Card, ...] | None]


def enforcer(bus: Bus, who: Identity, settings: MonitoringSettings, *, cards: Cards, runner: Runner) -> Enforcer:
    """One for this node. `cards`: as the watch holds them, None while they are not known."""
    chosen = settings.enforce
    tree = CgroupTree(Path(settings.cgroup_path), settings.cgroup_root)

    def known() -> tuple[Card, ...] | None:
        found = cards()
        return None if found is None else with_modes(found, chosen.mode, chosen.cards)

    return Enforcer(
        bus,
        who,
        cards=known,
        backends=backends(chosen, Path(settings.proc_path)),
        cpu=CpuLimits(tree, Path(chosen.state_path)) if chosen.cpu else None,
        runner=runner,
        check_s=chosen.check_s,
    )


def backends(settings: EnforceSettings, proc: Path) -> tuple[Backend, ...]:
    """All of them: which ones have cards is decided by the inventory, and those that have none clean up."""
    return (
        NoIsolation(),
        MpsDaemon(Path(settings.mps_path), settings.mps_control),
        HamiCore(Path(settings.hami_path)),
        Gemini(Path(settings.gemini_path), lambda: listeners.on_host(proc), borrow=settings.borrow),
        MigInstances(),
    )
