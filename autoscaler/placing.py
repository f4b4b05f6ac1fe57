"""Asking for replicas and giving them back: the scheduler is asked first, and only what it can place is asked for.

In: a pod request, or a name. Out: what the scheduler promised, `NoRoom` with its reason, or `Unanswered`.
Nothing here decides how many.
"""

from __future__ import annotations

from bus import codec
from bus.protocol import Bus, BusError
from contracts.answers import Explanation, SubmitReply
from contracts.functions import MissingCards
from contracts.requests import PodRequest, Withdraw
from contracts.subjects import SUBMIT, WHAT_IF

ASK_S = 2.0


class NoRoom(Exception):  # noqa: N818 - named by what is the case
    """It cannot be placed now: the scheduler's reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(NoRoom):
    """Asking again will not help soon: a quota, a name that somebody else has, a template that is not allowed."""


class Unanswered(Exception):  # noqa: N818
    """The scheduler did not answer; whether it took effect is not known."""


async def placeable(bus: Bus, namespace: str, request: PodRequest) -> None:
    """Return when it could be placed at this moment.

    Raises:
        NoRoom: it could not, with the nearest change that would help.
        Unanswered: no answer.
    """
    try:
        answer = await codec.ask(bus, WHAT_IF, request, Explanation, namespace=namespace, timeout_s=ASK_S)
    except BusError as error:
        raise Unanswered(str(error)) from error
    if answer.placement is None:
        raise NoRoom(why_not(answer))


def why_not(answer: Explanation) -> str:
    """The scheduler's reasons in one line."""
    told = [reason.text for reason in answer.reasons[:2]]
    if answer.nearest is not None:
        told.append(answer.nearest.text)
    return "; ".join(told)[:1024] or "the scheduler names no node"


async def submit(bus: Bus, namespace: str, request: PodRequest | Withdraw) -> int:
    """Ask for it, and wait for the promise: the ledger sequence in which it stands.

    Raises:
        Refused: with all that is wrong.
        Unanswered: no answer; asking again under the same name is safe.
    """
    try:
        reply = await codec.ask(bus, SUBMIT, request, SubmitReply, namespace=namespace, timeout_s=ASK_S)
    except BusError as error:
        raise Unanswered(str(error)) from error
    if not reply.accepted:
        raise Refused("; ".join(refusal.text for refusal in reply.refusals)[:1024] or "refused")
    return reply.ledger_sequence


def missing_cards(request: PodRequest, replicas: int, reason: str) -> MissingCards:
    """What so many replicas more would need."""
    gpu = request.gpu
    return MissingCards(
        replicas=replicas,
        cards=replicas * gpu.cards,
        share_milli=gpu.share_milli if gpu.cards else 0,
        memory_mib=gpu.memory_mib,
        models=gpu.models,
        reason=reason,
    )
