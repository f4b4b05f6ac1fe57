"""From settings to a running autoscaler: the bus, its companions, health, gauges; what `python -m autoscaler` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from autoscaler.functions import Keeper
from autoscaler.jobs import Jobs
from autoscaler.service import Autoscaler, Companion
from autoscaler.settings import AutoscalerSettings
from autoscaler.vertical import Vertical
from bus.ledger.state import LedgerState
from bus.runtime.connection import connected
from bus.runtime.process import Process
from contracts.shares import NodeVertical
from contracts.units import RequestUid


class AutoscalerService:
    """One autoscaler as a process."""

    def __init__(self, settings: AutoscalerSettings, process: Process) -> None:
        self._settings = settings
        self._process = process
        self._autoscaler: Autoscaler | None = None
        process.health.ready("role", self._trouble)

    async def run(self, stop: asyncio.Event) -> None:
        """Connect and look after everything until `stop` is set."""
        async with connected(self._settings.nats, self._process) as bus:
            await bus.ensure_streams(replicas=self._settings.nats.replicas)
            companions = companions_of(self._settings, self._process)
            self._autoscaler = Autoscaler(bus, self._settings.autoscaler, self._process.instance, companions=companions)
            watch(self._process.telemetry.meter, self._autoscaler)
            await self._autoscaler.run(stop)

    def _trouble(self) -> str:
        role = self._autoscaler.role if self._autoscaler else "starting"
        return "" if role in ("active", "standby") else role


def companions_of(settings: AutoscalerSettings, process: Process) -> tuple[Companion, ...]:
    """Training jobs, and limits that follow use: both over the ledger that the autoscaler folds."""
    latest: list[Vertical] = []
    process.telemetry.scrape(lambda: latest[-1].gauges() if latest else ())

    async def jobs(autoscaler: Autoscaler) -> None:
        made = Jobs(
            autoscaler.bus,
            lambda: autoscaler.state,
            settings.autoscaler.jobs,
            frozen=lambda: autoscaler.frozen,
            wanting=autoscaler.wanting,
            nats_urls=settings.autoscaler.worker_nats_url,
        )
        autoscaler.listeners.add(made.wake)
        try:
            await made.run()
        finally:
            autoscaler.listeners.discard(made.wake)

    async def vertical(autoscaler: Autoscaler) -> None:
        made = Vertical(
            autoscaler.bus, lambda: autoscaler.state, settings.autoscaler.vertical, frozen=lambda: autoscaler.frozen
        )
        latest[:] = [made]
        autoscaler.limit_milli = lambda uid: limit_milli(autoscaler.state, made.told, uid)
        await made.run()

    return jobs, vertical


def limit_milli(state: LedgerState, told: Mapping[str, NodeVertical], uid: str) -> int | None:
    """What a request may use of each of its cards, in thousandths, where limits are acted on; None = as it was sold."""
    request = state.requests.get(RequestUid(uid))
    said = told.get(request.placement.node) if request is not None and request.placement is not None else None
    if said is None or said.mode != "act":
        return None
    return next((pod.gpu_limit_milli for pod in said.pods if pod.uid == uid), None)


def watch(meter: Meter, autoscaler: Autoscaler) -> None:
    """Register the gauges of one autoscaler, each by namespace and function."""
    gauges: tuple[tuple[str, str, Callable[[Keeper], int | None]], ...] = (
        ("target", "replicas that are wanted", lambda keeper: keeper.status.target),
        ("ready", "replicas that serve", lambda keeper: keeper.status.ready),
        ("warm", "replicas that stand by", lambda keeper: keeper.status.warm),
        ("waiting", "calls that no worker has", lambda keeper: keeper.status.waiting),
    )
    for name, text, read in gauges:
        callback = _observing(autoscaler, read)
        meter.create_observable_gauge(f"gpubus.autoscaler.{name}", callbacks=[callback], description=text)
    meter.create_observable_gauge(
        "gpubus.autoscaler.missing_cards",
        callbacks=[lambda _: _missing(autoscaler)],
        description="cards that wanted replicas do not get, by what each of them has to offer",
    )
    meter.create_observable_gauge(
        "gpubus.autoscaler.frozen",
        callbacks=[lambda _: [Observation(int(autoscaler.frozen))]],
        description="1 while an operator has stopped all scaling",
    )


def _attributes(keeper: Keeper) -> dict[str, str]:
    return {"namespace": keeper.namespace, "function": keeper.function.name}


def _missing(autoscaler: Autoscaler) -> Iterable[Observation]:
    """How many cards of which kind: a slice of so much, with so much memory, of one of these models."""
    for keeper in autoscaler.keepers.values():
        missing = keeper.status.missing
        kind = {
            "share_milli": str(missing.share_milli if missing else 0),
            "memory_mib": str((missing.memory_mib if missing else None) or "by share"),
            "models": ",".join(missing.models if missing else ()) or "any",
        }
        yield Observation(missing.cards if missing else 0, {**_attributes(keeper), **(kind if missing else {})})


def _observing(
    autoscaler: Autoscaler, read: Callable[[Keeper], int | None]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for keeper in autoscaler.keepers.values():
            value = read(keeper)
            if value is not None:  # not known is not zero
                yield Observation(value, _attributes(keeper))

    return observe
