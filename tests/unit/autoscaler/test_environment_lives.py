"""The life of an environment: its steps, its lease, and that nothing it was granted is ever lost."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autoscaler.core.choosers import CardSlots
from autoscaler.core.lifecycle import (
    CODES,
    STEPS,
    Event,
    Fleet,
    IllegalStep,
    State,
    choose,
    expire,
    lose_node,
    start,
    tell,
)

LEASE_MS = 30_000
EVENTS: list[Event] = ["created", "ready", "beat", "choose", "finish", "end"]


def card(uuid: str, node: str = "gpu-1") -> CardSlots:
    return CardSlots(uuid=uuid, node=node, memory_mib=16_000, ports=(4001, 4002))


def idle(name: str, fleet: Fleet | None = None, now_ms: int = 0) -> Fleet:
    """A fleet with one more environment that waits for calls."""
    begun = start(fleet or Fleet(cards=(card("A"),)), name, function="f", node="n1", now_ms=now_ms)
    return tell(tell(begun, name, "created", now_ms=now_ms)[0], name, "ready", now_ms=now_ms)[0]


def given_card(name: str, memory_mib: int, fleet: Fleet) -> Fleet:
    found = choose(fleet, name, memory_mib)
    assert found is not None
    return found[0]


def test_a_life_from_start_to_end() -> None:
    """Starting, creating, idle, allocated, idle, dead; with the answers."""
    fleet = start(Fleet(cards=(card("A"),)), "v1", function="f", node="n1", now_ms=0)
    said: list[tuple[State | None, str]] = []
    for event in ("created", "ready", "choose", "beat", "finish", "end", "ready"):
        if event == "choose":
            fleet, answer = given_card("v1", 4000, fleet), ""
        else:
            fleet, answer = tell(fleet, "v1", event, now_ms=1)
        said.append((fleet.state("v1"), answer))

    assert said == [
        ("creating", "keep-alive"),
        ("idle", "keep-alive"),
        ("allocated", ""),
        ("allocated", "ok"),
        ("idle", "keep-alive"),
        ("dead", "destroy"),
        ("dead", "destroy"),
    ]


def test_ready_may_overtake_created() -> None:
    """The answer to the creation comes later than the first word of what was created."""
    fleet = start(Fleet(), "v1", function="f", node="n1", now_ms=0)
    fleet, _ = tell(fleet, "v1", "ready", now_ms=1)
    fleet, answer = tell(fleet, "v1", "created", now_ms=2)

    assert (fleet.state("v1"), answer) == ("idle", "keep-alive")


def test_a_stranger_is_told_to_go() -> None:
    """Nobody waits for an environment that does not exist, and nothing ends because of it."""
    assert tell(Fleet(), "ghost", "finish", now_ms=0) == (Fleet(), "destroy")


def test_a_refused_start_is_remembered_and_may_be_tried_again() -> None:
    """The policy's limit; later there is room."""
    fleet = start(Fleet(), "v1", function="f", node="n1", now_ms=0, allowed=False)

    assert fleet.state("v1") == "refused"
    assert start(fleet, "v1", function="f", node="n1", now_ms=1).state("v1") == "starting"


def test_a_name_that_lives_is_not_started_again() -> None:
    """A second start would forget what the first holds."""
    with pytest.raises(IllegalStep, match="v1: 'start' cannot happen while idle"):
        start(idle("v1"), "v1", function="f", node="n1", now_ms=0)


def test_every_illegal_step_names_state_and_event_and_changes_nothing() -> None:
    """All pairs that the table does not hold, of states that live."""
    fleets = {
        "starting": start(Fleet(), "v1", function="f", node="n1", now_ms=0),
        "creating": tell(start(Fleet(), "v1", function="f", node="n1", now_ms=0), "v1", "created", now_ms=0)[0],
        "idle": idle("v1"),
        "allocated": given_card("v1", 1, idle("v1")),
    }
    refused = 0
    for state, fleet in fleets.items():
        assert fleet.state("v1") == state
        for event in EVENTS:
            if event not in STEPS[fleet.lives["v1"].state]:
                with pytest.raises(IllegalStep, match=f"v1: '{event}' cannot happen while {state}"):
                    tell(fleet, "v1", event, now_ms=0)
                refused += 1

    assert refused == 24 - sum(len(STEPS[s]) for s in ("starting", "creating", "idle", "allocated"))


def test_what_was_granted_is_given_back_whatever_is_asked_later() -> None:
    """The amount is the grant's own, not the function's of now."""
    fleet = given_card("v2", 1000, given_card("v1", 9000, idle("v2", idle("v1"))))

    assert (fleet.occupied()[0].used_mib, sorted(fleet.occupied()[0].busy)) == (10_000, [0, 1])
    fleet, _ = tell(fleet, "v1", "finish", now_ms=1)
    assert (fleet.occupied()[0].used_mib, sorted(fleet.occupied()[0].busy)) == (1000, [1])


def test_a_crash_gives_everything_back_when_the_lease_ends() -> None:
    """Nothing is heard any more; one that beats goes on."""
    fleet = given_card("v1", 9000, idle("v2", idle("v1")))
    fleet, _ = tell(fleet, "v2", "beat", now_ms=LEASE_MS - 1)
    fleet, ended = expire(fleet, LEASE_MS)

    assert ended == ("v1",)
    assert fleet.occupied()[0].used_mib == 0
    assert (fleet.state("v1"), fleet.state("v2")) == ("dead", "idle")
    assert tell(fleet, "v1", "finish", now_ms=LEASE_MS + 1) == (fleet, "destroy")
    assert expire(fleet, LEASE_MS)[0].state("v1") is None


def test_being_chosen_is_no_sign_of_life() -> None:
    """A dead environment that is given calls still ends with its lease."""
    fleet = given_card("v1", 1, idle("v1"))

    assert expire(fleet, LEASE_MS)[1] == ("v1",)


def test_a_lost_card_machine_ends_the_calls_on_its_cards() -> None:
    """The environment stands elsewhere; its card is gone. One without a card of that machine goes on."""
    fleet = Fleet(cards=(card("A", "gpu-1"), card("B", "gpu-2")))
    fleet = given_card("v1", 9000, idle("v2", idle("v1", fleet)))
    fleet, ended = lose_node(fleet, "gpu-1")

    assert ended == ("v1",)
    assert [c.uuid for c in fleet.occupied()] == ["B"]
    assert fleet.state("v2") == "idle"


def test_no_card_with_room_is_an_answer_not_an_end() -> None:
    """Both slots are taken: the next call waits, and the environment stays idle."""
    fleet = given_card("v2", 1, given_card("v1", 1, idle("v3", idle("v2", idle("v1")))))

    assert choose(fleet, "v3", 1) is None
    assert choose(fleet, "v3", 0) is not None


def test_states_have_the_published_numbers() -> None:
    """Six states, six codes."""
    assert CODES == {"idle": 0, "allocated": 1, "creating": 2, "dead": 13, "starting": 200, "refused": 210}
    assert set(CODES) == set(STEPS)


class Lives(RuleBasedStateMachine):
    """Any order of messages, crashes, lost machines and lapsed leases, against a plain count of what is held."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.fleet = Fleet(cards=(card("A", "gpu-1"), card("B", "gpu-2")), lease_ms=LEASE_MS)
        self.held: dict[str, tuple[str, int, int]] = {}
        self.heard: dict[str, int] = {}
        self.made = 0

    def names(self, *states: State) -> list[str]:
        return [name for name, life in self.fleet.lives.items() if life.state in states]

    @rule(node=st.sampled_from(["n1", "n2"]), allowed=st.booleans())
    def starts(self, node: str, allowed: bool) -> None:
        self.made += 1
        name = f"v{self.made}"
        self.fleet = start(self.fleet, name, function="f", node=node, now_ms=self.now_ms, allowed=allowed)
        self.heard[name] = self.now_ms

    @precondition(lambda self: self.names("starting", "creating", "idle", "allocated"))
    @rule(data=st.data())
    def speaks(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.names("starting", "creating", "idle", "allocated")))
        legal = sorted(STEPS[self.fleet.lives[name].state].keys() - {"choose"})
        event = data.draw(st.sampled_from(legal))
        self.fleet, _ = tell(self.fleet, name, event, now_ms=self.now_ms)
        self.heard[name] = self.now_ms
        if event in ("finish", "end"):
            self.held.pop(name, None)

    @precondition(lambda self: self.names("idle"))
    @rule(data=st.data(), memory=st.sampled_from([0, 4000, 9000, 17_000]))
    def gets_a_call(self, data: st.DataObject, memory: int) -> None:
        name = data.draw(st.sampled_from(self.names("idle")))
        found = choose(self.fleet, name, memory)
        if found is None:
            room = [c for c in self.fleet.cards if self.free(c) >= memory and len(self.slots(c)) < len(c.ports)]
            assert room == []
            return
        self.fleet, grant = found
        if grant is not None:
            self.held[name] = (grant.card, grant.slot, grant.memory_mib)

    @rule(ms=st.sampled_from([1, 9_000, LEASE_MS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.fleet, ended = expire(self.fleet, self.now_ms)
        for name in ended:
            self.held.pop(name, None)

    @precondition(lambda self: self.fleet.cards)
    @rule(node=st.sampled_from(["n1", "gpu-1"]))
    def a_node_is_lost(self, node: str) -> None:
        self.fleet, ended = lose_node(self.fleet, node)
        for name in ended:
            self.held.pop(name, None)

    def slots(self, c: CardSlots) -> list[int]:
        return [slot for card_uuid, slot, _ in self.held.values() if card_uuid == c.uuid]

    def free(self, c: CardSlots) -> int:
        return c.memory_mib - sum(mib for card_uuid, _, mib in self.held.values() if card_uuid == c.uuid)

    @invariant()
    def cards_hold_what_is_granted(self) -> None:
        for c in self.fleet.occupied():
            assert sorted(c.busy) == sorted(self.slots(c))
            assert len(self.slots(c)) == len(set(self.slots(c))) <= len(c.ports)
            assert c.free_mib == self.free(c) >= 0

    @invariant()
    def nobody_outlives_its_lease(self) -> None:
        for name in self.names("starting", "creating", "idle", "allocated"):
            assert self.now_ms - self.heard[name] < LEASE_MS


Lives.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestLives = Lives.TestCase
