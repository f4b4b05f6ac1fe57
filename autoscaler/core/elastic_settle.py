"""The last word on a job's number of trainers: what the dry run wishes, held against bounds, pauses and cool-downs.

In: integers, the same that a `ScaleDecision` carries. Out: a target and the rule that gave it, so that every decision
can be made again from its message alone. The dry run behind the wish can be made again too: `ledger` is the sequence
of the ledger that it looked at.

Growing is careful and shrinking for somebody is not: a job grows only when it has not changed for `grow_after_ms`, and
when the scheduler has just said that it would place one more trainer. What cannot be read is no reason to grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from contracts.workloads import ScaleDecision


class Inputs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that counts. Absent is not known."""

    generation: int
    present: int
    """Its target so far."""
    minimum: int
    maximum: int
    wish: int | None = None
    """The target of the dry run; None: the cluster could not be read, or the job took no part in it."""
    yields: int = 0
    """1: somebody waits, and the dry run found a seat of this job for it."""
    moves: int = 0
    """Trainers whose seats somebody else needs, while there is room for them elsewhere."""
    placeable: int | None = None
    """How many more the scheduler would place; None: not asked, or no answer."""
    given_up: int = 0
    """Trainers that have waited too long."""
    since_change_ms: int = 0
    grow_after_ms: int = 0
    shrink_after_ms: int = 0
    paused: int = 0
    frozen: int = 0
    """1: an operator has stopped all scaling."""
    ledger: int = 0


Answer = tuple[int, str]


def decide(inputs: Inputs) -> Answer:
    """The target and the rule: the first of `RULES` that has something to say."""
    found = (rule(inputs) for rule in RULES)
    return next((answer for answer in found if answer is not None), (inputs.present, "steady"))


def _frozen(inputs: Inputs) -> Answer | None:
    return (inputs.present, "frozen") if inputs.frozen else None


def _bounds(inputs: Inputs) -> Answer | None:
    if inputs.present > inputs.maximum:
        return inputs.maximum, "max"
    return (inputs.minimum, "min") if inputs.present < inputs.minimum else None


def _held(inputs: Inputs) -> Answer | None:
    return (inputs.present, "paused") if inputs.paused else None


def _given_up(inputs: Inputs) -> Answer | None:
    if not inputs.given_up or inputs.present <= inputs.minimum:
        return None
    return max(inputs.minimum, inputs.present - inputs.given_up), "no-room"


def _unknown(inputs: Inputs) -> Answer | None:
    return (inputs.present, "unknown") if inputs.wish is None else None


def _less(inputs: Inputs) -> Answer | None:
    wish = max(inputs.wish or 0, inputs.minimum)
    if wish >= inputs.present:
        return None
    if inputs.yields:
        return wish, "yields"
    cooling = inputs.since_change_ms < inputs.shrink_after_ms
    return (inputs.present, "cool-down") if cooling else (wish, "overload")


def _moves(inputs: Inputs) -> Answer | None:
    return (inputs.present, "moves") if inputs.moves else None


def _more(inputs: Inputs) -> Answer | None:
    wish = min(inputs.wish or 0, inputs.maximum)
    if wish <= inputs.present:
        return None
    if inputs.since_change_ms < inputs.grow_after_ms:
        return inputs.present, "cool-down"
    if inputs.placeable is None:
        return inputs.present, "no-answer"
    target = min(wish, inputs.present + inputs.placeable)
    return target, "room" if target > inputs.present else "not-placeable"


RULES: tuple[Callable[[Inputs], Answer | None], ...] = (
    _frozen,  # an operator's word goes before everything
    _bounds,  # no load asks for them, and no cool-down delays them
    _held,  # paused by its owner
    _given_up,  # what has waited too long is not waited for, whatever the dry run would add
    _unknown,  # what cannot be read is no reason to change
    _less,  # for others before for itself
    _moves,
    _more,
)


def wants_to_grow(inputs: Inputs) -> bool:
    """Whether it is worth asking the scheduler: it would grow if it were told that there is room."""
    target, _ = decide(msgspec.structs.replace(inputs, placeable=inputs.maximum))
    return target > max(inputs.present, inputs.minimum)


def as_integers(inputs: Inputs) -> dict[str, int]:
    """For the message; what is not known is left out."""
    return {name: value for name, value in msgspec.structs.asdict(inputs).items() if value is not None}


def of_integers(found: Mapping[str, int]) -> Inputs:
    """The inverse. Names that are not known are those of a later version.

    Raises:
        msgspec.ValidationError: one without which nothing can be decided is missing.
    """
    return msgspec.convert(dict(found), Inputs)


def replay(message: ScaleDecision) -> Answer:
    """The decision, made again."""
    return decide(of_integers(message.inputs))
