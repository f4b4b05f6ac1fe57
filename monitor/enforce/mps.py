"""MPS: the node's control daemon gives each client a part of the threads and a limit of pinned memory.

The limits travel in the container's environment and are read by the CUDA driver when a process begins. Here it is made
sure that the daemon's folders exist, and looked whether it answers: a client whose daemon does not answer hangs inside
CUDA, so pods wait until it does. Asked is `nvidia-cuda-mps-control` with `get_server_list`, as an operator would; an
empty list is an answer too, because a server starts with its first client.

One daemon serves all MPS cards of a node; it must be started with exactly those in CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from contracts.inventory import IsolationMode
from monitor.enforce.backend import Findings, finding
from monitor.enforce.wanted import CardShares

CONTROL = "nvidia-cuda-mps-control"
ANSWER_S = 2.0
_ALL_MAY_WRITE = 0o1777
_QUESTION = b"get_server_list\n"


class MpsDaemon:
    """The backend of `mps`.

    Args:
        folder: of the daemon, with `pipe`, `log` and `shm` below.
        control: the command that asks it.
    """

    mode: IsolationMode = "mps"

    def __init__(self, folder: Path, control: str = CONTROL) -> None:
        self._folder = folder
        self._control = control

    def apply(self, wanted: Sequence[CardShares]) -> None:
        """The folders that daemon and clients meet in."""
        if not wanted:
            return
        for name in ("pipe", "log", "shm"):
            folder = self._folder / name
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(_ALL_MAY_WRITE)  # clients are other users than the daemon

    def check(self, wanted: Sequence[CardShares]) -> Findings:
        """Whether the daemon answers."""
        return finding(self.mode, wanted, lacks=self._lacks() if wanted else "")

    def _lacks(self) -> str:
        pipe = self._folder / "pipe"
        if not (pipe / "control").exists():
            return f"no MPS control daemon has opened {pipe}/control; start {self._control} -d with this pipe directory"
        try:
            answer = subprocess.run(  # noqa: S603 - the command is the operator's setting, nothing of a user is in it
                [self._control],
                input=_QUESTION,
                capture_output=True,
                timeout=ANSWER_S,
                check=False,
                env={
                    **os.environ,
                    "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
                    "CUDA_MPS_LOG_DIRECTORY": f"{self._folder}/log",
                },
            )
        except subprocess.TimeoutExpired:
            return f"the MPS control daemon has not answered for {ANSWER_S:g} s"
        except OSError as error:
            return f"{self._control} cannot be started: {error.strerror}"
        return _verdict(answer.returncode, answer.stdout + answer.stderr)


def _verdict(code: int, said: bytes) -> str:
    """A list of process ids, possibly empty, is the answer of a living daemon; anything else is its complaint."""
    text = said.decode("utf-8", "replace").strip()
    if code == 0 and all(word.isdigit() for word in text.split()):
        return ""
    return f"the MPS control daemon does not answer: {text[:300] or f'exit status {code}'}"
