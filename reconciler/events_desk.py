"""Tells people in Kubernetes: writes conditions and Events, and never more often than somebody can read.

In: news. Out: calls to the API server. A failure here is logged and forgotten: what is told is also in the ledger and
on the bus, and a pod is never held up because nobody could be told about it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from reconciler import errors, events
from reconciler.calls import Kube
from reconciler.objects import Pod
from reconciler.protocol import JSON, MERGE_PATCH, STRATEGIC_PATCH

EVERY_S = 60.0
"""The same news of the same pod is counted at most this often; other news of it waits a tenth of that."""
KEPT = 10_000
Told = Literal["done", "exists", "failed"]

_log = logging.getLogger(__name__)


class EventsDesk:
    """Writes what people are told.

    Args:
        kube: the calls.
        now_s: a clock that does not jump.
        wall_ms: wall clock, for the times that people read.
        instance: of this process.
    """

    def __init__(self, kube: Kube, *, now_s: Callable[[], float], wall_ms: Callable[[], int], instance: str) -> None:
        self._kube, self._now_s, self._wall_ms, self._instance = kube, now_s, wall_ms, instance
        self._counts: dict[str, int] = {}
        self._last_s: dict[tuple[str, str], float] = {}

    async def pending(self, pod: Pod, news: events.News) -> None:
        """The condition, when it does not stand already, and the Event."""
        if not events.stands(pod, news):
            path = f"/api/v1/namespaces/{news.namespace}/pods/{news.pod}/status"
            await self._try("PATCH", path, events.condition(news), STRATEGIC_PATCH)
        await self.tell(news)

    async def tell(self, news: events.News) -> None:
        """The Event: made the first time, counted after that."""
        if not self._due(news):
            return
        count = self._counts.get(news.name, 0) + 1
        path = f"/apis/events.k8s.io/v1/namespaces/{news.namespace}/events"
        if count == 1:
            made = events.event(news, at_ms=self._wall_ms(), instance=self._instance)
            count = {"done": 1, "exists": 2, "failed": 0}[await self._try("POST", path, made)]
        if count > 1:  # after a restart nobody knows how often: at least twice
            await self._try("PATCH", f"{path}/{news.name}", events.again(count, at_ms=self._wall_ms()), MERGE_PATCH)
        if count:
            self._counts[news.name] = count

    def _due(self, news: events.News) -> bool:
        if len(self._last_s) > KEPT:
            self._last_s.clear()
            self._counts.clear()
        now_s, same, any_of_it = self._now_s(), (news.pod_uid, news.name), (news.pod_uid, news.reason)
        early = now_s - self._last_s.get(same, -EVERY_S) < EVERY_S
        crowded = now_s - self._last_s.get(any_of_it, -EVERY_S) < EVERY_S / 10
        if early or crowded:
            return False
        self._last_s[same] = self._last_s[any_of_it] = now_s
        return True

    async def _try(self, method: str, path: str, body: bytes, content_type: str = JSON) -> Told:
        try:
            await self._kube.write(method, path, body, content_type=content_type)
        except errors.KubeError as error:
            if isinstance(error, errors.Conflict) and error.subtype == "exists":
                return "exists"
            _log.warning("not told", extra={"path": path, "reason": f"{type(error).__name__}: {error}"})
            return "failed"
        return "done"
