"""Two conveniences of the command line that its parser does not know, spelt out before it reads. Pure.

submit --wait            ->  submit --wait=running      (the value is optional)
submit ... -- a "b c"    ->  submit ... --command="a 'b c'"   (everything behind the dashes is the container's)
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gpubus.waiting import GOALS

WAIT_DEFAULT = "running"


def spelt_out(tokens: Sequence[str]) -> list[str]:
    """The same words in the long form."""
    if not tokens or tokens[0] != "submit":
        return list(tokens)
    head, command = _split(tokens)
    words = [_wait(word, after) for word, after in zip(head, [*head[1:], ""], strict=True)]
    return words + ([f"--command={shlex.join(command)}"] if command else [])


def _split(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in tokens:
        return list(tokens), []
    at = list(tokens).index("--")
    return list(tokens[:at]), list(tokens[at + 1 :])


def _wait(word: str, after: str) -> str:
    return f"--wait={WAIT_DEFAULT}" if word == "--wait" and after not in GOALS else word
