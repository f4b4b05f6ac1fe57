"""The life of an execution environment with a lease: what it holds is given back, whatever happens to it.

In: events, each with its time. Out: the fleet after it, and the answer to the environment. Every environment has a
lease, renewed by each message from it; `expire` ends those whose lease has run out. What is in use of a card is not
stored but counted from the grants of those that live, so an end of any kind gives back exactly what was granted.

    refused ⇠ start ⇢ starting ⇢ creating ⇢ idle ⇄ allocated          each ⇢ dead

`ready` may overtake `created`. A message of a dead or unknown environment is answered `destroy`, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from autoscaler.core.choosers import CardChooser, CardSlots, Grant, best_fit
from contracts.messages import Value

State = Literal["starting", "creating", "idle", "allocated", "dead", "refused"]
Event = Literal["created", "ready", "beat", "choose", "finish", "end"]
Answer = Literal["destroy", "keep-alive", "ok"]

CODES: dict[State, int] = {"idle": 0, "allocated": 1, "creating": 2, "dead": 13, "starting": 200, "refused": 210}
"""As numbers on the wire of the published system."""

STEPS: dict[State, dict[Event, State]] = {
    "starting": {"created": "creating", "ready": "idle", "beat": "starting", "end": "dead"},
    "creating": {"created": "creating", "ready": "idle", "beat": "creating", "end": "dead"},
    "idle": {"created": "idle", "ready": "idle", "beat": "idle", "choose": "allocated", "end": "dead"},
    "allocated": {"created": "allocated", "beat": "allocated", "finish": "idle", "end": "dead"},
    "dead": {"end": "dead"},
    "refused": {"end": "dead"},
}

RENEWS: frozenset[Event] = frozenset({"created", "ready", "beat", "finish"})
"""What the environment, or whoever makes it, says itself. To be chosen is no sign of life."""


class IllegalStep(ValueError):  # noqa: N818 - named by what is the case
    """An event that cannot happen in that state."""

    def __init__(self, name: str, state: State, event: str) -> None:
        super().__init__(f"{name}: {event!r} cannot happen while {state}; possible: {', '.join(STEPS[state])}")
        self.state = state
        self.event = event


class Life(Value, frozen=True, kw_only=True):
    """One environment."""

    function: str
    node: str
    state: State
    until_ms: int
    """Its lease."""
    grant: Grant | None = None


class Fleet(Value, frozen=True, kw_only=True):
    """All environments by name, and the cards that they may be granted."""

    lives: Mapping[str, Life] = {}
    cards: tuple[CardSlots, ...] = ()
    """Empty: `used_mib` and `busy` are counted, see `occupied`."""
    lease_ms: int = 30_000

    def occupied(self) -> tuple[CardSlots, ...]:
        """The cards with what living environments hold of them."""
        grants = [life.grant for life in self.lives.values() if life.grant is not None]
        return tuple(_with(card, [grant for grant in grants if grant.card == card.uuid]) for card in self.cards)

    def state(self, name: str) -> State | None:
        """None = no such environment."""
        life = self.lives.get(name)
        return None if life is None else life.state


def _with(card: CardSlots, grants: list[Grant]) -> CardSlots:
    return msgspec.structs.replace(
        card,
        used_mib=card.used_mib + sum(grant.memory_mib for grant in grants),
        busy=card.busy | {grant.slot for grant in grants},
    )


def start(fleet: Fleet, name: str, *, function: str, node: str, now_ms: int, allowed: bool = True) -> Fleet:
    """A new environment; `allowed=False` = the policy's limit refuses it, which is remembered until its lease ends.

    Raises:
        IllegalStep: one of that name lives.
    """
    if fleet.state(name) not in (None, "dead", "refused"):
        raise IllegalStep(name, fleet.lives[name].state, "start")
    state: State = "starting" if allowed else "refused"
    return _put(fleet, name, Life(function=function, node=node, state=state, until_ms=now_ms + fleet.lease_ms))


def tell(fleet: Fleet, name: str, event: Event, *, now_ms: int) -> tuple[Fleet, Answer]:
    """What an environment, or its node, says.

    Raises:
        IllegalStep: it cannot happen in the state it is in; nothing is changed.
    """
    life = fleet.lives.get(name)
    if life is None or life.state in ("dead", "refused"):
        return fleet, "destroy"
    after = _stepped(name, life, event)
    until_ms = now_ms + fleet.lease_ms if event in RENEWS else life.until_ms
    grant = life.grant if after.state == "allocated" else None
    answer: Answer = "destroy" if event == "end" else "ok" if event == "beat" else "keep-alive"
    return _put(fleet, name, msgspec.structs.replace(after, until_ms=until_ms, grant=grant)), answer


def choose(
    fleet: Fleet, name: str, memory_mib: int, chooser: CardChooser = best_fit
) -> tuple[Fleet, Grant | None] | None:
    """Give a call to an idle environment, with a slot of a card if it needs one; None = no card has room.

    Raises:
        IllegalStep: it is not idle.
        KeyError: there is none of that name.
    """
    after = _stepped(name, fleet.lives[name], "choose")
    grant = chooser(memory_mib, fleet.occupied()) if memory_mib else None
    if memory_mib and grant is None:
        return None
    return _put(fleet, name, msgspec.structs.replace(after, grant=grant)), grant


def expire(fleet: Fleet, now_ms: int) -> tuple[Fleet, tuple[str, ...]]:
    """Ends those whose lease has run out, in the order of their names; the dead of before are forgotten."""
    lapsed = sorted(n for n, life in fleet.lives.items() if life.state != "dead" and life.until_ms <= now_ms)
    kept = {name: life for name, life in fleet.lives.items() if life.state != "dead"}
    ended = {name: _dead(kept[name]) for name in lapsed}
    return msgspec.structs.replace(fleet, lives={**kept, **ended}), tuple(lapsed)


def lose_node(fleet: Fleet, node: str) -> tuple[Fleet, tuple[str, ...]]:
    """A node of environments, or of cards, is gone: everything on it ends, and so do the calls that held its cards."""
    lost = sorted(n for n, life in fleet.lives.items() if life.state != "dead" and _touches(life, node))
    ended = {name: _dead(fleet.lives[name]) for name in lost}
    cards = tuple(card for card in fleet.cards if card.node != node)
    return msgspec.structs.replace(fleet, lives={**fleet.lives, **ended}, cards=cards), tuple(lost)


def _touches(life: Life, node: str) -> bool:
    return life.node == node or (life.grant is not None and life.grant.node == node)


def _dead(life: Life) -> Life:
    return msgspec.structs.replace(life, state="dead", grant=None)


def _stepped(name: str, life: Life, event: Event) -> Life:
    after = STEPS[life.state].get(event)
    if after is None:
        raise IllegalStep(name, life.state, event)
    return msgspec.structs.replace(life, state=after)


def _put(fleet: Fleet, name: str, life: Life) -> Fleet:
    return msgspec.structs.replace(fleet, lives={**fleet.lives, name: life})
