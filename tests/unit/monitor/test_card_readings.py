"""Whatever a driver says, what we publish is a legal message."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.inventory import Card
from contracts.units import MAX_MEMORY_MIB
from contracts.usage import CardUsage, ProcessUsage
from monitor.cards import readings
from monitor.cards.readings import MIB, MemoryRules, RawCard, RawMemory, RawUsage

numbers = st.one_of(st.none(), st.integers(-(2**63), 2**64), st.integers(0, 200))
sizes = st.one_of(st.integers(-(2**63), 2**64), st.integers(0, 200 * MIB))
memories = st.one_of(st.none(), st.builds(RawMemory, total=sizes, used=sizes, reserved=st.one_of(st.none(), sizes)))
pids = st.integers(0, 5)


@settings(deadline=None)  # a busy machine is no failure
@given(st.builds(RawCard, uuid=st.just("GPU-a"), index=st.integers(0, 63), memory=memories, mig=numbers))
def test_any_reading_of_a_card_is_a_legal_card_that_sells_no_more_than_it_has(raw: RawCard) -> None:
    """Claim: it encodes and decodes; sellable MiB never exceed the bytes of total less reserved."""
    card = readings.card(raw, MemoryRules())

    assert msgspec.json.decode(msgspec.json.encode(card), type=Card) == card
    if raw.memory and card.memory_total_mib is not None and raw.memory.reserved and raw.memory.reserved >= 0:
        assert card.sellable_mib * MIB <= max(0, raw.memory.total - min(raw.memory.reserved, MAX_MEMORY_MIB * MIB))


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.builds(
        RawUsage,
        uuid=st.just("GPU-a"),
        utilization=numbers,
        memory=memories,
        power_mw=st.one_of(st.none(), st.integers(0, 2**32)),
        temperature_c=st.one_of(st.none(), st.integers(-300, 300)),
        processes=st.one_of(st.none(), st.lists(st.tuples(pids, st.one_of(st.none(), sizes))).map(tuple)),
        samples=st.one_of(st.none(), st.lists(st.tuples(pids, st.integers(0, 9), st.integers(0, 2**32))).map(tuple)),
    )
)
def test_any_reading_of_use_is_a_legal_sample(raw: RawUsage) -> None:
    """Claim: it encodes and decodes, each process is listed once, and unknown lists stay unknown."""
    usage = readings.usage(raw)

    assert msgspec.json.decode(msgspec.json.encode(usage), type=CardUsage) == usage
    assert (usage.processes is None) == (raw.processes is None)
    listed = [process.pid for process in usage.processes or ()]
    assert listed == sorted(set(listed))


@settings(deadline=None)  # a busy machine is no failure
@given(st.one_of(st.none(), st.text(max_size=200)))
def test_a_uuid_is_one_that_messages_may_carry(text: str | None) -> None:
    """Claim: whatever the driver answers, the result is None or a legal identity, and it is not changed."""
    uuid = readings.legal_uuid(text)

    assert uuid in (None, text)
    if uuid is not None:
        card = readings.card(RawCard(uuid=uuid, index=0), MemoryRules())
        assert msgspec.json.decode(msgspec.json.encode(card), type=Card) == card


def test_the_newest_sample_of_a_process_counts() -> None:
    """Claim: of several samples of one pid the one with the latest time stamp is taken."""
    raw = RawUsage(uuid="a", utilization=50, processes=((7, MIB),), samples=((7, 10, 99), (7, 30, 3), (7, 20, 50)))

    assert readings.usage(raw).processes == (ProcessUsage(pid=7, memory_mib=1, compute_percent=3),)


def test_too_many_processes_are_cut_to_the_largest() -> None:
    """Claim: 1030 processes become the 1024 with the most memory, in order of pid."""
    raw = RawUsage(uuid="a", processes=tuple((pid, pid * MIB) for pid in range(1030)))
    kept = readings.usage(raw).processes

    assert kept is not None
    assert [process.pid for process in kept] == list(range(6, 1030))
