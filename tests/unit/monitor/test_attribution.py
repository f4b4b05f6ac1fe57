"""Whose GPU use is whose: processes to requests, parts that add up to the card, and what nobody owns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage, ProcessUsage, SliceUsage
from monitor.attribution import Seen, Told, apportioned, attributed, listed_pids, told
from monitor.cgroups.paths import Home
from monitor.procs.reading import Process
from monitor.unmanaged import strangers

CARD = CardUuid("GPU-a")
U1, U2 = RequestUid("e-1-0"), RequestUid("e-2-0")
PODS = {U1: "pod-uid-1", U2: "pod-uid-2"}


def shares(*uids: RequestUid, pods: bool = True) -> NodeShares:
    return NodeShares(
        node=NodeName("n1"),
        epoch="e",
        ledger_sequence=7,
        assignments=tuple(
            ShareAssignment(uid=u, namespace="team", pod=f"p-{u}", card=CARD, share_milli=500, memory_mib=8000)
            for u in uids
        ),
        pods=tuple(PodOnNode(uid=u, pod_uid=PODS[u] if pods else "") for u in uids),
    )


def seen(**pods: str) -> Seen:
    """`p10="pod-uid-1"`: process 10 is in that pod; an empty word is no pod."""
    return Seen(
        processes={
            int(key[1:]): Process(pid=int(key[1:]), started_ticks=5, command="python3", home=Home(pod_uid=pod))
            for key, pod in pods.items()
        }
    )


def card(*processes: ProcessUsage, busy: int | None = 80, used: int | None = 20_000) -> CardUsage:
    return CardUsage(uuid=CARD, compute_percent=busy, memory_used_mib=used, processes=processes)


def proc(pid: int, memory: int | None = 1000, busy: int | None = 20) -> ProcessUsage:
    return ProcessUsage(pid=pid, memory_mib=memory, compute_percent=busy)


def parts(one: CardUsage) -> list[tuple[str, int | None, int | None, int | None]]:
    return [(s.uid, s.compute_percent, s.memory_used_mib, s.processes) for s in one.slices or ()]


def test_s173_each_request_has_its_part_and_a_stranger_is_named() -> None:
    """Claim: two requests on one card, one with two processes, and a process outside of any pod."""
    before = card(proc(10, 1000, 20), proc(11, 500, 5), proc(20, 3000, 30), proc(30, 700, 9))
    looked = seen(p10="pod-uid-1", p11="pod-uid-1", p20="pod-uid-2", p30="")

    (found,) = attributed([before], looked, told(shares(U1, U2)))

    assert parts(found) == [(U1, 25, 1500, 2), (U2, 30, 3000, 1)]
    assert found.unmanaged_mib == 700
    assert [(p.pid, p.belongs, p.request, p.command, p.started_ticks) for p in found.processes or ()] == [
        (10, "request", U1, "python3", 5),
        (11, "request", U1, "python3", 5),
        (20, "request", U2, "python3", 5),
        (30, "nobody", "", "python3", 5),
    ]
    assert [p.pid for p in strangers([found])[CARD]] == [30]


def test_a_request_without_a_process_uses_nothing() -> None:
    """Claim: that is known, so it is 0; its limits stand beside it."""
    (found,) = attributed([card()], Seen(), told(shares(U1)))

    assert found.slices == (
        SliceUsage(
            uid=U1, namespace="team", pod=f"p-{U1}", share_milli=500, limit_mib=8000,
            compute_percent=0, memory_used_mib=0, processes=0,
        ),
    )  # fmt: skip
    assert found.unmanaged_mib == 0


@pytest.mark.parametrize(
    ("home", "of", "belongs"),
    [
        (None, told(shares(U1)), "unknown"),
        ("pod-uid-1", None, "unknown"),
        ("pod-uid-1", told(shares(U1)), "request"),
        ("pod-of-others", told(shares(U1)), "nobody"),
        ("", told(shares(U1)), "nobody"),
        ("pod-uid-1", told(shares(U1, pods=False)), "unknown"),
        ("", told(shares(U1, pods=False)), "nobody"),
        ("pod-of-others", Told(), "nobody"),
    ],
    ids=[
        "not to be seen", "nothing told yet", "ours", "another pod", "no pod", "our pod is not known yet",
        "no pod, whatever is known", "nothing is sold here",
    ],
)  # fmt: skip
def test_whose_a_process_is(home: str | None, of: Told | None, belongs: str) -> None:
    """Claim: the table in the module, row by row; what may be a pod of ours is never a stranger."""
    (found,) = attributed([card(proc(10))], seen() if home is None else seen(p10=home), of)

    assert [p.belongs for p in found.processes or ()] == [belongs]


def test_s040_a_process_on_a_card_that_its_request_was_not_sold_is_named_and_takes_from_nobody() -> None:
    """S040: what the container sees is not what the ledger has, and that is said.

    The card's tenants keep their own numbers, and the memory that it takes is not sold any more.
    """
    other = told(shares(U1, U2))
    astray = Told(pods=other.pods, slices={CARD: other.slices[CARD][:1], CardUuid("GPU-b"): other.slices[CARD][1:]})

    (found,) = attributed(
        [card(proc(10, 1000, 20), proc(20, 3000, 30))], seen(p10="pod-uid-1", p20="pod-uid-2"), astray
    )

    assert parts(found) == [(U1, 20, 1000, 1)]
    assert [(p.pid, p.belongs, p.request) for p in found.processes or ()] == [(10, "request", U1), (20, "nobody", U2)]
    assert found.unmanaged_mib == 3000
    assert [p.pid for p in strangers([found])[CARD]] == [20]


def test_s118_frees_that_are_counted_twice_never_make_a_number_below_zero() -> None:
    """S118: the driver says less of the card than of its processes, or less of the whole than before: 0, not huge."""
    (found,) = attributed(
        [card(proc(10, 9000, 20), proc(30, None, 5), used=100)], seen(p10="pod-uid-1", p30=""), told(shares(U1))
    )

    assert found.unmanaged_mib == 0
    assert parts(found) == [(U1, 20, 9000, 1)]


def test_s176_one_unknown_process_makes_every_part_unknown() -> None:
    """Claim: it may be of any of them; an unknown number is not shown as the known rest."""
    (found,) = attributed([card(proc(10), proc(99))], seen(p10="pod-uid-1"), told(shares(U1, U2)))

    assert parts(found) == [(U1, None, None, None), (U2, None, None, None)]
    assert found.unmanaged_mib is None


def test_a_process_that_has_ended_is_not_there() -> None:
    """Claim: between the driver's list and our look it ended: it is neither unknown nor anybody's."""
    looked = Seen(processes=seen(p10="pod-uid-1").processes, ended=frozenset({99}))

    (found,) = attributed([card(proc(10), proc(99))], looked, told(shares(U1)))

    assert parts(found) == [(U1, 20, 1000, 1)]
    assert [p.pid for p in found.processes or ()] == [10]


def test_a_driver_that_lists_no_processes_tells_nothing_about_parts() -> None:
    """Claim: unknown, not 0, and nothing is called unmanaged."""
    (found,) = attributed([CardUsage(uuid=CARD, compute_percent=50)], Seen(), told(shares(U1)))

    assert parts(found) == [(U1, None, None, None)]
    assert (found.processes, found.unmanaged_mib) == (None, None)


def test_unknown_numbers_of_one_process_are_its_requests_alone() -> None:
    """Claim: whose it is, is known; so the other request keeps its figures."""
    (found,) = attributed(
        [card(proc(10, None, None), proc(20))], seen(p10="pod-uid-1", p20="pod-uid-2"), told(shares(U1, U2))
    )

    assert parts(found) == [(U1, None, None, 1), (U2, 20, 1000, 1)]


@pytest.mark.parametrize(
    ("stranger", "used", "mib"),
    [(700, 20_000, 700), (None, 20_000, 19_000), (None, 500, 0), (None, None, None)],
    ids=["the driver tells", "what is used beyond ours", "never below zero", "nobody tells"],
)
def test_memory_of_a_stranger(stranger: int | None, used: int | None, mib: int | None) -> None:
    """Claim: its own, else what the card uses beyond all others, else unknown."""
    (found,) = attributed(
        [card(proc(10), proc(30, stranger), used=used)], seen(p10="pod-uid-1", p30=""), told(shares(U1))
    )

    assert found.unmanaged_mib == mib


@pytest.mark.parametrize(
    ("own", "whole", "cut"),
    [
        ([30, 30], 100, [30, 30]),
        ([30, 30], 41, [21, 20]),
        ([100, 100, 100], 100, [34, 33, 33]),
        ([0, 90], 45, [0, 45]),
        ([], 10, []),
        ([5], 0, [0]),
    ],
)
def test_parts_are_cut_to_the_whole(own: list[int], whole: int, cut: list[int]) -> None:
    """Claim: only when they are more, in proportion, by largest remainder, the earlier first."""
    assert apportioned(own, whole) == cut


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.integers(0, 100), max_size=12), st.integers(0, 100))
def test_cut_parts_add_up_and_never_grow(own: list[int], whole: int) -> None:
    """Claim: their sum is the smaller of both, and no part is larger than it was."""
    cut = apportioned(own, whole)

    assert sum(cut) == min(sum(own), whole)
    assert all(0 <= after <= before for after, before in zip(cut, own, strict=True))


processes = st.lists(
    st.builds(
        ProcessUsage,
        pid=st.integers(1, 6),
        memory_mib=st.one_of(st.none(), st.integers(0, 5000)),
        compute_percent=st.one_of(st.none(), st.integers(0, 100)),
    ),
    unique_by=lambda p: p.pid,
    max_size=6,
)


@settings(deadline=None)
@given(
    processes,
    st.dictionaries(st.integers(1, 6), st.sampled_from(["", "pod-uid-1", "pod-uid-2", "pod-of-others"])),
    st.one_of(st.none(), st.integers(0, 100)),
    st.booleans(),
)
def test_parts_never_exceed_the_card(
    listed: list[ProcessUsage], homes: dict[int, str], busy: int | None, pods: bool
) -> None:
    """Claim: for any processes anywhere, the known parts add up to the card at most, and all numbers are legal."""
    looked = seen(**{f"p{pid}": home for pid, home in homes.items()})

    (found,) = attributed([card(*listed, busy=busy)], looked, told(shares(U1, U2, pods=pods)))

    known = [s.compute_percent for s in found.slices or () if s.compute_percent is not None]
    assert sum(known) <= (100 if busy is None else busy)
    assert listed_pids([found]) == tuple(sorted(p.pid for p in listed))


def test_pods_without_a_card_are_known_by_their_uid() -> None:
    """Claim: a request that holds no card has no slice, and its pod is still ours."""
    of = told(
        NodeShares(node=NodeName("n"), epoch="e", ledger_sequence=1, pods=(PodOnNode(uid=U1, pod_uid="pod-uid-1"),))
    )

    assert of.pods["pod-uid-1"].uid == U1
    assert of.all_known
