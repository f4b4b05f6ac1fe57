"""The plan against any world: users, other schedulers, kubelets and crashes do what they like, and it stays true.

A small world in which pods live and die by the rules of Kubernetes, a strict referee that knows which slices are held
by containers that may run, and a reconciler that forgets everything but the ledger, the pods and its published words.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.decisions import Observed, Released, Withdrawn
from contracts.outcomes import Outcome
from reconciler import marks
from reconciler.objects import Pod
from reconciler.plan import plan
from reconciler.podspec import as_bound, assignment
from reconciler.seen import look
from reconciler.steps import Annotate, Bind, Case, Create, Delete, Publish, Step, Wait
from tests.builders.pods import created, foreign, one_placed, terminated, terminating, with_status

EVENTS = (
    *("reconcile",) * 6,
    *(
        "runs",
        "ends",
        "fails",
        "withdraw",
        "release",
        "user deletes",
        "kubelet reports",
        "kubelet ends it",
        "object gone",
    ),
    *("foreign pod", "strip", "bound elsewhere", "observe", "forget words"),
)
history = st.lists(st.sampled_from(EVENTS), max_size=30)


class World:
    """One request, one pod name."""

    def __init__(self) -> None:
        self.cluster, self.held = one_placed()
        self.pod: Pod | None = None
        self.said: Outcome | None = None
        self.lives = 0
        self.runs = 0
        """Lives of the pod that were bound with the cards of the request."""

    @property
    def epoch(self) -> str:
        return self.cluster.state.epoch

    @property
    def ours(self) -> bool:
        return self.pod is not None and self.pod.metadata.uid.startswith("life-")

    def step(self) -> Step:
        request: RequestState | None = self.cluster.state.get(self.held.uid)
        return plan(
            Case(
                epoch=self.epoch,
                sequence=self.cluster.state.sequence,
                request=request,
                seen=look(self.pod) if self.pod else None,
                said=self.said if request and request.live else None,
            )
        )

    def reconcile(self) -> Step:
        """One step of the plan, done as the API server would do it."""
        step = self.step()
        if isinstance(step, Create):
            assert self.pod is None
            self.lives += 1
            self.pod = created(self.held, epoch=self.epoch, uid=f"life-{self.lives}")
        elif isinstance(step, Bind):
            self._bind(step)
            self.reconcile()  # in one breath: between a binding's answer and the word about it nothing is waited for
        elif isinstance(step, Delete):
            self._delete(step)
        elif isinstance(step, Annotate):
            assert self.pod is not None
            self._annotate(step.marks)
        elif not isinstance(step, Wait):
            outcome = getattr(step, "outcome", None)
            assert isinstance(outcome, Outcome)
            self.judge(outcome)
            self.said = outcome
        return step

    def _bind(self, step: Bind) -> None:
        assert self.pod is not None
        assert self.pod.metadata.uid == step.pod_uid
        assert not self.pod.spec.node_name
        self.runs += 1
        self.pod = with_status(as_bound(self.pod, self.held, assignment(self.held, epoch=self.epoch)), "Pending")

    def _delete(self, step: Delete) -> None:
        assert self.pod is not None
        assert self.ours, "a stranger's pod is never deleted"
        assert step.pod_uid == self.pod.metadata.uid
        assert step.grace_s >= 1
        self.pod = terminating(self.pod) if self.pod.spec.node_name else None

    def _annotate(self, more: dict[str, str]) -> None:
        assert self.pod is not None
        annotations = {**(self.pod.metadata.annotations or {}), **more}
        self.pod = replace(self.pod, metadata=replace(self.pod.metadata, annotations=annotations))

    def judge(self, outcome: Outcome) -> None:
        """What frees a slice is only said when no container of ours can be running on it."""
        if outcome.phase not in ("ended", "gone", "rejected"):
            return
        holds = self.ours and self.pod is not None and self.pod.spec.node_name and not look(self.pod).terminal
        assert not holds, f"{outcome.phase} is said while the pod may run: {self.pod}"

    # --- what others do ----------------------------------------------------------------------------------------------

    def happen(self, event: str) -> None:
        getattr(self, "_" + event.replace(" ", "_"), self.reconcile)()

    def _status(self, phase: str, **fields: Any) -> None:
        if self.pod is not None and self.pod.spec.node_name and not look(self.pod).terminal:
            self.pod = with_status(self.pod, phase, **fields)

    def _runs(self) -> None:
        self._status("Running")

    def _ends(self) -> None:
        self._status("Succeeded", container_statuses=(terminated(0),))

    def _fails(self) -> None:
        self._status("Failed", reason="OutOfcpu")

    def _withdraw(self) -> None:
        request = self.cluster.state.requests.get(self.held.uid)
        if request and not request.withdrawn:
            self.cluster.fold(Withdrawn(uid=self.held.uid))

    def _observe(self) -> None:
        if self.said and self.said.phase in ("bound", "running") and self.held.uid in self.cluster.state.requests:
            self.cluster.fold(Observed(uid=self.held.uid, phase=self.said.phase))  # type: ignore[arg-type]

    def _release(self) -> None:
        """The scheduler believes what it is told."""
        if (
            self.said
            and self.said.phase in ("ended", "gone", "rejected")
            and self.held.uid in self.cluster.state.requests
        ):
            self.cluster.fold(Released(uid=self.held.uid, evidence=self.said.phase))  # type: ignore[arg-type]

    def _user_deletes(self) -> None:
        if self.pod is not None:
            self.pod = terminating(self.pod) if self.pod.spec.node_name else None

    def _kubelet_reports(self) -> None:
        """A real kubelet reports the end of a pod that is being deleted before its object goes."""
        if self.pod is not None and self.pod.metadata.deletion_timestamp:
            self._status("Failed", container_statuses=(terminated(137),))

    def _kubelet_ends_it(self) -> None:
        if self.pod is not None and self.pod.metadata.deletion_timestamp:
            self.pod = None

    def _object_gone(self) -> None:
        self.pod = None

    def _foreign_pod(self) -> None:
        if self.pod is None:
            self.pod = foreign(self.held, on="n1")

    def _strip(self) -> None:
        """A user takes our annotations off a pod that we have spoken of."""
        if self.pod is not None and self.said and self.said.pod_uid == self.pod.metadata.uid:
            self.pod = replace(self.pod, metadata=replace(self.pod.metadata, annotations={}))

    def _bound_elsewhere(self) -> None:
        if self.ours and self.pod is not None and not self.pod.spec.node_name:
            self.pod = replace(self.pod, spec=replace(self.pod.spec, node_name="n2"))

    def _forget_words(self) -> None:
        """The outcomes stream lost what the ledger already has.

        Not together with `strip`: a bound pod that neither word nor annotation knows is left to an operator.
        """
        request = self.cluster.state.requests.get(self.held.uid)
        marked = self.pod is None or marks.UID in (self.pod.metadata.annotations or {})
        if marked and request and self.said and request.phase == self.said.phase:
            self.said = None


@settings(max_examples=300, deadline=None)
@given(history)
def test_no_history_frees_a_slice_that_is_in_use_or_runs_a_request_twice(events: list[str]) -> None:
    """After any history: at most one life was ever given cards, and the plan comes to rest within a few steps."""
    world = World()
    for event in events:
        world.happen(event)

    for _ in range(12):
        if isinstance(world.reconcile(), Wait):
            break
    else:
        raise AssertionError(f"the plan does not come to rest: {world.step()}")
    assert world.runs <= 1
    if world.said and world.said.phase == "running":
        assert world.said.ledger_sequence == world.held.decided_at


@settings(max_examples=200, deadline=None)
@given(history)
def test_left_alone_every_request_comes_to_its_end(events: list[str]) -> None:
    """Withdrawn, with kubelets and scheduler doing their part, nothing of it is left, whatever happened before."""
    world = World()
    for event in events:
        world.happen(event)
    if world.pod is not None and not world.ours:
        world.pod = None  # the stranger moves out

    for event in ["withdraw", *["reconcile", "kubelet ends it", "release"] * 10]:
        world.happen(event)

    assert world.held.uid not in world.cluster.state.requests, f"{world.said} {world.pod}"
    assert world.pod is None or look(world.pod).terminal


def test_the_referee_can_see() -> None:
    """It objects when `gone` is said of a pod that runs: otherwise the tests above prove nothing."""
    world = World()
    for event in ("reconcile", "reconcile", "runs"):
        world.happen(event)
    step = world.step()
    assert isinstance(step, Publish)

    with pytest.raises(AssertionError, match="may run"):
        world.judge(replace(step.outcome, phase="gone"))
    assert marks.CARDS in (world.pod.metadata.annotations or {} if world.pod else {})
