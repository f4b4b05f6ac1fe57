"""How a worker works, as its caller says or as the autoscaler writes it into the environment of its pod."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from contracts.callrules import MAX_ATTEMPTS
from gpubus.errors import UsageError

REPORT_S = 1.0
"""Between reports; the autoscaler believes a worker for five of these."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    limit: int = 1
    """Calls at once."""
    warm: bool = False
    """Take nothing until told to."""
    calls: int = 0
    """So many calls, then it ends; 0 = as many as come."""
    replica: str = ""
    """The request of its pod; orders come to this name."""
    max_attempts: int = MAX_ATTEMPTS
    report_s: float = REPORT_S
    wall_s: Callable[[], float] = time.time
    """The clock that the age of calls is told by; the server's is another one."""


def address_of(function: str) -> tuple[str, str]:
    """Namespace and name of `namespace/name`.

    Raises:
        UsageError: it is something else.
    """
    namespace, slash, name = function.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise UsageError(f"function {function!r}: the form is NAMESPACE/NAME")
    return namespace, name


def from_environment() -> Options:
    """Options as the autoscaler writes them into a pod.

    Raises:
        UsageError: a number is none.
    """
    return Options(
        limit=_number("WORKER_CONCURRENCY", 1, least=1),
        calls=_number("WORKER_CALLS", 0, least=0),
        warm=os.environ.get("WORKER_WARM") == "1",
        replica=os.environ.get("WORKER_REPLICA", ""),
    )


def _number(variable: str, otherwise: int, *, least: int) -> int:
    text = os.environ.get(variable, str(otherwise))
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"{variable}={text!r}: a number from {least} on")
    return int(text)
