"""What an operator chooses of enforcement: which mode each card has, and where the modes' parts lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from bus.runtime.settings import Seconds, Settings, Text
from contracts.inventory import IsolationMode
from contracts.isolation import DEFAULT_PATHS, HostPaths
from monitor.enforce.mps import CONTROL


class EnforceSettings(Settings, frozen=True, kw_only=True):
    """How shares are made to hold on this node. The paths are those of the host, as the pods mount them."""

    mode: IsolationMode = "none"
    """Of every card that `cards` does not name: none, mps, hami-core or gemini. MIG instances are always mig."""
    cards: dict[Text, IsolationMode] = {}
    """Mode by a card's UUID. Change it while nobody holds the card: tenants keep what they were started with."""
    borrow: bool = False
    """Gemini: a tenant may use what its neighbours leave idle. Else its share is also the most that it gets."""
    cpu: bool = True
    """Hold pods to the CPU limits that are published for this node."""
    check_s: Seconds = 2.0
    """Longest pause between looks whether everything still holds: what a container restart reset is written again."""
    mps_path: Text = DEFAULT_PATHS.mps
    """Folder of the MPS control daemon, with `pipe`, `log` and `shm` below."""
    mps_control: Text = CONTROL
    """The command that asks the MPS control daemon."""
    hami_path: Text = DEFAULT_PATHS.hami
    """Folder of HAMi-core's `libvgpu.so`."""
    gemini_path: Text = DEFAULT_PATHS.gemini
    """Folder of KubeShare's `library` and `scheduler`."""
    state_path: Annotated[Text, Meta(min_length=1)] = "/var/lib/gpubus/monitor"
    """Folder that outlives this process; which containers' CPU limits were changed stands there."""

    def problems(self) -> Iterator[str]:
        """A mode of the hardware cannot be chosen here."""
        chosen = [("mode", self.mode), *((f"cards.{uuid}", mode) for uuid, mode in self.cards.items())]
        for name, mode in chosen:
            if mode == "mig":
                yield f"{name} = mig: MIG is switched on in the driver; its instances are then recognised by themselves"

    def paths(self) -> HostPaths:
        """As the pods see them."""
        return HostPaths(mps=self.mps_path, hami=self.hami_path, gemini=self.gemini_path)
