"""What `simulate` and `compare` share: running a plan with progress until it is through or interrupted, and files."""

from __future__ import annotations

import contextlib
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from gpubus.cli.common import console
from gpubus.errors import LocalFailure, UsageError
from gpubus.simulate import plan as running
from gpubus.simulate.plan import Done, Job, Plan
from scheduler.core.prices.solver import NoSolver, solver_there

TOLD_EVERY = 100


def need_solver(flag: str) -> None:
    """Raises UsageError when linear programs cannot be solved here."""
    if not solver_there():
        raise UsageError(f"{flag}: {NoSolver()}")


def until_interrupted(plan: Plan, workers: int) -> tuple[list[Done], bool]:
    """The runs that came to their end, and whether all did: Ctrl-C keeps what is there."""
    done: list[Done] = []
    count = len(plan.jobs())
    screen = console(stderr=True)
    try:
        with (
            Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress,
            contextlib.closing(running.each(plan, workers, lambda job: _listener(progress, job))) as outcomes,
        ):
            for found in outcomes:
                done.append(found)
                screen.print(_line(found, len(done), count), style="dim", markup=False)
    except KeyboardInterrupt:
        _interrupted(screen, len(done), count)
    except BrokenProcessPool as error:
        raise LocalFailure("a process of --jobs", f"died: {error}") from error
    return done, len(done) == count


def _line(found: Done, number: int, count: int) -> str:
    job = found.job
    load = "" if job.load is None else f" load {job.load:g}"
    return f"{number}/{count} {job.trace} {job.policy}{load} seed {job.seed}: {found.told}"


def _interrupted(screen: Console, done: int, count: int) -> None:
    screen.print(f"interrupted after {done} of {count} runs", style="yellow")


def _listener(progress: Progress, job: Job) -> running.Progress:
    """A bar that is there while the run is."""
    task = progress.add_task(f"{job.trace} {job.policy} seed {job.seed}", total=None)
    calls = 0

    def told(done: int, whole: int) -> None:
        nonlocal calls
        calls += 1
        if calls % TOLD_EVERY == 0:
            progress.update(task, completed=done, total=whole, visible=done < whole)

    return told


def writable(flag: str, file: str | None) -> None:
    """Told before the first run: after an hour of them it would be too late.

    Raises:
        UsageError: the folder is not there.
    """
    if file is not None and not (folder := Path(file).parent).is_dir():
        raise UsageError(f"{flag} {file}: there is no folder {folder}")


def write(flag: str, file: str, text: str) -> None:
    """A file of results.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{flag} {file}: {error.strerror or error}") from error
