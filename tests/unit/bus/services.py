"""Services as real child processes, forked from one that has imported the runtime, so that a start costs 20 ms.

What flows in: pieces of a service as source text. What flows out: a handle to signal it, its exit code, its lines.
The child ends as any interpreter does (threads are joined, `atexit` runs); nothing of it is shared with the tests.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]

_FORKER = """
import json, os, socket, sys
import bus.runtime.main, aiohttp.web, requests
lane = socket.socket(fileno=int(sys.argv[1]))
while True:
    data, pipes, _, _ = socket.recv_fds(lane, 65536, 2)
    if not data:
        sys.exit()
    job = json.loads(data)
    if "wait" in job:
        _, status = os.waitpid(job["wait"], 0)
        lane.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
    elif pid := os.fork():
        lane.send(json.dumps(pid).encode())
        for pipe in pipes:
            os.close(pipe)
    else:
        lane.close()
        for number, pipe in enumerate(pipes, start=1):
            os.dup2(pipe, number)
            os.close(pipe)
        os.environ.update(job["env"])
        sys.argv[1:] = job["argv"]
        break
exec(compile(job["program"], "service", "exec"), {"__name__": "__main__"})
"""

_PROGRAM = """
import asyncio, threading, time
from bus.runtime.main import service_main
from bus.runtime.exits import EndProcess, ExitCode
from bus.runtime.process import Process
from bus.runtime.settings import ServiceSettings

class Service:
    def __init__(self, settings: ServiceSettings, process: Process) -> None:
        self.process = process
        {setup}

    async def run(self, stop: asyncio.Event) -> None:
        print("up", flush=True)
        {work}
        await stop.wait()
        {drain}

raise SystemExit(service_main("scheduler", ServiceSettings, Service, about="A test.", stop_s={stop_s}))
"""


class Forker:
    """The process that the others are forked from."""

    def __init__(self) -> None:
        self._lane, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child = subprocess.Popen(
            [sys.executable, "-c", _FORKER, str(theirs.fileno())], cwd=ROOT, pass_fds=(theirs.fileno(),)
        )
        theirs.close()
        self._lane.settimeout(20)

    def fork(self, job: dict, pipes: tuple[int, int]) -> int:
        socket.send_fds(self._lane, [json.dumps(job).encode()], pipes)
        return json.loads(self._lane.recv(65536))

    def wait(self, pid: int) -> int:
        self._lane.send(json.dumps({"wait": pid}).encode())
        return json.loads(self._lane.recv(65536))

    def close(self) -> None:
        self._lane.close()
        self._child.wait(10)


class Running:
    """A service that runs. `setup`, `work` and `drain` are statements of its constructor and its `run`."""

    def __init__(
        self,
        forker: Forker,
        *argv: str,
        env: dict[str, str] | None = None,
        stop_s: float = 1.6,
        setup: str = "pass",
        work: str = "pass",
        drain: str = "pass",
    ) -> None:
        parts = {"setup": setup, "work": work, "drain": drain}
        program = _PROGRAM.format(stop_s=stop_s, **{k: v.replace("\n", "\n        ") for k, v in parts.items()})
        (out, out_child), (err, err_child) = os.pipe(), os.pipe()
        self._forker = forker
        self.pid = forker.fork({"program": program, "argv": argv, "env": env or {}}, (out_child, err_child))
        os.close(out_child)
        os.close(err_child)
        self._out: IO[str] = os.fdopen(out)
        self._err: IO[str] = os.fdopen(err)
        self._ended = False
        self.out: list[str] = []
        self.err = ""

    def wait_for(self, line: str = "up") -> None:
        """Until it has printed a line; `up` is the first one."""
        while (got := self._out.readline()) != f"{line}\n":
            if not got:
                raise AssertionError(f"{line!r} never came: {self._err.read()}")
            self.out.append(got.rstrip())

    def signal(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Send it; returns when, on the monotonic clock."""
        os.kill(self.pid, number)
        return time.monotonic()

    def end(self) -> int:
        """Wait for the end; the exit code."""
        code = self._forker.wait(self.pid)
        self._ended = True
        self.out += self._out.read().splitlines()
        self.err = self._err.read()
        return code

    def log(self) -> list[dict]:
        return [json.loads(line) for line in self.err.splitlines()]

    def messages(self) -> list[str]:
        return [line["message"] for line in self.log()]

    def seconds_between(self, first: str, second: str) -> float:
        """Between two log lines, on the clock of the child."""
        at = {line["message"]: datetime.fromisoformat(line["time"]) for line in self.log()}
        return (at[second] - at[first]).total_seconds()

    def close(self) -> None:
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)
            self._forker.wait(self.pid)
        self._out.close()
        self._err.close()
