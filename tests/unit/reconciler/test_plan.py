"""The table of the reconciler: what the ledger says, what is seen, and the one action that follows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.decisions import Adopted, Observed, Placement, Released, Resized, Withdrawn
from contracts.outcomes import Outcome
from contracts.units import NodeName, RequestUid
from reconciler import marks
from reconciler.plan import plan, pod_of
from reconciler.seen import Seen, look
from reconciler.steps import Annotate, Bind, Blocked, Case, Conflict, Create, Delete, Publish, Step, Ungate, Wait
from tests.builders.ledger import Cluster, cluster, node
from tests.builders.pods import POD_UID, bound, created, foreign, one_placed, terminated, terminating, with_status

WORLD, HELD = one_placed()
EPOCH = WORLD.state.epoch
UNBOUND = look(created(HELD, epoch=EPOCH))
BOUND = look(bound(HELD, epoch=EPOCH))
RUNNING = look(bound(HELD, epoch=EPOCH, phase="Running"))
SUCCEEDED = look(with_status(bound(HELD, epoch=EPOCH), "Succeeded", container_statuses=(terminated(0, "Completed"),)))
FAILED = look(with_status(bound(HELD, epoch=EPOCH), "Failed", container_statuses=(terminated(137, "OOMKilled"),)))
OUT_OF_CPU = look(with_status(bound(HELD, epoch=EPOCH), "Failed", reason="OutOfcpu", message="no room"))
FOREIGN = look(foreign(HELD))
FOREIGN_BOUND = look(foreign(HELD, on="n1"))
ELSEWHERE = replace(BOUND, node="n2", bound_by_us=False)
BY_OTHERS = replace(BOUND, bound_by_us=False)
OTHER_CARDS = replace(BOUND, cards="n1-gpu1")

QUOTA = Blocked(code="quota", reason="exceeded quota: q", final=False)
NEVER = Blocked(code="pod-security", reason="violates PodSecurity", final=True)


def said(phase: Any, **fields: Any) -> Outcome:
    base = {"pod": "p", "pod_uid": POD_UID, "node": NodeName("n1"), "ledger_sequence": HELD.decided_at}
    return Outcome(uid=HELD.uid, namespace="default", name="train", phase=phase, **{**base, **fields})


SAID_QUOTA = said("waiting", pod=pod_of(HELD), pod_uid="", reason="quota: exceeded quota: q", cause=HELD.uid)


def in_state(**fields: Any) -> RequestState:
    return replace(HELD, **fields)


def shape(step: Step) -> tuple[object, ...]:
    """What a row states of a step: its kind and the one thing that matters."""
    if isinstance(step, Publish | Conflict):
        return type(step), step.outcome.phase
    if isinstance(step, Delete):
        return Delete, step.pod_uid
    return (type(step),)


LIVE = HELD
WITHDRAWN = in_state(withdrawn=True)
RAN = in_state(phase="running")
WAS_BOUND = in_state(phase="bound")
ENDED = in_state(phase="ended", ending="ended")
CANCELLED = in_state(phase="ended", ending="ended", withdrawn=True)
PENDING = in_state(phase="pending", placement=None, decided_at=0)

ROWS: list[tuple[str, RequestState | None, Seen | None, dict[str, Any], tuple[object, ...]]] = [
    # --- nothing decided
    ("a request that is not placed gets no pod", PENDING, None, {}, (Wait,)),
    ("nor is a pod of its name touched", PENDING, FOREIGN, {}, (Wait,)),
    # --- placed, no pod
    ("a placed request without a pod gets one", LIVE, None, {}, (Create,)),
    ("a quota keeps it waiting, and people are told", LIVE, None, {"blocked": QUOTA}, (Publish, "waiting")),
    (
        "once",
        LIVE,
        None,
        {"blocked": QUOTA, "said": SAID_QUOTA},
        (Wait,),
    ),
    ("that it waited does not mean that it ran", LIVE, None, {"said": said("waiting", pod_uid="")}, (Create,)),
    ("what is refused for good is rejected", LIVE, None, {"blocked": NEVER}, (Publish, "rejected")),
    ("rejected once, it is not tried again", LIVE, None, {"said": said("rejected")}, (Wait,)),
    ("a pod that was bound and is not there is gone", WAS_BOUND, None, {}, (Publish, "gone")),
    ("a pod that ran and is not there is gone", RAN, None, {}, (Publish, "gone")),
    ("also when only our own last word knows of it", LIVE, None, {"said": said("bound")}, (Publish, "gone")),
    ("a binding that was never answered may have run", LIVE, None, {"maybe_bound": True}, (Publish, "gone")),
    ("a pod that is there unbound has not", LIVE, UNBOUND, {"maybe_bound": True}, (Bind,)),
    ("gone once, it is not made again", RAN, None, {"said": said("gone")}, (Wait,)),
    ("ended once, its object may vanish", RAN, None, {"said": said("ended")}, (Wait,)),
    # --- placed, made, not bound
    ("a pod without a node is bound", LIVE, UNBOUND, {}, (Bind,)),
    ("not while it is being deleted", LIVE, replace(UNBOUND, terminating=True), {}, (Wait,)),
    ("our gate is lifted first", LIVE, replace(UNBOUND, gates=("x", marks.GATE)), {}, (Ungate,)),
    ("the gates of others are waited for", LIVE, replace(UNBOUND, gates=("x",)), {}, (Wait,)),
    ("a binding that is refused for now waits", LIVE, UNBOUND, {"blocked": QUOTA}, (Wait,)),
    ("one that is refused for good takes the pod back", LIVE, UNBOUND, {"blocked": NEVER}, (Delete, POD_UID)),
    ("a bound pod's second life is not bound", WAS_BOUND, UNBOUND, {}, (Publish, "gone")),
    ("nor when our own last word knows of the first", LIVE, UNBOUND, {"said": said("bound")}, (Publish, "gone")),
    # --- placed and bound
    ("a bound pod is said to be bound", LIVE, BOUND, {}, (Publish, "bound")),
    ("once", LIVE, BOUND, {"said": None}, (Publish, "bound")),
    ("a running pod is said to run", LIVE, RUNNING, {"said": said("bound")}, (Publish, "running")),
    ("a pod does not go back from running", RAN, BOUND, {"said": said("running")}, (Wait,)),
    (
        "another pod of the name means that the first is gone",
        RAN,
        RUNNING,
        {"said": said("running", pod_uid="x")},
        (Publish, "gone"),
    ),
    ("a pod bound to another node is taken back", LIVE, ELSEWHERE, {}, (Delete, POD_UID)),
    ("and left alone while it goes", LIVE, replace(ELSEWHERE, terminating=True), {}, (Wait,)),
    ("a pod bound by somebody else to the right node too", LIVE, BY_OTHERS, {}, (Delete, POD_UID)),
    ("a pod that carries other cards too", LIVE, OTHER_CARDS, {}, (Delete, POD_UID)),
    ("but one that we spoke of gets its annotations back", LIVE, BY_OTHERS, {"said": said("running")}, (Annotate,)),
    ("unless it is on another node", LIVE, ELSEWHERE, {"said": said("running")}, (Delete, POD_UID)),
    ("shares that were resized are written", LIVE, replace(BOUND, shares="n1-gpu0=1:1"), {}, (Annotate,)),
    ("not while it is going", LIVE, replace(BOUND, shares="x", terminating=True), {}, (Publish, "bound")),
    # --- ended
    ("an end is said with its phase", RAN, SUCCEEDED, {"said": said("running")}, (Publish, "ended")),
    ("so is a failure", RAN, FAILED, {"said": said("running")}, (Publish, "ended")),
    ("a kubelet that refuses means rejected", LIVE, OUT_OF_CPU, {}, (Publish, "rejected")),
    (
        "an end while it is being deleted frees at once",
        WITHDRAWN,
        replace(SUCCEEDED, terminating=True),
        {},
        (Publish, "ended"),
    ),
    ("an end on the wrong node too", LIVE, replace(SUCCEEDED, node="n2", bound_by_us=False), {}, (Publish, "ended")),
    (
        "but one that was taken back gives way to the right one",
        LIVE,
        replace(FAILED, node="n2", bound_by_us=False, terminating=True),
        {},
        (Wait,),
    ),
    # --- withdrawn
    ("a withdrawn request without a pod is gone", WITHDRAWN, None, {}, (Publish, "gone")),
    ("whatever it was refused with", WITHDRAWN, None, {"blocked": NEVER}, (Publish, "gone")),
    ("its unbound pod is deleted", WITHDRAWN, UNBOUND, {}, (Delete, POD_UID)),
    ("its bound pod is deleted", WITHDRAWN, BOUND, {}, (Delete, POD_UID)),
    (
        "its running pod is deleted",
        replace(WITHDRAWN, phase="running"),
        RUNNING,
        {"said": said("running")},
        (Delete, POD_UID),
    ),
    (
        "once",
        replace(WITHDRAWN, phase="running"),
        replace(RUNNING, terminating=True),
        {"said": said("running")},
        (Publish, "running"),
    ),
    ("its end is said before its object goes", WITHDRAWN, SUCCEEDED, {}, (Publish, "ended")),
    # --- the name is taken
    ("a stranger's pod of our name is a conflict", LIVE, FOREIGN, {}, (Conflict, "rejected")),
    ("bound or not", LIVE, FOREIGN_BOUND, {}, (Conflict, "rejected")),
    (
        "a pod of another request too",
        LIVE,
        replace(UNBOUND, mark=marks.Mark(uid=RequestUid("x"), epoch=EPOCH, sequence=1)),
        {},
        (Conflict, "rejected"),
    ),
    ("a withdrawn one is simply gone", WITHDRAWN, FOREIGN, {}, (Publish, "gone")),
    (
        "our pod without its annotations is known by its uid, and gets them back",
        RAN,
        replace(RUNNING, mark=None, managed=False, bound_by_us=False, cards="", shares=""),
        {"said": said("running")},
        (Annotate,),
    ),
    ("unknown and bound where ours ran: nothing is freed", RAN, FOREIGN_BOUND, {}, (Wait,)),
    ("unbound, it cannot be ours", RAN, FOREIGN, {}, (Publish, "gone")),
    # --- finished
    ("nothing is done for a finished request", ENDED, None, {}, (Wait,)),
    ("its ended pod stays for its logs", ENDED, SUCCEEDED, {"ended_for_s": 1e9}, (Wait,)),
    ("for a stated time", ENDED, SUCCEEDED, {"keep_ended_s": 60.0, "ended_for_s": 59.0}, (Wait,)),
    ("not longer", ENDED, SUCCEEDED, {"keep_ended_s": 60.0, "ended_for_s": 60.0}, (Delete, POD_UID)),
    ("withdrawn, it goes at once", CANCELLED, SUCCEEDED, {}, (Delete, POD_UID)),
    ("a pod that runs on after the release is a leak", ENDED, RUNNING, {}, (Delete, POD_UID)),
    ("so is one that was made too late", ENDED, UNBOUND, {}, (Delete, POD_UID)),
    ("it is deleted once", ENDED, replace(RUNNING, terminating=True), {}, (Wait,)),
    ("a stranger's pod of a finished name is left alone", ENDED, FOREIGN_BOUND, {}, (Wait,)),
    # --- unknown to the ledger
    ("a stranger's pod is left alone", None, FOREIGN, {}, (Wait,)),
    ("a pod of another epoch is left alone", None, RUNNING, {"epoch": "another0"}, (Wait,)),
    ("a pod of this epoch that no request owns is a leak", None, RUNNING, {}, (Delete, POD_UID)),
    ("an ended one is kept", None, SUCCEEDED, {}, (Wait,)),
    ("nothing at all", None, None, {}, (Wait,)),
    # --- never on less than what the pod carries
    ("a pod from a later commit is waited for", None, RUNNING, {"sequence": HELD.decided_at - 1}, (Wait,)),
    ("also when it is to be deleted", ENDED, RUNNING, {"sequence": HELD.decided_at - 1}, (Wait,)),
]


@pytest.mark.parametrize(("claim", "request_", "pod", "more", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_row(
    claim: str, request_: RequestState | None, pod: Seen | None, more: dict[str, Any], expected: tuple[object, ...]
) -> None:
    """Each row of the table, named as a sentence."""
    case = Case(**{"epoch": EPOCH, "sequence": WORLD.state.sequence, "request": request_, "seen": pod, **more})

    assert shape(plan(case)) == expected, claim


def case_of(world: Cluster, held: RequestState, seen: Seen | None, **more: Any) -> Case:
    return Case(epoch=world.state.epoch, sequence=world.state.sequence, request=held, seen=seen, **more)


def test_nothing_is_said_twice() -> None:
    """The same outcome again is no news, whatever else is called for."""
    step = plan(case_of(WORLD, HELD, RUNNING))
    assert isinstance(step, Publish)

    assert isinstance(plan(case_of(WORLD, HELD, RUNNING, said=step.outcome)), Wait)


def test_an_outcome_names_what_was_seen() -> None:
    """Exit code, reason, node, life of the pod and the decision that it carries."""
    step = plan(case_of(WORLD, HELD, FAILED))
    assert isinstance(step, Publish)
    outcome = step.outcome

    assert (outcome.exit_code, outcome.reason, outcome.node) == (137, "OOMKilled", "n1")
    assert (outcome.pod_uid, outcome.ledger_sequence, outcome.uid) == (POD_UID, HELD.decided_at, HELD.uid)


def test_a_waiting_container_tells_why() -> None:
    """An image that cannot be pulled is the reason of `bound`, and a change of it is news."""
    first = plan(case_of(WORLD, HELD, BOUND))
    assert isinstance(first, Publish)

    stuck = plan(case_of(WORLD, HELD, replace(BOUND, reason="ImagePullBackOff"), said=first.outcome))

    assert isinstance(stuck, Publish)
    assert stuck.outcome.reason == "ImagePullBackOff"


@pytest.mark.parametrize("grace_s", [0, 1, 30])
def test_deletion_is_always_graceful(grace_s: int) -> None:
    """Grace 0 would remove the object while the process lives on."""
    step = plan(case_of(WORLD, WITHDRAWN, replace(BOUND, grace_s=grace_s)))
    assert isinstance(step, Delete)

    assert step.grace_s == max(1, grace_s)


def test_a_resize_is_written_with_what_the_ledger_has() -> None:
    """Only the shares change: the cards stay what they are."""
    world, held = one_placed()
    pod = bound(held, epoch=world.state.epoch)
    world.fold(Resized(uid=held.uid, share_milli=700, memory_mib=2000))

    step = plan(case_of(world, held, look(pod)))

    assert step == Annotate(marks={marks.SHARES: "n1-gpu0=700:2000"})


def test_a_pod_found_by_a_rebuild_is_ours_though_its_epoch_is_another() -> None:
    """Its annotations are proof enough: nothing is written, deleted or made again."""
    _, held = one_placed()
    pod = look(bound(held, epoch="0ld0ld00", phase="Running"))
    fresh = cluster(node("n1").gpus(2))
    placement = Placement(node=NodeName("n1"), slices=held.placement.slices if held.placement else ())
    fresh.fold(held.accepted, Adopted(uid=held.uid, placement=placement, pod="train-adopted", running=True))

    step = plan(case_of(fresh, fresh.state.requests[held.uid], pod))

    assert isinstance(step, Publish)
    assert (step.outcome.phase, step.outcome.pod) == ("running", "train-adopted")


def test_the_table_holds_for_states_that_the_fold_makes() -> None:
    """The rows above set phases by hand; the fold comes to the same."""
    world, held = one_placed()
    world.fold(Observed(uid=held.uid, phase="running", pod="p"))
    assert shape(plan(case_of(world, held, None))) == (Publish, "gone")

    world.fold(Withdrawn(uid=held.uid))
    assert shape(plan(case_of(world, held, RUNNING))) == (Delete, POD_UID)

    world.fold(Released(uid=held.uid, evidence="gone"))
    assert shape(plan(case_of(world, held, None))) == (Wait,)


def test_a_terminating_pod_still_counts() -> None:
    """Until it has ended or is gone nothing is said that frees its slice."""
    pod = look(terminating(bound(HELD, epoch=EPOCH, phase="Running")))

    step = plan(case_of(WORLD, replace(WITHDRAWN, phase="running"), pod, said=said("running")))

    assert not isinstance(step, Publish) or step.outcome.phase in ("bound", "running")
