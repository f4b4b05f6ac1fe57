"""Workers of functions and trainers of jobs on simulated nodes: what containers would do, as tasks of this process.

In: the pods of the embedded API. Out: a real `gpubus.worker` for each running pod that is a replica: it takes calls
from the bus, is busy for `SIMULATED_CALL_S` seconds (of the pod's environment; a tenth of one) and answers with its
name and what it was sent. A pod that is being deleted drains; one that is gone is ended where it stands, as by SIGKILL.
A running pod that is a trainer gets a real `gpubus.trainer`: told to go, it saves its work in `SIMULATED_SAVE_S`
seconds (half of one), says so, and waits for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bus.protocol import Bus, BusError
from gpubus.local.kube import LocalKube
from gpubus.local.kube.resources import PODS
from gpubus.trainer import trainer
from gpubus.worker import Calls, Options, worker

log = logging.getLogger(__name__)

LOOK_S = 0.1
BUSY, SAVE = "SIMULATED_CALL_S", "SIMULATED_SAVE_S"
BUSY_S, SAVE_S = 0.1, 0.5


TRAINER = {"JOB_NAME", "TRAINER_INDEX", "JOB_NAMESPACE"}
"""What the autoscaler tells a trainer."""


class _Life(msgspec.Struct):
    """One pod's worker."""

    task: asyncio.Task[None]
    calls: Calls | None = None


class SimulatedWorkers:
    """The workers of all nodes."""

    def __init__(self, bus: Bus, kube: LocalKube) -> None:
        self._bus = bus
        self._kube = kube
        self._lives: dict[str, _Life] = {}

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """While the context is open."""
        looking = asyncio.create_task(self._look(), name="simulated workers")
        try:
            yield
        finally:
            tasks = [looking, *(life.task for life in self._lives.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            pods = {entry.obj["metadata"]["uid"]: entry.obj for entry in self._kube.store.entries(PODS)}
            for uid, pod in pods.items():
                self._see(uid, pod)
            for uid in [uid for uid in self._lives if uid not in pods]:
                self._lives.pop(uid).task.cancel()
            await asyncio.sleep(LOOK_S)

    def _see(self, uid: str, pod: dict[str, Any]) -> None:
        environment = _environment(pod)
        running = (pod.get("status") or {}).get("phase") == "Running"
        life = self._lives.get(uid)
        if life is None and running and "WORKER_FUNCTION" in environment:
            task = asyncio.create_task(self._live(uid, environment), name=f"worker {environment['WORKER_REPLICA']}")
            self._lives[uid] = _Life(task=task)
        elif life is None and running and environment.keys() >= TRAINER:
            name = f"trainer {environment['JOB_NAME']}-{environment['TRAINER_INDEX']}"
            self._lives[uid] = _Life(task=asyncio.create_task(self._train(environment), name=name))
        elif life is not None and life.calls is not None and pod["metadata"].get("deletionTimestamp"):
            life.calls.drain()

    async def _train(self, environment: dict[str, str]) -> None:
        job, index = environment["JOB_NAME"], environment["TRAINER_INDEX"]
        try:
            async with trainer(job, int(index), namespace=environment["JOB_NAMESPACE"], bus=self._bus) as me:
                await me.told()
                await asyncio.sleep(_seconds(environment.get(SAVE, ""), SAVE_S))
                me.checkpointed()
                await asyncio.get_running_loop().create_future()
        except BusError as error:
            log.warning("trainer %s of %s ends: %s", index, job, error)

    async def _live(self, uid: str, environment: dict[str, str]) -> None:
        replica = environment["WORKER_REPLICA"]
        options = Options(
            replica=replica,
            warm=environment.get("WORKER_WARM") == "1",
            limit=int(environment.get("WORKER_CONCURRENCY", "1")),
            calls=int(environment.get("WORKER_CALLS", "0")),
        )

        async def busy(body: str) -> str:
            await asyncio.sleep(_seconds(environment.get(BUSY, ""), BUSY_S))
            return f"{replica}: {body}"

        try:
            async with worker(environment["WORKER_FUNCTION"], bus=self._bus, options=options, signals=False) as calls:
                self._lives[uid].calls = calls
                await calls.serve(busy)
        except BusError as error:
            log.warning("the worker of %s ends: %s", replica, error)


def _environment(pod: dict[str, Any]) -> dict[str, str]:
    entries = pod["spec"]["containers"][0].get("env") or []
    return {entry["name"]: str(entry.get("value") or "") for entry in entries}


def _seconds(text: str, otherwise: float) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return otherwise
    return seconds if 0 <= seconds < float("inf") else otherwise
