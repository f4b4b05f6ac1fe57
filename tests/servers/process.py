"""One server process: started in a group of its own, its log in a file, and certain to end with the tests.

What flows in: a command line and a folder. What flows out: a handle to kill, freeze, thaw and stop it, and
an error that carries the tail of its log when it does not come up. Plain `subprocess`, not asyncio's: a
server outlives the event loop of the test that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["Opened", "ServerProcess", "StartError", "wait_until"]

# The server dies with its parent, however that ends (a `kill -9` of pytest included):
# prctl(PR_SET_PDEATHSIG, SIGKILL) survives exec. Done by a tiny wrapper because a preexec_fn is not allowed
# to run in a process with threads.
_DIE_WITH_PARENT = """\
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.argv[1], sys.argv[1:])
"""

_POLL_S = 0.02


class StartError(RuntimeError):
    """A server did not come up: its name, why, and the end of its log."""

    def __init__(self, name: str, why: str, log_tail: str) -> None:
        self.name, self.why, self.log_tail = name, why, log_tail
        super().__init__(f"{name}: {why}\n--- end of its log ---\n{log_tail}")


class Opened(ABC):
    """What is started and closed; `async with` does both, and closes what came up only in part."""

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class ServerProcess:
    """A child process with a name, a log file and a process group of its own."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, *, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self._env = dict(env) if env is not None else None
        self._child: subprocess.Popen[bytes] | None = None
        self._frozen = False

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def launch(self) -> None:
        """Start it; the log of an earlier life is kept and appended to."""
        if self.running:
            raise RuntimeError(f"{self.name} is running already (pid {self.pid})")
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-IS", "-c", _DIE_WITH_PARENT, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._env,
            )
        self._frozen = False

    async def ready(self, probe: Callable[[], Awaitable[bool]], *, timeout_s: float) -> None:
        """Wait until the probe says yes; StartError when the process ends first or the time is up."""
        give_up = time.monotonic() + timeout_s
        while not await probe():
            if not self.running:
                code = self._child.returncode if self._child else None
                raise StartError(self.name, f"ended with exit status {code}", self.log_tail())
            if time.monotonic() > give_up:
                raise StartError(self.name, f"not ready after {timeout_s:g} s", self.log_tail())
            await asyncio.sleep(_POLL_S)

    def signal(self, number: signal.Signals) -> None:
        """A signal to the whole process group; nothing happens when it has ended already."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def freeze(self) -> None:
        """SIGSTOP: sockets stay open and accept, nothing answers. Returns once the kernel has stopped every thread."""
        self.signal(signal.SIGSTOP)
        self._frozen = True
        if self.running:
            # Delivery is asynchronous: a busy thread may still answer a probe sent right after the kill.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
        self._frozen = False

    async def kill(self) -> None:
        """SIGKILL, and wait until the kernel has closed its sockets."""
        self.signal(signal.SIGKILL)
        await self._reap(10.0)

    async def stop(self, *, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after the grace time; a frozen process is thawed first."""
        if self._frozen:
            self.thaw()
        self.signal(signal.SIGTERM)
        if not await self._reap(grace_s):
            await self.kill()

    async def _reap(self, timeout_s: float) -> bool:
        give_up = time.monotonic() + timeout_s
        while self.running:
            if time.monotonic() > give_up:
                return False
            await asyncio.sleep(_POLL_S / 4)
        return True

    def log_tail(self, lines: int = 25) -> str:
        if not self.log.exists():
            return "(no log)"
        text = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line[:500] for line in text[-lines:]) or "(empty log)"


async def wait_until(
    condition: Callable[[], Awaitable[object]],
    *,
    what: str,
    timeout_s: float = 20.0,
    every_s: float = _POLL_S,
) -> None:
    """Poll an async condition until it is true; AssertionError naming `what` when the time is up."""
    give_up = time.monotonic() + timeout_s
    while not await condition():
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(every_s)
