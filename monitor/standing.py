"""How one card stands over time: what speaks against it, what it needs to be offered again, and for how long. Pure.

In: a good look, a sign, or silence, each with its time. Out: the new standing. Only `healthy` is offered.

    from           good look                odd look          passing sign     fatal sign   no answer
    healthy        healthy                  suspect at N of M suspect          failed       suspect
    suspect        healthy, once quiet      quiet anew        quiet anew       failed       suspect
    failed         recovering, see below    failed            failed           failed       failed
    recovering     healthy, once quiet      quiet anew        quiet anew       failed       quiet anew

What a card needs stands in `needs`:

    time      to be quiet for its hold time, in one piece
    answer    to answer, and then time. A silent card, or a condition that each look can see (lost, a row to replace):
              the first good look is the evidence that it is over
    reset     evidence of a reset, and then time. For events after which a card may answer every question and still be
              broken. Evidence: a condition was seen after it and is over, the driver was loaded anew, the node has
              booted (the book begins anew), or an operator says that the card was seen to

Damping: the hold time is `quiet_ms` the first time, and doubles each time that a card leaves `healthy`, or relapses
while recovering, within `forget_ms`: 60 s, 2 min, 4 min, ... at most `longest_ms`. A card that only did not answer has
no hold time the first time, because nothing speaks against it. Reasons name no running numbers: a reason that counts
seconds would be news at every look.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from contracts.inventory import CardHealth, HealthNeeds
from monitor.cards.protocol import Sign

NEVER_LEFT = -1


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How much trouble is too much, and how long is quiet."""

    odd_looks: int = 3
    """So many odd looks ..."""
    of_looks: int = 10
    """... among the last so many make a card suspect."""
    quiet_ms: int = 60_000
    longest_ms: int = 3_600_000
    forget_ms: int = 3_600_000
    """A card that was healthy for so long begins with a clean record."""

    def hold_ms(self, flaps: int) -> int:
        """The hold time of a card that has flapped so often."""
        return min(self.longest_ms, self.quiet_ms << min(max(flaps, 0), 32))


class At(msgspec.Struct, frozen=True, kw_only=True):
    """A moment: monotonic for decisions, by the wall for people."""

    now_ms: int
    wall_ms: int = 0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One card's state. The beginning is a healthy card that never left."""

    health: CardHealth = "healthy"
    reason: str = ""
    needs: HealthNeeds = ""
    since_ms: int = 0
    """Wall clock when this health began; 0 = since it is known."""
    quiet_from_ms: int = 0
    """Monotonic: the last trouble, or the first answer after it."""
    hold_ms: int = 0
    flaps: int = NEVER_LEFT
    well_from_ms: int = 0
    """Monotonic: when it became healthy again."""
    odd: int = 0
    """The last looks as bits, the newest lowest; 1 = odd."""


FINE = Standing()


def good(s: Standing, at: At, rules: Rules) -> Standing:
    """A look that found nothing."""
    if s.health == "healthy":
        return replace(s, odd=_shifted(s, rules, odd=0)) if s.odd else s
    if s.needs == "reset":
        return s
    if s.needs == "answer":
        s = _answering(s, at)
    return _healed(s, at) if at.now_ms - s.quiet_from_ms >= s.hold_ms else s


def troubled(s: Standing, sign: Sign, at: At, rules: Rules) -> Standing:
    """A sign that speaks against the card."""
    if sign.weight == "fatal":
        return _failed(s, sign, at, rules)
    if sign.weight == "odd":
        s = replace(s, odd=_shifted(s, rules, odd=1))
        if s.health == "healthy" and s.odd.bit_count() < rules.odd_looks:
            return s
        words = f"{rules.odd_looks} of {rules.of_looks} looks failed, the last one: {sign.reason}"
        sign = replace(sign, reason=words)
    if s.health == "healthy":
        flaps = _flaps(s, at, rules)
        return _left(s, at, "suspect", sign.reason, needs="time", flaps=flaps, hold_ms=rules.hold_ms(flaps))
    if s.health == "failed":
        return s
    reason = sign.reason[:1024] if s.needs == "answer" else s.reason  # "no answer" was no reason that explains this
    hold_ms = max(s.hold_ms, rules.hold_ms(s.flaps))
    return replace(s, reason=reason, quiet_from_ms=at.now_ms, needs="time", hold_ms=hold_ms)


def silent(s: Standing, reason: str, at: At, rules: Rules) -> Standing:
    """No answer: nothing speaks against the card, and nothing for it."""
    if s.health == "healthy":
        flaps = _flaps(s, at, rules)
        hold_ms = rules.hold_ms(flaps - 1) if flaps else 0
        return _left(s, at, "suspect", reason, needs="answer", flaps=flaps, hold_ms=hold_ms)
    if s.health == "failed" or s.needs == "answer":
        return s
    return replace(s, needs="answer")


def released(s: Standing) -> Standing:
    """There was a reset, or somebody says so: an answer is enough now."""
    return replace(s, needs="answer") if s.needs == "reset" else s


def _failed(s: Standing, sign: Sign, at: At, rules: Rules) -> Standing:
    """What a look can see supersedes what an event told: the end of it can be seen too. The first reason stays."""
    if s.health == "failed":
        return s if sign.event else replace(s, needs="answer")
    flaps = max(s.flaps, 0) if s.health == "suspect" else _flaps(s, at, rules)
    needs: HealthNeeds = "reset" if sign.event else "answer"
    return _left(s, at, "failed", sign.reason, needs=needs, flaps=flaps, hold_ms=rules.hold_ms(flaps))


def _flaps(s: Standing, at: At, rules: Rules) -> int:
    long_ago = s.health == "healthy" and s.flaps >= 0 and at.now_ms - s.well_from_ms > rules.forget_ms
    return 0 if long_ago else s.flaps + 1


def _left(
    s: Standing, at: At, health: CardHealth, reason: str, *, needs: HealthNeeds, flaps: int, hold_ms: int
) -> Standing:
    return replace(
        s,
        health=health,
        reason=reason[:1024],
        needs=needs,
        since_ms=at.wall_ms,
        quiet_from_ms=at.now_ms,
        hold_ms=hold_ms,
        flaps=flaps,
    )


def _answering(s: Standing, at: At) -> Standing:
    """The first answer: from here on it must be quiet."""
    s = replace(s, needs="time", quiet_from_ms=at.now_ms)
    if s.health != "failed":
        return s
    words = f"works again and is offered after {s.hold_ms // 1000} s without trouble; it had failed: {s.reason}"
    return replace(s, health="recovering", reason=words[:1024], since_ms=at.wall_ms)


def _healed(s: Standing, at: At) -> Standing:
    return Standing(since_ms=at.wall_ms, flaps=s.flaps, well_from_ms=at.now_ms)


def _shifted(s: Standing, rules: Rules, *, odd: int) -> int:
    return (s.odd << 1 | odd) & ((1 << rules.of_looks) - 1)
