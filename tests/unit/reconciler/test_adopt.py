"""Pods of others from their first sight to their end: the two tables that decide about them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.decisions import Commit, Released
from contracts.outcomes import Outcome
from contracts.requests import ExternalPod, PodRequest
from reconciler import marks, podspec
from reconciler.adopt import Adoption, AdoptStep, Read, Refuse, Rest, Submit, TakeBack, adoption
from reconciler.annotations import Fault
from reconciler.foreign import Refused, name_for
from reconciler.objects import Container, Metadata, Pod, PodStatus, Resources
from reconciler.plan import plan, pod_of
from reconciler.rebuild import allocation
from reconciler.seen import Seen, look
from reconciler.steps import Annotate, Bind, Blocked, Case, Delete, Publish, Step, Ungate, Wait
from reconciler.view import View
from tests.builders.ledger import Cluster, cluster, node, request
from tests.builders.pods import terminated, with_status

UID = "pod-uid-1"


def asked(uid: str = UID, share: int = 500) -> PodRequest:
    external = ExternalPod(name="web-0", uid=uid)
    return request(name_for("web-0", uid)).share(share).gpu_memory(1000).fields(external=external).build()


def world() -> Cluster:
    return cluster(node("n1").gpus(2), node("n2").gpus(2))


# --- before it has a place -------------------------------------------------------------------------------------------

PENDING = world().accept(asked())
PLACED = world().hold(asked(), "n1", 0)
EARLIER = world().accept(asked("pod-uid-0"))
EARLIER_PLACED = world().hold(asked("pod-uid-0"), "n1", 0)
SAME, OTHER, BAD = asked(), asked(share=400), Refused(faults=(Fault(where="x", text="y"),))

ROWS: list[tuple[str, dict[str, Any], AdoptStep]] = [
    ("nothing is nothing", {"waits": False}, Rest("nothing waits")),
    ("a pod that waits is read", {"waits": True}, Read()),
    ("and asked for", {"waits": True, "found": SAME}, Submit(SAME)),
    ("unless it cannot be", {"waits": True, "found": BAD}, Refuse("x: y")),
    ("one that is asked for waits", {"waits": True, "found": SAME, "request": PENDING}, Rest("in the queue")),
    ("also after a restart, once it is read", {"waits": True, "request": PENDING}, Read()),
    (
        "one that asks for something else now is asked for anew",
        {"waits": True, "found": OTHER, "request": PENDING},
        TakeBack(SAME.name, "the pod asks for something else now"),
    ),
    (
        "one that cannot be any more too",
        {"waits": True, "found": BAD, "request": PENDING},
        TakeBack(SAME.name, "x: y"),
    ),
    (
        "a pod that is gone takes its request along",
        {"waits": False, "request": PENDING},
        TakeBack(SAME.name, "its pod is gone, ended, or was bound by somebody else"),
    ),
    ("once it has a place, the plan acts", {"waits": False, "request": PLACED}, Rest("nothing waits")),
    (
        "whatever it asks for now",
        {"waits": True, "found": OTHER, "request": PLACED},
        Rest("it has a place, or is about to lose it"),
    ),
    (
        "the request of an earlier life is taken back",
        {"waits": True, "found": SAME, "others": (EARLIER,)},
        TakeBack(EARLIER.request.name, "its pod is gone"),
    ),
    (
        "one that is placed is waited for: it may hold its card still",
        {"waits": True, "found": SAME, "others": (EARLIER_PLACED,)},
        Rest("the ledger still counts an earlier pod of this name"),
    ),
]


@pytest.mark.parametrize(("claim", "case", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_adoption(claim: str, case: dict[str, Any], expected: AdoptStep) -> None:
    assert adoption(Adoption(**case)) == expected, claim


# --- once it has a place ---------------------------------------------------------------------------------------------

WORLD = world()
HELD = WORLD.hold(asked(), "n1", 0)
EPOCH = WORLD.state.epoch
POD = Pod(metadata=Metadata(name="web-0", namespace="default", uid=UID, resource_version="5"), status=PodStatus())
BINDING = podspec.assignment(HELD, epoch=EPOCH)
BOUND_POD = podspec.as_bound(POD, HELD, BINDING)
UNBOUND, BOUND = look(POD), look(BOUND_POD)
RUNNING = look(with_status(BOUND_POD, "Running"))
ENDED = look(with_status(BOUND_POD, "Succeeded", container_statuses=(terminated(0, "Completed"),)))
STRIPPED = replace(RUNNING, mark=None, managed=False, bound_by_us=False, foreign=False, cards="", shares="")
WITHDRAWN = replace(HELD, withdrawn=True)
EVICTED = replace(HELD, phase="running", evicted_for="e-2-0")
RELEASED = replace(HELD, phase="ended", ending="ended")
CHANGED = Blocked(code="changed", reason="the pod asks for another gpu than its request", final=True)


def said(phase: Any, pod_uid: str = UID) -> Outcome:
    return Outcome(uid=HELD.uid, namespace="default", name=HELD.request.name, phase=phase, pod="web-0", pod_uid=pod_uid)


PLANS: list[tuple[str, RequestState, Seen | None, dict[str, Any], tuple[object, ...]]] = [
    ("nothing is made in its place", HELD, None, {}, (Publish, "gone")),
    ("also when it never ran", HELD, None, {"blocked": CHANGED}, (Publish, "gone")),
    ("another life of the name is not it", HELD, replace(UNBOUND, pod_uid="x"), {}, (Publish, "gone")),
    ("nor a bound one", HELD, replace(RUNNING, pod_uid="x"), {}, (Publish, "gone")),
    ("it is bound", HELD, UNBOUND, {}, (Bind,)),
    ("our gate first", HELD, replace(UNBOUND, gates=(marks.GATE,)), {}, (Ungate,)),
    ("gates of others are waited for", HELD, replace(UNBOUND, gates=("x",)), {}, (Wait,)),
    ("so is its node", HELD, UNBOUND, {"waits_for": "mps"}, (Wait,)),
    ("not while it is going", HELD, replace(UNBOUND, terminating=True), {}, (Wait,)),
    ("one that is not what was placed is let go", HELD, UNBOUND, {"blocked": CHANGED}, (Publish, "rejected")),
    ("withdrawn before it was bound, it is left to its owner", WITHDRAWN, UNBOUND, {}, (Publish, "gone")),
    ("unless a binding may be on its way", WITHDRAWN, UNBOUND, {"maybe_bound": True}, (Delete,)),
    ("bound, it is said to be", HELD, BOUND, {}, (Publish, "bound")),
    ("running too", HELD, RUNNING, {"said": said("bound")}, (Publish, "running")),
    ("shares that were resized are written", HELD, replace(RUNNING, shares="x"), {}, (Annotate,)),
    ("its CPU is never changed", HELD, replace(RUNNING, cpu_milli=5), {}, (Publish, "running")),
    ("bound by somebody else elsewhere, it holds nothing", HELD, replace(BOUND, node="n2"), {}, (Publish, "gone")),
    ("bound there by somebody, nothing is freed", HELD, replace(BOUND, bound_by_us=False), {}, (Wait,)),
    ("ours with its annotations off gets them back", HELD, STRIPPED, {"said": said("running")}, (Annotate,)),
    ("bound by us with other cards, it is ended", HELD, replace(BOUND, cards="n1-gpu1"), {}, (Delete,)),
    ("withdrawn, it is ended", WITHDRAWN, RUNNING, {}, (Delete,)),
    ("evicted too", EVICTED, RUNNING, {}, (Delete,)),
    ("once", EVICTED, replace(RUNNING, terminating=True), {"said": said("bound")}, (Publish, "running")),
    ("its end is said", HELD, ENDED, {"said": said("running")}, (Publish, "ended")),
    ("and its object is its owner's", RELEASED, ENDED, {"keep_ended_s": 1.0, "ended_for_s": 99.0}, (Wait,)),
    ("one that runs on after its release is a leak", RELEASED, RUNNING, {}, (Delete,)),
]


def shape(step: Step) -> tuple[object, ...]:
    return (Publish, step.outcome.phase) if isinstance(step, Publish) else (type(step),)


@pytest.mark.parametrize(("claim", "request_", "pod", "more", "expected"), PLANS, ids=[row[0] for row in PLANS])
def test_plan(
    claim: str, request_: RequestState, pod: Seen | None, more: dict[str, Any], expected: tuple[object, ...]
) -> None:
    case = Case(epoch=EPOCH, sequence=WORLD.state.sequence, request=request_, seen=pod, **more)

    assert shape(plan(case)) == expected, claim


def test_a_request_that_somebody_made_up_is_rejected_whatever_is_seen() -> None:
    """It is never looked at as the pod's own, so it cannot stand in the way of that."""
    fake = WORLD.hold(replace(asked(), name="fake"), "n2", 0)
    case = Case(epoch=EPOCH, sequence=WORLD.state.sequence, request=fake, seen=None)

    assert shape(plan(case)) == (Publish, "rejected")
    assert pod_of(fake) == "web-0!fake"
    assert View(WORLD.state).request("default/web-0", None) is HELD


def test_a_binding_carries_everything_that_a_rebuild_needs() -> None:
    """The pod had nothing of ours: the request comes with the cards, in the same write."""
    found = allocation(BOUND_POD)

    assert not isinstance(found, str), found
    assert (found.uid, found.request, found.node) == (HELD.uid, HELD.request, "n1")
    assert found.slices == (HELD.placement.slices if HELD.placement else ())
    assert (BOUND.managed, BOUND.foreign, BOUND.bound_by_us) == (True, True, True)
    assert pod_of(HELD) == "web-0"


def test_its_only_container_is_the_one_that_is_measured() -> None:
    """Whatever its name; of several nobody knows which, and a container of our name may be anything."""
    one = Container(name="serve", resources=Resources(requests={"cpu": "2"}))
    main = Container(name="main", resources=Resources(requests={"cpu": "1"}))

    assert look(replace(BOUND_POD, spec=replace(BOUND_POD.spec, containers=(one,)))).cpu_milli == 2000
    assert look(replace(BOUND_POD, spec=replace(BOUND_POD.spec, containers=(one, main)))).cpu_milli is None


def test_two_requests_of_one_pod_name_are_looked_at_one_after_the_other() -> None:
    """One of them was made up: the first keeps the name until it is over, and neither is forgotten."""
    one = world()
    first, second = one.hold(asked("u-1"), "n1", 0), one.hold(asked("u-2"), "n1", 1)
    view = View(one.state)
    key = "default/web-0"
    assert view.request(key, None) is first

    commit = Commit(pool="p", epoch=EPOCH, number=9, predecessor=1, author="a", records=())
    release = Released(uid=first.uid, evidence="gone")
    one.fold(release)

    assert view.folded(replace(commit, records=(release,))) == {key}
    assert view.request(key, None) is second
