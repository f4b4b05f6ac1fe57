"""Writing down what happens, for the checker: the streams at the end, and every change of every pod as it is told.

    async with PodWatch(kube_url) as pods:
        ...
    findings = judge(await gathered(bus, pods=pods.changes))

`PodWatch` lists once and watches from there; a watch that ends is taken up again where it was, so that no change is
missed while the API server runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from bus.protocol import Bus
from contracts.subjects import DEAD_LETTERS, EVENTS, LEDGER, REQUESTS
from tests.servers.checker import History, PodChange, Stored

__all__ = ["PodWatch", "dump", "gathered", "stored"]


async def stored(bus: Bus, stream: str) -> list[Stored]:
    """Everything in a stream, as it is."""
    found: list[Stored] = []
    async with contextlib.aclosing(bus.read(stream)) as batches, asyncio.timeout(30):
        async for batch in batches:
            found += [Stored(m.sequence, m.subject, m.data) for m in batch.messages]
            if batch.caught_up:
                break
    return found


async def gathered(bus: Bus, **more: Any) -> History:
    """The streams as they are now, with what else was written down."""
    return History(
        ledger=await stored(bus, LEDGER.stream),
        requests=await stored(bus, REQUESTS.stream),
        events=await stored(bus, EVENTS.stream),
        dead_letters=await stored(bus, DEAD_LETTERS.stream),
        **more,
    )


def dump(history: History, folder: Path) -> None:
    """Everything as files with one JSON value a line, for somebody who wants to know what happened."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ledger", "requests", "events", "dead_letters"):
        lines = [
            json.dumps({"sequence": m.sequence, "subject": m.subject, "data": m.data.decode("utf-8", "replace")})
            for m in getattr(history, name)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    changes = [json.dumps(change._asdict()) for change in history.pods or ()]
    (folder / "pods.jsonl").write_text("\n".join(changes), encoding="utf-8")
    sent = [json.dumps([p.namespace, p.sequence, p.data.decode("utf-8", "replace")]) for p in history.published or ()]
    (folder / "published.jsonl").write_text("\n".join(sent), encoding="utf-8")


class PodWatch:
    """Every change of every pod of the cluster, in the order of the API server."""

    def __init__(self, url: str, *, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.changes: list[PodChange] = []
        self._url = f"{url}/api/v1/pods"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = tls or True
        self._version = ""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        async with self._session() as session, session.get(self._url, ssl=self._tls) as answer:
            listed = await answer.json()
        self._version = listed["metadata"]["resourceVersion"]
        self.changes += [PodChange("ADDED", pod) for pod in listed["items"]]
        self._task = asyncio.create_task(self._run(), name="watch pods")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if error is None and isinstance(ended, Exception):
                raise ended

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=None, sock_read=300))

    async def _run(self) -> None:
        async with self._session() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                    async for change in self._watch(session):
                        self._version = change.pod["metadata"]["resourceVersion"]
                        self.changes.append(change)
                await asyncio.sleep(0.05)

    async def _watch(self, session: aiohttp.ClientSession) -> AsyncIterator[PodChange]:
        query = {"watch": "1", "resourceVersion": self._version}
        async with session.get(self._url, params=query, ssl=self._tls) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                told = json.loads(line)
                if told["type"] == "ERROR":
                    raise RuntimeError(f"changes of pods were missed: {told['object']}")
                yield PodChange(told["type"], told["object"])
