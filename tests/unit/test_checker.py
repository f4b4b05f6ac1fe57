"""The checker of chaos runs sees what it is there to see: one sound history, and that history broken in many ways."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.servers.checker import History, PodChange, Published, Stored, judge

CARD = "GPU-1"
NODE = "n1"


def request(name: str, share: int = 500) -> dict[str, Any]:
    return {
        "type": "pod.request.v1",
        "name": name,
        "pod": {"image": "i", "cpu_milli": 10},
        "gpu": {"share_milli": share},
    }


def accepted(name: str, request_sequence: int, share: int = 500) -> dict[str, Any]:
    asked = request(name, share)
    return {
        "type": "accepted",
        "uid": f"u-{name}",
        "namespace": "default",
        "request": asked,
        "request_sequence": request_sequence,
    }


def reserved(name: str, share: int = 500, mib: int = 100) -> dict[str, Any]:
    piece = {"card": CARD, "share_milli": share, "memory_mib": mib}
    return {"type": "reserved", "uid": f"u-{name}", "placement": {"node": NODE, "slices": [piece], "cpu_milli": 10}}


def refused(name: str, sequence: int) -> dict[str, Any]:
    return {"type": "refused", "namespace": "default", "name": name, "request_sequence": sequence, "refusals": []}


def released(name: str, evidence: str = "ended") -> dict[str, Any]:
    return {"type": "released", "uid": f"u-{name}", "evidence": evidence}


def event(name: str, phase: str, at: int = 0, **more: Any) -> dict[str, Any]:
    uid = {} if phase == "refused" else {"uid": f"u-{name}"}
    return {"type": "request.event.v1", "name": name, "phase": phase, "ledger_sequence": at, **uid, **more}


def pod(name: str, *, node: str = "", phase: str = "Pending", uid: str = "", card: str = CARD) -> dict[str, Any]:
    marks = {"gpubus.dev/uid": f"u-{name}"}
    if node:
        marks |= {"gpubus.dev/cards": card, "gpubus.dev/shares": f"{card}=500:100"}
    meta = {"uid": uid or f"pod-{name}", "namespace": "default", "name": f"{name}-xyz", "annotations": marks}
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


INVENTORY = {"node": NODE, "cards": [{"uuid": CARD, "memory_total_mib": 1100, "memory_reserved_mib": 100}]}
FACTS = {"node": NODE, "allocatable_cpu_milli": 100, "allocatable_memory_mib": 100, "allocatable_pods": 3}


class World:
    """A history that can be broken: parts as Python values, in lists that begin at sequence 1."""

    def __init__(self) -> None:
        self.records: list[list[dict[str, Any]]] = [
            [{"type": "epoch", "epoch": "e", "reason": "test"}],
            [
                {"type": "inventory", "inventory": copy.deepcopy(INVENTORY)},
                {"type": "facts", "facts": dict(FACTS)},
                {"type": "health", "node": NODE, "health": "fresh"},
            ],
            [accepted("a", 1), reserved("a")],
            [accepted("b", 2), reserved("b")],
            [refused("c", 5)],
            [{"type": "observed", "uid": "u-a", "phase": "bound"}],
            [{"type": "withdrawn", "uid": "u-b"}],
            [released("b")],
            [accepted("d", 7, 1000)],
        ]
        self.commits: list[dict[str, Any]] = [
            {"epoch": "e", "number": i + 1, "predecessor": i, "requests_through": through}
            for i, through in enumerate((0, 0, 1, 3, 5, 5, 6, 6, 7))
        ]
        self.requests: list[Any] = [
            request("a"),
            request("b"),
            request("a"),
            b"garbage",
            request("c", -1),
            {"type": "pod.withdraw.v1", "name": "b"},
            request("d", 1000),
        ]
        self.dead: list[dict[str, Any]] = [{"origin_stream": "GPUBUS_REQUESTS", "origin_sequence": 4}]
        self.events: list[dict[str, Any]] = [
            event("a", "placed", 3),
            event("b", "placed", 4),
            event("c", "refused", 5, request_sequence=5),
            event("a", "bound", 6),
            event("b", "withdrawn", 7),
            event("b", "ended", 8),
            event("d", "accepted", 9),
            event("d", "pending", 9),
        ]
        self.pods: list[tuple[str, dict[str, Any]]] = [
            ("ADDED", pod("a")),
            ("MODIFIED", pod("a", node=NODE)),
            ("ADDED", pod("b")),
            ("MODIFIED", pod("b", node=NODE, phase="Running")),
            ("MODIFIED", pod("b", node=NODE, phase="Succeeded")),
            ("DELETED", pod("b", node=NODE, phase="Succeeded")),
        ]
        self.published: list[tuple[int, Any]] = [(i + 1, sent) for i, sent in enumerate(self.requests)]
        self.summary = {"accepted": 3, "placed": 1, "pending": 1, "withdrawn": 0, "ended": 1}

    def history(self) -> History:
        commits = [{**c, "records": r} for c, r in zip(self.commits, self.records, strict=True)]
        return History(
            ledger=stored(commits, "gpubus.v1.ledger.default"),
            requests=stored(self.requests, "gpubus.v1.requests.default"),
            events=stored(self.events, "gpubus.v1.events.default.x"),
            dead_letters=stored(self.dead, "gpubus.v1.deadletters.x"),
            pods=[PodChange(kind, found) for kind, found in self.pods],
            published=[Published("default", data(sent), sequence) for sequence, sent in self.published],
            summary=self.summary,
        )


def stored(values: list[Any], subject: str) -> list[Stored]:
    return [Stored(i + 1, subject, data(value)) for i, value in enumerate(values)]


def data(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def rules(world: World) -> set[str]:
    return {finding.rule for finding in judge(world.history())}


def test_a_sound_history_has_no_findings() -> None:
    """Claim: duplicates, garbage, refusals, withdrawals and waiting requests are no faults."""
    assert judge(World().history()) == []


def slice_of(world: World, commit: int) -> dict[str, Any]:
    found: dict[str, Any] = world.records[commit][1]["placement"]["slices"][0]
    return found


def cordoned() -> dict[str, Any]:
    return {"type": "card-health", "node": NODE, "card": CARD, "health": "cordoned"}


def sold_too_early(world: World) -> None:
    """The release of b and a new placement change places."""
    world.records[7] = [accepted("e", 0), reserved("e"), released("b")]


def withdrawn_before(world: World) -> None:
    world.records[3] = [accepted("b", 2), {"type": "withdrawn", "uid": "u-b"}, reserved("b")]


def del_range(changes: list[Any], start: int) -> None:
    del changes[start:]


def three_halves(world: World) -> None:
    world.records[8] += [accepted("e", 0), reserved("e")]
    running = [("ADDED", pod(name, node=NODE, phase="Running")) for name in ("a", "b", "e")]
    world.pods[:0] = running


def marked(name: str, at: int, **more: Any) -> dict[str, Any]:
    """A pod that tells which commit decided it; the uid is one for each decision."""
    found = pod(name, node=NODE, uid=f"pod-{name}-{at}", **more)
    found["metadata"]["annotations"]["gpubus.dev/sequence"] = str(at)
    return found


class Evicting(World):
    """... and d, which is more important, asks a to leave, has its place, ends; and a is placed again."""

    def __init__(self) -> None:
        super().__init__()
        asked = self.requests[6] = {**request("d", 1000), "priority_class": "high"}
        self.records[8] = [{**accepted("d", 7, 1000), "request": asked}]
        place = reserved("d", 1000)["placement"]
        self.records += [
            [{"type": "nominated", "uid": "u-d", "placement": place, "victims": ["u-a"], "why": "preempts"}],
            [{**released("a", "gone"), "requeue": True}, reserved("d", 1000)],
            [released("d"), reserved("a")],
        ]
        last = {"epoch": "e", "requests_through": 7}
        self.commits += [{**last, "number": i, "predecessor": i - 1} for i in (10, 11, 12)]
        told = (("d", "nominated", 10), ("a", "evicting", 10), ("a", "requeued", 11), ("d", "placed", 11))
        self.events += [event(*each) for each in (*told, ("d", "ended", 12), ("a", "placed", 12))]
        self.published = [(i + 1, sent) for i, sent in enumerate(self.requests)]
        self.pods = [("ADDED", marked("a", 3)), *self.pods[2:], ("DELETED", marked("a", 3))]
        self.pods += [("ADDED", marked("d", 11)), ("MODIFIED", marked("d", 11, phase="Succeeded"))]
        self.pods += [("ADDED", marked("a", 12))]
        self.summary = {"accepted": 3, "placed": 1, "pending": 0, "withdrawn": 0, "ended": 2}


def test_a_history_in_which_somebody_had_to_leave_has_no_findings() -> None:
    """Claim: a second decision, and a second pod, after it waited again; d held all of the card in between."""
    assert judge(Evicting().history()) == []


def equal_rank(world: World) -> None:
    """Nobody named a class."""
    world.records[8][0]["request"].pop("priority_class")  # the message is the same object


def still_there(world: World) -> None:
    """The first pod of a is not deleted."""
    world.pods[:] = [change for change in world.pods if change != ("DELETED", marked("a", 3))]


Break = Callable[[World], object]

EVICTIONS: list[tuple[str, str, Break]] = [
    ("eviction", "nobody told it to leave", lambda w: w.records[9][0].update(victims=[])),
    ("eviction", "for one that is not more important", equal_rank),
    ("eviction", "told twice", lambda w: w.records[9].append({**w.records[9][0], "uid": "u-d"})),
    ("eviction", "who holds nothing", lambda w: w.records[9][0].update(victims=["u-a", "u-b"])),
    ("eviction", "withdrawn, and waits again", lambda w: w.records[10].insert(0, {"type": "withdrawn", "uid": "u-a"})),
    ("double-decision", "placed again and never released", lambda w: w.records[10].pop(0)),
    ("over-commit", "its place is sold before it has gone", lambda w: w.records[9].append(w.records[10].pop())),
    ("event", "that it waits again is not told", lambda w: w.events.remove(event("a", "requeued", 11))),
    ("pods", "a second pod of the second decision", lambda w: w.pods.append(("ADDED", pod("a", node=NODE, uid="x")))),
    ("pods", "the pod of the first decision comes again", lambda w: w.pods.append(("ADDED", marked("a", 3)))),
    ("pods", "a pod of a decision that was never made", lambda w: w.pods.append(("ADDED", marked("a", 5)))),
    ("release", "it waits again while its pod is there", still_there),
]


@pytest.mark.parametrize(("rule", "how", "breaking"), EVICTIONS, ids=[f"{rule}: {how}" for rule, how, _ in EVICTIONS])
def test_every_fault_of_an_eviction_is_found(rule: str, how: str, breaking: Break) -> None:
    """Claim: that history with one thing changed breaks the rule that is named."""
    world = Evicting()
    breaking(world)
    assert rule in rules(world), how


CASES: list[tuple[str, str, Break]] = [
    # --- the chain
    ("chain", "a number is left out", lambda w: w.commits[4].update(number=9)),
    ("chain", "two commits follow the same one", lambda w: w.commits[4].update(predecessor=3)),
    ("chain", "a commit of another epoch", lambda w: w.commits[4].update(epoch="f")),
    ("chain", "a second epoch begins", lambda w: w.records[4].append({"type": "epoch", "epoch": "f"})),
    ("chain", "the position goes back", lambda w: w.commits[5].update(requests_through=2)),
    ("chain", "a request is accepted ahead of the position", lambda w: w.commits[2].update(requests_through=0)),
    ("chain", "a kind of record that nobody knows", lambda w: w.records[4].append({"type": "gift", "uid": "u-a"})),
    # --- capacity
    ("over-commit", "a card of 1001 thousandths", lambda w: slice_of(w, 3).update(share_milli=501)),
    ("over-commit", "a card of more than its sellable memory", lambda w: slice_of(w, 3).update(memory_mib=901)),
    ("over-commit", "driver-reserved memory is sold", lambda w: slice_of(w, 2).update(memory_mib=1001)),
    ("over-commit", "a node with too many pods", lambda w: w.records[1][1]["facts"].update(allocatable_pods=1)),
    ("over-commit", "a node with too much CPU", lambda w: w.records[1][1]["facts"].update(foreign_cpu_milli=85)),
    ("over-commit", "sold again before it was released", sold_too_early),
    # --- placements
    ("bad-placement", "on a silent node", lambda w: w.records[1][2].update(health="suspect")),
    ("bad-placement", "on a node of which Kubernetes has not told", lambda w: w.records[1].pop(1)),
    ("bad-placement", "on a node that is gone", lambda w: w.records[1][1]["facts"].update(gone=True)),
    ("bad-placement", "on a card that nobody listed", lambda w: slice_of(w, 2).update(card="GPU-9")),
    ("bad-placement", "on a failed card", lambda w: w.records[1][0]["inventory"]["cards"][0].update(health="failed")),
    ("bad-placement", "on a cordoned card", lambda w: w.records[1].append(cordoned())),
    ("bad-placement", "less than was asked for", lambda w: slice_of(w, 2).update(share_milli=499)),
    ("bad-placement", "the same card twice", lambda w: w.records[2][1]["placement"]["slices"].append(slice_of(w, 2))),
    # --- once
    ("double-accept", "the same uid twice", lambda w: w.records[4].append(accepted("a", 3))),
    (
        "double-accept",
        "two living requests of one name",
        lambda w: w.records[4].append({**accepted("a", 3), "uid": "v"}),
    ),
    ("double-decision", "decided again elsewhere", lambda w: w.records[5].append(reserved("a", 1))),
    ("double-decision", "decided after the withdrawal", withdrawn_before),
    ("double-decision", "decided without acceptance", lambda w: w.records[3].pop(0)),
    ("double-decision", "withdrawn twice", lambda w: w.records[7].insert(0, {"type": "withdrawn", "uid": "u-b"})),
    ("release", "released twice", lambda w: w.records[8].append(released("b"))),
    ("release", "released although its pod was not seen to end", lambda w: w.records[8].append(released("a"))),
    ("release", "released while it waits", lambda w: w.records[8].append(released("d"))),
    ("gang", "a part of a gang", lambda w: w.records[2][0]["request"].update(gang={"name": "g", "size": 2})),
    # --- accounting
    ("unaccounted", "a message behind the last position", lambda w: w.requests.append(request("e"))),
    ("unaccounted", "an acceptance is lost", lambda w: w.records[8].clear()),
    ("unaccounted", "a dead letter is lost", lambda w: w.dead.clear()),
    ("unaccounted", "a refusal is lost", lambda w: w.records[4].clear()),
    ("event", "a refusal is not told", lambda w: w.events.pop(2)),
    ("event", "a refusal is told that nobody decided", lambda w: w.records[4].clear()),
    ("unaccounted", "a withdrawal is lost", lambda w: w.records[6].clear()),
    ("unaccounted", "another content under a living name", lambda w: w.requests.__setitem__(2, request("a", 7))),
    ("unaccounted", "the scheduler counts otherwise", lambda w: w.summary.update(pending=0, placed=2)),
    ("two-fates", "accepted and refused", lambda w: w.records[4].append(refused("a", 1))),
    ("two-fates", "refused twice", lambda w: w.records[4].append(refused("c", 5))),
    ("two-fates", "refused and buried", lambda w: w.dead.append({**w.dead[0], "origin_sequence": 5})),
    ("two-fates", "an answer to nobody", lambda w: w.dead.append({**w.dead[0], "origin_sequence": 99})),
    ("lost-publish", "acknowledged and not there", lambda w: w.published.append((8, request("z")))),
    (
        "lost-publish",
        "acknowledged, and other bytes are there",
        lambda w: w.published.__setitem__(0, (1, request("z"))),
    ),
    ("lost-publish", "there, and sent by nobody", lambda w: w.published.pop()),
    # --- events
    ("event", "a placement is not told", lambda w: w.events.pop(0)),
    ("event", "a placement is told twice", lambda w: w.events.append(w.events[0])),
    ("event", "told, and not in the ledger", lambda w: w.events.append(event("d", "placed", 9))),
    ("event", "told in another order", lambda w: w.events.reverse()),
    # --- pods
    ("pods", "a second pod of one request", lambda w: w.pods.append(("ADDED", pod("a", node=NODE, uid="other")))),
    ("pods", "a pod of a request that was never placed", lambda w: w.pods.append(("ADDED", pod("d")))),
    ("pods", "a pod of a request that nobody knows", lambda w: w.pods.append(("ADDED", pod("x")))),
    ("pods", "on another node", lambda w: w.pods.append(("MODIFIED", pod("a", node="n2")))),
    ("pods", "with another card", lambda w: w.pods.append(("MODIFIED", pod("a", node=NODE, card="GPU-2")))),
    ("pods", "a slice without a pod", lambda w: w.pods.append(("DELETED", pod("a", node=NODE)))),
    ("pods", "a pod that lives after its release", lambda w: del_range(w.pods, 4)),
    ("pods", "pods hold more than a card", three_halves),
]


@pytest.mark.parametrize(("rule", "how", "breaking"), CASES, ids=[f"{rule}: {how}" for rule, how, _ in CASES])
def test_every_kind_of_fault_is_found(rule: str, how: str, breaking: Break) -> None:
    """Claim: that history with one thing changed breaks the rule that is named."""
    world = World()
    breaking(world)
    assert rule in rules(world), how


def test_every_rule_has_a_case() -> None:
    """Claim: no rule of the checker is there for show."""
    text = judge.__globals__["__doc__"]
    named = {line.split()[0] for line in text.splitlines() if line.startswith("    ") and not line.startswith("     ")}
    assert {rule for rule, _, _ in (*CASES, *EVICTIONS)} >= named - {"findings", "..."}


def test_a_log_that_is_no_json_is_a_finding_and_no_error() -> None:
    """Claim: whatever stands in the log, the answer is a list."""
    history = History(ledger=[Stored(1, "gpubus.v1.ledger.default", b"\xff{")])
    assert [finding.rule for finding in judge(history)] == ["chain"]
