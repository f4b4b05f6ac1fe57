"""Groups of cards from what each says of its links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.cards.topology import SWITCH, Wiring, places


def bus(seat: int) -> str:
    return f"00000000:{seat:02X}:00.0"


def linked(*links: tuple[int, ...]) -> dict[int, Wiring]:
    """Seats by their NVLinks to other seats."""
    return {seat: Wiring(bus=bus(seat), links=tuple(map(bus, ends))) for seat, ends in enumerate(links)}


@pytest.mark.parametrize(
    ("wirings", "groups"),
    [
        (linked((), (), ()), [None, None, None]),
        (linked((1,), (0,), ()), [0, 0, None]),
        (linked((1,), (2,), ()), [0, 0, 0]),
        (linked((), (), (3,), ()), [None, None, 0, 0]),
        (linked((1,), (0,), (3,), (2,)), [0, 0, 1, 1]),
        (linked((3,), (2,), (1,), (0,)), [0, 1, 1, 0]),
        ({0: Wiring(links=(SWITCH,)), 1: Wiring(links=(SWITCH, SWITCH)), 2: Wiring()}, [0, 0, None]),
        ({0: Wiring(bus=bus(0), links=("0000FFFF:FF:00.0",)), 1: Wiring(links=(bus(0).lower(),))}, [0, 0]),
        ({0: Wiring(links=(SWITCH,)), 1: Wiring(links=None)}, [None, None]),
    ],
    ids=[
        "none",
        "a pair",
        "a chain",
        "said by one end",
        "two pairs",
        "crossed",
        "switches",
        "a link to a CPU",
        "alone",
    ],
)
def test_nvlink_groups(wirings: dict[int, Wiring], groups: list[int | None]) -> None:
    """Claim: connected components, numbered by their lowest seat; a card that reaches nobody is in none."""
    assert [place.nvlink_group for place in places(wirings).values()] == groups


def test_pcie_and_memory_nodes() -> None:
    """Claim: neighbours on a switch make a group, whoever names them; the memory node is taken over."""
    found = places({0: Wiring(neighbours=(1,)), 1: Wiring(neighbours=()), 2: Wiring(neighbours=(), numa_node=1)})

    assert [(place.pcie_group, place.numa_node) for place in found.values()] == [(0, None), (0, None), (None, 1)]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_groups_are_an_equivalence_that_does_not_depend_on_who_said_it(pairs: list[tuple[int, int]]) -> None:
    """Claim: turning every link around changes nothing, and both ends of each link are in one group."""
    there, back = ({s: Wiring(bus=bus(s), links=()) for s in range(8)} for _ in range(2))
    for one, other in pairs:
        there[one] = Wiring(bus=bus(one), links=(*(there[one].links or ()), bus(other)))
        back[other] = Wiring(bus=bus(other), links=(*(back[other].links or ()), bus(one)))
    found = places(there)

    assert found == places(back)
    assert all(found[one].nvlink_group == found[other].nvlink_group for one, other in pairs)
