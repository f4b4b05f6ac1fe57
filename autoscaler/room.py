"""Whether there is room for one function's replicas, and which cards are missing where there is none.

In: how many more are wanted, one of them as a request. Out: how many the scheduler would place, as far as it was asked,
and `MissingCards` for the status, the gauges and the training jobs that could give way. What was refused a moment ago
is not asked for again at once.
"""

from __future__ import annotations

import logging

from autoscaler import placing
from autoscaler.placing import NoRoom, Refused, Unanswered
from bus.protocol import Bus
from contracts.functions import MissingCards
from contracts.requests import PodRequest

log = logging.getLogger(__name__)

NO_ROOM_S = 1.0
"""Pause before the scheduler is asked again for what it could not place."""
REFUSED_S = 15.0
"""The same for what it refused."""


class Room:
    """One function's."""

    def __init__(self, bus: Bus, namespace: str) -> None:
        self.missing: MissingCards | None = None
        self._bus = bus
        self._namespace = namespace
        self._until_ms = 0

    async def more(self, wanted: int, request: PodRequest, now_ms: int) -> int | None:
        """How many of those that are wanted may be asked for; None = the scheduler does not say.

        Only the first is asked about: each is asked about once more before it is made, and the first that does not fit
        ends it.
        """
        if wanted <= 0:
            self.missing = None
            return 0
        if now_ms < self._until_ms:
            return 0
        try:
            await placing.placeable(self._bus, self._namespace, request)
        except NoRoom as error:
            self.short(wanted, request, error, now_ms)
            return 0
        except Unanswered as error:
            log.info("%s/%s: %s", self._namespace, request.name, error)
            return None
        self.missing = None
        return wanted

    def short(self, replicas: int, request: PodRequest, error: NoRoom, now_ms: int) -> None:
        """So many do not fit."""
        pause_s = REFUSED_S if isinstance(error, Refused) else NO_ROOM_S
        self.missing = placing.missing_cards(request, replicas, error.reason)
        self._until_ms = now_ms + round(pause_s * 1000)
