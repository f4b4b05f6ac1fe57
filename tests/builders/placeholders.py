"""A node that shares its cards, for tests of placeholders: a device plugin, a kubelet and a ledger, very small.

    world = SharedNode(cards=4)
    world.turn(wanted=1)     one plan, and all that it asks for is done
    world.start()            the kubelet starts what waits
    world.hear()             the ledger folds the facts as they are now

It does what a real kubelet was seen to do: a pod that finds no device fails at once, for good; an evicted one reads
`Succeeded`; a device is free as soon as its pod's object is gone or has ended.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from contracts.inventory import CardMode
from reconciler.objects import Pod
from reconciler.placeholders.memory import NOTHING, Memory
from reconciler.placeholders.plan import Planned, plan
from reconciler.placeholders.values import (
    HOLDS,
    LABEL,
    PROOF,
    RELEASING,
    Acquire,
    End,
    Keep,
    NodeSeen,
    Placeholder,
    Prove,
    Release,
    Rules,
    Step,
)
from reconciler.settings import PlaceholderSettings

RULES = PlaceholderSettings(release_idle_after_s=60.0).rules()
BOOT = "boot-1"
ONE_CARD = {"requests": {"nvidia.com/gpu": "1"}}


def pod(
    *,
    card: str = "GPU-0",
    phase: str = "Running",
    health: str = "Healthy",
    container: str = "c1",
    notes: dict[str, str] | None = None,
    deleted: bool = False,
    slot: str = "0",
    namespace: str = "gpubus-system",
    node: str = "n1",
    **status: Any,
) -> Pod:
    """A placeholder as the API server shows it."""
    given = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": card, "health": health}]}] if card else None
    one = {"name": "card", "containerID": f"containerd://{container}", "allocatedResourcesStatus": given}
    raw = {
        "metadata": {
            "name": f"gpubus-card-x-{slot}",
            "namespace": namespace,
            "uid": f"uid-{slot}",
            "resourceVersion": "7",
            "labels": {LABEL: slot},
            "annotations": notes or {},
            **({"deletionTimestamp": "2026-11-30T12:00:00Z"} if deleted else {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "card", "resources": {"requests": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"phase": phase, "containerStatuses": [one], **status},
    }
    return msgspec.convert(raw, Pod)


def proven(card: str = "GPU-0", *, boot: str = BOOT, container: str = "c1", **more: str) -> dict[str, str]:
    """The annotations of one whose card was written down."""
    return {HOLDS: card, PROOF: f"{boot}/{container}", **more}


def held(card: str, slot: int = 0, **fields: Any) -> Placeholder:
    """A placeholder that holds a card."""
    made = Placeholder(uid=f"uid-{slot}", name=f"p-{slot}", version="7", slot=slot, state="held", card=card)
    return replace(made, **fields)


def starting(slot: int = 0, **fields: Any) -> Placeholder:
    """One that nobody knows the card of."""
    return replace(held("", slot), state="starting", **fields)


class SharedNode:
    """One node; its cards are `GPU-0`, `GPU-1` and so on."""

    def __init__(self, cards: int = 4, *, rules: Rules = RULES, mode: CardMode = "coexist") -> None:
        self.cards = [f"GPU-{number}" for number in range(cards)]
        self.rules, self.mode, self.now_s = rules, mode, 1000.0
        self.plugin = True
        self.others: dict[str, str] = {}
        """Cards that pods of others have."""
        self.pods: dict[str, Placeholder] = {}
        self.tenants: set[str] = set()
        """What the ledger has sold."""
        self.offered: frozenset[str] = frozenset()
        """What the ledger has folded."""
        self.memory: Memory = NOTHING
        self.planned = Planned(steps=(), memory=NOTHING)
        self.made = 0
        self.done: list[Step] = []

    # --- what there is -------------------------------------------------------------------------------------------

    @property
    def live(self) -> list[Placeholder]:
        """Placeholders whose card, if they have one, nobody else can get."""
        return [each for each in self.pods.values() if each.state != "lost"]

    @property
    def free(self) -> list[str]:
        """Cards that the device plugin would give out."""
        gone = {each.card for each in self.live if each.card} | self.others.keys()
        return [card for card in self.cards if card not in gone] if self.plugin else []

    @property
    def acquired(self) -> frozenset[str]:
        """What the facts say now."""
        return frozenset(each.card for each in self.pods.values() if each.offers)

    def seen(self) -> NodeSeen:
        """As a survey would find it."""
        asked = len(self.live) + len(self.others)
        offers = len(self.cards) if self.plugin else 0
        return NodeSeen(
            name="n1",
            mode=self.mode,
            against="" if offers else "its device plugin offers no card",
            devices=offers,
            free=max(0, offers - asked),
            placeholders=tuple(sorted(self.pods.values(), key=lambda each: (each.slot, each.uid))),
            tenants=frozenset(self.tenants),
            offered=self.offered,
            taken=dict(self.others),
        )

    # --- what happens --------------------------------------------------------------------------------------------

    def turn(self, wanted: int = 0, *, do: bool = True) -> Planned:
        """One plan; what it asks for is done, or is lost on the way."""
        self.planned = plan(self.seen(), wanted, self.memory, self.rules, self.now_s)
        self.memory = self.planned.memory
        for step in self.planned.steps if do else ():
            self._do(step)
        return self.planned

    def settle(self, wanted: int = 0) -> SharedNode:
        """Turns, the kubelet and the ledger, until nothing moves."""
        for _ in range(6):
            self.turn(wanted)
            self.start()
            self.hear()
            wanted = 0
        return self

    def hear(self) -> None:
        """The ledger folds the facts."""
        self.offered = self.acquired if self.mode == "coexist" else frozenset(self.cards)

    def sell(self, card: str) -> None:
        """The scheduler places somebody; it goes by what the ledger has folded."""
        assert card in self.offered
        self.tenants.add(card)

    def start(self, take: int = 0) -> None:
        """The kubelet admits what waits: a device each (`take`: which of the free ones), or a failure for good."""
        for uid, each in list(self.pods.items()):
            if each.state == "starting" and not each.card:
                free = self.free
                got = {"state": "new", "card": free[take % len(free)]} if free else {"state": "lost", "why": NO_ROOM}
                self.pods[uid] = replace(each, **got, version=each.version + "s")
            elif each.state == "leaving":
                del self.pods[uid]

    def lose(self, card: str, why: str = "evicted") -> None:
        """The placeholder of a card ends."""
        for uid, each in list(self.pods.items()):
            if each.card == card:
                self.pods[uid] = replace(each, state="lost", why=why, card="", version=each.version + "l")

    def take(self, card: str) -> None:
        """A pod of somebody else is given a free card."""
        assert card in self.free
        self.others[card] = f"others/with-{card}"

    def _do(self, step: Step) -> None:
        self.done.append(step)
        if isinstance(step, Acquire):
            self.made += 1
            fresh = Placeholder(
                uid=f"u{self.made}", name=f"p-{step.slot}", version="1", slot=step.slot, state="starting"
            )
            self.pods[fresh.uid] = fresh
            return
        each = self.pods.get(step.what.uid)
        if each is None or (isinstance(step, End) and each.version != step.what.version):
            return
        self.pods[each.uid] = self._after(each, step)
        if isinstance(step, End) and each.state == "lost":
            del self.pods[each.uid]

    @staticmethod
    def _after(each: Placeholder, step: Prove | Release | Keep | End) -> Placeholder:
        version = each.version + "."
        if isinstance(step, Prove):
            return replace(each, state="held", version=version)
        if isinstance(step, End):
            return replace(each, state="leaving", version=version)
        return replace(each, releasing=isinstance(step, Release), version=version)


NO_ROOM = "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"

__all__ = ["BOOT", "NO_ROOM", "RELEASING", "RULES", "SharedNode", "held", "pod", "proven", "starting"]
