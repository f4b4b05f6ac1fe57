"""The ledger by pod, and the shares of a node."""

from __future__ import annotations

from contracts.decisions import EpochStarted, FactsSet, HealthSet, Released, Reserved, Resized, Withdrawn
from contracts.inventory import NodeFacts
from contracts.outcomes import NodeShares
from contracts.units import NodeName, RequestUid
from reconciler.shares import node_shares, same_shares
from reconciler.view import View, pod_key
from tests.builders.history import Log, accepted, adopted, inventory, piece, reserve


def opened() -> Log:
    """A node with two cards."""
    log = Log()
    facts = NodeFacts(node=NodeName("n1"), uid="u", allocatable_cpu_milli=9_000, allocatable_memory_mib=9_000)
    log.write(inventory("n1", "g0", "g1"), FactsSet(facts=facts), HealthSet(node=NodeName("n1"), health="fresh"))
    return log


def place(log: Log, uid: str, name: str, card: str = "g0", share: int = 100) -> str:
    log.write(accepted(uid, name))
    log.write(reserve(log.state.requests[RequestUid(uid)], "n1", piece(card, share, 10)))
    return pod_key(log.state.requests[RequestUid(uid)])


def test_a_commit_names_the_pods_that_it_concerns() -> None:
    """Placed, withdrawn, resized, released: the pod of that request; accepted alone concerns none."""
    log = opened()
    view = View(log.state)
    assert view.folded(log.write(accepted("u1", "train"))) == set()

    request = log.state.requests[RequestUid("u1")]
    for record in (
        reserve(request, "n1", piece("g0", 100)),
        Resized(uid=request.uid, share_milli=200, memory_mib=0),
        Withdrawn(uid=request.uid),
        Released(uid=request.uid, evidence="gone"),
    ):
        assert view.folded(log.write(record)) == {pod_key(request)}


def test_a_pod_name_belongs_to_its_live_request_and_to_nobody_afterwards() -> None:
    """The owner of a name comes first; without one, the request that the pod names, live or not."""
    log = opened()
    view = View(log.state)
    key = place(log, "u1", "train")
    view.folded(log.commits[-1][0])
    assert key in view
    owner = view.request(key, "somebody-else")
    assert owner is not None
    assert owner.uid == "u1"

    view.folded(log.write(Released(uid=RequestUid("u1"), evidence="ended")))

    assert key not in view
    assert view.request(key, None) is None
    finished = view.request(key, "u1")
    assert finished is not None
    assert finished.ending == "ended"


def test_the_same_index_comes_from_the_state_alone() -> None:
    """Folding commit by commit and starting from a state give the same keys."""
    log = opened()
    view = View(log.state)
    for number in range(3):
        place(log, f"u{number}", f"r{number}")
        view.folded(log.commits[-1][0])

    assert View(log.replay()).keys() == view.keys() == {pod_key(r) for r in log.state.requests.values()}


def test_a_new_epoch_concerns_every_pod_of_the_old_one() -> None:
    """All names are looked at again: those of before, and those that were found."""
    log = opened()
    view = View(log.state)
    key = place(log, "u1", "train")
    view.folded(log.commits[-1][0])
    log.write(Released(uid=RequestUid("u1"), evidence="ended"))

    started = log.write(
        EpochStarted(epoch="e1111111", reason="test"),
        accepted("u9", "found"),
        adopted("u9", piece("g7", 10), pod="found-old"),
        epoch="e1111111",
    )

    assert view.folded(started) == {key, "default/found-old"}
    assert view.keys() == {"default/found-old"}


def test_counted_is_what_the_ledger_holds_there() -> None:
    """A request is counted on its node and on no other."""
    log = opened()
    place(log, "u1", "train")
    view = View(log.state)

    assert view.counted("u1", "n1")
    assert not view.counted("u1", "n2")
    assert not view.counted("", "n1")


def test_nodes_of_a_commit() -> None:
    """Only of the kinds that were asked for."""
    log = opened()
    place(log, "u1", "train")
    view = View(log.state)
    commit = log.commits[-1][0]

    assert view.nodes_of(commit, (Reserved,)) == {"n1"}
    assert view.nodes_of(commit, (Released,)) == set()


def test_shares_are_a_full_snapshot_by_card() -> None:
    """Every slice with its pod, in order of card and request, at the ledger's sequence."""
    log = opened()
    second = place(log, "u2", "second", card="g1", share=300)
    first = place(log, "u1", "first", card="g0", share=200)

    shares = node_shares(log.state, "n1")

    assert (shares.node, shares.epoch, shares.ledger_sequence) == ("n1", log.state.epoch, log.state.sequence)
    assert [(f"default/{a.pod}", a.card, a.share_milli, a.memory_mib) for a in shares.assignments] == [
        (first, "g0", 200, 10),
        (second, "g1", 300, 10),
    ]


def test_shares_of_an_unknown_node_are_empty() -> None:
    """Which is what its monitor should hear."""
    assert node_shares(opened().state, "n9").assignments == ()


def test_a_later_sequence_alone_is_no_news_and_another_epoch_is() -> None:
    """Shares are published on change only."""
    one = NodeShares(node=NodeName("n1"), epoch="a", ledger_sequence=1)

    assert same_shares(one, NodeShares(node=NodeName("n1"), epoch="a", ledger_sequence=2))
    assert not same_shares(one, NodeShares(node=NodeName("n1"), epoch="b", ledger_sequence=1))
    assert not same_shares(None, one)
