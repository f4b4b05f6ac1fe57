"""MIG: the hardware holds an instance to its profile, in compute and memory. Instances are picked, never made.

An instance is listed in the inventory as a card of its own with its own UUID, in place of the card that it is cut from:
so it is sold as its profile and never also as a card. What a container sees of it is its UUID among its cards. Checked
is that what is listed really is an instance.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.inventory import IsolationMode
from monitor.enforce.backend import Findings, card_finding, finding
from monitor.enforce.wanted import CardShares


class MigInstances:
    """The backend of `mig`."""

    mode: IsolationMode = "mig"

    def apply(self, wanted: Sequence[CardShares]) -> None:
        """Nothing to do: the driver holds what the profile says."""

    def check(self, wanted: Sequence[CardShares]) -> Findings:
        """An instance with more than one tenant is held as a whole only."""
        pods = finding(self.mode, wanted).pods
        return Findings(cards=tuple(card_finding(self.mode, one.card, lacks=_shared(one)) for one in wanted), pods=pods)


def _shared(one: CardShares) -> str:
    tenants = len(one.assignments)
    return f"{tenants} pods share this instance, nothing holds them apart within it" if tenants > 1 else ""
