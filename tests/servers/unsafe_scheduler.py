"""A scheduler without its guards, so that tests can show that they would see what the guards prevent.

    python -m tests.servers.unsafe_scheduler      two of these both believe to be the active one, and commits are
                                                  stored without comparing the head: whoever writes last wins
    KEEP_COMPARE_AND_SET=1 python -m …            both believe to be active, the compare-and-set is left

No part of gpubus can be configured like this: the classes are changed from here, before the service starts.
"""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Any, Self

from bus.client import NatsBus
from bus.lease import Lease
from bus.protocol import Stored
from bus.runtime.main import service_main
from contracts.subjects import LEDGER
from scheduler import service
from scheduler.settings import SchedulerSettings


class BeliefInSelf(Lease):
    """A lease that everybody holds, always."""

    @property
    def held(self) -> bool:
        return True

    async def wait_acquired(self) -> int:
        self.term = 1
        return self.term

    async def wait_lost(self) -> None:
        await asyncio.Event().wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


_store = NatsBus.store


async def careless(self: NatsBus, subject: str, data: bytes, **options: Any) -> Stored:
    """Store a commit wherever the log ends by now, and say that it stands where its author believes."""
    if LEDGER.parse(subject) is None:
        return await _store(self, subject, data, **options)
    expected = options.pop("expected_last")
    await _store(self, subject, data, **{**options, "message_id": None})
    return Stored(sequence=expected + 1)


if __name__ == "__main__":
    service.Lease = BeliefInSelf  # type: ignore[attr-defined]  # what the service calls `Lease`
    if not os.environ.get("KEEP_COMPARE_AND_SET"):
        NatsBus.store = careless  # type: ignore[method-assign]  # that is the point
    raise SystemExit(service_main("scheduler", SchedulerSettings, service.Scheduler))
