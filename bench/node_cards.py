"""A made-up node for measuring a monitor: eight cards, of which each pod holds an eighth; without the driver's part."""

from __future__ import annotations

from contracts.inventory import Card
from contracts.units import CardUuid, NodeName
from contracts.usage import CardUsage, ProcessUsage
from monitor.cards.protocol import DriverInfo, Look, Place, ProviderName

CARDS = 8
NODE = NodeName("bench")


def card_of(number: int) -> CardUuid:
    """Where a pod's piece is."""
    return CardUuid(f"GPU-{number % CARDS}")


class Cards:
    """Eight cards with the processes of the pods."""

    name: ProviderName = "nvml"

    def __init__(self, pids: list[int]) -> None:
        self.held = tuple(
            Card(uuid=CardUuid(f"GPU-{n}"), index=n, model="A100", memory_total_mib=81_920) for n in range(CARDS)
        )
        self._on = {
            card.uuid: tuple(
                ProcessUsage(pid=pid, memory_mib=9000, compute_percent=10)
                for n, pid in enumerate(pids)
                if card_of(n) == card.uuid
            )
            for card in self.held
        }

    def sample(self) -> tuple[CardUsage, ...]:
        """As the driver would list it."""
        return tuple(
            CardUsage(uuid=uuid, compute_percent=80, memory_used_mib=72_000, power_w=300, processes=on)
            for uuid, on in self._on.items()
        )

    def seats(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(range(CARDS))

    def look(self, seat: int) -> Look:
        """One of them."""
        return Look(cards=(self.held[seat],), usage=(self.sample()[seat],))

    def info(self) -> DriverInfo:
        """None."""
        return DriverInfo()

    def places(self, seats: tuple[int, ...]) -> dict[int, Place]:  # noqa: ARG002 - the port's name
        """Nowhere."""
        return {}

    def reopen(self) -> None:
        """Nothing to open."""

    def close(self) -> None:
        """Nothing to close."""
