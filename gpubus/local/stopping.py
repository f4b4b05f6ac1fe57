"""Ctrl-C as an event: the first asks for an orderly end, which is what every part gets; the second ends at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
HASTY = 130


@contextlib.asynccontextmanager
async def stop_on_signals() -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set. A second SIGINT ends the process; the kernel takes its children along."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def asked() -> None:
        if stop.is_set():
            os._exit(HASTY)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event, name: str) -> T | None:
    """What `work` returns; None, and the work cancelled and awaited, when the stop comes first."""
    task = asyncio.create_task(work, name=name)
    stopped = asyncio.create_task(stop.wait(), name=f"stop of {name}")
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, stopped):
            one.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
