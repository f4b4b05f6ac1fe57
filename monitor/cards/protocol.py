"""The port: what the monitor needs of whoever knows the cards of a node.

Two providers: `nvml` asks the driver, `simulated` makes cards up from the settings. All calls block. The shell makes
the calls about one seat one after the other in a thread of that seat, so that a card that hangs holds up nobody but
itself; calls about the driver as a whole have a thread of their own.

A *seat* is an index of the driver. It says where to ask, and nothing about who answers: drivers renumber.

A single card that fails is no error, it is a `Sign` against that card. Errors are for the driver as a whole:

    DriverError
    ├── DriverMissing   an operator's: this node cannot be monitored as configured; says what is missing
    ├── DriverLost      the world's: it answered before and does not now (unloaded, replaced); asked again next time
    └── DriverSilent    the world's: a call has not come back by its deadline
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, runtime_checkable

import msgspec

from contracts.inventory import Card
from contracts.outcomes import NodeShares
from contracts.units import CardUuid
from contracts.usage import CardUsage

ProviderName = Literal["nvml", "simulated"]
Weight = Literal["odd", "passing", "fatal"]


class DriverError(Exception):
    """No card of this node can be asked."""


class DriverMissing(DriverError):  # noqa: N818 - named by what is the case, as the drawing above
    """The driver or its library is not there; `missing` names it, `remedy` says what to do."""

    def __init__(self, missing: str, remedy: str) -> None:
        super().__init__(f"{missing}. {remedy}")
        self.missing = missing
        self.remedy = remedy


class DriverLost(DriverError):  # noqa: N818
    """The driver answered before and does not any more; `unloaded`: its kernel module is gone or another one."""

    def __init__(self, reason: str, *, unloaded: bool = False) -> None:
        super().__init__(reason)
        self.unloaded = unloaded


class DriverSilent(DriverError):  # noqa: N818
    """A call is still out after `waited_s` seconds."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the driver has not answered for {waited_s:.1f} s")
        self.waited_s = waited_s


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """Something that speaks against one card: odd (counted), passing (a doubt at once), fatal (the end, at once)."""

    card: CardUuid
    weight: Weight
    reason: str
    event: bool = False
    """It was said once; else it is found at each look for as long as it lasts, so that its end can be seen too."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is found at one seat: its card, or the MIG instances that it is cut into, and what speaks against them.

    Cards come as facts, all of them healthy; a lost one as it was last known. Nothing: nobody there can be named.
    """

    cards: tuple[Card, ...] = ()
    usage: tuple[CardUsage, ...] = ()
    signs: tuple[Sign, ...] = ()
    named: bool = True
    """False: nobody here could say who he is; these are the cards that sat here before. Who names himself elsewhere
    has moved, and is meant by none of this."""


class DriverInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Versions; empty when the driver does not tell."""

    version: str = ""
    cuda: str = ""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a seat sits, in the words of `contracts.inventory.Card`."""

    nvlink_group: int | None = None
    pcie_group: int | None = None
    numa_node: int | None = None


class CardProvider(Protocol):
    """Blocking; raises DriverError. Nothing is opened before the first call of `seats`."""

    @property
    def name(self) -> ProviderName:
        """Which provider this is, as inventories say it."""
        ...

    def seats(self) -> tuple[int, ...]:
        """The seats that the driver lists now; opens the driver when it is not open."""
        ...

    def look(self, seat: int) -> Look:
        """One seat, as it is now."""
        ...

    def info(self) -> DriverInfo:
        """Of the driver."""
        ...

    def places(self, seats: tuple[int, ...]) -> Mapping[int, Place]:
        """How the seats are wired; those that nobody can tell are left out."""
        ...

    def reopen(self) -> None:
        """Begin a new session: some drivers show a card that came back only to those who ask anew."""
        ...

    def close(self) -> None:
        """Let go of the driver; never raises."""
        ...


@runtime_checkable
class Warns(Protocol):
    """A provider that says by itself when something happens to a card."""

    def wait(self, timeout_ms: int) -> tuple[Sign, ...]:
        """What has happened, as soon as it does; nothing after `timeout_ms`. Called from one thread of its own."""
        ...


@runtime_checkable
class TakesShares(Protocol):
    """A provider whose cards behave by the shares sold on them (the simulated one)."""

    def assign(self, shares: NodeShares) -> None:
        """The shares from now on; called from the event loop, so it must only remember them."""
        ...
