"""Doing what a job's status wants: asking for trainers, telling them to go, withdrawing them, reading how they ended.

In: `Actions` of the core. Out: messages, and the reason if a trainer was refused. The same thing is done again only
after `REPEAT_S`: rounds come in bursts, and the ledger needs a moment to show what was asked for.
"""

from __future__ import annotations

import asyncio
import logging

from autoscaler.core.elastic_actions import Actions
from autoscaler.core.elastic_trainers import reaching, trainer_index, trainer_name, unpack
from autoscaler.jobbook import Record
from autoscaler.placing import NoRoom, submit
from bus import codec
from bus.ledger.state import LedgerState
from bus.protocol import Bus
from contracts.outcomes import Outcome
from contracts.requests import PodRequest, Withdraw
from contracts.subjects import OUTCOMES, REQUESTS, SHRINK_NOTICES
from contracts.units import RequestKey, request_key
from contracts.workloads import JobStatus, ShrinkNotice

log = logging.getLogger(__name__)

REPEAT_S = 10.0
MAX_TOLD = 10_000
"""Remembered things, of which the oldest are forgotten: forgetting one only repeats it."""


class Doing:
    """Over one bus."""

    def __init__(self, bus: Bus, urls: str = "") -> None:
        self.bus = bus
        self.urls = urls
        """Where pods of trainers find the bus; empty: their images know."""
        self.checkpointed: set[tuple[str, str]] = set()
        """Namespace and name of trainers that said so."""
        self.exits: dict[RequestKey, int | None] = {}
        """Exit codes of trainers that have ended; None: it is not known."""
        self._done: dict[tuple[str, str, str], float] = {}
        self._notices: dict[str, ShrinkNotice] = {}

    async def do(self, record: Record, todo: Actions) -> str:
        """All of it, in order; why a trainer was refused, or nothing. Raises BusError, Unanswered."""
        refused = ""
        for request in todo.asks:
            refused = await self._ask(record.namespace, request) or refused
        if todo.notice is not None:
            await self._notice(record, todo.notice)
        for withdrawal in todo.withdrawals:
            await self._withdraw(record.namespace, withdrawal)
        return refused

    async def _ask(self, namespace: str, request: PodRequest) -> str:
        if not self._due("ask", namespace, request.name):
            return ""
        try:
            await submit(self.bus, namespace, reaching(request, self.urls))
        except NoRoom as error:
            return f"{request.name}: {error.reason}"
        self._did("ask", namespace, request.name)
        return ""

    async def _notice(self, record: Record, notice: ShrinkNotice) -> None:
        key = request_key(record.namespace, record.name)
        if self._notices.get(key) != notice:
            await codec.store(self.bus, SHRINK_NOTICES, notice, namespace=record.namespace, name=record.name)
            self._notices[key] = notice

    async def _withdraw(self, namespace: str, withdrawal: Withdraw) -> None:
        if self._due("withdraw", namespace, withdrawal.name):
            await codec.store(self.bus, REQUESTS, withdrawal, namespace=namespace)
            self._did("withdraw", namespace, withdrawal.name)

    async def withdraw_strays(self, found: list[tuple[str, str]]) -> None:
        """Trainers that no status knows. Raises BusError."""
        for namespace, name in found:
            await self._withdraw(namespace, Withdraw(name=name, reason="no trainer of its job any more"))

    # --- how trainers ended ------------------------------------------------------------------------------------------

    async def look_up_exits(self, state: LedgerState, status: JobStatus) -> None:
        """Read the exit codes of those trainers that have ended and are not counted yet; forget all others."""
        live = {request_key(status.namespace, trainer_name(status.name, index)): index for index in unpack(status)}
        for key in [k for k in self.exits if _of_job(k, status) and k not in live]:
            del self.exits[key]
        for key in live:
            request = state.find(key)
            if request is not None and not request.live and request.ending == "ended" and key not in self.exits:
                self.exits[key] = await self._exit_code(status.namespace, request.request.name, request.uid)

    async def _exit_code(self, namespace: str, name: str, uid: str) -> int | None:
        last = await self.bus.last(OUTCOMES.stream, OUTCOMES.subject(namespace=namespace, name=name))
        outcome = codec.decode_as(Outcome, last) if last is not None else None
        return outcome.exit_code if isinstance(outcome, Outcome) and outcome.uid == uid else None

    # --- once is enough ----------------------------------------------------------------------------------------------

    def _due(self, what: str, namespace: str, name: str) -> bool:
        at_s = self._done.get((what, namespace, name))
        return at_s is None or asyncio.get_running_loop().time() - at_s > REPEAT_S

    def _did(self, what: str, namespace: str, name: str) -> None:
        self._done.pop((what, namespace, name), None)
        self._done[what, namespace, name] = asyncio.get_running_loop().time()
        while len(self._done) > MAX_TOLD:
            self._done.pop(next(iter(self._done)))


def _of_job(key: RequestKey, status: JobStatus) -> bool:
    namespace, _, name = key.partition("/")
    return namespace == status.namespace and trainer_index(status.name, name) is not None
