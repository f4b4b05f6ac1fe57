"""A reconciler under test between a ledger that the test writes and an API server that the test watches.

    async with running(bus, transport) as reconciler:
        author = await Author.open(bus)
        await author.node("gpu-1", cards=2)
        request = await author.place("train", on="gpu-1", cards=(0,))
        await author.outcome(request, "running")

`Author` stands where the scheduler stands: it writes commits and reads outcomes, and decides nothing by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bus.ledger.append import Ledger, commit_after
from bus.ledger.fold import apply
from bus.ledger.follow import open_ledger
from bus.ledger.snapshot import copy
from bus.ledger.state import RequestState
from bus.protocol import Bus
from contracts.decisions import (
    Accepted,
    Candidate,
    CardSlice,
    EpochStarted,
    FactsSet,
    HealthSet,
    InventorySet,
    Observed,
    Placement,
    Rationale,
    Record,
    Released,
    Reserved,
    Withdrawn,
)
from contracts.inventory import Card, NodeFacts, NodeInventory
from contracts.outcomes import NodeShares, Outcome
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.subjects import LEDGER, NODE_FACTS, OUTCOMES, SHARES
from contracts.units import CardUuid, NodeName, RequestUid, node_token
from reconciler.plan import pod_of
from reconciler.protocol import Transport
from reconciler.service import Reconciler
from reconciler.settings import ReconcilingSettings
from tests.servers.process import wait_until

QUICK = ReconcilingSettings(facts_every_s=0.02)


class Author:
    """The only writer of a ledger, as a scheduler is."""

    def __init__(self, bus: Bus, ledger: Ledger, namespace: str) -> None:
        self.bus, self.ledger, self.namespace = bus, ledger, namespace
        self._names = itertools.count()

    @classmethod
    async def open(cls, bus: Bus, *, namespace: str = "default", pool: str = "default") -> Author:
        """Begin an epoch, or go on where the log ends."""
        state, _ = await open_ledger(bus, pool)
        author = cls(bus, Ledger(bus, state), namespace)
        if not state.epoch:
            epoch = secrets.token_hex(4)
            await author.write(EpochStarted(epoch=epoch, reason="test"), epoch=epoch)
        return author

    @property
    def epoch(self) -> str:
        return self.ledger.state.epoch

    async def write(self, *records: Record, **fields: Any) -> int:
        """One commit."""
        return await self.ledger.append(commit_after(self.ledger.state, records, author="test", **fields))

    async def node(self, name: str, *, cards: int = 2) -> None:
        """A node that the ledger knows, roomy and fresh."""
        found = tuple(
            Card(uuid=CardUuid(f"GPU-{name}-{i}"), index=i, model="A100", memory_total_mib=81_920) for i in range(cards)
        )
        node = NodeName(name)
        await self.write(
            InventorySet(inventory=NodeInventory(node=node, boot_id="b", incarnation="i", cards=found)),
            FactsSet(
                facts=NodeFacts(
                    node=node,
                    uid="u",
                    allocatable_cpu_milli=10_000_000,
                    allocatable_memory_mib=8_000_000,
                    allocatable_pods=100_000,
                )
            ),
            HealthSet(node=node, health="fresh"),
        )

    async def place(self, name: str = "", *, on: str, cards: tuple[int, ...] = (0,), **asked: Any) -> RequestState:
        """Accept a request and decide it, in one commit."""
        records = self.placing(name, on=on, cards=cards, **asked)
        await self.write(*records)
        return self.ledger.state.requests[records[0].uid]

    def placing(
        self, name: str = "", *, on: str, cards: tuple[int, ...] = (0,), index: int = 0, **asked: Any
    ) -> tuple[Accepted, Reserved]:
        """The records of `place`; `index` tells several in one commit apart."""
        state = self.ledger.state
        namespace = asked.pop("namespace", self.namespace)
        share, memory = asked.pop("share", 10), asked.pop("memory", 100)
        trace = asked.pop("trace", "")
        pod = {"image": "registry.local/pause", "cpu_milli": 10, "memory_mib": 16, "grace_s": 1, **asked.pop("pod", {})}
        request = PodRequest(
            name=name or f"r{next(self._names)}",
            pod=PodTemplate(**pod),
            gpu=GpuAsk(cards=len(cards), share_milli=share, memory_mib=memory),
            **asked,
        )
        uid = RequestUid(f"{state.epoch}-{state.number + 1}-{index}")
        uuids = list(state.nodes[on].cards)
        slices = tuple(CardSlice(card=CardUuid(uuids[i]), share_milli=share, memory_mib=memory) for i in cards)
        placement = Placement(
            node=NodeName(on), slices=slices, cpu_milli=request.pod.cpu_milli, memory_mib=request.pod.memory_mib
        )
        rationale = Rationale(
            policy="test", chosen=Candidate(node=NodeName(on), score=0), feasible_nodes=1, rejected_nodes=0
        )
        return (
            Accepted(uid=uid, namespace=namespace, request=request, trace=trace),
            Reserved(uid=uid, placement=placement, rationale=rationale),
        )

    async def ahead(self, *records: Record) -> RequestState:
        """The request as it will be when these records are the next commit; nothing is written."""
        state = copy(self.ledger.state)
        apply(state, commit_after(state, records, author="test"), await self.bus.last_sequence(LEDGER.stream) + 1)
        return next(state.requests[r.uid] for r in records if isinstance(r, Reserved))

    async def withdraw(self, request: RequestState) -> None:
        await self.write(Withdrawn(uid=request.uid, reason="test"))

    async def observe(self, request: RequestState, phase: Any) -> None:
        await self.write(Observed(uid=request.uid, phase=phase, pod=pod_of(request)))

    async def release(self, request: RequestState, evidence: Any = "ended") -> None:
        await self.write(Released(uid=request.uid, evidence=evidence))

    # --- what the reconciler says ------------------------------------------------------------------------------------

    async def last_outcome(self, request: RequestState) -> Outcome | None:
        """The last outcome that stands for the request."""
        subject = OUTCOMES.subject(namespace=request.accepted.namespace, name=request.request.name)
        message = await self.bus.last(OUTCOMES.stream, subject)
        found = msgspec.json.decode(message.data, type=Outcome) if message else None
        return found if found and found.uid == request.uid else None

    async def outcome(self, request: RequestState, *phases: str, timeout_s: float = 15.0) -> Outcome:
        """Wait until the last outcome is of one of these phases."""
        found: list[Outcome] = []

        async def reached() -> bool:
            last = await self.last_outcome(request)
            found[:] = [last] if last else []
            return last is not None and last.phase in phases

        try:
            await wait_until(reached, what=f"outcome {phases} of {request.key}", timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last one is {found}") from None
        return found[0]

    async def facts(self, node: str) -> NodeFacts | None:
        message = await self.bus.last(NODE_FACTS.stream, NODE_FACTS.subject(node=node_token(node)))
        return msgspec.json.decode(message.data, type=NodeFacts) if message else None

    async def shares(self, node: str) -> NodeShares | None:
        message = await self.bus.last(SHARES.stream, SHARES.subject(node=node_token(node)))
        return msgspec.json.decode(message.data, type=NodeShares) if message else None


@contextlib.asynccontextmanager
async def running(
    bus: Bus,
    transport: Transport,
    settings: ReconcilingSettings = QUICK,
    *,
    incarnation: str = "",
    active: bool = True,
) -> AsyncIterator[Reconciler]:
    """A reconciler that works, until the context ends; `active`: wait until it may act."""
    name = incarnation or f"reconciler-{secrets.token_hex(4)}"
    made = await Reconciler.open(bus, transport, settings, incarnation=name, rng=random.Random(1))
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(made.run(stop), name=name)
        try:
            if active:
                await wait_active(made)
            yield made
        finally:
            stop.set()


async def wait_active(reconciler: Reconciler) -> None:
    async def gate_open() -> bool:
        return reconciler.queue.gate.is_set()

    await wait_until(gate_open, what="the reconciler may act", timeout_s=20.0)
