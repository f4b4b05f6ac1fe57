"""List, then watch, for ever: keeps a `Store` as close to Kubernetes as the network allows.

What flows in: pages and events of one kind. What flows out: batches of changes to a callback, and `synced` once the
first list is in. A watch that ends, breaks, falls silent or speaks nonsense is begun again from the last version seen;
a version that is too old (any restart of the API server makes it so) is listed again and compared, so that nothing is
missed. Every failure waits longer than the one before, with jitter, because an API server that comes back meets all its
clients at once; a watch that ends as soon as it began counts as a failure too. A list alone is no success: where every
watch is refused as too old, its success would begin the pauses anew, and the whole cluster be listed without end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic

from reconciler.backoff import Backoff
from reconciler.calls import Kube, Resource, WatchEvent
from reconciler.errors import Expired, KubeError, Throttled, Unauthorized
from reconciler.objects import Object
from reconciler.store import Change, Store, version_of

PAGE = 500
WATCH_S = (50, 70)
"""Seconds a watch lives, drawn each time: a thousand watches do not end together."""
CAP_S = 12.0
"""The longest pause, so that after any outage everything is known again within half a minute."""
PATIENCE_S = 180.0
"""How long a refused token is tried again before the process ends; then it is started anew and reads its token."""
SHORT_S = 1.0
"""A watch that the server ended within this brought nothing: begin the next one with a pause."""

_log = logging.getLogger(__name__)

Listener = Callable[[list[Change[Object]]], None]


class Informer(Generic[Object]):
    """One kind of object.

    Args:
        kube: the calls.
        resource: what to list and watch.
        on_changes: called with each batch of changes, in order; it must not block.
        group: see `Store`.
        rng: for watch lengths and pauses.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource[Object],
        on_changes: Listener[Object],
        *,
        group: Callable[[Object], str] | None = None,
        rng: random.Random,
    ) -> None:
        self.store: Store[Object] = Store(group)
        self.synced = asyncio.Event()
        self.relists = 0
        self.trouble = "not listed yet"
        """Why it may be behind, empty while it is not."""
        self._kube = kube
        self._resource = resource
        self._on_changes = on_changes
        self._rng = rng
        self._stale = True
        self._refused_since_s: float | None = None
        self._pause = Backoff(base_s=0.2, cap_s=CAP_S, rng=rng)

    async def run(self) -> None:
        """Until it is cancelled.

        Raises:
            Unauthorized: the token has been refused for three minutes.
        """
        while True:
            try:
                if self._stale:
                    await self._list()
                lasted_s = await self._watch()
            except Expired as error:
                self._stale = True
                await self._rest(error)
            except Unauthorized as error:
                self._check_patience(error)
                await self._rest(error)
            except KubeError as error:
                await self._rest(error)
            else:
                if lasted_s < SHORT_S:
                    await self._rest(KubeError(f"the watch ended after {lasted_s:.3f} s"))

    def own(self, item: Object) -> None:
        """What a call of ours brought back, or made true, ahead of the watch."""
        self._tell(self.store.own(item))

    async def _list(self) -> None:
        """All pages; a page token that has expired begins again by the loop."""
        items: list[Object] = []
        page = await self._kube.page(self._resource, limit=PAGE)
        items += page.items
        while page.more:
            page = await self._kube.page(self._resource, limit=PAGE, after=page.more)
            items += page.items
        changes = self.store.relist(items, page.version)
        self._stale = False
        self.relists += 1
        self._opened()
        self._tell(changes)
        self.synced.set()

    async def _watch(self) -> float:
        """One watch to its end; how long it lasted. Raises KubeError."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        events = self._kube.watch(
            self._resource,
            version=self.store.version,
            timeout_s=self._rng.randint(*WATCH_S),
            on_open=self._opened,
        )
        async with aclosing(events):
            async for event in events:
                self._healthy()
                self._tell(self._fold(event))
        return clock() - began_s

    def _fold(self, event: WatchEvent[Object]) -> list[Change[Object]]:
        if event.kind == "BOOKMARK":
            self.store.bookmark(version_of(event.object))
            return []
        return self.store.event(event.kind, event.object)

    def _tell(self, changes: list[Change[Object]]) -> None:
        if changes:
            self._on_changes(changes)

    def _check_patience(self, error: Unauthorized) -> None:
        """A projected token is read again within a minute; any other only by a process that starts anew."""
        now_s = asyncio.get_running_loop().time()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        if now_s - self._refused_since_s > PATIENCE_S:
            raise error

    def _opened(self) -> None:
        """The server listens to us again. That alone is no reason to hurry: it may end each watch at once."""
        self._refused_since_s = None
        self.trouble = ""

    def _healthy(self) -> None:
        self._opened()
        self._pause.reset()

    async def _rest(self, error: KubeError) -> None:
        self.trouble = f"{type(error).__name__}: {error}"
        asked_s = error.retry_after_s if isinstance(error, Throttled) else 0.0
        pause_s = max(asked_s, self._pause())
        _log.info(
            "watching %s again",
            self._resource.path,
            extra={"reason": self.trouble, "pause_s": round(pause_s, 3), "relist": self._stale},
        )
        await asyncio.sleep(pause_s)
