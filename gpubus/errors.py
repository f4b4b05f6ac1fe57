"""What can go wrong at the front door, by who can do something about it; each is told in one line.

FrontError
├── UsageError     the person at the keyboard: a flag, a file, a name. Not retried
├── Unreachable    no bus at the address. Start one (`gpubus local`) or name another (`--nats`)
├── NoAnswer       the bus is there, the part that should answer is not (scheduler, reconciler, span store)
├── AnswerIsNo     the answer arrived and is no: refused, findings, not within the time
└── LocalFailure   a part of `gpubus local` could not start or died; carries the end of its log
"""

from __future__ import annotations


class FrontError(Exception):
    """Anything that a command ends with instead of an answer."""


class UsageError(FrontError):
    """What was typed, or what stands in a file that was named."""


class Unreachable(FrontError):  # noqa: N818 - named by what is the case, as the drawing above
    """No bus at `url`."""

    def __init__(self, url: str, why: str, hint: str = "") -> None:
        super().__init__(f"no bus at {url}: {why}" + (f"; {hint}" if hint else ""))
        self.url = url


class NoAnswer(FrontError):  # noqa: N818
    """The bus is there; `who` did not answer."""

    def __init__(self, who: str, why: str) -> None:
        super().__init__(f"{who} does not answer: {why}")
        self.who = who


class AnswerIsNo(FrontError):  # noqa: N818
    """A clear no; what it is stands on the screen already or in the text."""


class LocalFailure(FrontError):  # noqa: N818
    """A part of the local installation failed: which, why, and the end of its log."""

    def __init__(self, part: str, why: str, log_tail: str = "", log_file: str = "") -> None:
        super().__init__(f"{part}: {why}")
        self.part = part
        self.log_tail = log_tail
        self.log_file = log_file
