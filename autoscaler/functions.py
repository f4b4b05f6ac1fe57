"""One function, looked after: a loop that looks, decides, writes the decision down, and carries it out.

In: the function as its owner asked for it, the ledger, its backlog, the words of its workers, the operator's brake.
Out: scale decisions with their inputs, pod requests and withdrawals, orders to workers, its status.

    look ──▶ wanted ──▶ ask the scheduler ──▶ decide ──▶ store the decision ──▶ plan ──▶ carry out

All judgement is in `autoscaler.core`; here is what it is fed with and what is done about it. A decision that could not
be stored is not carried out. Replicas are made one after the other, each after the scheduler has said that it can be
placed, in batches of 1, 2, 4, ...; the first refusal ends it, and what is missing is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from autoscaler import roster as rosters
from autoscaler.backlog import Backlog
from autoscaler.core.horizontal import decide, wanted
from autoscaler.core.limits import UNLIMITED
from autoscaler.core.numbers import Decision, Inputs, Memory
from autoscaler.core.record import after_restart, inputs_of, message
from autoscaler.core.replicas import Counts, counts, is_active, next_batch
from autoscaler.core.warm import Plan, plan
from autoscaler.hands import Hands, World
from autoscaler.leases import Hearing, hearing, lapsed
from autoscaler.placing import NoRoom, Unanswered
from autoscaler.rivals import Rivals
from autoscaler.room import Room
from autoscaler.roster import Heard, Role, Roster, Seen, heard
from autoscaler.sensing import Sensing
from autoscaler.standing import choice_of
from bus.protocol import BusError, QueueState
from contracts.functions import FunctionStatus, WorkerReport
from contracts.requests import PodRequest
from contracts.workloads import Function, ScaleDecision

log = logging.getLogger(__name__)

SPARE = 16
"""Indexes beyond the wanted ones that are looked at: replicas that are on their way out keep theirs."""


class Keeper:
    """The loop of one function."""

    def __init__(self, world: World, namespace: str, function: Function) -> None:
        self.namespace = namespace
        self.function = function
        self.status = FunctionStatus(target=0)
        self.task: asyncio.Task[None] | None = None
        self._world = world
        self._hands = Hands(world, namespace, function.name)
        self._roster = Roster()
        self._words: dict[str, Heard] = {}
        self._memory = Memory()
        self._sensing = Sensing(world.state, world.limit_milli)
        self._sensing.adopt(function)
        self._rivals = Rivals()
        self._decided: ScaleDecision | None = None
        self._told: FunctionStatus | None = None
        self._room = Room(world.bus, namespace)
        self._batch = 0
        self._hearing: Hearing | None = None
        self._reserved: tuple[str, ...] = ()
        self._highest = -1
        self._wake = asyncio.Event()
        self._backlog = Backlog(
            world.bus,
            namespace,
            function.name,
            ack_wait_s=world.settings.ack_wait_s,
            wall_s=lambda: world.wall_ms() / 1000,
        )

    def wake(self) -> None:
        """Something happened: look now."""
        self._wake.set()

    def hear(self, report: WorkerReport) -> None:
        """A worker of this function spoke."""
        before = self._words.get(report.replica)
        now_ms = self._now_ms()
        self._words[report.replica] = after = heard(before, report, now_ms)
        seen = self._roster.seen.get(report.replica)
        if seen is not None and after.report is report:
            seasoned = now_ms - after.hot_ms >= self.function.scaling.warmup_s * 1000
            self._sensing.hear(report, seen.uid, now_ms=now_ms, seasoned=seasoned)
        if before is None or before.report.phase != after.report.phase or not after.report.in_flight:
            self.wake()

    def publish(self, function: Function) -> None:
        """Its owner has published it again."""
        self.function = function
        self._sensing.adopt(function)
        self._rivals.settled()
        self.wake()

    @property
    def short_of(self) -> int:
        """Replicas that do not fit."""
        return self._room.missing.replicas if self._room.missing else 0

    def request_of_one(self) -> PodRequest:
        """One replica, as a request under a name that is none."""
        return self._request("what-if", warm=False)

    @property
    def restless(self) -> bool:
        """Whether something is under way that the next commit may tell of."""
        return any(not replica.ready or replica.deleting for replica in self._roster.replicas)

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever; cancel to stop. Nothing is taken down by stopping."""
        await self._remember()
        async with contextlib.AsyncExitStack() as stack:
            asleep = False
            while True:
                self._wake.clear()
                try:
                    if self._asleep != asleep:
                        asleep = not asleep
                        await (stack.enter_async_context(self._backlog.bell(self.wake)) if asleep else stack.aclose())
                    again = await self._step()
                except BusError as error:
                    log.info("function %s/%s: %s", self.namespace, self.function.name, error)
                    again = False
                if not again:
                    await self._pause()

    async def _remember(self) -> None:
        """What the autoscaler before us wanted, and how far its names go."""
        state = self._world.state()
        self._highest = rosters.highest_index(state, self.namespace, self.function.name)
        decided, status = await self._hands.last_words()
        if status is not None:
            self._sensing.adopt(self.function, status.profiles)
        if decided is not None:
            with contextlib.suppress(msgspec.ValidationError):  # of another version: begin anew
                self._memory = after_restart(decided)
                self._decided = decided

    @property
    def _asleep(self) -> bool:
        return not any(is_active(replica) and not replica.warm for replica in self._roster.replicas)

    async def _pause(self) -> None:
        settings = self._world.settings
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.asleep_s if self._quiet else settings.look_s):
                await self._wake.wait()

    @property
    def _quiet(self) -> bool:
        """Nothing is there, nothing is wanted, nothing waits."""
        return not self._roster.replicas and not self.status.target and not self.status.waiting

    # --- one look ----------------------------------------------------------------------------------------------------

    async def _step(self) -> bool:
        """One look and what follows from it; True = look again at once."""
        queue = await self._backlog.look()
        now_ms = self._now_ms()
        self._hearing = hearing(self._hearing, self.function.scaling, answered=queue is not None, now_ms=now_ms)
        self._look_at_replicas(now_ms)
        await self._take_back(now_ms)
        inputs = self._observed(queue, self._rivals.look(self._world.state(), self._roster, self.function, now_ms))
        inputs = msgspec.structs.replace(inputs, placeable=await self._placeable(inputs, now_ms))
        decision = decide(inputs)
        self._memory = decision.memory
        await self._store(inputs, decision)
        steps = self._plan(decision, now_ms)
        again = await self._carry_out(steps)
        await self._say_again()
        await self._tell_status(queue, decision)
        if queue is not None and queue.waiting and not inputs.hot_ready:
            await self._backlog.answer_late()
        return again

    def _look_at_replicas(self, now_ms: int) -> None:
        wanted_most = self.function.max_replicas + self.function.warm_replicas
        self._highest = max(self._highest, wanted_most + SPARE)
        self._roster = rosters.roster(
            self._world.state(),
            self.namespace,
            self.function,
            self._roster,
            self._words,
            highest=self._highest,
            now_ms=now_ms,
            fresh_ms=round(self._world.settings.report_fresh_s * 1000),
        )
        self._sensing.forget(self._words.keys() - self._roster.seen.keys())
        self._words = {name: word for name, word in self._words.items() if name in self._roster.seen}

    def _observed(self, queue: QueueState | None, by_hand: int | None) -> Inputs:
        now_ms, replicas = self._now_ms(), self._roster.replicas
        counted = counts(replicas)
        self._sensing.look(self.function, queue, self._words, counted, now_ms)
        return inputs_of(
            self.function,
            self._memory,
            self._sensing.samples,
            counted,
            now_ms=now_ms,
            waiting=_unanswered(queue, counted),
            placeable=None,
            budget=UNLIMITED,
            frozen=self._world.frozen(),
            by_hand=by_hand,
            rival=self._rivals.stands_back,
            capacity_milli=self._sensing.capacity_milli(replicas),
            stretch_percent=self._sensing.stretch_percent(replicas),
            calls=queue.waiting + queue.outstanding if queue else None,
        )

    async def _placeable(self, inputs: Inputs, now_ms: int) -> int | None:
        """How many more the scheduler can place; what stands by needs no room."""
        counted = counts(self._roster.replicas)
        at_hand = counted.warm + counted.draining
        need = wanted(inputs) - inputs.planned - at_hand
        more = await self._room.more(need, self.request_of_one(), now_ms)
        return None if more is None else at_hand + more

    async def _store(self, inputs: Inputs, decision: Decision) -> None:
        """Write it down when it says something new. Raises BusError: then nothing is done."""
        said = message(
            self.namespace, self.function.name, inputs, decision, at_ms=self._world.wall_ms(), cause=self.function.cause
        )
        before = self._decided
        if before is None or (before.target, before.rule) != (said.target, said.rule):
            await self._hands.store_decision(said)
            self._decided = said

    def _plan(self, decision: Decision, now_ms: int) -> Plan:
        if self._hands_off:
            return Plan()
        return plan(
            self.function.name,
            self._roster.replicas,
            target=decision.target,
            warm_target=0 if self.function.stopped else self.function.warm_replicas,
            now_ms=now_ms,
            drain_ms=self.function.scaling.drain_s * 1000,
            reserved=self._reserved,
            pressure=self._pressure(),
            choice=choice_of(self._world.state(), self.function, self._roster.replicas),
        )

    @property
    def _hands_off(self) -> bool:
        """Nothing may be changed: who gave a card back would not be made anew."""
        return self._world.frozen() or self._rivals.stands_back

    def _pressure(self) -> bool:
        """Whether somebody else waits for a card."""
        pending = self._world.state().pending
        return any(r.request.gpu.cards and r.request.name not in self._roster.pending for r in pending.values())

    # --- carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, steps: Plan) -> bool:
        """All steps; True = more creations are due."""
        roles: tuple[tuple[tuple[str, ...], Role], ...] = (
            (steps.promote, "ready"),
            (steps.demote, "warm"),
            (steps.drain, "draining"),
        )
        for names, role in roles:
            for name in names:
                await self._order(name, role)
        for name in steps.withdraw:
            await self._give_back(name, "no longer needed")
        return await self._create(steps)

    async def _give_back(self, name: str, reason: str) -> None:
        seen = self._roster.seen.get(name)
        if seen is not None:
            self._rivals.gave_back(seen.uid)
        await self._hands.withdraw(name, reason, self._cause)

    async def _order(self, name: str, role: Role) -> None:
        self._roster = rosters.told(self._roster, name, role, self._now_ms())
        await self._hands.say(name, rosters.order_of(role))

    async def _say_again(self) -> None:
        for name, order in rosters.deaf(self._roster, self._words):
            await self._hands.say(name, order)

    async def _take_back(self, now_ms: int) -> None:
        """Somebody else got the card: no replica waits for one. Nor does one keep it that never speaks any more."""
        patience_ms = round(self._world.settings.pending_s * 1000)
        late = [name for name, since_ms in self._roster.pending.items() if now_ms - since_ms >= patience_ms]
        for name in late:
            await self._give_back(name, "it cannot be placed any more")
            self._room.short(len(late), self.request_of_one(), NoRoom("somebody else was faster"), now_ms)
        silent = [] if self._hands_off or self._hearing is None else self._lapsed(self._hearing.since_ms, now_ms)
        for name, why in silent:
            await self._give_back(name, why)
        if late or silent:
            self._look_at_replicas(now_ms)

    def _lapsed(self, since_ms: int, now_ms: int) -> list[tuple[str, str]]:
        scaling = self.function.scaling
        return list(lapsed(self._roster, self._words, scaling, since_ms=since_ms, now_ms=now_ms))

    async def _create(self, steps: Plan) -> bool:
        """The next batch; True = go on with a larger one."""
        names = [*((name, False) for name in steps.create), *((name, True) for name in steps.create_warm)]
        self._batch = self._batch_of(len(names))
        for index, (name, warm) in enumerate(names[: self._batch]):
            try:
                await self._make(name, warm=warm)
            except NoRoom as error:
                self._reserved, self._batch = (), 0
                if not warm:
                    self._room.short(len(names) - index, self.request_of_one(), error, self._now_ms())
                return False
            except Unanswered as error:
                log.info("function %s/%s: %s", self.namespace, self.function.name, error)
                self._reserved, self._batch = tuple(dict.fromkeys((*self._reserved, name))), 0
                return False
        more = len(names) > self._batch
        self._batch = self._batch if more else 0
        return more

    def _batch_of(self, wanted: int) -> int:
        """All at once where replicas end by themselves: what is made later could not be told from what has ended."""
        return next_batch(wanted, self._batch, failed=False) if self.function.scaling.reuse else wanted

    async def _make(self, name: str, *, warm: bool) -> None:
        """One replica, if it can be placed at this moment."""
        await self._hands.make(self._request(name, warm=warm))
        now_ms = self._now_ms()
        seen = Seen(since_ms=now_ms, role="warm" if warm else "ready", told_ms=now_ms)
        self._roster = msgspec.structs.replace(self._roster, seen={**self._roster.seen, name: seen})
        self._words.pop(name, None)
        self._reserved = tuple(other for other in self._reserved if other != name)

    async def _tell_status(self, queue: QueueState | None, decision: Decision) -> None:
        counted = counts(self._roster.replicas)
        self.status = FunctionStatus(
            target=decision.target,
            rule=decision.rule,
            ready=counted.hot_ready,
            starting=counted.coming,
            warm=counted.warm,
            draining=counted.draining,
            waiting=queue.waiting if queue else None,
            outstanding=queue.outstanding if queue else None,
            missing=self._room.missing,
            profiles=self._sensing.measured,
        )
        if self._told is None or self.status.missing != self._told.missing:
            self._world.short()
        if self.status != self._told:
            dated = msgspec.structs.replace(self.status, at_ms=self._world.wall_ms(), cause=self._cause)
            await self._hands.store_status(dated)
            self._told = self.status

    # --- small things ------------------------------------------------------------------------------------------------

    def _request(self, name: str, *, warm: bool) -> PodRequest:
        urls = self._world.settings.worker_nats_url
        return rosters.replica_request(self.namespace, self.function, name, warm=warm, urls=urls, cause=self._cause)

    @property
    def _cause(self) -> str:
        return self.function.cause

    def _now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


def _unanswered(queue: QueueState | None, counted: Counts) -> int | None:
    """Calls that wait for a worker. Those that were handed to workers which are gone wait as well."""
    if queue is None:
        return None
    return queue.waiting + (0 if counted.hot_ready or counted.draining else queue.outstanding)
