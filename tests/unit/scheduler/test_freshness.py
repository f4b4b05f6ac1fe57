"""Which nodes are alive: judged by our own clock, incarnation and sequence, never by what a message says of time."""

from __future__ import annotations

import pytest

from contracts.decisions import HealthSet
from contracts.inventory import Heartbeat
from contracts.units import NodeName
from scheduler.core.freshness import Freshness

N1 = NodeName("n1")


def beat(sequence: int, *, node: str = "n1", incarnation: str = "a") -> Heartbeat:
    """A heartbeat."""
    return Heartbeat(node=NodeName(node), boot_id="b", incarnation=incarnation, sequence=sequence, uptime_ms=0, cards=1)


@pytest.fixture
def watch() -> Freshness:
    """A watcher with the default limits."""
    return Freshness(suspect_after_s=5.0, blind_after_s=2.0)


def sweeps(watch: Freshness, start_s: float, end_s: float) -> list[HealthSet]:
    """Sweep four times a second, as the service does."""
    found: list[HealthSet] = []
    at_s = start_s
    while at_s <= end_s:
        found.extend(watch.sweep(at_s))
        at_s += 0.25
    return found


def test_the_first_heartbeat_makes_a_node_fresh(watch: Freshness) -> None:
    """Placing needs evidence of life, and one heartbeat is that."""
    assert watch.beat(beat(1), 0.0) == HealthSet(node=N1, health="fresh")
    assert watch.beat(beat(2), 1.0) is None


def test_a_silent_node_becomes_suspect_after_five_seconds_and_not_before(watch: Freshness) -> None:
    """Four missed beats are a hiccup."""
    watch.beat(beat(1), 0.0)

    assert sweeps(watch, 0.0, 5.0) == []
    assert [(c.node, c.health) for c in sweeps(watch, 5.25, 5.25)] == [(N1, "suspect")]
    assert sweeps(watch, 5.5, 30.0) == []


def test_a_node_that_speaks_again_is_fresh_at_once(watch: Freshness) -> None:
    """Within one heartbeat, without a restart or a hand."""
    watch.beat(beat(1), 0.0)
    sweeps(watch, 0.0, 8.0)

    assert watch.beat(beat(2), 8.1) == HealthSet(node=N1, health="fresh")


def test_a_late_copy_of_an_old_heartbeat_keeps_nobody_alive(watch: Freshness) -> None:
    """Duplicates and reordered messages are no life signs."""
    watch.beat(beat(5), 0.0)
    for sequence in (5, 4, 5, 1):
        assert watch.beat(beat(sequence), 4.0) is None

    assert [c.health for c in sweeps(watch, 4.0, 5.5)] == ["suspect"]


def speak(watch: Freshness, words: str, *, every_s: float = 0.5) -> list[str]:
    """Each letter is a heartbeat of that incarnation, one later than its last; a digit repeats an old sequence."""
    said: dict[str, int] = {}
    changes: list[str] = []
    for at, word in enumerate(words):
        incarnation = word.lower()
        said[incarnation] = said.get(incarnation, 0) + (not word.isupper())
        change = watch.beat(beat(said[incarnation], incarnation=incarnation), at * every_s)
        changes.append("." if change is None else change.health[0])
    return changes


@pytest.mark.parametrize(
    ("words", "changes", "claim"),
    [
        ("aaabbb", "f.....", "a restart is no conflict"),
        ("abcdef", "f.....", "nor is a monitor that starts again and again"),
        ("aaababb", "f......", "nor a message of the old life that was on its way"),
        ("aaaxaaa", "f......", "nor a copy from a life that nobody knew"),
        ("aaabAbAbAbAb", "f...........", "nor any number of copies of what was heard"),
        ("aaababab", "f.....s.", "who goes on speaking after his successor is a second monitor"),
        ("abababab" + "b" * 19, "f...s..." + "." * 19, "and the node is out for twice the period"),
        ("abababab" + "b" * 21, "f...s..." + "." * 19 + "f.", "after the last change of voice"),
    ],
)
def test_who_speaks_for_a_node(watch: Freshness, words: str, changes: str, claim: str) -> None:
    """Claim: as the third column says; f = fresh, s = suspect. Upper case repeats what was said last."""
    assert "".join(speak(watch, words)) == changes, claim


def test_two_monitors_are_named_as_the_reason(watch: Freshness) -> None:
    """Nobody knows what the node holds, and the reason says why."""
    speak(watch, "abab")

    assert watch.beat(beat(9, incarnation="a"), 2.5) == HealthSet(
        node=N1, health="suspect", reason="two monitors speak for this node"
    )


def test_a_copy_keeps_a_dead_node_dead(watch: Freshness) -> None:
    """A recorded heartbeat, of the last life or of an earlier one, is no life sign, however often it is played."""
    speak(watch, "aab")
    assert [c.health for c in sweeps(watch, 1.0, 8.0)] == ["suspect"]
    for at_s in range(8, 30):
        assert watch.beat(beat(1, incarnation="ab"[at_s % 2]), float(at_s)) is None

    assert not watch.pulses[N1].fresh


def test_the_lives_that_ended_are_known(watch: Freshness) -> None:
    """Words of theirs that lie in a stream can be told from those of the present one, and from a new one's."""
    speak(watch, "aab")

    assert [watch.former(N1, incarnation) for incarnation in "abc"] == [True, False, False]
    assert not watch.former(NodeName("n2"), "a")


def test_an_observer_that_was_paused_judges_nobody(watch: Freshness) -> None:
    """After a stop of our own process every node gets a full period again."""
    watch.beat(beat(1), 0.0)
    watch.sweep(0.25)

    assert watch.sweep(60.0) == []
    assert sweeps(watch, 60.25, 65.0) == []
    assert [c.health for c in sweeps(watch, 65.25, 65.5)] == ["suspect"]


def test_an_outage_of_many_is_named(watch: Freshness) -> None:
    """When a third of the fleet falls silent at once the fault may be ours; placing stops all the same."""
    for i in range(10):
        watch.beat(beat(1, node=f"n{i}"), 0.0)
    for second in range(1, 7):
        for i in range(6):
            watch.beat(beat(1 + second, node=f"n{i}"), float(second))
        changes = sweeps(watch, float(second), second + 0.75)

    assert {c.node for c in changes} == set() or all("as many others" in c.reason for c in changes)
    assert [n for n, p in watch.pulses.items() if not p.fresh] == [f"n{i}" for i in range(6, 10)]


def test_a_node_known_from_the_ledger_has_a_full_period_to_speak(watch: Freshness) -> None:
    """A takeover does not make the fleet suspect."""
    watch.expect(N1, fresh=True, now_s=100.0)

    assert sweeps(watch, 100.0, 105.0) == []
    assert [c.health for c in sweeps(watch, 105.25, 105.5)] == ["suspect"]


def test_a_wall_clock_in_a_message_does_not_exist(watch: Freshness) -> None:
    """Heartbeats carry no time of day: there is nothing that another time zone could break."""
    assert "time" not in " ".join(Heartbeat.__struct_fields__).replace("uptime", "")
