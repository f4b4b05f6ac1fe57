"""HAMi-core: a library in the container counts allocations and holds kernels back; the node only has to have it.

The limits travel in the container's environment (`contracts.isolation`). On the node there is one thing that can be
missing: the library, at the path that the pods preload. A path in LD_PRELOAD that does not exist is a warning of the
loader and a container without any limit, so pods wait until it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contracts.inventory import IsolationMode
from monitor.enforce.backend import Findings, finding
from monitor.enforce.wanted import CardShares

LIBRARY = "libvgpu.so"
_ELF = b"\x7fELF"


class HamiCore:
    """The backend of `hami-core`. Args: the folder of the library, as this process sees it."""

    mode: IsolationMode = "hami-core"

    def __init__(self, folder: Path) -> None:
        self._library = folder / LIBRARY

    def apply(self, wanted: Sequence[CardShares]) -> None:
        """Nothing to do: all of it is in the pod."""

    def check(self, wanted: Sequence[CardShares]) -> Findings:
        """Whether the library is there and can be loaded by anybody."""
        return finding(self.mode, wanted, lacks=self._lacks())

    def _lacks(self) -> str:
        try:
            with self._library.open("rb") as file:
                magic = file.read(len(_ELF))
            readable = bool(self._library.stat().st_mode & 0o004)
        except OSError as error:
            return f"HAMi-core's library cannot be read: {error.strerror}: {self._library}; install it there"
        if magic != _ELF:
            return f"{self._library} is no shared library"
        return "" if readable else f"{self._library} is not readable by all users; chmod o+r"
