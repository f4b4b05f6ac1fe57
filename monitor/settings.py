"""The monitor's settings: which node, which cards, how often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from bus.runtime.config import variable
from bus.runtime.settings import Seconds, ServiceSettings, Settings, Text
from contracts.units import MAX_MEMORY_MIB, MemoryMib, ModelName, NodeName
from monitor.cards.protocol import ProviderName
from monitor.cards.readings import MemoryRules
from monitor.cards.simulated import SimulatedKind, fault
from monitor.enforce.settings import EnforceSettings
from monitor.standing import Rules

SizeMib = Annotated[int, Meta(ge=1, le=MAX_MEMORY_MIB)]

_KIND = SimulatedKind()
_RULES = MemoryRules()
_HEALTH = Rules()


class SimulatedSettings(Settings, frozen=True, kw_only=True):
    """The made-up cards of `provider = "simulated"`; the defaults are those of an A100 with 40 GiB."""

    cards: Annotated[int, Meta(ge=0, le=64)] = _KIND.cards
    """How many."""
    model: ModelName = _KIND.model
    """The model's name, as requests ask for it."""
    memory_mib: SizeMib = _KIND.memory_mib
    """Memory of each card in MiB, as the driver would report it."""
    reserved_mib: MemoryMib = _KIND.reserved_mib
    """MiB of it that the driver would keep for itself; never sold."""
    faults: tuple[Text, ...] = ()
    """What befalls them, in seconds from the start: `INDEX@AFTER+FOR` or `INDEX@AFTER+FOR:REASON`. `2@20+30`: the card
    of index 2 is lost after 20 s, for 30."""

    def problems(self) -> Iterator[str]:
        """Faults are spelt right, and of cards that there are."""
        for text in self.faults:
            try:
                if fault(text).index >= self.cards:
                    yield f"faults = {text!r}: there are {self.cards} cards, the first has index 0"
            except ValueError as error:
                yield f"faults = {error}"

    def kind(self) -> SimulatedKind:
        """As the provider takes it."""
        return SimulatedKind(
            cards=self.cards, model=self.model, memory_mib=self.memory_mib, reserved_mib=self.reserved_mib
        )


class MonitoringSettings(Settings, frozen=True, kw_only=True):
    """One node, its cards, and the pace."""

    node: NodeName = NodeName("")
    """The Kubernetes name of this node; needed. In a DaemonSet from the downward API (`spec.nodeName`)."""
    provider: ProviderName = "nvml"
    """nvml: the cards that the NVIDIA driver lists. simulated: cards made up from the group `simulated`."""
    simulated: SimulatedSettings = SimulatedSettings()
    heartbeat_s: Seconds = 1.0
    """Seconds between heartbeats: the unit of a receiver's patience, who suspects the node after a few missing ones."""
    sample_s: Seconds = 0.5
    """Seconds between looks at the cards. A lost card is noticed after one; it costs about ten driver calls a card."""
    usage_s: Seconds = 1.0
    """Seconds that one usage message sums up."""
    driver_deadline_s: Seconds = 5.0
    """Seconds until a driver call counts as hanging, and what it asks about as suspect: one card, or all of them.
    Opening the driver without its persistence mode takes one to three; a hanging one takes minutes or never comes
    back."""
    recover_after_s: Seconds = 60.0
    """Seconds that a card must be well before it is offered again: a card that flaps is worse than none. Each time that
    it leaves again within `forget_after_s` the time doubles, up to `recover_longest_s`."""
    recover_longest_s: Seconds = 3600.0
    """The longest time that a flapping card is held back after its last trouble."""
    forget_after_s: Seconds = 3600.0
    """Seconds that a card must have been healthy for its earlier troubles to be forgotten."""
    odd_looks: Annotated[int, Meta(ge=1, le=64)] = _HEALTH.odd_looks
    """So many odd answers of the driver ..."""
    of_looks: Annotated[int, Meta(ge=1, le=64)] = _HEALTH.of_looks
    """... among the last so many looks make a card suspect: one odd answer means little."""
    verify_s: Seconds = 30.0
    """Seconds between looks whether the facts stream still holds our inventory, for a bus that lost its disk."""
    reserved_fallback_mib: MemoryMib = _RULES.reserved_fallback_mib
    """MiB kept back on each card where the driver cannot tell what it reserved (before R510). More than the 300 to
    650 that data-centre cards were seen to reserve."""
    unified_memory_mib: SizeMib | None = None
    """MiB that a card may sell which reports no memory of its own (unified memory). Not set: none."""
    proc_path: Text = "/proc"
    """Where the host's /proc is: its stat, meminfo and boot id are read, and whose the processes on the cards are.
    Pids are the host's only with `hostPID: true`; else whose use is whose stays unknown."""
    cgroup_path: Text = "/sys/fs/cgroup"
    """Where the host's cgroups are mounted, version 1 or 2; read only is enough to measure."""
    cgroup_root: Text = ""
    """The kubelet's `--cgroup-root` below it, if it has one; `kubelet` and `kubelet.slice` are found without."""
    unmanaged_after_s: Seconds = 10.0
    """Seconds that a process which belongs to nobody must hold a card's memory before that is taken off what is sold.
    Each change is a record of the ledger; a pod that has just started is known within one."""
    unmanaged_until_s: Seconds = 60.0
    """Seconds that such memory must be free again before it is sold again."""
    enforce: EnforceSettings = EnforceSettings()
    """How shares are made to hold."""
    boot_id: Text = ""
    """Identity of this boot of the node. Empty: sys/kernel/random/boot_id below `proc_path`."""

    def problems(self) -> Iterator[str]:
        """The node has a name; a look is not longer than the period that sums it up."""
        if not self.node:
            yield f"node is not set; set {variable('monitor.node')} to the name of this Kubernetes node"
        if self.unmanaged_after_s > self.unmanaged_until_s:
            yield (
                f"unmanaged_after_s = {self.unmanaged_after_s:g} is longer than unmanaged_until_s = "
                f"{self.unmanaged_until_s:g}: memory would be sold again before it is known to be free"
            )
        if self.odd_looks > self.of_looks:
            yield f"odd_looks = {self.odd_looks} is more than of_looks = {self.of_looks}: no card would ever be suspect"
        if self.sample_s > self.usage_s:
            yield f"sample_s = {self.sample_s:g} is longer than usage_s = {self.usage_s:g}: periods without a sample"

    def health_rules(self) -> Rules:
        """As the health of cards takes them."""
        return Rules(
            odd_looks=self.odd_looks,
            of_looks=self.of_looks,
            quiet_ms=round(self.recover_after_s * 1000),
            longest_ms=round(self.recover_longest_s * 1000),
            forget_ms=round(self.forget_after_s * 1000),
        )

    def memory_rules(self) -> MemoryRules:
        """As the provider takes them."""
        return MemoryRules(reserved_fallback_mib=self.reserved_fallback_mib, unified_total_mib=self.unified_memory_mib)


class MonitorSettings(ServiceSettings, frozen=True, kw_only=True):
    """All settings of `python -m monitor`."""

    monitor: MonitoringSettings = MonitoringSettings()
