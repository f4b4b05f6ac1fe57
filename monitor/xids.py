"""What the driver's Xid messages mean for the card they are said of. Pure.

In: a code, as an event carries it. Out: a `Sign` that speaks against the card, or None where the program was at fault
and not the card. The codes and their causes are NVIDIA's ("XID Errors", the catalog of its deployment guides); what
follows from each is ours:

    application   the program did it: an illegal address, an assertion, a kill. Never the card's fault: no sign
    fatal         the card, its memory or its link is broken, or it has stopped working: failed at once
    passing       it may pass: suspect at once, and back by itself after quiet. Also every code that is not listed:
                  a code of tomorrow is a doubt, it is neither nothing nor the end of a card

A fatal event needs a reset to be over (see `monitor.standing`): the card may well answer all questions while every
program on it dies.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from contracts.units import CardUuid
from monitor.cards.protocol import Sign

Meaning = Literal["application", "passing", "fatal"]


class Xid(msgspec.Struct, frozen=True):
    """What one code means, and the words for it."""

    meaning: Meaning
    words: str


UNLISTED = Xid("passing", "not in our table")

XIDS: dict[int, Xid] = {
    8: Xid("application", "a kernel ran into the time limit of a card that drives a display"),
    13: Xid("application", "graphics engine exception: mostly an index out of bounds in a kernel"),
    31: Xid("application", "memory page fault: mostly an illegal address in a kernel"),
    43: Xid("application", "the driver stopped a program that had faulted; the card works"),
    45: Xid("application", "work was torn down, mostly because its program was killed"),
    68: Xid("application", "video processor exception"),
    109: Xid("application", "context switch timeout: a kernel that does not yield"),
    32: Xid("passing", "invalid or corrupted push buffer: a driver, bus or memory error"),
    38: Xid("passing", "driver firmware error"),
    61: Xid("passing", "breakpoint or warning of an internal micro-controller"),
    62: Xid("fatal", "an internal micro-controller has halted"),
    46: Xid("fatal", "the card stopped processing"),
    48: Xid("fatal", "double bit ECC error: data in its memory was lost"),
    54: Xid("fatal", "auxiliary power is not connected"),
    63: Xid("fatal", "a memory row or page is being replaced, which takes a reset"),
    64: Xid("fatal", "a memory row or page could not be replaced"),
    74: Xid("fatal", "NVLink error"),
    79: Xid("fatal", "the card has fallen off the bus"),
    92: Xid("passing", "high rate of single bit ECC errors"),
    94: Xid("fatal", "ECC error, contained to the programs it hit; the memory row waits for a reset"),
    95: Xid("fatal", "ECC error that was not contained: every program on the card is in doubt"),
    110: Xid("fatal", "security fault"),
    119: Xid("fatal", "the card's system processor (GSP) does not answer"),
    120: Xid("fatal", "error of the card's system processor (GSP)"),
    136: Xid("fatal", "NVLink training failed"),
    140: Xid("fatal", "ECC error that was not recovered"),
    143: Xid("fatal", "the card could not be initialised"),
    154: Xid("passing", "the driver asks for another recovery action"),
}
"""A doubt of ours goes the other way for 154: what action is asked for is polled, and weighs by itself."""


def sign_of(card: CardUuid, code: int) -> Sign | None:
    """What an Xid says against the card; None for what is its program's."""
    known = XIDS.get(code, UNLISTED)
    if known.meaning == "application":
        return None
    return Sign(card=card, weight=known.meaning, reason=f"Xid {code}: {known.words}", event=True)
