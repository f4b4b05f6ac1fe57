"""Which desired state is believed, and who is held to what: tables, and any order of any messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.inventory import Card, IsolationMode
from contracts.messages import encode
from contracts.outcomes import NodeShares, PodOnNode, ShareAssignment
from contracts.shares import CpuLimit, NodeCpuLimits
from contracts.units import CardUuid, NodeName, RequestUid
from monitor.enforce.modes import with_modes
from monitor.enforce.wanted import Standing, Work, take_limits, take_shares, work

NODE = "n1"


def shares(sequence: int, *held: ShareAssignment, epoch: str = "e", node: str = NODE, **more: Any) -> NodeShares:
    return NodeShares(node=NodeName(node), epoch=epoch, ledger_sequence=sequence, assignments=held, **more)


def limits(sequence: int, *of: CpuLimit, epoch: str = "e", node: str = NODE) -> NodeCpuLimits:
    return NodeCpuLimits(node=NodeName(node), epoch=epoch, sequence=sequence, limits=of)


def share(uid: str, card: str = "GPU-a", milli: int = 500, **more: Any) -> ShareAssignment:
    return ShareAssignment(
        uid=RequestUid(uid), namespace="team", pod=f"pod-{uid}", card=card, share_milli=milli, memory_mib=100, **more
    )


def card(uuid: str, mode: IsolationMode = "none", index: int = 0, **more: Any) -> Card:
    return Card(uuid=CardUuid(uuid), index=index, model="T4", memory_total_mib=16_000, isolation=mode, **more)


def believed(*told: NodeShares | NodeCpuLimits) -> Standing:
    standing = Standing()
    for one in told:
        standing = take_shares(standing, one, NODE) if isinstance(one, NodeShares) else take_limits(standing, one, NODE)
    return standing


@pytest.mark.parametrize(
    ("before", "told", "refused"),
    [
        ([], shares(5), ""),
        ([shares(5)], shares(5, share("a")), ""),
        ([shares(5)], shares(6), ""),
        ([shares(5)], shares(4), "shares of ledger sequence 4, 5 is in force"),
        ([shares(5)], shares(1, epoch="f"), ""),
        ([shares(5), shares(1, epoch="f")], shares(9), "shares of epoch e, which is over"),
        ([shares(5)], shares(6, node="n2"), "shares of n2 were sent to n1"),
        ([], limits(5), ""),
        ([limits(5)], limits(4), "limits 4, 5 are in force"),
        ([limits(5)], limits(1, epoch="f"), ""),
        ([limits(5)], limits(6, node="n2"), "limits of n2 were sent to n1"),
        ([shares(5), shares(1, epoch="f")], limits(9), "limits of epoch e, which is over"),
    ],
)
def test_stale_and_foreign_states_are_refused(before: list[Any], told: Any, refused: str) -> None:
    """Claims S041, S044: another node's, one of a ledger that was given up, or an older one; the reason has numbers."""
    standing = believed(*before)
    after = believed(*before, told)

    assert after.refused == refused
    if refused:
        assert (after.shares, after.limits) == (standing.shares, standing.limits)
    else:
        assert told in (after.shares, after.limits)


def test_an_assignment_that_cannot_be_of_this_node_is_refused_and_the_others_are_done() -> None:
    """An unknown card, a card that is cut into instances (S106), two modes in one pod (S116), a port used twice."""
    cards = [
        card("GPU-a", "mps"),
        card("GPU-b", "gemini", 1),
        card("MIG-1", "mig", 2, parent=CardUuid("GPU-c"), mig_profile="1g.10gb"),
    ]
    told = shares(
        1,
        share("ok"),
        share("lost", "GPU-z"),
        share("whole", "GPU-c"),
        share("mixed", "GPU-a", 100),
        share("mixed", "GPU-b", 100),
        share("first", "GPU-b", 100, port=50_051),
        share("second", "GPU-b", 100, port=50_051),
        share("instance", "MIG-1"),
    )
    done = work(believed(told), cards)

    assert {(one.uid, one.what): one.reason for one in done.refused} == {
        ("lost", "GPU-z"): "this node has no card GPU-z",
        ("whole", "GPU-c"): (
            "this node has no card GPU-c; it is cut into MIG instances, which are given out one by one"
        ),
        ("mixed", "GPU-a"): "the cards of mixed are shared by gemini and mps; a pod takes one mode",
        ("mixed", "GPU-b"): "the cards of mixed are shared by gemini and mps; a pod takes one mode",
        ("second", "GPU-b"): "port 50051 is that of first",
    }
    assert held(done) == {"GPU-a": ["ok"], "GPU-b": ["first"], "MIG-1": ["instance"]}


def held(done: Work) -> dict[str, list[str]]:
    return {one.card.uuid: [a.uid for a in one.assignments] for group in done.cards.values() for one in group}


def test_every_card_is_in_its_mode_also_without_tenants() -> None:
    """A backend sees all its cards, so that the last tenant's traces are cleaned up."""
    done = work(believed(shares(1)), [card("GPU-a", "mps"), card("GPU-b", "gemini", 1), card("GPU-c", "mps", 2)])

    assert {mode: [one.card.uuid for one in held] for mode, held in done.cards.items()} == {
        "mps": ["GPU-a", "GPU-c"],
        "gemini": ["GPU-b"],
    }


def test_cpu_limits_are_those_of_this_epoch_and_of_pods_that_are_here() -> None:
    """A pod without one has its spec's; one that is not placed here is told as not to be found."""
    known = (
        PodOnNode(uid=RequestUid("a"), pod_uid="p-a", container_id="c-a", cpu_limit_milli=2000),
        PodOnNode(uid=RequestUid("b"), pod_uid="p-b", container_id="c-b"),
    )
    wanted = (CpuLimit(uid=RequestUid("a"), limit_milli=500), CpuLimit(uid=RequestUid("x"), limit_milli=100))
    told = shares(1, pods=known)

    def found(*messages: Any) -> list[Any]:
        return [(p.uid, p.container_id, p.spec_milli, p.limit_milli) for p in work(believed(*messages), ()).cpu]

    assert found(told, limits(1, *wanted)) == [("a", "c-a", 2000, 500), ("b", "c-b", None, None), ("x", "", None, 100)]
    assert found(told, limits(1, *wanted, epoch="f")) == [("a", "c-a", 2000, None), ("b", "c-b", None, None)]
    assert found(limits(1, *wanted)) == []


@pytest.mark.parametrize(
    ("found", "default", "mode"),
    [
        (card("GPU-a"), "mps", "mps"),
        (card("GPU-b"), "mps", "gemini"),
        (card("GPU-a", mig_enabled=True), "none", "none"),
        (card("GPU-a"), "mig", "none"),
        (card("MIG-1", parent=CardUuid("GPU-a"), mig_profile="1g.5gb"), "gemini", "mig"),
    ],
)
def test_a_card_has_one_mode_and_an_instance_is_always_mig(found: Card, default: Any, mode: str) -> None:
    """Claim S116: by UUID, else the node's; the hardware's word about instances stands above both."""
    assert [one.isolation for one in with_modes([found], default, {"GPU-b": "gemini"})] == [mode]


STATES = st.builds(
    shares,
    st.integers(0, 4),
    epoch=st.sampled_from("efg"),
    node=st.sampled_from(["n1", "n2"]),
) | st.builds(
    limits, st.integers(0, 4), epoch=st.sampled_from("efg"), node=st.sampled_from(["n1", "n2"])
)  # fmt: skip


@given(st.lists(STATES, max_size=12))
def test_what_stands_never_goes_back(told: list[Any]) -> None:
    """Any messages in any order: never another node's, sequences only rise within an epoch, no epoch comes back."""
    standing, epochs = Standing(), []
    for one in told:
        before, standing = standing, believed_one(standing, one)
        for old, new in ((before.shares, standing.shares), (before.limits, standing.limits)):
            if new is None:
                assert old is None
                continue
            assert new.node == NODE
            if old is not None and old.epoch == new.epoch:
                assert sequence(new) >= sequence(old)
        if standing.shares and (not epochs or epochs[-1] != standing.shares.epoch):
            epochs.append(standing.shares.epoch)
        assert believed_one(standing, one).shares == standing.shares  # told again changes nothing

    assert len(set(epochs)) == len(epochs)


def believed_one(standing: Standing, one: Any) -> Standing:
    return take_shares(standing, one, NODE) if isinstance(one, NodeShares) else take_limits(standing, one, NODE)


def sequence(one: NodeShares | NodeCpuLimits) -> int:
    return one.ledger_sequence if isinstance(one, NodeShares) else one.sequence


UIDS = st.sampled_from([RequestUid(c) for c in "abcd"])
HELD = st.builds(
    share, UIDS, st.sampled_from(["GPU-a", "GPU-b", "GPU-c", "GPU-z"]), st.integers(1, 1000),
    port=st.sampled_from([0, 50_051, 50_052]),
)  # fmt: skip


@given(st.lists(HELD, max_size=8), st.lists(st.builds(PodOnNode, uid=UIDS), max_size=4, unique_by=lambda p: p.uid))
def test_each_assignment_is_done_or_refused(told: list[ShareAssignment], pods: list[PodOnNode]) -> None:
    """Any shares message: each piece is in exactly one place, no port is with two, no pod in two modes."""
    message = msgspec.json.decode(encode(shares(1, *told, pods=tuple(pods))), type=NodeShares)
    cards = [card("GPU-a", "mps"), card("GPU-b", "gemini", 1), card("GPU-c", "gemini", 2)]
    done = work(believed(message), cards)
    kept = [(a, one.card.isolation) for group in done.cards.values() for one in group for a in one.assignments]
    refused = {(one.uid, one.what) for one in done.refused}

    assert {(a.uid, a.card) for a in told} == refused | {(a.uid, a.card) for a, _ in kept}
    assert not refused & {(a.uid, a.card) for a, _ in kept}
    assert all(one.reason for one in done.refused)
    for uid in "abcd":
        assert len({mode for a, mode in kept if a.uid == uid}) <= 1
    for port in (50_051, 50_052):
        assert len({a.uid for a, _ in kept if a.port == port}) <= 1


@given(st.binary(max_size=60) | st.from_regex(rb'\{"type":"node\.shares\.v1"[ -~]{0,60}\}', fullmatch=True))
def test_no_bytes_are_taken_for_shares(data: bytes) -> None:
    """Garbage is refused by the decoder with msgspec's own error, never with another one."""
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(data, type=NodeShares)
