"""Which nodes are alive: heartbeats in, changes of freshness out.

Time is the receiver's own monotonic clock, passed in; what a heartbeat says about time is for people. Duplicates, late
copies and zombies are told apart by incarnation and sequence. A node that falls silent becomes suspect: nothing new is
placed there and nothing is freed. The observer distrusts itself first: after a gap in its own life (a pause, a lost
connection) it grants every node a full period again, and when a large part of the fleet falls silent at once it says
so, because then the fault is more likely between us and them.
"""

from __future__ import annotations

import msgspec

from contracts.decisions import HealthSet
from contracts.inventory import Heartbeat
from contracts.units import NodeName

OUTAGE_FRACTION = 3
"""When more than 1/3 of the fresh nodes (and at least OUTAGE_MINIMUM) fall silent within one sweep, it is an outage."""

OUTAGE_MINIMUM = 3
CONFLICT_MEMORY = 4
"""Earlier incarnations remembered per node; one of these speaking again means two monitors run there."""


class Pulse(msgspec.Struct):
    """What is known of one node's monitor."""

    incarnation: str
    sequence: int
    seen_s: float
    fresh: bool
    earlier: list[str] = []
    conflicted_until_s: float = 0.0


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
        self.pulses.setdefault(node, Pulse(incarnation="", sequence=-1, seen_s=now_s, fresh=fresh))

    def forget(self, node: NodeName) -> None:
        """The node is no more."""
        self.pulses.pop(node, None)

    def beat(self, beat: Heartbeat, now_s: float) -> HealthSet | None:
        """Take a heartbeat; the change that follows from it, if any."""
        pulse = self.pulses.get(beat.node)
        if pulse is None:
            self.pulses[beat.node] = Pulse(
                incarnation=beat.incarnation, sequence=beat.sequence, seen_s=now_s, fresh=True
            )
            return HealthSet(node=beat.node, health="fresh")
        if not self._advances(pulse, beat, now_s):
            return None
        pulse.seen_s = now_s
        return self._revive(pulse, beat.node, now_s)

    def _advances(self, pulse: Pulse, beat: Heartbeat, now_s: float) -> bool:
        """Whether this heartbeat is news: a later one of the same monitor, or the first of a new one."""
        if beat.incarnation == pulse.incarnation:
            newer = beat.sequence > pulse.sequence
            pulse.sequence = max(pulse.sequence, beat.sequence)
            return newer
        if beat.incarnation in pulse.earlier:
            pulse.conflicted_until_s = now_s + 2 * self.suspect_after_s
        if pulse.incarnation:
            pulse.earlier = [*pulse.earlier, pulse.incarnation][-CONFLICT_MEMORY:]
        pulse.incarnation, pulse.sequence = beat.incarnation, beat.sequence
        return True

    @staticmethod
    def _revive(pulse: Pulse, node: NodeName, now_s: float) -> HealthSet | None:
        if now_s < pulse.conflicted_until_s:
            if not pulse.fresh:
                return None
            pulse.fresh = False
            return HealthSet(node=node, health="suspect", reason="two monitors speak for this node")
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
        silent = [n for n, p in self.pulses.items() if p.fresh and now_s - p.seen_s > self.suspect_after_s]
        return [self._suspect(node, outage=self._outage(len(silent))) for node in sorted(silent)]

    def _outage(self, silent: int) -> bool:
        fresh = sum(p.fresh for p in self.pulses.values())
        return silent >= OUTAGE_MINIMUM and silent * OUTAGE_FRACTION > fresh

    def _suspect(self, node: NodeName, *, outage: bool) -> HealthSet:
        self.pulses[node].fresh = False
        reason = f"no heartbeat for {self.suspect_after_s:g} s"
        return HealthSet(node=node, health="suspect", reason=f"{reason}, as many others" if outage else reason)
