"""The audit finds each kind of thing that does not add up, and nothing in a cluster that does."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import pytest
from rich.console import Console

from bus.ledger.proof import CardPeak, Proof
from bus.ledger.state import CardState, LedgerState, NodeState, RequestState
from contracts.answers import Summary
from contracts.decisions import Accepted, Candidate, CardSlice, Placement, Rationale, Reserved
from contracts.inventory import Card, NodeInventory
from contracts.outcomes import Allocation, NodeShares, ShareAssignment
from contracts.requests import PodRequest, PodTemplate
from contracts.units import CardUuid, NodeName, RequestUid, request_key
from gpubus.audit.compare import counts, findings, report, settled
from gpubus.audit.snapshot import Finding, Snapshot
from gpubus.render.audit import report as rendered
from scheduler.core.replay import Difference, Replayed

UID = RequestUid("e-2-0")
NODE = NodeName("n1")
CARD = Card(uuid=CardUuid("GPU-a"), index=0, model="A100-40G", memory_total_mib=40_960)
SLICE = CardSlice(card=CARD.uuid, share_milli=600, memory_mib=20_000)
REQUEST = PodRequest(name="train", pod=PodTemplate(image="i:1"))
PLACEMENT = Placement(node=NODE, slices=(SLICE,))
POD = Allocation(
    uid=UID,
    namespace="team",
    epoch="e",
    ledger_sequence=5,
    request=REQUEST,
    node=NODE,
    slices=(SLICE,),
    pod="train-x7k2p",
    running=True,
)


def state() -> LedgerState:
    """One node, one card, one running request."""
    accepted = Accepted(uid=UID, namespace="team", request=REQUEST)
    request = RequestState(uid=UID, accepted=accepted, phase="running", placement=PLACEMENT, pod=POD.pod)
    card = CardState(
        card=CARD, node=NODE, capacity_mib=CARD.sellable_mib, used_milli=600, used_mib=20_000, residents={UID: SLICE}
    )
    node = NodeState(name=NODE, tie="0", residents={UID: PLACEMENT}, cards={CARD.uuid: card})
    folded = LedgerState(epoch="e", sequence=9, nodes={NODE: node}, requests={UID: request})
    folded.by_key[request_key("team", "train")] = UID
    folded.totals.accepted = 1
    return folded


def shares(*assignments: ShareAssignment) -> NodeShares:
    """What the monitor was told."""
    return NodeShares(node=NODE, epoch="e", ledger_sequence=5, assignments=assignments)


TOLD = ShareAssignment(uid=UID, namespace="team", pod=POD.pod, card=CARD.uuid, share_milli=600, memory_mib=20_000)


def sound(**changed: object) -> Snapshot:
    """A snapshot in which everything adds up, but for what is changed."""
    base = Snapshot(
        state=state(),
        before=frozenset({UID}),
        proof=Proof(commits=9),
        conserved=True,
        summary=Summary(accepted=1, placed=1, running=1, over_commits=0),
        summary_sequence=9,
        allocations=(POD,),
        inventories={NODE: NodeInventory(node=NODE, boot_id="b", incarnation="i", cards=(CARD,))},
        shares={NODE: shares(TOLD)},
    )
    return msgspec.structs.replace(base, **changed)


def changed_state(change: Callable[[LedgerState], object]) -> Snapshot:
    """A snapshot whose ledger is another one."""
    folded = state()
    change(folded)
    return sound(state=folded)


def oversold(folded: LedgerState) -> None:
    """1200 thousandths of one card."""
    folded.nodes[NODE].cards[CARD.uuid].used_milli = 1200


def pod(**changed: object) -> Allocation:
    """The pod, with something else in its annotations."""
    return msgspec.structs.replace(POD, **changed)


def squeezed(folded: LedgerState) -> None:
    """A process of nobody came and holds all but 5,000 MiB."""
    card = folded.nodes[NODE].cards[CARD.uuid]
    held = (CARD.memory_total_mib or 0) - 5000
    card.card = msgspec.structs.replace(CARD, memory_unmanaged_mib=held, unmanaged_by="miner (666)")
    card.capacity_mib = card.card.sellable_mib


OTHER = CardSlice(card=CardUuid("GPU-b"), share_milli=600, memory_mib=20_000)
WIDE = CardSlice(card=CARD.uuid, share_milli=600, memory_mib=30_000)

DECIDED = Reserved(
    uid=UID,
    placement=PLACEMENT,
    rationale=Rationale(policy="packing", chosen=Candidate(node=NODE, score=0), feasible_nodes=1, rejected_nodes=0),
)

CASES: dict[str, tuple[Snapshot, list[tuple[str, str]]]] = {
    "nothing": (sound(), []),
    "a broken chain": (sound(proof=Proof(broken="commit at 7 has number 9")), [("ledger-broken", "ledger")]),
    "a decision that cannot be made again": (
        sound(replayed=Replayed(decisions=1, differences=(Difference(sequence=5, logged=DECIDED, again=None),))),
        [("not-reproduced", UID)],
    ),
    "a request that is nowhere": (sound(conserved=False), [("unaccounted", "ledger")]),
    "a scheduler that counts otherwise": (
        sound(summary=Summary(accepted=1, placed=0, pending=1)),
        [("scheduler-differs", "pending"), ("scheduler-differs", "placed")],
    ),
    "a scheduler that is elsewhere in the log": (sound(summary=Summary(), summary_sequence=8), []),
    "a card sold twice by the ledger": (changed_state(oversold), [("over-commit", "GPU-a")]),
    "sold memory that a process of nobody holds": (changed_state(squeezed), [("squeezed", "GPU-a")]),
    "a card that was sold twice once": (
        sound(
            proof=Proof(peaks=(CardPeak(node=NODE, card=CARD.uuid, share_milli=1001, memory_mib=5, capacity_mib=9),))
        ),
        [("over-commit-ever", "GPU-a")],
    ),
    "two pods that oversell a card without the ledger": (
        sound(allocations=(POD, pod(uid=RequestUid("e-3-0"), pod="other"))),
        [("over-commit-in-kubernetes", "GPU-a"), ("pod-without-placement", "team/other")],
    ),
    "two pods that oversell only the memory of a card": (
        sound(allocations=(pod(slices=(msgspec.structs.replace(WIDE, share_milli=1, memory_mib=41_000),)),)),
        [("over-commit-in-kubernetes", "GPU-a")],
    ),
    "a pod that the ledger does not know": (
        sound(allocations=(POD, pod(uid=RequestUid("e-3-0"), pod="stray", slices=()))),
        [("pod-without-placement", "team/stray")],
    ),
    "a pod with annotations of somebody else": (
        sound(unreadable=("team/odd: no uid",)),
        [("pod-unreadable", "team/odd")],
    ),
    "two pods of one request": (
        sound(allocations=(POD, pod(pod="twin", slices=()))),
        [("two-pods", UID), ("other-cards", "team/train")],
    ),
    "a pod on another node": (sound(allocations=(pod(node=NodeName("n2")),)), [("other-node", "team/train")]),
    "a pod with another card": (sound(allocations=(pod(slices=(OTHER,)),)), [("other-cards", "team/train")]),
    "a running request without a pod": (sound(allocations=()), [("placement-without-pod", "team/train")]),
    "a request that got its pod while we asked": (sound(allocations=(), before=frozenset()), []),
    "a reconciler that is not there": (
        sound(allocations=None, silent={"Kubernetes": "nobody answers"}),
        [("not-heard", "Kubernetes")],
    ),
    "a card that is sold and not there": (
        sound(inventories={NODE: NodeInventory(node=NODE, boot_id="b", incarnation="i", cards=())}),
        [("orphan-card", "GPU-a")],
    ),
    "a node of which no monitor has spoken": (sound(inventories={}), [("no-inventory", "n1")]),
    "a monitor that was told of less": (sound(shares={NODE: shares()}), [("shares-differ", "n1")]),
    "shares of an earlier epoch": (sound(shares={NODE: msgspec.structs.replace(shares(), epoch="d")}), []),
}


@pytest.mark.parametrize("case", CASES)
def test_each_kind_of_disagreement_is_found(case: str) -> None:
    """What differs is named by kind and subject, and nothing else is."""
    snapshot, expected = CASES[case]

    assert [(f.kind, f.subject) for f in findings(snapshot)] == expected


def finding(kind: str, subject: str, text: str = "") -> Finding:
    """A finding."""
    return Finding(kind=kind, subject=subject, text=text)


def test_only_what_stays_counts() -> None:
    """A pod that ended while it was read is no finding; the text of the last round is told."""
    rounds = [
        [finding("a", "x", "1"), finding("a", "y")],
        [finding("a", "x", "2"), finding("b", "x")],
    ]

    assert settled(rounds) == (finding("a", "x", "2"),)
    assert settled([]) == ()


def test_the_report_ends_in_one_line_with_every_number() -> None:
    """Sound: `adds up`. Not sound: the findings, and how many."""
    snapshot = sound(refused=3, dead_letters=2)
    out = io.StringIO()
    console = Console(file=out, width=400, color_system=None)
    for part in [*rendered(report(snapshot, (), 1)), *rendered(report(snapshot, (finding("a", "x", "why"),), 2))]:
        console.print(part)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]

    numbers = "placed 1, pending 0, refused 3, ended 0, withdrawn 0, dead letters 2, over-commits 0"
    assert lines[1] == "replay  0 decisions computed again from the log before each: all equal, byte for byte"
    assert lines[2] == f"audit   {numbers}: adds up"
    assert lines[3:6] == ["FINDING  WHAT  REASON", "a        x     why", ""]
    assert lines[-1] == f"audit   {numbers}: 1 finding"


def test_over_commits_are_counted_by_card_whoever_saw_them() -> None:
    """One card that ledger and pods agree on being oversold is one over-commit."""
    folded = state()
    oversold(folded)
    snapshot = sound(state=folded, allocations=(POD, pod(uid=RequestUid("e-3-0"), pod="other")))

    assert counts(snapshot).over_commits == 1
