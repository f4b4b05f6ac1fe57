"""Operators' words and monitors' words on cards, on their way into the ledger."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bus.ledger.state import NodeState
from bus.memory import InMemoryBus, MemoryServer
from bus.protocol import Received
from contracts.decisions import CardHealthSet
from contracts.inventory import Card, CordonCard, Heartbeat, NodeInventory
from contracts.messages import Message, encode
from contracts.subjects import CORDONS, HEARTBEATS, INVENTORY
from contracts.units import CardUuid, NodeName, card_token
from scheduler.core.cordons import MOST, cordoning, outdated
from scheduler.core.freshness import Freshness
from scheduler.inbox import Fact, Inbox
from scheduler.intake import Intake

N1, A = NodeName("n1"), CardUuid("GPU-a")


def order(card: str = A, *, cordoned: bool = True, reason: str = "fan") -> CordonCard:
    return CordonCard(node=N1, card=CardUuid(card), cordoned=cordoned, reason=reason, at_ms=7)


def node(*cordoned: str) -> NodeState:
    held = {c: CardHealthSet(node=N1, card=CardUuid(c), health="cordoned", reason="fan") for c in cordoned}
    return NodeState(name="n1", tie="t", cordons=held)


TAKEN = CardHealthSet(node=N1, card=A, health="cordoned", reason="fan", at_ms=7)
GIVEN = CardHealthSet(node=N1, card=A, health="healthy")


@pytest.mark.parametrize(
    ("held", "said", "record"),
    [
        ((), order(), TAKEN),
        ((A,), order(), None),
        ((A,), order(reason="smoke"), replace(TAKEN, reason="smoke")),
        ((A,), order(cordoned=False), GIVEN),
        ((), order(cordoned=False), None),
        (tuple(f"GPU-{i}" for i in range(MOST)), order(), None),
        (
            tuple(f"GPU-{i}" for i in range(MOST)),
            order("GPU-7", cordoned=False),
            replace(GIVEN, card=CardUuid("GPU-7")),
        ),
    ],
    ids=["taken", "taken again", "for another reason", "given back", "given back twice", "one too many", "one fewer"],
)
def test_an_order_is_written_when_it_changes_something(
    held: tuple[str, ...], said: CordonCard, record: CardHealthSet | None
) -> None:
    """Claim: also on a card that is not listed, and with an end to how many."""
    assert cordoning(node(*held), said) == record


def inventory(incarnation: str = "m-1", sequence: int = 1) -> NodeInventory:
    card = Card(uuid=A, index=0, model="T4", memory_total_mib=1)
    return NodeInventory(node=N1, boot_id="b", incarnation=incarnation, sequence=sequence, cards=(card,))


@pytest.mark.parametrize(
    ("seen", "held", "old"),
    [
        (inventory(sequence=1), None, False),
        (inventory(sequence=2), inventory(sequence=1), False),
        (inventory(sequence=1), inventory(sequence=2), True),
        (inventory("m-2", sequence=1), inventory(sequence=2), False),
        (inventory(sequence=0), inventory(sequence=0), False),  # monitors that do not count
    ],
)
def test_a_replayed_inventory_of_the_same_monitor_is_old_news(
    seen: NodeInventory, held: NodeInventory | None, old: bool
) -> None:
    """Claim: by its sequence within an incarnation; another incarnation may always speak."""
    assert outdated(seen, held) is old


# --- on the way -----------------------------------------------------------------------------------------------------


class Way:
    """An intake whose messages the test hands in."""

    def __init__(self) -> None:
        self.inbox = Inbox(100)
        self.intake = Intake(InMemoryBus(MemoryServer(), "s"), self.inbox, Freshness())

    async def say(self, *messages: Message) -> list[Any]:
        """What each puts into the inbox."""
        for message in messages:
            if isinstance(message, Heartbeat):
                await self.intake._heartbeat(_received(HEARTBEATS.subject(node="n1"), message))
            elif isinstance(message, CordonCard):
                subject = CORDONS.subject(node="n1", card=card_token(message.card))
                await self.intake._fact(CORDONS, _received(subject, message))
            else:
                await self.intake._fact(INVENTORY, _received(INVENTORY.subject(node="n1"), message))
        return [item.seen for item in self.inbox.clear() if isinstance(item, Fact)]


def _received(subject: str, message: Message) -> Received:
    return Received(subject=subject, data=encode(message), headers={}, sequence=1)


def beat(incarnation: str, sequence: int) -> Heartbeat:
    return Heartbeat(node=N1, boot_id="b", incarnation=incarnation, sequence=sequence, uptime_ms=0, cards=1)


async def test_an_order_that_came_before_its_node_is_said_again_with_each_inventory() -> None:
    """Claim: the facts stream may hold a cordon before the inventory of its node; the newest word counts."""
    way = Way()

    assert await way.say(order()) == [order()]
    assert await way.say(inventory()) == [inventory(), order()]
    given = order(cordoned=False)
    assert await way.say(given, inventory(sequence=2)) == [given, inventory(sequence=2), given]


async def test_an_order_on_an_instance_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Claim: names of instances hold characters that a subject has not; the order is of the same card all the same."""
    instance = order("MIG-GPU-a/1/0")

    assert await Way().say(instance) == [instance]


async def test_the_word_of_a_monitor_that_is_no_more_changes_nothing() -> None:
    """Claim: an inventory of the last life, replayed after its successor is heard, is left aside.

    When the old life goes on speaking it counts; two monitors are another matter.
    """
    way = Way()
    await way.say(beat("m-1", 1), inventory("m-1"), beat("m-2", 1))

    assert await way.say(inventory("m-1")) == []
    assert await way.say(beat("m-1", 1)) == []
    assert await way.say(inventory("m-2")) == [inventory("m-2")]
    assert await way.say(inventory("m-1", 2), beat("m-1", 2)) == [inventory("m-1", 2)]
