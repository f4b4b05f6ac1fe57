"""A policy that could not decide: who, why, and how its name stands in a rationale. Pure.

A user's policy may raise, answer nonsense or take too long. Then the request is placed by the default policy, as if it
had named that one, and the rationale says so; what fits where was never the policy's to say.
"""

from __future__ import annotations

TOLD_CHARACTERS = 200
"""Of the reason; a rationale stands in the log for ever."""


class PolicyFailed(Exception):  # noqa: N818 - named by what is the case
    """A score could not be had from the policy of that name."""

    def __init__(self, policy: str, kind: str, why: str) -> None:
        super().__init__(f"{policy}: {why}")
        self.policy = policy
        self.kind = kind
        """One of few words, to count by: raised, no-integer, out-of-bounds, too-slow, put-aside."""
        self.why = why

    @property
    def told(self) -> str:
        """For a rationale, not longer than a text may be."""
        return str(self)[:TOLD_CHARACTERS]
