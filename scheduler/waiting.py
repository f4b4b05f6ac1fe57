"""Waiting for whichever comes first, and leaving no task behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def first(*things: Awaitable[Any]) -> None:
    """Return when one of them is done; the others are cancelled. An error of the first one is raised."""
    tasks = [asyncio.ensure_future(thing) for thing in things]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
