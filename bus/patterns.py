"""Subjects and patterns: which literal subject a pattern with `*` (one token) and `>` (the rest) covers. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

_SUBJECT = re.compile(r"[!-~]+")


def check_subject(subject: str) -> str:
    """The subject, when it can be sent.

    Raises:
        ValueError: it is empty or holds blanks, line breaks or bytes beyond printable ASCII (it could inject commands).
    """
    if not _SUBJECT.fullmatch(subject):
        raise ValueError(f"{subject!r} is no subject")
    return subject


@lru_cache(maxsize=16_384)
def covers(pattern: str, subject: str) -> bool:
    """Whether a pattern takes in a literal subject: `a.*` takes `a.b` but not `a.b.c`, `a.>` takes both but not `a`."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(w in ("*", t) for w, t in zip(wanted, tokens, strict=True))
