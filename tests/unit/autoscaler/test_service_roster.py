"""Replicas as they are: from requests of the ledger, words of workers, and what they were told."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.core.replicas import counts
from autoscaler.roster import Heard, Roster, deaf, heard, highest_index, replica_request, roster, told, value_of
from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Accepted, Placement
from contracts.functions import WorkerReport
from contracts.requests import EnvVar, PodRequest, PodTemplate
from contracts.units import NodeName, RequestUid, request_key
from contracts.workloads import Function

FUNCTION = Function(name="f", pod=PodTemplate(image="x"))
FRESH_MS = 5000


def ledger(*requests: tuple[str, PodRequest, dict[str, Any]]) -> LedgerState:
    """A state with these requests, by uid."""
    state = LedgerState()
    for uid, request, more in requests:
        placed = Placement(node=NodeName("n1"), slices=())
        accepted = Accepted(uid=RequestUid(uid), namespace="ns", request=request)
        fields = {"phase": "running", "placement": placed, **more}
        state.requests[RequestUid(uid)] = RequestState(uid=RequestUid(uid), accepted=accepted, **fields)
        state.by_key[request_key("ns", request.name)] = RequestUid(uid)
    return state


def replica(name: str, *, warm: bool = False) -> PodRequest:
    return replica_request("ns", FUNCTION, name, warm=warm)


def word(name: str, *, at_ms: int = 0, worker: str = "w", **more: Any) -> dict[str, Heard]:
    report = WorkerReport(**{"worker": worker, "replica": name, "phase": "ready", "sequence": 1, **more})
    return {name: heard(None, report, at_ms)}


def look(state: LedgerState, words: dict[str, Heard], before: Roster | None = None, now_ms: int = 0) -> Roster:
    before = before or Roster()
    return roster(state, "ns", FUNCTION, before, words, highest=9, now_ms=now_ms, fresh_ms=FRESH_MS)


def test_a_replica_serves_when_its_worker_says_so_and_not_when_its_pod_runs() -> None:
    state = ledger(("u0", replica("f-0"), {}), ("u1", replica("f-1"), {}))
    found = counts(look(state, word("f-1")).replicas)
    assert (found.hot_ready, found.coming) == (1, 1)


def test_a_worker_that_falls_silent_is_not_ready_and_keeps_when_it_was() -> None:
    """It may hold calls: it is drained before it is withdrawn, which needs `ready_ms`."""
    state, words = ledger(("u0", replica("f-0"), {})), word("f-0", in_flight=1)
    before = look(state, words)
    after = look(state, words, before, FRESH_MS + 1)
    assert [(r.ready, r.in_flight) for r in (*before.replicas, *after.replicas)] == [(True, 1), (False, None)]
    assert after.replicas[0].ready_ms == 0


def test_what_was_heard_of_a_life_before_says_nothing_about_this_one() -> None:
    """The same name under another uid: the old worker's word is fresh and not believed, the new one's is."""
    words = word("f-0")
    before = look(ledger(("u0", replica("f-0"), {})), words)
    state = ledger(("u1", replica("f-0"), {}))
    after = look(state, words, before, 10)
    assert [r.ready for r in after.replicas] == [False]
    assert [r.ready for r in look(state, word("f-0", worker="w2"), after, 20).replicas] == [True]


def test_a_process_that_was_restored_is_believed_under_its_own_name() -> None:
    """S141: it counts its reports from the start again, and is heard at once because its name is another one."""
    before = word("f-0", sequence=900)["f-0"]
    restored = WorkerReport(worker="w2", replica="f-0", phase="ready", sequence=1, in_flight=1)
    copied = WorkerReport(worker="w", replica="f-0", phase="ready", sequence=1, in_flight=1)
    assert heard(before, restored, 10).report == restored
    assert heard(before, copied, 10).report == before.report, "an older word of the same process"


def test_after_a_restart_the_worker_knows_what_it_was_told() -> None:
    """A replica made warm and promoted since is hot; without a word it is what its pod says."""
    state = ledger(("u0", replica("f-0", warm=True), {}))
    assert [r.warm for r in look(state, {}).replicas] == [True]
    assert [r.warm for r in look(state, word("f-0")).replicas] == [False]
    assert [r.warm for r in look(state, word("f-0", phase="warm")).replicas] == [True]


def test_an_order_is_said_again_until_the_worker_agrees() -> None:
    state = ledger(("u0", replica("f-0"), {}))
    ordered = told(look(state, word("f-0")), "f-0", "draining", 5)
    assert [(name, order.order) for name, order in deaf(ordered, word("f-0"))] == [("f-0", "drain")]
    assert not list(deaf(ordered, word("f-0", phase="draining")))
    assert not list(deaf(ordered, word("f-0", phase="gone")))
    assert look(state, word("f-0"), ordered).replicas[0].draining_since_ms == 5


def test_somebody_elses_request_of_such_a_name_counts_for_nothing_and_keeps_its_name() -> None:
    stranger = PodRequest(name="f-0", pod=PodTemplate(image="y"))
    found = look(ledger(("u0", stranger, {})), {})
    assert [(r.name, r.phase) for r in found.replicas] == [("f-0", "Failed")]
    assert counts(found.replicas).planned == 0


@pytest.mark.parametrize(
    ("more", "deleting", "pending"),
    [({}, False, False), ({"withdrawn": True}, True, False), ({"phase": "pending", "placement": None}, False, True)],
    ids=["runs", "withdrawn", "waits for a card"],
)
def test_the_ledger_says_who_goes_and_who_waits(more: dict[str, Any], deleting: bool, pending: bool) -> None:
    found = look(ledger(("u0", replica("f-0"), more)), {}, now_ms=7)
    assert [r.deleting for r in found.replicas] == [deleting]
    assert found.pending == ({"f-0": 7} if pending else {})


def test_an_older_word_is_dropped_and_a_promotion_begins_the_warm_up_anew() -> None:
    first = heard(None, WorkerReport(worker="w", phase="warm", sequence=5), 100)
    assert heard(first, WorkerReport(worker="w", phase="ready", sequence=5), 200) is first
    promoted = heard(first, WorkerReport(worker="w", phase="ready", sequence=6), 300)
    assert (promoted.ready_ms, promoted.hot_ms) == (100, 300)


def test_the_pod_of_a_replica_is_the_functions_and_says_whose_it_is() -> None:
    """What the owner wrote stays, except where it would say otherwise."""
    env = (EnvVar(name="A", value="1"), EnvVar(name="WORKER_REPLICA", value="mine"))
    function = Function(name="f", pod=PodTemplate(image="x", env=env))
    request = replica_request("ns", function, "f-3", warm=True, urls="nats://there:4222")
    assert {entry.name: entry.value for entry in request.pod.env} == {
        "A": "1",
        "WORKER_FUNCTION": "ns/f",
        "WORKER_REPLICA": "f-3",
        "WORKER_CONCURRENCY": "1",
        "WORKER_WARM": "1",
        "WORKER_NATS_URLS": "nats://there:4222",
    }
    assert value_of(replica_request("ns", function, "f-3", warm=False), "WORKER_WARM") == ""


def test_the_largest_index_in_use_is_found_whatever_the_function_may_have_now() -> None:
    state = ledger(("u0", replica("f-41"), {}), ("u1", PodRequest(name="ff-99", pod=PodTemplate(image="x")), {}))
    assert highest_index(state, "ns", "f") == 41
    assert highest_index(state, "other", "f") == -1
