"""One process, from its start to a bounded end: signals, tasks, drain, flush, exit code.

What flows in: a service, a small object whose `run(stop)` works until `stop` is set, finishes what is in flight and
returns. What flows out: an exit code (`exits.ExitCode`), at most five seconds after SIGTERM or SIGINT:

    0.0 s   `stop` is set: take nothing new, finish; /readyz says "stopping"
    3.9 s   what is not finished is cancelled (exit code DRAIN_CUT)
    ....    background tasks are cancelled, traces are flushed (at most 2 s)
    4.9 s   the deadline's thread ends the process, whatever hangs

No task is an orphan: each has a name and lives in one TaskGroup. A task that fails, or that returns before it was
asked to, ends the process loudly with CRASHED; any task may end it on purpose by raising `EndProcess(code, reason)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Protocol, TypeVar

from bus.runtime import telemetry
from bus.runtime.deadline import Deadline
from bus.runtime.exits import EndedEarly, EndProcess, ExitCode
from bus.runtime.health import Health, serving
from bus.runtime.looplag import LoopLag
from bus.runtime.retry import reason_of
from bus.runtime.settings import ServiceSettings

STOP_S = 4.9
"""From the signal to the end of the process: under five seconds, with the last log line."""
FLUSH_S = 1.0
"""Of these, kept for cancelling and flushing; a drain that ends early leaves up to 2 s for it."""
FLUSH_MAX_S = 2.0

T = TypeVar("T")
log = logging.getLogger(__name__)


class Service(Protocol):
    """What a process runs."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then take nothing new, finish what is in flight, return.

        Raising ends the process with CRASHED, returning early too.
        """
        ...


class Process:
    """What a service may use of the process it runs in.

    Attributes:
        name: of the service, as "scheduler".
        instance: this incarnation, as "scheduler-7f3a9c21"; a subject token.
        stop: set once, when the end begins.
        health: add checks to it.
        telemetry: the meter and the tracer.
    """

    def __init__(
        self, name: str, instance: str, tele: telemetry.Telemetry, deadline: Deadline, stop_s: float = STOP_S
    ) -> None:
        self.name = name
        self.instance = instance
        self.stop = asyncio.Event()
        self.health = Health()
        self.telemetry = tele
        self.lag = LoopLag()
        self._deadline = deadline
        self._stop_s = stop_s
        self._drain_s = max(stop_s / 2, stop_s - FLUSH_S)
        self._group = asyncio.TaskGroup()
        self._background: list[asyncio.Task[Any]] = []
        self._stop_at = 0.0
        self._end: tuple[ExitCode, str] | None = None

    def spawn(self, name: str, work: Coroutine[Any, Any, T], *, may_end: bool = False) -> asyncio.Task[T]:
        """Run something beside the service until the process ends; it is cancelled after the drain.

        If it fails, or returns before the stop (unless `may_end`), the process ends with CRASHED.
        """
        task = self._group.create_task(self._guarded(name, work, may_end=may_end), name=name)
        self._background.append(task)
        task.add_done_callback(self._background.remove)
        return task

    def end_when(self, event: asyncio.Event, code: ExitCode, reason: Callable[[], str]) -> None:
        """End the process with `code` once `event` is set: `end_when(bus.closed, BUS_CLOSED, lambda: bus.why)`."""

        async def wait() -> None:
            await event.wait()
            if not self.stop.is_set():
                raise EndProcess(code, reason())

        self.spawn(f"{code.name.lower()}-watch", wait(), may_end=True)

    @contextlib.asynccontextmanager
    async def until_stop(self) -> AsyncIterator[None]:
        """Around a wait that has nothing to drain, such as the first connection: the stop cancels it and ends well."""
        loop = asyncio.get_running_loop()

        async def watch() -> None:
            await self.stop.wait()
            scope.reschedule(loop.time())

        try:
            async with asyncio.timeout(None) as scope:
                task = self.spawn("until-stop", watch(), may_end=True)
                try:
                    yield
                finally:
                    task.cancel()
        except TimeoutError:
            if not self.stop.is_set():
                raise
            raise EndProcess(ExitCode.STOPPED, "asked to stop before it had begun") from None

    def request_stop(self, why: str) -> None:
        """As SIGTERM does."""
        if self.stop.is_set():
            return
        log.info("stopping", extra={"why": why})
        self.arm()
        self._stop_at = asyncio.get_running_loop().time()
        self.stop.set()

    # --- the life of the process -------------------------------------------------------------------------------------

    async def live(self, make: Callable[[Process], Service], settings: ServiceSettings) -> ExitCode:
        """Run the service to its end."""
        limit_s = settings.health.max_loop_lag_s
        self.health.live("loop", lambda: self.lag.check(limit_s))
        self.health.ready("process", lambda: "stopping" if self.stop.is_set() else "")
        self.lag.export(self.telemetry.meter)
        try:
            async with self._listening(settings), self._group:
                self.spawn("loop-lag", self.lag.watch())
                await self._serve(make(self))
        except Exception as error:
            self._ends(error, "process")
            if _find(error, EndProcess) is None:
                log.critical("the process crashed", exc_info=error)
        return self._end[0] if self._end else ExitCode.STOPPED

    @contextlib.asynccontextmanager
    async def _listening(self, settings: ServiceSettings) -> AsyncIterator[None]:
        if not settings.health.port:
            yield
            return
        async with serving(self.health, self.telemetry.metrics_text, settings.health.host, settings.health.port):
            yield

    async def _serve(self, service: Service) -> None:
        """The service beside its background tasks; the drain is bounded."""
        task = self._group.create_task(self._guarded(self.name, service.run(self.stop)), name=self.name)
        await self.stop.wait()
        left_s = self._stop_at + self._drain_s - asyncio.get_running_loop().time()
        _, late = await asyncio.wait({task}, timeout=max(0.0, left_s))
        if late:
            self._set_end(ExitCode.DRAIN_CUT, f"the drain was not finished in {self._drain_s:g} s")
            task.cancel()
        for other in list(self._background):
            other.cancel()

    async def _guarded(self, name: str, work: Coroutine[Any, Any, T], *, may_end: bool = False) -> T:
        try:
            result = await work
        except Exception as error:
            self._ends(error, name)
            raise
        if not may_end and not self.stop.is_set():
            early = EndedEarly(name)
            self._ends(early, name)
            raise early
        return result

    def _ends(self, error: Exception, task: str) -> None:
        """The first failure decides; from here on the end is bounded."""
        ordered = _find(error, EndProcess)
        if ordered is not None:
            self._set_end(ordered.code, ordered.reason)
        else:
            self._set_end(ExitCode.CRASHED, f"task {task!r}: {reason_of(_only(error))}")
        if self._end is not None:
            self._deadline.arm(self._stop_s, self._end[0])

    def _set_end(self, code: ExitCode, reason: str) -> None:
        if self._end is None:
            self._end = (code, reason)
            level = logging.INFO if code is ExitCode.STOPPED else logging.ERROR
            log.log(level, "ending", extra={"exit": code.name, "reason": reason})

    def flush_s(self) -> float:
        """How long traces may take to flush."""
        if not self.stop.is_set():
            return FLUSH_MAX_S
        left_s = self._stop_at + self._stop_s - asyncio.get_running_loop().time() - 0.3
        return max(0.1, min(FLUSH_MAX_S, left_s))

    def arm(self, *, now: bool = False) -> None:
        """Bound the end. Safe in a signal handler."""
        self._deadline.arm(0.0 if now else self._stop_s, ExitCode.DRAIN_CUT)


def _find(error: BaseException, kind: type[EndProcess]) -> EndProcess | None:
    """An order to end, also inside the group of a service's own tasks."""
    if isinstance(error, kind):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for e in inner if (found := _find(e, kind))), None)


def _only(error: BaseException) -> BaseException:
    """What is in a group of one, for a reason that says something."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


# --- from the outside ------------------------------------------------------------------------------------------------


def run(
    make: Callable[[Process], Service],
    *,
    name: str,
    instance: str,
    settings: ServiceSettings,
    deadline: Deadline | None = None,
    stop_s: float = STOP_S,
) -> ExitCode:
    """Run a service until it ends and return the exit code. Call it from the main thread, once logs are configured.

    Args:
        make: builds the service; called inside the event loop, after telemetry has started.
        name: of the service.
        instance: unique per incarnation; letters, digits and dashes.
        settings: the shared groups are used here.
        deadline: the caller's own; then it stays armed after the return, so that what hangs at interpreter exit
            (a thread that is joined) is cut too. `service_main` does that.
        stop_s: from the signal to the end, at most.
    """
    own = deadline or Deadline()
    began = time.monotonic()

    def begin() -> Process:
        return Process(name, instance, telemetry.start(settings.telemetry, name, instance), own, stop_s)

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            own.stuck = lambda: _running(runner)
            code = runner.run(_main(begin, make, settings))
    finally:
        if deadline is None:
            own.disarm()
    log.info("ended", extra={"exit": code.name, "seconds": round(time.monotonic() - began, 3)})
    return code


async def _main(
    begin: Callable[[], Process], make: Callable[[Process], Service], settings: ServiceSettings
) -> ExitCode:
    if (task := asyncio.current_task()) is not None:
        task.set_name("main")
    process = begin()
    log.info("started", extra={"instance": process.instance, "version": telemetry.version()})
    with _signals(process), _calm_collector():
        try:
            return await process.live(make, settings)
        finally:
            # Blocks the event loop, on which nothing is left.
            process.telemetry.shutdown(process.flush_s())


@contextlib.contextmanager
def _calm_collector() -> Iterator[None]:
    """Collections every fifty thousand containers, full ones hardly ever.

    Messages and states are no business of the collector (`contracts.messages`) and reference counts free the rest; what
    it is left for are the cycles of exceptions with their tracebacks. With Python's own thresholds it took a fifth of
    the scheduler's time under load. What was imported is never looked at again.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def _signals(process: Process) -> Iterator[None]:
    """SIGTERM and SIGINT set the stop event; a second SIGINT ends at once (somebody sits at a terminal).

    Plain handlers instead of the event loop's: they arm the deadline also while the event loop is blocked.
    """
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        again = number == signal.SIGINT and number in seen
        seen.append(number)
        process.arm(now=again)
        loop.call_soon_threadsafe(process.request_stop, signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _running(runner: asyncio.Runner) -> list[str]:
    """Names of the tasks and of the threads that have not ended. Called from another thread."""
    threads = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    try:
        return sorted(task.get_name() for task in asyncio.all_tasks(runner.get_loop()))[:20] + threads
    except RuntimeError:  # the loop is closed already, or tasks came and went while we looked
        return threads


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """That of uvloop where it is installed (a third less latency), else asyncio's own; no word about it."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory
