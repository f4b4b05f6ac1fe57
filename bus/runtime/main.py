"""The command line that every service shares.

So that `python -m scheduler` is three lines:

    from bus.runtime.main import service_main
    if __name__ == "__main__":
        raise SystemExit(service_main("scheduler", SchedulerSettings, Scheduler, about="Places pods on cards."))

where `Scheduler(settings, process)` builds the service. Exit codes: `bus.runtime.exits.ExitCode`.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from bus.runtime import logs, telemetry
from bus.runtime.config import Loaded, SettingsError, load_traced, render, variable
from bus.runtime.deadline import Deadline
from bus.runtime.exits import ExitCode
from bus.runtime.process import STOP_S, Process, Service, run
from bus.runtime.settings import ServiceSettings

S = TypeVar("S", bound=ServiceSettings)

log = logging.getLogger(__name__)


def service_main(
    name: str,
    settings_type: type[S],
    make: Callable[[S, Process], Service],
    argv: Sequence[str] | None = None,
    *,
    about: str = "",
    stop_s: float = STOP_S,
) -> ExitCode:
    """Parse the command line, load the settings, run the service; returns the exit code.

    `stop_s` bounds the time from the signal to the end.
    End the process with it at once: after a run the deadline of the stop is still armed, so that nothing can hang
    between here and the end of the interpreter.
    """
    options = _parser(name, about).parse_args(argv)
    try:
        loaded = load_traced(settings_type, options.config, os.environ)
    except SettingsError as error:
        print(f"{name}: the settings are wrong:", *error.problems, sep="\n  ", file=sys.stderr)  # noqa: T201 - no log yet
        return ExitCode.BAD_SETTINGS
    if options.print_settings:
        print(render(loaded.settings, loaded.origins, docs=True), end="")  # noqa: T201 - what was asked for
        return ExitCode.STOPPED
    return _run(name, loaded, make, stop_s)


def instance_name(service: str) -> str:
    """A new incarnation: random, and a subject token."""
    return f"{service}-{secrets.token_hex(4)}"


def _run(name: str, loaded: Loaded[S], make: Callable[[S, Process], Service], stop_s: float) -> ExitCode:
    settings = loaded.settings
    logs.configure(settings.log, name)
    threading.excepthook = _thread_failed
    return run(
        lambda process: make(settings, process),
        name=name,
        instance=instance_name(name),
        settings=settings,
        deadline=Deadline(),
        stop_s=stop_s,
    )


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    thread = failure.thread.name if failure.thread else "?"
    error = failure.exc_value or failure.exc_type()
    log.error("a thread failed", extra={"of": thread}, exc_info=error)


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"""\
examples:
{_examples(name)}

exit codes:
{_exit_codes()}
""",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    parser.add_argument("--print-settings", action="store_true", help="print the effective settings and exit")
    parser.add_argument("--version", action="version", version=f"gpubus {name} {telemetry.version()}")
    return parser


def _examples(name: str) -> str:
    rows = (
        (f"python -m {name}", "defaults and environment"),
        (f"python -m {name} --config gpubus.toml", "a file; the environment overlays it"),
        (f"python -m {name} --print-settings", "every setting, its meaning, its origin"),
        (f"{variable('nats.urls')}=nats://10.0.0.5:4222 python -m {name}", "one setting by environment"),
    )
    return "\n".join(f"  {command:<64} {meaning}" for command, meaning in rows)


def _exit_codes() -> str:
    return "\n".join(f"  {code.value}  {code.name.lower().replace('_', ' ')}" for code in ExitCode)
