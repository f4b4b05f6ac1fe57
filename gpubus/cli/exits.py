"""The exit codes of the `gpubus` command: one enum, printed in `--help` and in docs/guide/cli.md."""

from __future__ import annotations

import enum

from gpubus.errors import AnswerIsNo, FrontError, LocalFailure, NoAnswer, Unreachable, UsageError


class Exit(enum.IntEnum):
    """What the command's exit status says."""

    OK = 0
    NO = 1
    USAGE = 2
    UNREACHABLE = 3
    NO_ANSWER = 4
    LOCAL = 5
    DEFECT = 70
    INTERRUPTED = 130


MEANING: dict[Exit, str] = {
    Exit.OK: "yes; also a local, watch or top that was ended with Ctrl-C",
    Exit.NO: "no: refused, not found, audit findings, --wait not reached",
    Exit.USAGE: "a flag, a file or a setting is wrong; nothing was sent",
    Exit.UNREACHABLE: "no bus at the address",
    Exit.NO_ANSWER: "the scheduler, reconciler or span store does not answer",
    Exit.LOCAL: "a part of local, demo or replay did not start, or died",
    Exit.DEFECT: "a defect of gpubus; --debug shows where",
    Exit.INTERRUPTED: "Ctrl-C while something was still to come",
}

_BY_ERROR: tuple[tuple[type[FrontError], Exit], ...] = (
    (UsageError, Exit.USAGE),
    (Unreachable, Exit.UNREACHABLE),
    (NoAnswer, Exit.NO_ANSWER),
    (LocalFailure, Exit.LOCAL),
    (AnswerIsNo, Exit.NO),
)


def exit_of(error: FrontError) -> Exit:
    """The exit code of an error; an error of no listed kind is a defect."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.DEFECT)


def help_text() -> str:
    """The table for `--help`."""
    return "\n".join(f"{code.value:>4}  {MEANING[code]}" for code in Exit)
