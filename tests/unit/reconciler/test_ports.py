"""Ports of pod managers: a bounded range, none twice, none again at once, a full range refused; a state machine."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reconciler.ports import FIRST, LAST, allot

ALL = LAST - FIRST + 1


def test_ports_are_given_in_turn() -> None:
    """The next after the last, in the order of who asks; who has one keeps it."""
    one = allot(["b", "a"], {})
    assert (one.ports, one.last) == ({"b": FIRST, "a": FIRST + 1}, FIRST + 1)
    two = allot(["c", "a"], one.ports, last=one.last)
    assert (two.ports, two.last) == ({"a": FIRST + 1, "c": FIRST + 2}, FIRST + 2)
    three = allot(["d"], two.ports, last=LAST)

    assert three.ports == {"d": FIRST}  # round and round; b's port is free again


def test_a_full_range_is_a_refusal_and_not_a_port_beyond_it() -> None:
    """511 pods have one, the 512th has none; when one leaves, its port is the next."""
    uids = [f"u{i:03}" for i in range(ALL + 2)]
    full = allot(uids, {})
    assert sorted(full.ports.values()) == list(range(FIRST, LAST + 1))
    assert (full.refused, full.last) == (("u511", "u512"), LAST)
    left = allot([uid for uid in uids if uid != "u007"], full.ports, last=full.last)

    # its port is still held by the last snapshot while this one is made, and free in the next
    assert left.refused == ("u511", "u512")
    after = allot([uid for uid in uids if uid != "u007"], left.ports, last=left.last)
    assert after.ports["u511"] == full.ports["u007"]
    assert after.refused == ("u512",)


def test_ports_outside_the_range_or_held_twice_are_not_believed() -> None:
    """A forged annotation, a foreign range, the same port with two: each gets one of its own."""
    found = allot(["a", "b", "c", "d"], {"a": 80, "b": FIRST, "c": FIRST, "d": LAST + 1})

    assert found.ports["b"] == FIRST
    assert len(set(found.ports.values())) == 4
    assert all(FIRST <= port <= LAST for port in found.ports.values())


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 70_000)), st.sets(st.integers(FIRST, LAST), max_size=20)
)
def test_what_is_in_use_elsewhere_is_not_given(held: dict[str, int], in_use: set[int]) -> None:
    """Whatever is said to be held: new ports are none of those in use, and in the range."""
    found = allot("abcdefgh", held, in_use=in_use, last=FIRST)
    new = {uid: port for uid, port in found.ports.items() if held.get(uid) != port}

    assert not set(new.values()) & in_use
    assert len(set(found.ports.values())) == len(found.ports)


class Node(RuleBasedStateMachine):
    """Pods come and go; each snapshot is made from the last one, as the desk does it."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: list[str] = []
        self.made = 0
        self.snapshot = allot([], {})
        self.history: list[tuple[str, int]] = []

    @rule(count=st.integers(1, 200))
    def come(self, count: int) -> None:
        self.pods += [f"p{self.made + i:05}" for i in range(count)]
        self.made += count
        self.snap()

    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        leaving = data.draw(st.integers(0, len(self.pods)))
        self.pods = self.pods[leaving:]
        self.snap()

    @rule()
    def snap(self) -> None:
        before = dict(self.snapshot.ports)
        self.snapshot = allot(self.pods, self.snapshot.ports, last=self.snapshot.last)
        self.history += [(uid, port) for uid, port in self.snapshot.ports.items() if uid not in before]

    @invariant()
    def none_twice(self) -> None:
        ports = self.snapshot.ports
        assert len(set(ports.values())) == len(ports)
        assert all(FIRST <= port <= LAST for port in ports.values())
        assert set(self.pods) == set(ports) | set(self.snapshot.refused)

    @invariant()
    def kept_for_life(self) -> None:
        first: dict[str, int] = {}
        for uid, port in self.history:
            assert first.setdefault(uid, port) == port


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=15, stateful_step_count=12)
