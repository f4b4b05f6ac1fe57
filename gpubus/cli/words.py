"""Conveniences of the command line that its parser does not know, spelt out before it reads. Pure.

    submit -                 ->  submit /dev/stdin          (also `explain --what-if -`)
submit --wait            ->  submit --wait=running      (the value is optional)
submit ... -- a "b c"    ->  submit ... --command="a 'b c'"   (everything behind the dashes is the container's)
"""

from __future__ import annotations

import shlex

from gpubus.waiting import GOALS

WAIT_DEFAULT = "running"
STDIN = "/dev/stdin"


def spelt_out(tokens: list[str]) -> list[str]:
    """The same words in the long form."""
    head, command = _split(tokens)
    head = [STDIN if word == "-" else word for word in head]
    if tokens[:1] != ["submit"]:
        return [*head, *(["--", *command] if command else [])]
    words = [_wait(word, after) for word, after in zip(head, [*head[1:], ""], strict=True)]
    return words + ([f"--command={shlex.join(command)}"] if command else [])


def _split(tokens: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in tokens:
        return tokens, []
    at = tokens.index("--")
    return tokens[:at], tokens[at + 1 :]


def _wait(word: str, after: str) -> str:
    return f"--wait={WAIT_DEFAULT}" if word == "--wait" and after not in GOALS else word
