"""What callers are told. Pure."""

from __future__ import annotations

from contracts.answers import SubmitReply
from contracts.outcomes import Refusal
from scheduler.core.engine import Answer


def submit_reply(answer: Answer | None = None, *, busy: int = 0) -> SubmitReply:
    """The promise, the refusals, or the word that too much is waiting already."""
    if answer is None:
        text = f"{busy} requests wait to be decided; submit again in a second"
        return SubmitReply(
            accepted=False, refusals=(Refusal(field="(service)", value=str(busy), bound="fewer waiting", text=text),)
        )
    return SubmitReply(
        accepted=bool(answer.uid),
        uid=answer.uid,
        ledger_sequence=answer.ledger_sequence,
        duplicate=answer.duplicate,
        refusals=answer.refusals,
    )
