"""Which card an operator means, what befalls simulated ones, and what orders look like on the bus."""

from __future__ import annotations

import msgspec
import pytest

from bus.memory import InMemoryBus, MemoryServer
from contracts.answers import CardView
from contracts.inventory import Card, CordonCard
from contracts.units import CardUuid
from gpubus import cardname
from gpubus.client import Client
from gpubus.errors import AnswerIsNo
from gpubus.local.nodes import A100_40, uniform, with_faults
from monitor.cards.simulated import Fault


def row(index: int, uuid: str, node: str = "n1") -> CardView:
    card = Card(uuid=CardUuid(uuid), index=index, model="T4", memory_total_mib=15_000)
    return CardView(node=node, card=card, used_milli=0, used_mib=0, sellable_mib=15_000)


ROWS = [row(0, "GPU-aa"), row(1, "GPU-ab"), row(2, "MIG-x"), row(2, "MIG-y"), row(0, "GPU-cc", "n2")]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("1", "GPU-ab"), ("GPU-aa", "GPU-aa"), ("MIG-y", "MIG-y"), ("GPU-ab", "GPU-ab"), ("MIG-x", "MIG-x")],
)
def test_a_card_is_meant_by_its_index_its_uuid_or_how_that_begins(typed: str, meant: str) -> None:
    """Claim: of that node alone."""
    found = cardname.find(ROWS, "n1", typed)

    assert found is not None
    assert found.card.uuid == meant


@pytest.mark.parametrize(
    ("node", "typed", "words"),
    [
        ("n3", "0", "n3 is no node with cards"),
        ("n1", "7", "n1 has no card 7; it has 0 GPU-aa, 1 GPU-ab, 2 MIG-x, 2 MIG-y"),
        ("n1", "2", "2 could be any of 2 MIG-x, 2 MIG-y"),
        ("n1", "GPU-a", "GPU-a could be any of 0 GPU-aa, 1 GPU-ab"),
    ],
)
def test_a_name_that_means_no_card_or_several_is_answered_with_what_there_is(node: str, typed: str, words: str) -> None:
    """Claim: never a guess."""
    with pytest.raises(AnswerIsNo) as no:
        cardname.find(ROWS, node, typed)

    assert words in str(no.value)


def test_a_whole_uuid_that_is_not_there_is_told_apart() -> None:
    """Claim: the card may be out of the machine at present; who asks decides what that means."""
    assert cardname.find(ROWS, "n1", "GPU-gone") is None


async def test_orders_go_to_the_subject_of_their_card() -> None:
    """Claim: the last one is kept; characters that subjects lack are replaced in the subject, not in the order."""
    server = MemoryServer()
    server.create_streams()
    client = Client(InMemoryBus(server, "operator"))
    await client.cordon("gpu-1.rack-2", "MIG-GPU-a/1/0", reason="fan", at_ms=7)
    await client.uncordon("gpu-1.rack-2", "MIG-GPU-a/1/0", repaired=True, at_ms=8)
    kept = server.streams["GPUBUS_FACTS"].last("gpubus.v1.nodes.gpu-1_rack-2.cordon.MIG-GPU-a_1_0")

    assert kept is not None
    said = msgspec.json.decode(kept.data, type=CordonCard)
    assert (said.node, said.card, said.cordoned, said.repaired) == ("gpu-1.rack-2", "MIG-GPU-a/1/0", False, True)


def test_faults_of_local_nodes_are_spelt_with_their_node() -> None:
    """Claim: each goes to its node, several to one; reasons may hold anything."""
    nodes = with_faults(
        uniform(2, cards=2, model=A100_40), ["node-02/1@20+30", "node-02/0@1+2:Xid 48: a/b", "node-01/0@5+6"]
    )

    assert [node.faults for node in nodes] == [
        (Fault(index=0, after_s=5, for_s=6),),
        (Fault(index=1, after_s=20, for_s=30), Fault(index=0, after_s=1, for_s=2, reason="Xid 48: a/b")),
    ]


@pytest.mark.parametrize("text", ["node-09/0@1+2", "0@1+2", "node-01/2@1+2", "node-01/x", ""])
def test_a_fault_that_can_befall_nobody_is_refused(text: str) -> None:
    """Claim: with the text that was given."""
    with pytest.raises(ValueError, match=r"@|cards"):
        with_faults(uniform(1, cards=2, model=A100_40), [text])
