"""The port: what the monitor needs of whoever knows the cards of a node.

Two providers: `nvml` asks the driver, `simulated` makes cards up from the settings. All calls block; the shell makes
them one after the other in one dedicated thread, never in two.

A single card that fails is no error, it is a card with health `failed`. Errors are for the driver as a whole:

    DriverError
    ├── DriverMissing   an operator's: this node cannot be monitored as configured; says what is missing
    ├── DriverLost      the world's: it answered before and does not now (unloaded, replaced); asked again next time
    └── DriverSilent    the world's: a call has not come back by its deadline
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from contracts.inventory import Card
from contracts.outcomes import NodeShares
from contracts.usage import CardUsage

ProviderName = Literal["nvml", "simulated"]


class DriverError(Exception):
    """No card of this node can be asked."""


class DriverMissing(DriverError):  # noqa: N818 - named by what is the case, as the drawing above
    """The driver or its library is not there; `missing` names it, `remedy` says what to do."""

    def __init__(self, missing: str, remedy: str) -> None:
        super().__init__(f"{missing}. {remedy}")
        self.missing = missing
        self.remedy = remedy


class DriverLost(DriverError):  # noqa: N818
    """The driver answered before and does not any more."""


class DriverSilent(DriverError):  # noqa: N818
    """A call is still out after `waited_s` seconds."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the driver has not answered for {waited_s:.1f} s")
        self.waited_s = waited_s


class CardProvider(Protocol):
    """Blocking; raises DriverError. Nothing is opened before the first call."""

    @property
    def name(self) -> ProviderName:
        """Which provider this is, as inventories say it."""
        ...

    def inventory(self) -> tuple[Card, ...]:
        """The cards as they are now; one that fell off the bus is among them as `failed` with the reason."""
        ...

    def usage(self) -> tuple[CardUsage, ...]:
        """What the cards use now; what a card cannot tell is None."""
        ...

    def driver_version(self) -> str:
        """The driver's version, an empty string when it does not tell."""
        ...

    def close(self) -> None:
        """Let go of the driver; never raises."""
        ...


@runtime_checkable
class TakesShares(Protocol):
    """A provider whose cards behave by the shares sold on them (the simulated one)."""

    def assign(self, shares: NodeShares) -> None:
        """The shares from now on; called from the event loop, so it must only remember them."""
        ...
