"""The real pynvml over a stand-in driver: conditions, MIG instances, wiring, versions, events."""

from __future__ import annotations

import pynvml
import pytest

from contracts.usage import CardUsage, ProcessUsage
from monitor.cards.nvml import NvmlCards
from monitor.cards.protocol import DriverInfo, DriverLost, Place
from tests.nvml_stub.asking import against, found
from tests.nvml_stub.stub import GIB, MIB, World


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ({"remapped": "0,1,1,0"}, "waits for a reset"),
        ({"remapped": "0,1,0,1"}, "could not be replaced"),
        ({"recovery": 1}, "asks for a reset of the card"),
        ({"recovery": 2}, "asks for a reboot"),
        ({"recovery": 99}, "recovery action 99"),
    ],
)
def test_a_condition_speaks_against_the_card_for_as_long_as_it_lasts(
    world: World, cards: NvmlCards, condition: dict[str, object], words: str
) -> None:
    """Claim: rows that wait for a reset, and a recovery action, are fatal signs at each look; nothing when over."""
    world.card(1, **condition)

    assert against(cards) == against(cards) == [("GPU-1", "fatal")]
    assert words in cards.look(1).signs[0].reason
    assert not cards.look(1).signs[0].event
    world.card(1, remapped="0,1,0,0", recovery=0)
    assert against(cards) == []


def test_a_rise_of_uncorrected_errors_is_a_doubt_and_their_number_is_none(world: World, cards: NvmlCards) -> None:
    """Claim: what the counter held before we came says nothing; a rise is a passing sign, once; a reset is none."""
    told = []
    for errors in (7, 7, 8, 8, 0):
        world.card(0, ecc1=errors)
        told.append([weight for _, weight in against(cards)])

    assert told == [[], [], ["passing"], [], []]


def split(world: World) -> None:
    world.card(1, mig=1, mig_most=7, util=80)
    for index, (uuid, profile, slot) in {0: ("MIG-a", "1g.5gb", 7), 3: ("MIG-b", "3g.20gb", 2)}.items():
        values = {"uuid": uuid, "name": f"Tesla T4 MIG {profile}", "slot": slot, "total": 5 * GIB, "reserved": MIB}
        world.card(1, **{f"mig{index}.{key}": value for key, value in values.items()})


def test_s106_instances_are_cards_and_the_card_they_are_cut_from_is_none(world: World, cards: NvmlCards) -> None:
    """Claim: gaps in their numbering; each has its profile, its parent and its own memory; utilisation unknown."""
    split(world)
    world.card(1, **{"mig0.used": GIB, "mig0.processes": f"42:{GIB}"})
    cards.seats()
    cut = cards.look(1)

    assert [(c.uuid, c.index, c.parent, c.mig_profile, c.isolation, c.mig_enabled) for c in cut.cards] == [
        ("MIG-a", 1, "GPU-1", "1g.5gb", "mig", False), ("MIG-b", 1, "GPU-1", "3g.20gb", "mig", False)
    ]  # fmt: skip
    assert [c.sellable_mib for c in cut.cards] == [5119, 5119]
    assert cut.usage[0] == CardUsage(
        uuid="MIG-a", memory_used_mib=1024, processes=(ProcessUsage(pid=42, memory_mib=1024),)
    )
    assert [card.uuid for card in found(cards)] == ["GPU-0", "MIG-a", "MIG-b", "GPU-2"]


def test_s110_a_card_in_mig_mode_without_instances_is_listed_and_not_offered(world: World, cards: NvmlCards) -> None:
    """Claim: nobody claims it: it is seen as a card that is to be split, and nothing crashes."""
    world.card(1, mig=1, mig_most=7)

    cards.seats()
    assert [(card.uuid, card.mig_enabled) for card in cards.look(1).cards] == [("GPU-1", True)]


def test_a_lost_card_takes_its_instances_along(world: World, cards: NvmlCards) -> None:
    """Claim: instances of a card that fell off the bus stay listed, each with the sign against it."""
    split(world)
    found(cards)
    world.card(1, error=pynvml.NVML_ERROR_GPU_IS_LOST)

    assert against(cards) == [("MIG-a", "fatal"), ("MIG-b", "fatal")]


def test_wiring_is_told_in_groups(world: World, cards: NvmlCards) -> None:
    """Claim: a link that one end reports joins both; an inactive one joins nobody; PCIe switches and memory nodes."""
    world.card(0, bus="00000000:07:00.0", nvlinks="-,00000000:0a:00.0", near1=20, near2=40, numa=0)
    world.card(1, bus="00000000:0A:00.0", near0=20, near2=40, numa=65)
    world.card(2, bus="00000000:0B:00.0", nvlinks="-,-", near0=40, near1=40)

    assert cards.places(cards.seats()) == {
        0: Place(nvlink_group=0, pcie_group=0, numa_node=0),
        1: Place(nvlink_group=0, pcie_group=0, numa_node=65),
        2: Place(),
    }


def test_s078_cards_that_tell_nothing_of_their_wiring_are_in_no_group(cards: NvmlCards) -> None:
    """Claim: a driver without topology gives empty places and no error."""
    assert cards.places(cards.seats()) == dict.fromkeys(range(3), Place())


def test_versions_are_told(world: World, cards: NvmlCards) -> None:
    """Claim: the driver's version and its CUDA's as people write it; absent ones are empty."""
    cards.seats()

    assert cards.info() == DriverInfo(version="570.86.15", cuda="13.1")
    world.unset("cuda")
    assert cards.info().cuda == ""


def heard(world: World, cards: NvmlCards, *events: tuple[int, int, str]) -> list[tuple[str, str, bool]]:
    """Who has what against him after these (card, code, slot)."""
    for index in range(3):
        world.card(index, events=pynvml.nvmlEventTypeXidCriticalError)
    found(cards)
    assert cards.wait(1) == ()  # the set is made by the first wait
    for card, code, slot in events:
        world.happen(card, code, slot=slot)
    signs = [sign for _ in events for sign in cards.wait(2000)]
    return [(sign.card, sign.weight, sign.event) for sign in signs]


def test_an_xid_is_heard_of_its_card_at_once(world: World, cards: NvmlCards) -> None:
    """Claim: fatal, passing and application codes are told apart, each in its order."""
    told = heard(world, cards, (2, 79, ""), (0, 13, ""), (1, 4711, ""))

    assert told == [("GPU-2", "fatal", True), ("GPU-1", "passing", True)]


def test_an_xid_of_one_instance_is_no_word_on_the_others(world: World, cards: NvmlCards) -> None:
    """Claim: with the instance named, it alone is meant; without, all instances of the card."""
    split(world)

    assert heard(world, cards, (1, 94, "2"), (1, 48, "")) == [
        ("MIG-b", "fatal", True), ("MIG-a", "fatal", True), ("MIG-b", "fatal", True)
    ]  # fmt: skip


def test_a_new_session_hears_events_too_and_no_old_ones(world: World, cards: NvmlCards) -> None:
    """Claim: after reopening the set is made anew; what happened before it is not told again."""
    assert heard(world, cards, (0, 48, "")) == [("GPU-0", "fatal", True)]
    cards.reopen()

    assert heard(world, cards, (1, 48, "")) == [("GPU-1", "fatal", True)]


def test_without_event_types_a_wait_is_only_a_wait(world: World, cards: NvmlCards) -> None:
    """Claim: cards that have no events cost nothing but the time that was asked for."""
    found(cards)
    world.happen(0, 79)

    assert cards.wait(20) == ()


def test_an_event_set_that_fails_is_told_and_made_anew(world: World, cards: NvmlCards) -> None:
    """Claim: DriverLost from the wait, and the next one hears again."""
    heard(world, cards)
    world.set("error.nvmlEventSetWait_v2", pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(DriverLost, match="NVML 15"):
        cards.wait(10)
    world.unset("error.nvmlEventSetWait_v2")

    assert heard(world, cards, (0, 48, "")) == [("GPU-0", "fatal", True)]
