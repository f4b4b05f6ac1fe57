"""One pod at a time: plan, do, plan again, until there is nothing to do.

What flows in: a key. What flows out: calls to Kubernetes and words on the board. The decision is `plan`; here is what
it is made from, what doing it means, and what each failure leads to:

    not sent, throttled, no token    the same again, after a pause
    outcome unknown, conflict        the pod is read back before the next plan
    not found                        the watch will tell; looked at again after a pause
    refused for now (quota, rights)  the reason stands until the next try, which waits longer each time
    a pod refused for good           the reason stands; the plan makes it an outcome
    anything else                    a defect of ours: logged, and this one pod waits; the others go on

A word that would free a slice because a pod is not there is only said after the API server has been asked for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache

import msgspec

from bus.headers import inject
from bus.ledger.state import RequestState
from bus.runtime import semconv
from bus.runtime.tracing import meter, span
from contracts.isolation import CannotIsolate, PodChanges
from contracts.outcomes import Outcome
from contracts.shares import NodeEnforcement
from contracts.subjects import OUTCOMES
from reconciler import errors, foreign, marks, podspec, steps
from reconciler.board import Board
from reconciler.calls import Kube
from reconciler.informer import Informer
from reconciler.isolation import Isolation, isolation
from reconciler.objects import Pod
from reconciler.plan import plan, pod_of
from reconciler.queue import WorkQueue
from reconciler.seen import Seen, look
from reconciler.steps import (
    Annotate,
    Bind,
    Case,
    Create,
    Delete,
    Publish,
    Resize,
    Step,
    Wait,
)
from reconciler.view import View

STEPS = 8
"""Create, ungate, bind, publish and a wait are five; a key that takes more is looked at again from the queue."""
CREATE_FOR_NOW: frozenset[str] = frozenset({"quota", "rbac"})
"""Refusals of a create that end without anybody changing the request."""
BIND_FOR_GOOD: frozenset[str] = frozenset({"invalid", "bad-request", "too-large"})
"""Refusals of a binding that no time mends; a stranger's webhook that says no today may say yes tomorrow."""
RETRY_AT_LEAST_S = 1.0

_log = logging.getLogger(__name__)


class Refusal(msgspec.Struct, frozen=True):
    """A refusal and until when it stands (None: for good)."""

    blocked: steps.Blocked
    until_s: float | None


class Worker:
    """Brings one key after the other to what the ledger wants.

    Args:
        view: the ledger by pod.
        pods: what Kubernetes has.
        may_act: whether this process may write now; asked before each step.
        now: a clock that does not jump, in seconds.
        report_of: what a node has said that it enforces.
        standing: whether a placed request may be bound where it is placed, and stay.
        keep_ended_s: see `Case`.
    """

    def __init__(
        self,
        *,
        view: View,
        pods: Informer[Pod],
        kube: Kube,
        board: Board,
        queue: WorkQueue,
        may_act: Callable[[], bool],
        now: Callable[[], float],
        report_of: Callable[[str], NodeEnforcement | None] = lambda _: None,
        standing: Callable[[RequestState], steps.Standing] = lambda _: steps.AT_HOME,
        pod_rules: podspec.PodRules = podspec.DEFAULT_RULES,
        keep_ended_s: float | None = None,
    ) -> None:
        self._view, self._pods, self._kube, self._board, self._queue = view, pods, kube, board, queue
        self._may_act, self._now, self._report_of = may_act, now, report_of
        self._pod_rules, self._keep_ended_s, self._standing = pod_rules, keep_ended_s, standing
        self._looks: dict[str, tuple[Pod, Seen]] = {}
        self._unsure: set[str] = set()
        self._maybe_bound: set[str] = set()
        self._refusals: dict[str, Refusal] = {}
        self._ended_since_s: dict[str, float] = {}
        self._done = meter().create_counter("gpubus.reconciler.steps", description="actions taken, by kind")
        self._leaks = meter().create_counter("gpubus.reconciler.leaks", description="pods that ran on after a release")
        self._failed = meter().create_counter("gpubus.reconciler.failures", description="calls that failed, by error")

    async def work(self, key: str) -> None:
        """Until there is nothing to do. Never raises."""
        try:
            await self._settle(key)
        except errors.KubeError as error:
            self._trouble(key, error)
        except podspec.NotRenderable as error:
            self._refuse(key, "invalid", str(error), final=True)
            self._queue.add(key)
        except Exception:  # noqa: BLE001 - one pod that we cannot handle must not end the work for all others
            _log.exception("%s cannot be reconciled", key)
            self._failed.add(1, {"error": "defect"})
            self._queue.failed(key)

    def refusals(self) -> dict[str, steps.Blocked]:
        """What stands against pods right now, for people."""
        return {key: refusal.blocked for key, refusal in self._refusals.items()}

    # --- one key -----------------------------------------------------------------------------------------------------

    async def _settle(self, key: str) -> None:
        if key in self._unsure:
            await self._read_back(key)
        for _ in range(STEPS):
            if not self._may_act():
                self._queue.gate.clear()
                break
            case = self._case(key)
            step = plan(case)
            if isinstance(step, Wait):
                self._rest(key, case, step)
                return
            await self._do(key, case, step)
        self._queue.add(key)

    def _case(self, key: str) -> Case:
        seen = self._look(key)
        request = self._view.request(key, seen.mark.uid if seen and seen.mark else None)
        live = request if request and request.live else None
        isolated, standing = (self._isolated(live), self._standing(live)) if live else (Isolation(), steps.AT_HOME)
        return Case(
            epoch=self._view.state.epoch,
            sequence=self._view.state.sequence,
            request=request,
            seen=seen,
            said=self._said(request) if request else None,
            blocked=self._blocked(key),
            maybe_bound=key in self._maybe_bound,
            waits_for=isolated.waits_for or standing.waits_for,
            leaves=standing.leaves,
            isolation=isolated.changes.marks,
            ended_for_s=self._ended_for_s(key, seen),
            keep_ended_s=self._keep_ended_s,
        )

    def _isolated(self, request: RequestState) -> Isolation:
        """A placement that nothing can hold apart is refused when its pod is made; one that runs is let be."""
        try:
            return self._isolation(request)
        except podspec.NotRenderable as error:
            return Isolation(waits_for=str(error))

    def _isolation(self, request: RequestState) -> Isolation:
        """Raises NotRenderable: nothing can hold its cards apart."""
        node = request.placement.node if request.placement else ""
        try:
            return isolation(self._view.state, request, self._report_of(node), self._pod_rules.paths)
        except CannotIsolate as error:
            raise podspec.NotRenderable(str(error)) from error

    def _look(self, key: str) -> Seen | None:
        """The pod as seen; looked at once for each version of it."""
        pod = self._pods.store.get(key)
        if pod is None:
            self._looks.pop(key, None)
            return None
        before = self._looks.get(key)
        if before is None or before[0] is not pod:
            before = self._looks[key] = (pod, look(pod))
        return before[1]

    def _said(self, request: RequestState) -> Outcome | None:
        """Our last word about this very request: an earlier one of its name had other words."""
        word = self._board.last(_subject(request))
        ours = isinstance(word, Outcome) and word.uid == request.uid and word.attempt == request.attempt
        return word if isinstance(word, Outcome) and ours else None

    def _blocked(self, key: str) -> steps.Blocked | None:
        refusal = self._refusals.get(key)
        if refusal is None or (refusal.until_s is not None and refusal.until_s <= self._now()):
            return None
        return refusal.blocked

    def _ended_for_s(self, key: str, seen: Seen | None) -> float:
        """Since this process first saw it ended: a restart keeps it longer, a clock that jumps changes nothing."""
        if seen is None or not seen.terminal:
            self._ended_since_s.pop(key, None)
            return 0.0
        return self._now() - self._ended_since_s.setdefault(key, self._now())

    def _rest(self, key: str, case: Case, step: Wait) -> None:
        over = case.request is None or not case.request.live
        if over or case.blocked is None:  # run out, and what was refused is not wanted any more
            self._refusals.pop(key, None)
        if over:
            self._maybe_bound.discard(key)
        if step.again_s is not None:
            self._queue.add_later(key, step.again_s)
        refusal = self._refusals.get(key)
        if refusal is None:
            self._queue.worked(key)
        elif refusal.until_s is not None:
            self._queue.add_later(key, max(0.0, refusal.until_s - self._now()))
        _log.debug("%s: %s", key, step.reason)

    # --- doing -------------------------------------------------------------------------------------------------------

    async def _do(self, key: str, case: Case, step: Step) -> None:
        namespace, _, name = key.partition("/")
        request = case.request
        if isinstance(step, Delete):
            self._note_deletion(key, case, step)
            await self._kube.delete(namespace, name, step.pod_uid, step.grace_s)
            self._mark_terminating(key, step)
        elif request is None:
            raise AssertionError(f"{key}: {step} without a request")
        elif isinstance(step, Create):
            await self._create(key, request)
        elif isinstance(step, Bind):
            await self._bind(key, request, step)
        elif isinstance(step, steps.Ungate):
            self._pods.own(await self._kube.ungate(namespace, name, step.index))
        elif isinstance(step, Annotate):
            pod_uid = case.seen.pod_uid if case.seen else ""
            self._pods.own(await self._kube.annotate(namespace, name, pod_uid, step.marks))
        elif isinstance(step, Resize):
            await self._resize(key, step)
        elif isinstance(step, Publish | steps.Conflict):
            await self._say(key, case, request, step.outcome)
        self._done.add(1, {"step": type(step).__name__.lower()})

    async def _create(self, key: str, request: RequestState) -> None:
        changes = self._isolation(request).changes
        body = podspec.manifest(request, epoch=self._view.state.epoch, rules=self._pod_rules, changes=changes)
        try:
            with span("create", parent=request.accepted.trace, attributes=_attributes(key, request)):
                pod = await self._kube.create(request.accepted.namespace, body)
        except errors.Refused as error:
            self._refuse(key, error.code, str(error), final=error.code not in CREATE_FOR_NOW)
        except errors.NotFound as error:
            self._refuse(key, f"{error.kind or 'something'}-missing", str(error), final=True)
        else:
            self._refusals.pop(key, None)
            self._pods.own(pod)

    async def _bind(self, key: str, request: RequestState, step: Bind) -> None:
        changes = self._isolation(request).changes
        assigned = podspec.assignment(request, epoch=self._view.state.epoch, changes=changes)
        if request.request.external is not None and not await self._fits(key, request, changes, assigned):
            return
        body = podspec.binding(request, assigned, pod_uid=step.pod_uid)
        self._maybe_bound.add(key)
        try:
            with span("bind", parent=request.accepted.trace, attributes=_attributes(key, request)):
                await self._kube.bind(request.accepted.namespace, pod_of(request), body)
        except errors.OutcomeUnknown:
            raise
        except errors.KubeError as error:
            self._maybe_bound.discard(key)
            if not isinstance(error, errors.Refused):
                raise
            self._refuse(key, error.code, str(error), final=error.code in BIND_FOR_GOOD)
            return
        self._maybe_bound.discard(key)
        self._refusals.pop(key, None)
        pod = self._pods.store.get(key)
        if pod is not None and pod.metadata.uid == step.pod_uid and not pod.spec.node_name:
            self._pods.own(podspec.as_bound(pod, request, assigned))

    async def _fits(self, key: str, request: RequestState, changes: PodChanges, assigned: dict[str, str]) -> bool:
        """Whether somebody else's pod is, right now, what was placed, and sees nothing but what it was given."""
        namespace, _, name = key.partition("/")
        pod = await self._kube.read(f"/api/v1/namespaces/{namespace}/pods/{name}", foreign.DECODER)
        if pod is None or request.request.external is None or pod.metadata.uid != request.request.external.uid:
            raise errors.Conflict(f"{key} is another one by now", "uid")
        try:
            marks.checked(pod.metadata.annotations or {}, assigned)
        except marks.BadMark as error:
            raise podspec.NotRenderable(str(error)) from error
        mounts = [(mount.host_path, mount.path) for mount in changes.mounts]
        other = foreign.mismatch(pod, request.request)
        lacking = other or foreign.uninjected(pod, podspec.sources(changes), mounts)
        if lacking:
            self._refuse(key, "changed" if other else "not-injected", lacking, final=True)
        return not lacking

    async def _resize(self, key: str, step: Resize) -> None:
        """A refusal (the node is too small, a quota) is told, and the scheduler counts again what the container has."""
        namespace, _, name = key.partition("/")
        pod = self._pods.store.get(key)
        if pod is None:
            return
        try:
            resized = await self._kube.resize(namespace, name, pod.metadata.resource_version, step.cpu_milli)
        except errors.Refused as error:
            self._refuse(key, error.code, str(error), final=False, cpu_milli=step.cpu_milli)
            return
        except errors.NotFound as error:
            if error.kind == "pods":
                raise
            self._refuse(key, "no-resize", f"no pod is resized here: {error}", final=False, cpu_milli=step.cpu_milli)
            return
        self._refusals.pop(key, None)
        self._pods.own(resized)

    def _mark_terminating(self, key: str, step: Delete) -> None:
        """So that the next plan waits. The watch brings the rest, also that an unbound pod was gone at once."""
        pod = self._pods.store.get(key)
        if pod is not None and pod.metadata.uid == step.pod_uid:
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="requested")
            self._pods.own(msgspec.structs.replace(pod, metadata=metadata))

    async def _say(self, key: str, case: Case, request: RequestState, outcome: Outcome) -> None:
        if case.seen is None and outcome.phase == "gone" and (pod := await self._get(key)) is not None:
            self._pods.own(pod)
            raise errors.Conflict(f"{key} is there after all", "version")
        with span(
            outcome.phase,
            parent=request.accepted.trace,
            attributes={**_attributes(key, request), semconv.PHASE: outcome.phase, semconv.REASON: outcome.reason},
        ):
            self._board.say(_subject(request), outcome, inject())

    # --- failing -----------------------------------------------------------------------------------------------------

    async def _get(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        return await self._kube.get(namespace, name)

    async def _read_back(self, key: str) -> None:
        pod = await self._get(key)
        self._unsure.discard(key)
        if pod is not None:
            self._pods.own(pod)

    def _trouble(self, key: str, error: errors.KubeError) -> None:
        self._failed.add(1, {"error": type(error).__name__})
        if isinstance(error, errors.OutcomeUnknown | errors.Conflict | errors.NotFound):
            self._unsure.add(key)
        at_least_s = error.retry_after_s if isinstance(error, errors.Throttled) else 0.0
        pause_s = self._queue.failed(key, at_least_s=at_least_s)
        level = logging.ERROR if isinstance(error, errors.Refused) else logging.INFO
        why = {"reason": f"{type(error).__name__}: {error}", "pause_s": round(pause_s, 3)}
        _log.log(level, "%s is looked at again", key, extra=why)

    def _refuse(self, key: str, code: str, reason: str, *, final: bool, cpu_milli: int | None = None) -> None:
        """For good, or until the next try. Missing rights should wake somebody: they are not the user's fault."""
        pause_s = 0.0 if final else self._queue.failed(key, at_least_s=RETRY_AT_LEAST_S)
        blocked = steps.Blocked(code=code, reason=reason, final=final, cpu_milli=cpu_milli)
        self._refusals[key] = Refusal(blocked, None if final else self._now() + pause_s)
        self._failed.add(1, {"error": code})
        level = logging.ERROR if code == "rbac" else logging.WARNING
        _log.log(level, "%s is refused", key, extra={"code": code, "reason": reason, "final": final})

    def _note_deletion(self, key: str, case: Case, step: Delete) -> None:
        _log.info("deleting %s", key, extra={"reason": step.reason})
        released = case.request is None or not case.request.live
        if released and case.seen is not None and not case.seen.terminal:
            self._leaks.add(1)


def _subject(request: RequestState) -> str:
    return _outcomes_of(request.accepted.namespace, request.request.name)


@lru_cache(maxsize=16_384)
def _outcomes_of(namespace: str, name: str) -> str:
    return OUTCOMES.subject(namespace=namespace, name=name)


def _attributes(key: str, request: RequestState) -> dict[str, str | int]:
    return {
        semconv.REQUEST_UID: request.uid,
        semconv.REQUEST_KEY: request.key,
        semconv.POD: key,
        semconv.NODE: request.placement.node if request.placement else "",
        semconv.LEDGER_SEQUENCE: request.decided_at,
    }
