"""The real pynvml over a stand-in driver: what cards say, what they do not say, and what breaks."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import msgspec
import pynvml
import pytest

from contracts.inventory import Card
from contracts.usage import CardUsage, ProcessUsage
from monitor.cards.nvml import NvmlCards
from monitor.cards.protocol import DriverLost, DriverMissing
from monitor.cards.readings import MemoryRules
from monitor.health import Book, Round, observe
from monitor.standing import At, Rules
from tests.nvml_stub.asking import against, by_uuid, found, looks, used
from tests.nvml_stub.stub import GIB, MIB, World, environment

# --- what cards say -------------------------------------------------------------------------------------------------


def test_s033_what_the_driver_keeps_is_not_sellable(cards: NvmlCards) -> None:
    """Claim: a T4 sells its total less what the driver reserved, so two halves fit what is really there."""
    card = found(cards)[0]

    assert (card.memory_total_mib, card.memory_reserved_mib, card.sellable_mib) == (15360, 450, 14910)
    assert card.model == "Tesla T4"
    assert card.health == "healthy"


def test_memory_is_never_overstated_by_rounding(world: World, cards: NvmlCards) -> None:
    """Claim: a total of 10 MiB less a byte counts 9, a reserve of a byte more than 2 MiB counts 3."""
    world.card(0, total=10 * MIB - 1, reserved=2 * MIB + 1, used=1)

    assert found(cards)[0].sellable_mib == 9 - 3
    assert used(cards)[0].memory_used_mib == 1


def test_an_old_driver_without_the_reserved_part_gets_the_configured_reserve(world: World) -> None:
    """Claim: with version 1 of the memory query only, the reserve of the settings is subtracted."""
    world.set("error.nvmlDeviceGetMemoryInfo_v2", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    cards = NvmlCards(MemoryRules(reserved_fallback_mib=700))

    assert found(cards)[0].sellable_mib == 15360 - 700
    assert used(cards)[0].memory_used_mib == 450  # version 1 cannot tell the reserve from use


def test_s046_cards_are_keyed_by_uuid_when_the_driver_renumbers_them(world: World, cards: NvmlCards) -> None:
    """Claim: after two cards change places each keeps its memory and its use; only the index moves."""
    world.card(0, uuid="GPU-a", total=16 * GIB, util=11)
    world.card(1, uuid="GPU-b", total=80 * GIB, util=22)
    before = by_uuid(found(cards))
    world.card(0, uuid="GPU-b", total=80 * GIB, util=22)
    world.card(1, uuid="GPU-a", total=16 * GIB, util=11)
    after = by_uuid(found(cards))

    assert before.keys() == after.keys()
    assert after["GPU-a"] == msgspec.structs.replace(before["GPU-a"], index=1)
    assert {u.uuid: u.compute_percent for u in used(cards)} == {"GPU-a": 11, "GPU-b": 22, "GPU-2": None}


@pytest.mark.parametrize(("mig", "said"), [("1", True), ("0", False), (None, None)])
def test_mig_mode_is_told_or_unknown(world: World, cards: NvmlCards, mig: str | None, said: bool | None) -> None:
    """Claim: on, off, and None where the card cannot tell."""
    if mig is not None:
        world.card(0, mig=mig)

    assert found(cards)[0].mig_enabled is said


def test_a_busy_card_tells_everything(world: World, cards: NvmlCards) -> None:
    """Claim: every field that we publish comes from the driver, in our units; processes from all three lists."""
    world.card(
        0, util=37, used=3 * GIB, power_mw=70_500, temperature=55, samples="100:30,200:7", clock1=1410, clock2=1593,
        ecc0=12, ecc1=0,
        processes=f"100:{2 * GIB},200:?", mps_processes=f"300:{GIB}", graphics_processes=f"100:{GIB}",
    )  # fmt: skip
    used(cards)  # the first call only learns how old the driver's samples are

    assert used(cards)[0] == CardUsage(
        uuid="GPU-0",
        compute_percent=37,
        memory_used_mib=3072,
        power_w=71,
        temperature_c=55,
        sm_clock_mhz=1410,
        memory_clock_mhz=1593,
        ecc_corrected=12,
        ecc_uncorrected=0,
        processes=(
            ProcessUsage(pid=100, memory_mib=2048, compute_percent=30),
            ProcessUsage(pid=200, memory_mib=None, compute_percent=7),
            ProcessUsage(pid=300, memory_mib=1024, compute_percent=None),
        ),
    )


def test_samples_of_unknown_age_are_not_taken_for_the_present(world: World, cards: NvmlCards) -> None:
    """Claim: what the driver's buffer held before our first call is dropped."""
    world.card(0, util=5, processes="100:1", samples="100:99")

    first = used(cards)[0].processes
    second = used(cards)[0].processes
    assert first is not None
    assert second is not None
    assert [first[0].compute_percent, second[0].compute_percent] == [None, 99]


def test_an_older_temperature_call_is_used_where_the_new_one_is_missing(world: World, cards: NvmlCards) -> None:
    """Claim: drivers without nvmlDeviceGetTemperatureV still tell their temperature."""
    world.card(0, temperature=48)
    world.set("error.nvmlDeviceGetTemperatureV", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    assert used(cards)[0].temperature_c == 48


# --- what cards do not say ------------------------------------------------------------------------------------------


def test_s176_what_the_driver_cannot_tell_is_absent_not_zero(cards: NvmlCards) -> None:
    """Claim: a card that answers NOT_SUPPORTED to everything but memory has None in every other field."""
    assert used(cards)[0] == CardUsage(uuid="GPU-0", memory_used_mib=0)


@pytest.mark.parametrize(("util", "said"), [(0, 0), (40, None)])
def test_s176_a_process_without_a_sample_is_idle_only_when_the_card_is(
    world: World, cards: NvmlCards, util: int, said: int | None
) -> None:
    """Claim: no per-process number means 0 on an idle card and unknown on a busy one."""
    world.card(0, util=util, processes="100:1048576")
    processes = used(cards)[0].processes

    assert processes == (ProcessUsage(pid=100, memory_mib=1, compute_percent=said),)


def test_no_process_and_no_list_are_different_answers(world: World, cards: NvmlCards) -> None:
    """Claim: an empty list is (), a driver that cannot list is None."""
    world.card(0, processes="")

    assert used(cards)[0].processes == ()
    assert used(cards)[1].processes is None


def test_s072_a_card_without_memory_of_its_own_is_not_sellable_and_no_crash(world: World, cards: NvmlCards) -> None:
    """Claim: unified memory: total unknown, nothing sellable, use absent; the configured total is used when given."""
    world.unset("card0.total")

    assert found(cards)[0].memory_total_mib is None
    assert found(cards)[0].sellable_mib == 0
    assert used(cards)[0].memory_used_mib is None
    configured = found(NvmlCards(MemoryRules(unified_total_mib=64_000, reserved_fallback_mib=4_000)))[0]
    assert configured.sellable_mib == 60_000


NONSENSE = {
    "util": 255,
    "power_mw": 0,
    "ecc0": 2**63,
    "total": 2**63,
    "used": 2**63,
    "processes": "7:9223372036854775809",
    "name": "",
}


def test_nonsense_from_the_driver_is_unknown_and_still_a_legal_message(world: World, cards: NvmlCards) -> None:
    """Claim: numbers out of bounds become None, so that readers do not refuse the whole message."""
    world.card(0, **NONSENSE)
    usage = used(cards)[0]

    assert (usage.compute_percent, usage.memory_used_mib, usage.ecc_corrected) == (None, None, None)
    assert usage.processes == (ProcessUsage(pid=7),)
    assert msgspec.json.decode(msgspec.json.encode(usage), type=CardUsage) == usage
    card = found(cards)[0]
    assert (card.model, card.memory_total_mib) == ("unknown", None)
    assert msgspec.json.decode(msgspec.json.encode(card), type=Card) == card


# --- what breaks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    ["card1.error", "card1.error.nvmlDeviceGetUUID", "card1.error.nvmlDeviceGetMemoryInfo_v2"],
    ids=["not even a handle", "no uuid", "memory only"],
)
@pytest.mark.parametrize(
    ("code", "weight"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, "fatal"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "fatal"),
        (pynvml.NVML_ERROR_UNKNOWN, "odd"),
    ],
)
def test_s061_one_lost_card_leaves_the_others_alone(
    world: World, cards: NvmlCards, key: str, code: int, weight: str
) -> None:
    """Claim: a sign with the driver's reason against the card's own UUID, nothing against the others.

    It is fatal when the card is lost, and only odd when the error may mean anything.
    """
    before = found(cards)
    world.set(key, code)

    assert found(cards) == before
    assert against(cards) == [("GPU-1", weight)]
    assert f"NVML {code}" in cards.look(1).signs[0].reason


def test_a_lost_card_tells_nothing_and_the_others_go_on(world: World, cards: NvmlCards) -> None:
    """Claim: use of a lost card is unknown in every field, that of its neighbour is there."""
    found(cards)
    world.card(1, util=50)
    world.card(0, error=pynvml.NVML_ERROR_GPU_IS_LOST)
    lost, neighbour, _ = used(cards)

    assert lost == CardUsage(uuid="GPU-0")
    assert neighbour.compute_percent == 50


def test_a_hole_in_a_statistic_is_no_lost_card(world: World, cards: NvmlCards) -> None:
    """Claim: UNKNOWN from the power sensor leaves power out and the rest in; the card stays healthy."""
    world.card(0, util=50, power_mw=1)
    world.set("card0.error.nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_UNKNOWN)

    assert used(cards)[0] == CardUsage(uuid="GPU-0", compute_percent=50, memory_used_mib=0)
    assert against(cards) == []


def test_a_card_lost_before_we_came_cannot_be_named(
    world: World, cards: NvmlCards, caplog: pytest.LogCaptureFixture
) -> None:
    """Claim: a card that never told its UUID is left out, with a warning; nothing is made up."""
    world.card(1, error=pynvml.NVML_ERROR_GPU_IS_LOST)
    with caplog.at_level(logging.WARNING):
        seen = found(cards)

    assert [card.uuid for card in seen] == ["GPU-0", "GPU-2"]
    assert "card 1 is left out" in caplog.text
    assert [usage.uuid for usage in used(cards)] == ["GPU-0", "GPU-2"]


@pytest.mark.parametrize("uuid", ["", "two words", "GPU-\xfc"])
def test_a_card_with_a_name_that_is_none_is_left_out(world: World, cards: NvmlCards, uuid: str) -> None:
    """Claim: a UUID that no message may carry does not break the inventory of the others."""
    world.card(1, uuid=uuid)

    assert [card.uuid for card in found(cards)] == ["GPU-0", "GPU-2"]
    assert [usage.uuid for usage in used(cards)] == ["GPU-0", "GPU-2"]


def test_a_name_that_is_no_text_is_unknown(world: World, cards: NvmlCards) -> None:
    """Claim: bytes that are not UTF-8 in a card's name cost its name, not the monitor."""
    text = world.path.read_text().replace("card0.name=Tesla T4", "card0.name=Tesla \xff")
    world.path.write_bytes(text.encode("latin-1"))

    assert found(cards)[0].model == "unknown"


def test_s073_a_card_that_moved_up_is_not_also_reported_lost(world: World, cards: NvmlCards) -> None:
    """Claim: when the driver renumbers around a dead card, nobody speaks in the name of the card that moved."""
    found(cards)
    world.card(1, uuid="GPU-2")
    world.card(2, error=pynvml.NVML_ERROR_GPU_IS_LOST)

    seen = observe(Book(), Round(looks=dict(enumerate(looks(cards)))), At(now_ms=0), Rules())

    assert [(card.uuid, card.index, card.health) for card in seen.cards] == [
        ("GPU-0", 0, "healthy"), ("GPU-2", 1, "healthy")
    ]  # fmt: skip


def test_a_new_session_is_another_one(world: World, cards: NvmlCards) -> None:
    """Claim: reopening ends the session, and the next question begins one."""
    found(cards)
    cards.reopen()
    world.set("error.nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(DriverLost):
        cards.seats()
    world.unset("error.nvmlInitWithFlags")

    assert len(found(cards)) == 3


def test_a_driver_that_was_unloaded_is_lost_and_found_again(world: World, cards: NvmlCards) -> None:
    """Claim: DriverLost while it is away, the cards again when it is back, with no help from outside."""
    before = found(cards)
    world.set("error.nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_UNINITIALIZED)
    world.set("error.nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    losses = []
    for _ in range(2):
        with pytest.raises(DriverLost) as lost:
            cards.seats()
        losses.append(lost.value.unloaded)
    world.unset("error.nvmlDeviceGetCount_v2")
    world.unset("error.nvmlInitWithFlags")

    assert losses == [False, True]  # only an answer of the kernel tells that the module is gone
    assert found(cards) == before


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo_v2"])
def test_a_driver_lost_in_the_middle_is_not_taken_for_lost_cards(world: World, cards: NvmlCards, call: str) -> None:
    """Claim: UNINITIALIZED from a card's call is everybody's failure."""
    found(cards)
    world.set(f"error.{call}", pynvml.NVML_ERROR_UNINITIALIZED)
    with pytest.raises(DriverLost, match="NVML 1"):
        cards.look(1)


MISSING = [
    (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "kernel module `nvidia` is not loaded"),
    (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidiactl"),
    (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "different versions"),
    (pynvml.NVML_ERROR_OPERATING_SYSTEM, "cannot be opened"),
]


@pytest.mark.parametrize(("code", "named"), MISSING)
def test_a_driver_that_cannot_be_opened_is_named_with_the_way_out(world: World, code: int, named: str) -> None:
    """Claim: the error says what is missing and the setting that goes without."""
    world.set("error.nvmlInitWithFlags", code)
    with pytest.raises(DriverMissing, match="GPUBUS_MONITOR__PROVIDER=simulated") as caught:
        NvmlCards().seats()

    assert named in caught.value.missing


# --- in a process of its own ----------------------------------------------------------------------------------------

ASK = """
from monitor.cards.nvml import NvmlCards
from monitor.cards.protocol import DriverMissing
cards = NvmlCards()
try:
    print([card.uuid for seat in cards.seats() for card in cards.look(seat).cards], cards.info().version)
except DriverMissing as missing:
    print(missing.missing)
"""


def ask(env: dict[str, str]) -> str:
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", ASK], env={**env, "PYTHONPATH": root}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_pynvml_finds_the_library_by_its_name_alone(library: Path, world: World) -> None:
    """Claim: LD_LIBRARY_PATH is all that another process needs; so the contract tests run the whole service on it."""
    assert ask(environment(library, world)) == "['GPU-0', 'GPU-1', 'GPU-2'] 570.86.15"


def test_s178_a_missing_library_is_named(tmp_path: Path) -> None:
    """Claim: a file that is no library stands for none at all; the message names the library."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")  # found first, also on machines with a real driver

    assert ask({"LD_LIBRARY_PATH": str(tmp_path)}) == "libnvidia-ml.so.1 is not found"
