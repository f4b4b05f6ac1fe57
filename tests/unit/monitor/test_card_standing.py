"""How one card stands: the table of transitions, damping, and what a machine of random stories never shows."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contracts.units import CardUuid
from monitor.cards.protocol import Sign, Weight
from monitor.standing import FINE, At, Rules, Standing, good, released, silent, troubled
from monitor.xids import XIDS, sign_of

RULES = Rules(odd_looks=3, of_looks=10, quiet_ms=60_000, longest_ms=400_000, forget_ms=3_600_000)
CARD = CardUuid("GPU-a")
WEIGHTS: dict[str, Weight] = {"o": "odd", "p": "passing", "f": "fatal", "X": "fatal"}


def sign(weight: Weight, *, event: bool = False, reason: str = "broken") -> Sign:
    return Sign(card=CARD, weight=weight, reason=reason, event=event)


def step(s: Standing, seen: str, now_ms: int) -> Standing:
    """One letter a step: g(ood), o(dd), p(assing), f(atal, in a look), X(id, fatal, an event), s(ilent), r(eset)."""
    at = At(now_ms=now_ms, wall_ms=now_ms)
    if seen == "g":
        return good(s, at, RULES)
    if seen == "s":
        return silent(s, "no answer", at, RULES)
    if seen == "r":
        return released(s)
    return troubled(s, sign(WEIGHTS[seen], event=seen == "X"), at, RULES)


def story(text: str, *, every_s: int = 10) -> list[str]:
    """The health after each letter, one letter every `every_s` seconds; a digit waits for so many minutes."""
    s, now_ms, told = FINE, 0, []
    for seen in text:
        now_ms += int(seen) * 60_000 if seen.isdigit() else every_s * 1000
        if not seen.isdigit():
            s = step(s, seen, now_ms)
            told.append(s.health[0])
    return told


STORIES = [
    ("ggg", "hhh", "nothing happens"),
    ("ogogogggggg", "hhhhssssssh", "the third odd look of ten is a doubt"),
    ("oo" + "g" * 8 + "o", "h" * 11, "two odd looks fall out of the last ten"),
    ("pggggggg", "ssssssh" + "h", "a passing sign is a doubt for a minute of quiet"),
    ("pgggpggggggg", "sssssssssshh", "and the minute begins anew with the next sign"),
    ("pggog" + "g" * 5 + "g", "sssssssss" + "hh", "an odd look breaks the quiet too"),
    ("fffggggggg", "fffrrrrrrh", "what looks can see is over with the first good one, and believed after a minute"),
    ("fgggfggggggg", "frrrfrrrrrrr", "a relapse while recovering doubles the time"),
    ("Xgggg9g9g", "fffffff", "after a fatal event good looks say nothing"),
    ("Xgrggggggg", "fffrrrrrrh", "until a reset is known"),
    ("Xfgggggggg", "ffrrrrrrhh", "or a condition was seen after it and is over"),
    ("fXgggggggg", "ffrrrrrrhh", "also when the event comes late"),
    ("fgggXggggg", "frrrffffff", "an event while recovering is a new one"),
    ("sssgsg", "ssshss", "a first silence leaves with the first answer, a second one takes time"),
    ("sp" + "g" * 7, "ssssssshh", "a sign on top of silence counts as if it were alone"),
    ("ps" + "g" * 7, "ssssssssh", "silence is no quiet: the minute begins with the answer"),
    ("fsgggggggg", "ffrrrrrrhh", "silence of a failed card changes nothing"),
    ("fgsggggggg", "frrrrrrrrh", "silence of a recovering card starts over"),
]


@pytest.mark.parametrize(("seen", "health", "claim"), STORIES, ids=[claim for _, _, claim in STORIES])
def test_a_story_of_looks(seen: str, health: str, claim: str) -> None:
    """Claim: as the id says; h(ealthy), s(uspect), f(ailed), r(ecovering)."""
    assert "".join(story(seen)) == health, claim


def test_s062_flapping_doubles_the_time_up_to_a_limit_and_is_forgotten() -> None:
    """Claim: held back for 60, 120, 240, 400, 400 s; after an hour of health for 60 s again."""
    s, now_ms, held = FINE, 0, []
    for flap in range(6):
        now_ms += 3_600_001 if flap == 5 else 1000
        s = step(s, "f", now_ms)
        began = now_ms = now_ms + 1000
        while s.health != "healthy":
            s = step(s, "g", now_ms)
            now_ms += 1000
        held.append((now_ms - 1000 - began) // 1000)

    assert held == [60, 120, 240, 400, 400, 60]


def test_a_healed_card_keeps_its_record_and_nothing_else() -> None:
    """Claim: health, reason and needs are those of a card that nothing happened to; since says when it came back."""
    s = FINE
    for second, seen in enumerate("f" + "g" * 62):
        s = step(s, seen, second * 1000)

    assert (s.health, s.reason, s.needs, s.odd, s.since_ms) == ("healthy", "", "", 0, 61_000)


def test_reasons_tell_what_happened_and_what_is_waited_for_and_are_no_news_twice() -> None:
    """Claim: the first reason stays; a recovering card's text names its time, and is the same at every look."""
    failed = step(FINE, "f", 0)
    recovering = step(failed, "g", 1000)

    assert failed.reason == "broken"
    assert recovering.reason == "works again and is offered after 60 s without trouble; it had failed: broken"
    assert step(recovering, "g", 2000) == recovering
    again = troubled(failed, sign("fatal", reason="something else"), At(now_ms=5), RULES)
    assert again.reason == "broken"
    assert [s.needs for s in (step(FINE, "X", 0), failed, recovering, step(FINE, "s", 0))] == [
        "reset", "answer", "time", "answer"
    ]  # fmt: skip


def test_the_words_of_odd_looks_count_them() -> None:
    """Claim: "3 of the last 10" is said with what the last one said."""
    s = FINE
    for at_ms in range(3):
        s = step(s, "o", at_ms)

    assert s.reason == "3 of 10 looks failed, the last one: broken"


# --- Xids -----------------------------------------------------------------------------------------------------------

FATAL = (46, 48, 54, 62, 63, 64, 74, 79, 94, 95, 110, 119, 120, 136, 140, 143)
APPLICATION = (8, 13, 31, 43, 45, 68, 109)


@pytest.mark.parametrize("code", FATAL)
def test_s061_a_fatal_xid_fails_its_card_at_once(code: int) -> None:
    """Claim: one event is enough; it needs a reset, and its reason names the code."""
    said = sign_of(CARD, code)
    assert said is not None
    failed = troubled(FINE, said, At(now_ms=0), RULES)

    assert (failed.health, failed.needs) == ("failed", "reset")
    assert failed.reason.startswith(f"Xid {code}: ")


@pytest.mark.parametrize("code", APPLICATION)
def test_an_xid_of_a_program_never_costs_a_card(code: int) -> None:
    """Claim: a tenant cannot take a card out of the pool by crashing on it."""
    assert sign_of(CARD, code) is None


@pytest.mark.parametrize("code", [38, 92, 154, 4711])
def test_other_xids_are_a_doubt(code: int) -> None:
    """Claim: known passing ones, and every code that is not in the table."""
    said = sign_of(CARD, code)
    assert said is not None

    assert troubled(FINE, said, At(now_ms=0), RULES).health == "suspect"


def test_the_table_is_what_these_tests_say() -> None:
    """Claim: no code changes its meaning unnoticed, and each has words."""
    fatal = sorted(code for code, xid in XIDS.items() if xid.meaning == "fatal")
    application = sorted(code for code, xid in XIDS.items() if xid.meaning == "application")

    assert (fatal, application) == (sorted(FATAL), sorted(APPLICATION))
    assert all(xid.words for xid in XIDS.values())


# --- any story ------------------------------------------------------------------------------------------------------


class Stories(RuleBasedStateMachine):
    """A second, plain set of books beside the standing: when was the last trouble, and of what kind."""

    def __init__(self) -> None:
        super().__init__()
        self.s = FINE
        self.now_ms = 0
        self.trouble_ms: int | None = None
        """The last trouble that is more than an odd look on a healthy card."""
        self.reset_needed = False

    @rule(seconds=st.integers(1, 120))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1000

    @rule(seen=st.sampled_from("ggggopfXsr"))
    def see(self, seen: str) -> None:
        before, self.s = self.s, step(self.s, seen, self.now_ms)
        if seen in "pfX" or (seen == "o" and self.s.health != "healthy"):
            self.trouble_ms = self.now_ms
        if seen == "X" and not (before.health == "failed" and before.needs == "answer"):
            self.reset_needed = True
        if seen in "fr":
            self.reset_needed = False

    @invariant()
    def nobody_is_offered_in_trouble(self) -> None:
        """Healthy means a minute without trouble, and no reset outstanding."""
        if self.s.health == "healthy" and self.trouble_ms is not None:
            assert self.now_ms - self.trouble_ms >= RULES.quiet_ms
        if self.reset_needed:
            assert self.s.health == "failed"

    @invariant()
    def every_card_says_why_and_what_for(self) -> None:
        """Exactly the healthy ones need nothing and give no reason."""
        assert (self.s.health == "healthy") == (not self.s.needs) == (not self.s.reason)

    @invariant()
    def every_card_can_come_back(self) -> None:
        """From any state: a reset, then good looks for the longest hold time."""
        s = released(self.s)
        for after_ms in (1, 2, RULES.longest_ms + 2):
            s = step(s, "g", self.now_ms + after_ms)
        assert s.health == "healthy"

    @invariant()
    def no_hold_is_longer_than_allowed(self) -> None:
        """However often it flaps."""
        assert self.s.hold_ms <= RULES.longest_ms


TestStories = Stories.TestCase
TestStories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
