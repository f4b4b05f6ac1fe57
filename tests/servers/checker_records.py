"""The ledger's records as the checker reads them: who lives, who holds what, and what does not add up. Pure."""

from __future__ import annotations

import bisect
import json
from collections import Counter, defaultdict
from typing import Any, NamedTuple

WHOLE = 1000
CLASSES = {"critical": 1000, "high": 100, "normal": 0, "low": -100, "scavenger": -1000}


class Finding(NamedTuple):
    """A rule that is broken, and how."""

    rule: str
    text: str


class Stored(NamedTuple):
    """A message of a stream."""

    sequence: int
    subject: str
    data: bytes


class Life:
    """One request from its acceptance on; times are ledger sequences."""

    def __init__(self, record: dict[str, Any], at: int) -> None:
        self.uid: str = record["uid"]
        self.request: dict[str, Any] = record["request"]
        self.key = f"{record['namespace']}/{self.request['name']}"
        self.request_sequence: int = record.get("request_sequence", 0)
        self.accepted_at = at
        self.decided_at: int | None = None
        self.withdrawn_at: int | None = None
        self.released_at: int | None = None
        self.resized_at: list[int] = []
        self.placement: dict[str, Any] | None = None
        self.evicted_at: int | None = None
        """When it was told to leave for another one, since it was last placed."""
        self.decisions: dict[int, dict[str, Any]] = {}
        """All that it ever had, by the commit that decided."""
        self.ends: dict[int, str] = {}
        """The evidence for their ends, by the same."""

    @property
    def ended_at(self) -> int | None:
        """When its name was free again."""
        return self.released_at if self.decided_at is not None else self.withdrawn_at

    @property
    def priority(self) -> int:
        named = self.request.get("priority_class")
        return int(self.request.get("priority", 0)) if named is None else CLASSES[named]

    @property
    def holds(self) -> bool:
        return self.decided_at is not None and self.released_at is None

    def lived_during(self, at: int) -> bool:
        """Whether it lived at some moment of the commit at `at`."""
        return self.accepted_at <= at and (self.ended_at is None or self.ended_at >= at)


class Node:
    """What the ledger has said of a node so far."""

    def __init__(self) -> None:
        self.capacity_mib: dict[str, int] = {}
        self.facts: dict[str, Any] | None = None
        self.fresh = False
        self.unusable: set[str] = set()
        self.sold: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        """Per card: thousandths and MiB."""
        self.host = [0, 0, 0]
        """Milli-cores, MiB and pods."""

    def room(self) -> list[int]:
        facts = self.facts or {}
        return [
            facts.get("allocatable_cpu_milli", 0) - facts.get("foreign_cpu_milli", 0),
            facts.get("allocatable_memory_mib", 0) - facts.get("foreign_memory_mib", 0),
            facts.get("allocatable_pods", 110) - facts.get("foreign_pods", 0),
        ]


class Book:
    """The log, commit by commit."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.lives: dict[str, Life] = {}
        self.living: dict[str, str] = {}
        self.nodes: dict[str, Node] = defaultdict(Node)
        self.steps: Counter[tuple[str, str, int]] = Counter()
        """(uid, phase, ledger sequence) of everything that users are to be told."""
        self.refused: list[int] = []
        """Messages of the requests stream."""
        self.through = 0
        self._positions: list[tuple[int, int]] = []
        self._number = self._sequence = 0
        self._epoch = ""

    def find(self, rule: str, text: str) -> None:
        self.findings.append(Finding(rule, text))

    def covering(self, request_sequence: int) -> int | None:
        """The commit that handled this message of the requests stream."""
        index = bisect.bisect_left(self._positions, (request_sequence, 0))
        return self._positions[index][1] if index < len(self._positions) else None

    def summary(self) -> dict[str, int]:
        """Where the accepted requests are."""
        lives = self.lives.values()
        return {
            "accepted": len(self.lives),
            "placed": sum(life.holds for life in lives),
            "pending": sum(life.decided_at is None and life.withdrawn_at is None for life in lives),
            "withdrawn": sum(life.decided_at is None and life.withdrawn_at is not None for life in lives),
            "ended": sum(life.released_at is not None for life in lives),
        }

    # --- the chain ---------------------------------------------------------------------------------------------------

    def commit(self, message: Stored) -> None:
        """The next message of the log."""
        at = message.sequence
        try:
            commit = json.loads(message.data)
        except ValueError:
            self.find("chain", f"the message at {at} is no commit")
            return
        self._chain(commit, at)
        records = commit.get("records", [])
        placed = {record["uid"] for record in records if record["type"] == "reserved"}
        for record in records:
            self._record(record, at, placed)
        self._gangs(placed, at)

    def _chain(self, commit: dict[str, Any], at: int) -> None:
        begins = [r for r in commit.get("records", []) if r["type"] == "epoch"]
        if begins and not self._epoch:
            self._epoch = begins[0]["epoch"]
        elif begins:
            self.find("chain", f"epoch {begins[0]['epoch']} begins at {at} over {self._epoch}")
        if commit["epoch"] != self._epoch:
            self.find("chain", f"the commit at {at} is of epoch {commit['epoch']}, the log of {self._epoch}")
        if commit.get("predecessor", 0) != self._sequence:
            self.find("chain", f"the commit at {at} follows {commit.get('predecessor', 0)}, not {self._sequence}")
        if commit["number"] != self._number + 1:
            self.find("chain", f"the commit at {at} has number {commit['number']} after {self._number}")
        through = commit.get("requests_through", 0)
        if through < self.through:
            self.find("chain", f"the position goes back from {self.through} to {through} at {at}")
        elif through > self.through:
            self._positions.append((through, at))
            self.through = through
        self._sequence, self._number = at, commit["number"]

    # --- records -----------------------------------------------------------------------------------------------------

    def _record(self, record: dict[str, Any], at: int, placed: set[str]) -> None:
        match record["type"]:
            case "accepted":
                self._accepted(record, at, placed)
            case "reserved":
                self._reserved(record, at)
            case "withdrawn":
                self._withdrawn(record, at)
            case "released":
                self._released(record, at)
            case "observed":
                waits = record.get("detail") and record["phase"] != "running"
                self._told(record, "waiting" if waits else record["phase"], at)
            case "resized":
                self._resized(record, at)
            case "nominated":
                self._nominated(record, at)
            case "refused":
                self._refused(record["request_sequence"], at)
            case "epoch" | "nomination-ended" | "quota":
                pass
            case _:
                self._of_node(record, at)

    def _refused(self, request_sequence: int, at: int) -> None:
        self.refused.append(request_sequence)
        self.steps[f"message {request_sequence}", "refused", at] += 1

    def _told(self, record: dict[str, Any], phase: str, at: int) -> Life | None:
        """A step that needs a request; users are told of it."""
        life = self.lives.get(record["uid"])
        if life is None:
            self.find("double-decision", f"{record['type']} at {at} for {record['uid']}, which was never accepted")
            return None
        self.steps[life.uid, phase, at] += 1
        return life

    def _nominated(self, record: dict[str, Any], at: int) -> None:
        """A place in sight sells nothing; whoever has to leave it is told, once, and for somebody more important."""
        wants = self._told(record, "nominated", at)
        for uid in record.get("victims", ()):
            victim = self._told({**record, "uid": uid}, "evicting", at)
            if victim is None or wants is None:
                continue
            if not victim.holds or victim.evicted_at is not None or victim.withdrawn_at is not None:
                self.find("eviction", f"{uid} has to leave at {at}, and holds nothing or leaves already")
            if victim.priority >= wants.priority:
                self.find("eviction", f"{uid} has to leave at {at} for {wants.uid}, which is not more important")
            victim.evicted_at = at

    def _accepted(self, record: dict[str, Any], at: int, placed: set[str]) -> None:
        life = Life(record, at)
        if life.uid in self.lives:
            self.find("double-accept", f"{life.uid} is accepted again at {at}")
            return
        if life.key in self.living:
            self.find("double-accept", f"{life.uid} takes the name of {self.living[life.key]} at {at}")
        if life.request_sequence > self.through:
            self.find("chain", f"{life.uid} accepts request {life.request_sequence} ahead of the position at {at}")
        self.lives[life.uid] = life
        self.living[life.key] = life.uid
        if life.uid not in placed:
            self.steps[life.uid, "accepted", at] += 1

    def _withdrawn(self, record: dict[str, Any], at: int) -> None:
        life = self._told(record, "withdrawn", at)
        if life is None:
            return
        if life.withdrawn_at is not None or life.ended_at is not None:
            self.find("double-decision", f"{life.uid} is withdrawn at {at} and has ended or was withdrawn before")
        life.withdrawn_at = at
        if life.decided_at is None:
            self._over(life)

    def _over(self, life: Life) -> None:
        if self.living.get(life.key) == life.uid:
            del self.living[life.key]

    def _reserved(self, record: dict[str, Any], at: int) -> None:
        life = self._told(record, "placed", at)
        if life is None:
            return
        if life.decided_at is not None or life.withdrawn_at is not None:
            self.find("double-decision", f"{life.uid} is decided at {at}; it was at {life.decided_at} or withdrawn")
        else:
            life.decided_at, life.placement, life.evicted_at = at, record["placement"], None
            life.decisions[at] = record["placement"]
            self._asked_for(life, at)
        self._hold(record["placement"], 1)
        self._within(record["placement"], at)

    def _hold(self, placement: dict[str, Any], sign: int) -> None:
        node = self.nodes[placement["node"]]
        for index, amount in enumerate((placement.get("cpu_milli", 0), placement.get("memory_mib", 0), 1)):
            node.host[index] += sign * amount
        for piece in placement.get("slices", []):
            node.sold[piece["card"]][0] += sign * piece["share_milli"]
            node.sold[piece["card"]][1] += sign * piece["memory_mib"]

    def _asked_for(self, life: Life, at: int) -> None:
        """What was given is what was asked for, on a node and cards that may be sold."""
        placement = life.placement or {}
        node = self.nodes[placement["node"]]
        pieces, gpu = placement.get("slices", []), life.request.get("gpu", {})
        cards = [piece["card"] for piece in pieces]
        share, memory = gpu.get("share_milli", WHOLE), gpu.get("memory_mib")
        wrong = (
            node.facts is None
            or bool(node.facts.get("gone"))
            or not node.facts.get("ready", True)
            or not node.fresh
            or len(set(cards)) != gpu.get("cards", 1)
            or len(cards) != len(set(cards))
            or any(card not in node.capacity_mib or card in node.unusable for card in cards)
            or any(p["share_milli"] != share or (memory is not None and p["memory_mib"] < memory) for p in pieces)
        )
        if wrong:
            self.find("bad-placement", f"{life.uid} at {at}: {placement} for {gpu}, fresh={node.fresh}")

    def _within(self, placement: dict[str, Any], at: int) -> None:
        node = self.nodes[placement["node"]]
        for piece in placement.get("slices", []):
            milli, mib = node.sold[piece["card"]]
            if milli > WHOLE or mib > node.capacity_mib.get(piece["card"], 0):
                room = node.capacity_mib.get(piece["card"], 0)
                self.find(
                    "over-commit", f"{piece['card']} at {at}: {milli} of {WHOLE} thousandths, {mib} of {room} MiB"
                )
        asked = (placement.get("cpu_milli", 0), placement.get("memory_mib", 0), 1)
        for used, room, wanted, unit in zip(node.host, node.room(), asked, ("milli-cores", "MiB", "pods"), strict=True):
            if wanted and used > room:
                self.find("over-commit", f"{placement['node']} at {at}: {used} of {room} {unit}")

    def _released(self, record: dict[str, Any], at: int) -> None:
        phase = "ended" if record["evidence"] == "ended" else "released"
        life = self._told(record, "requeued" if record.get("requeue") else phase, at)
        if life is None:
            return
        if life.decided_at is None or life.placement is None or not life.holds:
            self.find("release", f"{life.uid} is released at {at} and holds nothing")
            return
        life.ends[life.decided_at] = record["evidence"]
        self._hold(life.placement, -1)
        if record.get("requeue"):
            self._requeued(life, at)
        else:
            life.released_at = at
            self._over(life)

    def _requeued(self, life: Life, at: int) -> None:
        """It waits again, as if it had never been placed; only who had to leave does."""
        if life.evicted_at is None or life.withdrawn_at is not None:
            self.find("eviction", f"{life.uid} waits again at {at} and did not have to leave, or was withdrawn")
        life.decided_at = life.placement = life.evicted_at = None

    def _resized(self, record: dict[str, Any], at: int) -> None:
        life = self._told(record, "resized", at)
        if life is None or life.placement is None or not life.holds:
            self.find("release", f"{record['uid']} is resized at {at} and holds nothing")
            return
        size = {"share_milli": record["share_milli"], "memory_mib": record["memory_mib"]}
        pieces = [{"card": piece["card"], **size} for piece in life.placement["slices"]]
        self._hold(life.placement, -1)
        life.placement = {**life.placement, "slices": pieces}
        life.resized_at.append(at)
        if life.decided_at is not None:
            life.decisions[life.decided_at] = life.placement
        self._hold(life.placement, 1)
        self._within(life.placement, at)

    def _of_node(self, record: dict[str, Any], at: int) -> None:
        match record["type"]:
            case "inventory":
                found = record["inventory"]
                node = self.nodes[found["node"]]
                node.capacity_mib = {
                    c["uuid"]: (c["memory_total_mib"] or 0) - c.get("memory_reserved_mib", 0) for c in found["cards"]
                }
                node.unusable = {c["uuid"] for c in found["cards"] if c.get("health", "healthy") != "healthy"}
            case "facts":
                self.nodes[record["facts"]["node"]].facts = record["facts"]
            case "health":
                self.nodes[record["node"]].fresh = record["health"] == "fresh"
            case "card-health":
                change = set.discard if record["health"] == "healthy" else set.add
                change(self.nodes[record["node"]].unusable, record["card"])
            case other:
                self.find("chain", f"a record of kind {other} at {at} is not expected here")

    def _gangs(self, placed: set[str], at: int) -> None:
        """Who places one member places all, or the others have been placed before."""
        for uid in placed & self.lives.keys():
            gang = self.lives[uid].request.get("gang")
            if gang is None:
                continue
            namespace = self.lives[uid].key.partition("/")[0]
            members = [
                life
                for life in self.lives.values()
                if life.key.startswith(f"{namespace}/") and (life.request.get("gang") or {}).get("name") == gang["name"]
            ]
            if sum(life.decided_at is not None for life in members) < gang["size"]:
                self.find("gang", f"a part of gang {namespace}/{gang['name']} is placed at {at}")
