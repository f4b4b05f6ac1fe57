"""Trouble on purpose: what goes wrong with a request, decided before it is served.

For tests and for drills on `gpubus local`: answers that get lost after the write, errors of proxies, slow
servers.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

__all__ = ["Fault", "Faults"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of trouble.

    answer: reply with `status`, `body` and `headers` and do nothing. lose_request: close the connection and
    do nothing. lose_answer: do it, then close the connection. delay: do it `delay_s` later.
    """

    kind: Literal["answer", "lose_request", "lose_answer", "delay"]
    status: int = 503
    body: str = "service unavailable\n"
    headers: dict[str, str] = {}
    delay_s: float = 0.0


class _Planned(msgspec.Struct):
    method: str
    path: re.Pattern[str]
    fault: Fault
    times: int


class Faults:
    """The trouble that is planned."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []

    def add(self, fault: Fault, *, method: str = "", path: str = "", times: int = 1) -> None:
        """Meet the next `times` requests of this method (any) whose path matches this expression (any) with a fault."""
        self._planned.append(_Planned(method, re.compile(path), fault, times))

    def clear(self) -> None:
        """No more trouble."""
        self._planned.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets."""
        for planned in self._planned:
            if planned.times > 0 and planned.method in {"", method} and planned.path.search(path):
                planned.times -= 1
                return planned.fault
        return None
