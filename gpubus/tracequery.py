"""Asking Jaeger's query API for one trace, and waiting until its spans have arrived.

Exporters send in batches, so a trace that is asked for right after a submit is not whole yet: the last spans of a
running pod come a second or two later. `fetch` waits until the number of spans has stood still for a while.
"""

from __future__ import annotations

import asyncio
import time

import aiohttp
import msgspec

from gpubus.errors import NoAnswer
from gpubus.jaeger import Page, Trace

POLL_S = 0.3


async def fetch(base: str, trace_id: str, *, settle_s: float = 1.5, timeout_s: float = 8.0) -> Trace | None:
    """The trace, once it has not grown for `settle_s`; None when nothing of it has come within `timeout_s`.

    Raises:
        NoAnswer: nothing listens there, or what listens is no Jaeger.
    """
    until = time.monotonic() + timeout_s
    best: Trace | None = None
    grown = time.monotonic()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        while (now := time.monotonic()) < until:
            trace = await _one(session, f"{base.rstrip('/')}/api/traces/{trace_id}")
            if trace is not None and (best is None or len(trace.spans) > len(best.spans)):
                best, grown = trace, now
            elif best is not None and now - grown >= settle_s:
                break
            await asyncio.sleep(POLL_S)
    return best


async def _one(session: aiohttp.ClientSession, url: str) -> Trace | None:
    try:
        async with session.get(url) as answer:
            if answer.status == 404:  # noqa: PLR2004 - the trace is not there (yet)
                return None
            if answer.status != 200:  # noqa: PLR2004 - anything else is not an answer
                raise NoAnswer("the span store", f"{url}: HTTP {answer.status}")
            page = msgspec.json.decode(await answer.read(), type=Page)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NoAnswer("the span store", f"{url}: {str(error) or 'timed out'}") from error
    except msgspec.MsgspecError as error:
        raise NoAnswer("the span store", f"{url}: not the answer of a Jaeger: {error}") from error
    return page.data[0] if page.data else None
