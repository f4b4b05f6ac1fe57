"""What a function's loop does about its replicas, once it is decided: orders, requests, withdrawals, words.

In: names, requests, messages. Out: what the bus and the scheduler make of them. A promise of the scheduler is waited
for in the own copy of the ledger, or the same name would be given twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

import msgspec

from autoscaler import placing
from autoscaler.placing import NoRoom, Unanswered
from autoscaler.settings import AutoscalingSettings
from bus import codec
from bus.ledger.state import LedgerState
from bus.protocol import Bus, BusError
from bus.runtime.retry import retrying
from contracts.functions import FunctionStatus, WorkerOrder
from contracts.requests import PodRequest, Withdraw
from contracts.subjects import FUNCTION_STATUS, SCALE, WORKER_ORDERS, Channel
from contracts.workloads import ScaleDecision

FOLD_S = 2.0
"""How long the own copy of the ledger may be behind a promise."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What all functions share."""

    bus: Bus
    state: Callable[[], LedgerState]
    settings: AutoscalingSettings
    frozen: Callable[[], bool]
    wall_ms: Callable[[], int]
    folded: Callable[[int], bool]
    """Whether the own ledger has come as far as a sequence."""
    moved: Callable[[], asyncio.Event]
    """Set at the next commit."""
    limit_milli: Callable[[str], int | None]
    """What a request may use of each of its cards now, in thousandths; None = what it was sold."""
    short: Callable[[], None]
    """Told when another number of replicas does not fit than before."""


class Hands:
    """One function's."""

    def __init__(self, world: World, namespace: str, function: str) -> None:
        self._world = world
        self._namespace = namespace
        self._function = function

    async def say(self, replica: str, order: WorkerOrder) -> None:
        """Tell a worker what to be. May be lost; it is said again until its report agrees."""
        where = {"namespace": self._namespace, "function": self._function, "replica": replica}
        await codec.publish(self._world.bus, WORKER_ORDERS, order, **where)

    async def make(self, request: PodRequest) -> None:
        """Ask for a replica, if it can be placed at this moment.

        Raises:
            NoRoom: nothing was asked for, with the reason.
            Unanswered: whether it was asked for is not known.
        """
        await placing.placeable(self._world.bus, self._namespace, request)
        await self._fold(await placing.submit(self._world.bus, self._namespace, request))

    async def withdraw(self, name: str, reason: str, cause: str) -> None:
        """Give it back; one that was given back already is refused, which is as good."""
        with contextlib.suppress(NoRoom, Unanswered):
            withdraw = Withdraw(name=name, reason=reason, cause=cause)
            await self._fold(await placing.submit(self._world.bus, self._namespace, withdraw))

    async def _fold(self, sequence: int) -> None:
        """Wait until the own ledger knows of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLD_S):
                while not self._world.folded(sequence):
                    await self._world.moved().wait()

    async def last_words(self) -> tuple[ScaleDecision | None, FunctionStatus | None]:
        """What the autoscaler before us decided and told; tried until the bus answers."""
        keeping = retrying("read what was decided", on=BusError, deadline_s=math.inf)
        decided = await keeping(self._world.bus.last, SCALE.stream, self._subject(SCALE, "name"))
        status = await keeping(self._world.bus.last, FUNCTION_STATUS.stream, self._subject(FUNCTION_STATUS, "function"))
        found = codec.decode_as(ScaleDecision, decided) if decided is not None else None
        told = codec.decode_as(FunctionStatus, status) if status is not None else None
        return (
            found if isinstance(found, ScaleDecision) else None,
            told if isinstance(told, FunctionStatus) else None,
        )

    def _subject(self, channel: Channel, name: str) -> str:
        return channel.subject(namespace=self._namespace, **{name: self._function})

    async def store_decision(self, decision: ScaleDecision) -> None:
        """Raises BusError."""
        await codec.store(self._world.bus, SCALE, decision, namespace=self._namespace, name=self._function)

    async def store_status(self, status: FunctionStatus) -> None:
        """Raises BusError."""
        await codec.store(self._world.bus, FUNCTION_STATUS, status, namespace=self._namespace, function=self._function)
