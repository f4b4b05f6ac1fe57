"""Child processes of `gpubus local`: each with a log file, none that outlives its parent, none that dies unnoticed.

What flows in: a command line and an environment. What flows out: a running child, or `LocalFailure` that carries the
end of its log. Children get a session of their own, so that Ctrl-C in a terminal reaches only the parent, who stops
them in order; when the parent is killed with SIGKILL the kernel kills them too (on Linux).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from gpubus.errors import LocalFailure

# prctl(PR_SET_PDEATHSIG, SIGKILL) survives exec; a wrapper sets it, because code between fork and exec is not safe in
# a process with threads. `-IS` makes the wrapper start in some 10 ms.
_DIE_WITH_PARENT = """\
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.argv[1], sys.argv[1:])
"""

_POLL_S = 0.02
TAIL_LINES = 15


class Child:
    """One child process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str],
        *,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self._folder = folder
        self.log = log
        self._command = [str(part) for part in command]
        self._env = dict(env)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int:
        """0 when it is not running."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    async def start(self) -> None:
        """Start it; its output is appended to its log."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-IS", "-c", _DIE_WITH_PARENT, *self._command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._env,
                cwd=self._folder,
            )

    async def ready(self, probe: Callable[[], Awaitable[bool]], *, timeout_s: float) -> None:
        """Wait until the probe says yes.

        Raises:
            LocalFailure: it ended first, or the time is up.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not await probe():
                    if not self.pid:
                        raise self.failure(f"ended with exit status {self._code()} while it was starting")
                    await asyncio.sleep(_POLL_S)
                return
        raise self.failure(f"was not ready after {timeout_s:g} s")

    async def watch(self) -> None:
        """Wait for its end.

        Raises:
            LocalFailure: it ended although nobody asked it to.
        """
        if self._process is not None:
            code = await self._process.wait()
            if not self._stopping:
                raise self.failure(f"ended with exit status {code}")

    async def stop(self, *, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after the grace time; waits until it is gone."""
        self._stopping = True
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._gone()
                return
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL; waits until it is gone."""
        self._stopping = True
        self._signal(signal.SIGKILL)
        await self._gone()

    def failure(self, why: str) -> LocalFailure:
        """What to tell about it."""
        return LocalFailure(self.name, why, tail(self.log), str(self.log))

    def _code(self) -> int | None:
        return self._process.returncode if self._process else None

    async def _gone(self) -> None:
        if self._process is not None:
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The end of a log; lines are cut at 300 characters."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line[:300] for line in text[-lines:])
