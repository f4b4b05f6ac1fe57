"""No isolation: shares are counted and nothing is enforced, and that is said."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.inventory import IsolationMode
from monitor.enforce.backend import Findings, finding
from monitor.enforce.wanted import CardShares


class NoIsolation:
    """The backend of `none`."""

    mode: IsolationMode = "none"

    def apply(self, wanted: Sequence[CardShares]) -> None:
        """Nothing to do."""

    def check(self, wanted: Sequence[CardShares]) -> Findings:
        """Applied, in that nothing was to be."""
        return finding(self.mode, wanted)
