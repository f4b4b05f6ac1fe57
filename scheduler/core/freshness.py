"""Which nodes are alive: heartbeats in, changes of freshness out.

Time is the receiver's own monotonic clock, passed in; what a heartbeat says about time is for people. A node that falls
silent becomes suspect: nothing new is placed there and nothing is freed. The observer distrusts itself first: after a
gap in its own life (a pause, a lost connection) it grants every node a full period again, and when a large part of the
fleet falls silent at once it says so, because then the fault is more likely between us and them.

Who speaks is told by incarnation and sequence. What is not later than what the same incarnation has said before is a
copy, and changes nothing, whoever sent it and whenever. A restart ends an incarnation for good; when an earlier one
goes on speaking all the same, the word *returns* to it:

    A A A B B B            a restart                              no return
    A A A B A B B          a late message of the old life         two returns at most
    A A X A A              a copy from a life that we never knew   one
    A B A B A B ...        two monitors run on one node           one with every message

Three returns within twice the period are two monitors: the node is suspect until there has been none for so long.
"""

from __future__ import annotations

import msgspec

from contracts.decisions import HealthSet
from contracts.inventory import Heartbeat
from contracts.units import NodeName

OUTAGE_FRACTION = 3
"""When more than 1/3 of the fresh nodes (and at least OUTAGE_MINIMUM) fall silent within one sweep, it is an outage."""

OUTAGE_MINIMUM = 3
VOICES = 5
"""Incarnations remembered per node: the present one and four earlier ones."""

RETURNS = 3
DOUBLED = "two monitors speak for this node"


class Pulse(msgspec.Struct):
    """What is known of one node's monitor."""

    incarnation: str
    """Who spoke last."""
    seen_s: float
    fresh: bool
    voices: dict[str, int] = {}
    """Last sequence of each incarnation, the present one last."""
    returns_s: list[float] = []
    """When the word returned to an earlier incarnation, the last few times."""
    doubled_until_s: float = 0.0


class Freshness:
    """The pulses of all nodes.

    Args:
        suspect_after_s: silence after which a node takes nothing new.
        blind_after_s: gap in our own sweeps after which we judge nobody for a full `suspect_after_s`.
    """

    def __init__(self, *, suspect_after_s: float = 5.0, blind_after_s: float = 2.0) -> None:
        self.suspect_after_s = suspect_after_s
        self.blind_after_s = blind_after_s
        self.pulses: dict[NodeName, Pulse] = {}
        self._swept_s: float | None = None

    def expect(self, node: NodeName, *, fresh: bool, now_s: float) -> None:
        """A node known from the ledger: it has a full period to say something."""
        self.pulses.setdefault(node, Pulse(incarnation="", seen_s=now_s, fresh=fresh))

    def forget(self, node: NodeName) -> None:
        """The node is no more."""
        self.pulses.pop(node, None)

    def former(self, node: NodeName, incarnation: str) -> bool:
        """Whether this incarnation has been heard, and another one after it."""
        pulse = self.pulses.get(node)
        return pulse is not None and incarnation != pulse.incarnation and incarnation in pulse.voices

    def beat(self, beat: Heartbeat, now_s: float) -> HealthSet | None:
        """Take a heartbeat; the change that follows from it, if any."""
        pulse = self.pulses.get(beat.node)
        if pulse is None:
            pulse = self.pulses[beat.node] = Pulse(incarnation="", seen_s=now_s, fresh=False)
        said = pulse.voices.get(beat.incarnation)
        if said is not None and beat.sequence <= said:
            return None
        if beat.incarnation != pulse.incarnation:
            self._turn(pulse, beat.incarnation, now_s, returns=said is not None)
        pulse.voices[beat.incarnation] = beat.sequence
        pulse.seen_s = now_s
        if pulse.fresh and not pulse.doubled_until_s:
            return None
        return self._revive(pulse, beat.node, now_s)

    def _turn(self, pulse: Pulse, incarnation: str, now_s: float, *, returns: bool) -> None:
        """Another one speaks than before."""
        voices = {name: said for name, said in pulse.voices.items() if name != incarnation}
        pulse.voices = dict(list(voices.items())[1 - VOICES :])
        pulse.incarnation = incarnation
        if not returns:
            return
        window_s = 2 * self.suspect_after_s
        pulse.returns_s = [*(at for at in pulse.returns_s if now_s - at <= window_s), now_s][-RETURNS:]
        if len(pulse.returns_s) == RETURNS or pulse.doubled_until_s:
            pulse.doubled_until_s = now_s + window_s

    @staticmethod
    def _revive(pulse: Pulse, node: NodeName, now_s: float) -> HealthSet | None:
        if now_s < pulse.doubled_until_s:
            if not pulse.fresh:
                return None
            pulse.fresh = False
            return HealthSet(node=node, health="suspect", reason=DOUBLED)
        pulse.doubled_until_s = 0.0
        if pulse.fresh:
            return None
        pulse.fresh = True
        return HealthSet(node=node, health="fresh")

    def sweep(self, now_s: float) -> list[HealthSet]:
        """Who has been silent for too long, as of now; call it several times a second."""
        blind = self._swept_s is not None and now_s - self._swept_s > self.blind_after_s
        self._swept_s = now_s
        if blind:
            for pulse in self.pulses.values():
                pulse.seen_s = now_s
            return []
        due_s = now_s - self.suspect_after_s
        silent = [n for n, p in self.pulses.items() if p.seen_s < due_s and p.fresh]
        return [self._suspect(node, outage=self._outage(len(silent))) for node in sorted(silent)]

    def _outage(self, silent: int) -> bool:
        fresh = sum(p.fresh for p in self.pulses.values())
        return silent >= OUTAGE_MINIMUM and silent * OUTAGE_FRACTION > fresh

    def _suspect(self, node: NodeName, *, outage: bool) -> HealthSet:
        self.pulses[node].fresh = False
        reason = f"no heartbeat for {self.suspect_after_s:g} s"
        return HealthSet(node=node, health="suspect", reason=f"{reason}, as many others" if outage else reason)
