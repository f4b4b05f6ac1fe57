"""Nominations, evictions and quotas in the ledger: what the fold refuses, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bus.ledger.fold import InvariantBroken
from bus.ledger.snapshot import copy, digest, dump, load
from contracts.decisions import (
    FactsSet,
    Nominated,
    NominationEnded,
    Placement,
    QuotaSet,
    Record,
    Released,
    Withdrawn,
)
from contracts.inventory import NodeFacts
from contracts.quotas import NamespaceQuota
from contracts.units import NodeName
from tests.builders.history import inventory, piece, reserve
from tests.builders.ledger import Cluster, cluster, node, request


def drawn() -> Cluster:
    """One card: two low halves on it, one important request that wants all of it."""
    c = cluster(node("n1").gpus(1))
    for name in ("a", "b"):
        c.hold(request(name).share(500).fields(priority_class="low"), "n1", 0, memory_mib=1000)
    c.accept(request("h").fields(priority_class="high"))
    c.accept(request("n"))
    return c


def nominated(c: Cluster, *victims: str, name: str = "h", share: int = 1000, memory_mib: int = 2000) -> Nominated:
    """A place on the one card for a request, once these have left."""
    uids = {r.request.name: r.uid for r in c.state.requests.values()}
    pod = c.state.requests[uids[name]].request.pod
    place = Placement(
        node=NodeName("n1"),
        slices=(piece("n1-gpu0", share, memory_mib),),
        cpu_milli=pod.cpu_milli,
        memory_mib=pod.memory_mib,
    )
    return Nominated(uid=uids[name], placement=place, victims=tuple(uids[v] for v in victims), why="preempts")


REFUSED: dict[str, tuple[Callable[[Cluster], Record], str]] = {
    "victims that are not lower": (lambda c: nominated(c, "a", "b", name="n", share=1000), "more important|not more"),
    "a place that will not be there": (lambda c: nominated(c, "a"), "will not have the thousandths"),
    "memory that the card has not": (lambda c: nominated(c, "a", "b", memory_mib=90_000), "will not have the MiB"),
    "somebody who waits as a victim": (lambda c: nominated(c, "a", "b", "n"), "holds nothing"),
    "the end of what never began": (lambda c: NominationEnded(uid=nominated(c).uid), "it has none"),
    "queueing whom nobody asked to leave": (
        lambda c: Released(uid=nominated(c, "a").victims[0], evidence="gone", requeue=True),
        "nobody asked it to leave",
    ),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_the_fold_refuses(what: str) -> None:
    """What must not be in a log; `low` and `normal` differ, so the first is made equal before."""
    c = drawn()
    make, text = REFUSED[what]
    if what == "victims that are not lower":
        c.release(next(r.uid for r in c.state.requests.values() if r.request.name == "a"))
        c.hold(request("a").share(500), "n1", 0, memory_mib=1000)
    with pytest.raises(InvariantBroken, match=text):
        c.fold(make(c))


def test_a_place_is_collected_as_others_leave_and_sold_when_it_is_whole() -> None:
    """Claim (S017, S081): 500 of 1000 when the first has gone; nobody else may have them, nor it one moment earlier."""
    c = drawn()
    record = nominated(c, "a", "b")
    c.fold(record)
    h, a, b = (next(r for r in c.state.requests.values() if r.request.name == n) for n in "hab")
    newcomer = c.accept(request("newcomer").share(500))
    assert (h.held is not None, c.state.evicted, a.evicted_for) == (True, 2, h.uid)

    c.fold(Released(uid=a.uid, evidence="gone", requeue=True))
    assert (a.phase, a.attempt, a.placement, a.last_node) == ("pending", 1, None, "n1")
    assert h.held is not None
    assert h.held.cards["n1-gpu0"] == (500, 2000)
    for other in (a, newcomer, h):
        with pytest.raises(InvariantBroken):
            c.fold(reserve(other, "n1", piece("n1-gpu0", 500, 100)))
    with pytest.raises(InvariantBroken, match="others have not left"):
        c.fold(reserve(h, "n1", piece("n1-gpu0", 1000, 2000)))

    c.fold(Released(uid=b.uid, evidence="gone", requeue=True), reserve(h, "n1", piece("n1-gpu0", 1000, 2000)))
    assert c.used("n1") == [1000]
    assert not c.state.nominated
    assert not c.state.nodes["n1"].holds
    assert digest(load(dump(c.state))) == digest(c.state)


def test_a_half_collected_place_survives_a_checkpoint_and_a_copy() -> None:
    """Claim: sums, holds and charges are the same after dump and load."""
    c = drawn()
    c.fold(nominated(c, "a", "b"))
    c.release(next(r.uid for r in c.state.requests.values() if r.request.name == "a"))
    for other in (load(dump(c.state)), copy(c.state)):
        assert digest(other) == digest(c.state)
        assert other.usage == c.state.usage
        assert other.nodes["n1"].holds == c.state.nodes["n1"].holds
        assert list(other.nominated) == list(c.state.nominated)


ENDS: dict[str, Callable[[Cluster], Record]] = {
    "its request is withdrawn": lambda c: Withdrawn(uid=nominated(c).uid),
    "it is given up": lambda c: NominationEnded(uid=nominated(c).uid, reason="test"),
    "its card is gone": lambda _: inventory("n1", "another"),
}


@pytest.mark.parametrize("how", sorted(ENDS))
def test_what_was_held_is_free_again(how: str) -> None:
    """Claim: a nomination that ends leaves nothing behind, however it ends."""
    c = drawn()
    c.release(next(r.uid for r in c.state.requests.values() if r.request.name == "a"))
    c.fold(nominated(c, "b"))
    assert c.used("n1") == [1000]
    c.fold(ENDS[how](c))
    assert not c.state.nominated
    assert c.state.nodes["n1"].cards["n1-gpu0"].used_milli == 500
    assert c.state.usage["default"].share_milli == 500


def test_a_node_that_is_gone_takes_nominations_with_it() -> None:
    """Claim: nothing waits for a node that Kubernetes deleted."""
    c = cluster(node("n1").gpus(1))
    c.accept(request("h").fields(priority_class="high"))
    c.fold(nominated(c), FactsSet(facts=NodeFacts(node=NodeName("n1"), uid="u", gone=True)))
    assert (c.state.nodes, c.state.nominated, c.state.usage) == ({}, {}, {})


@pytest.mark.parametrize(
    ("quota", "share", "fits"),
    [
        (NamespaceQuota(namespace="default", share_milli=500), 500, True),
        (NamespaceQuota(namespace="default", share_milli=499), 500, False),
        (NamespaceQuota(namespace="default", share_milli=0), 500, False),
        (NamespaceQuota(namespace="default"), 500, True),
        (NamespaceQuota(namespace="default", memory_mib=99), 500, False),
        (NamespaceQuota(namespace="default", removed=True), 500, False),
        (NamespaceQuota(namespace="another"), 500, False),
    ],
)
def test_no_decision_beyond_a_quota(quota: NamespaceQuota, share: int, *, fits: bool) -> None:
    """Claim (S090, S092): the fold itself keeps quotas; no mapping is a limit of nothing once there is any."""
    c = cluster(node("n1").gpus(1))
    asked = c.accept(request("a").share(share))
    c.fold(QuotaSet(quota=quota))
    decision = reserve(asked, "n1", piece("n1-gpu0", share, 100))
    if fits:
        assert c.fold(decision).used("n1") == [share]
    else:
        with pytest.raises(InvariantBroken, match="over its quota"):
            c.fold(decision)
