"""Pods of anybody that name our scheduler: reads them, submits them, takes back what is gone, says why they wait.

In: changes of pods, commits of the ledger, events of requests. Out: submits on the bus (in the name of the pod's
namespace), and words on the pods. The decision is `adopt`; what happens once a request is placed is `plan`.

A submit that is answered twice, or not at all, is one request: it has the same name and the same content. A pod whose
submit was refused, or whose request came back, is tried again after a pause that doubles.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing

import msgspec

from bus.codec import Malformed, decode_as
from bus.headers import inject
from bus.ledger.state import RequestState
from bus.protocol import Bus, BusError, Received
from bus.runtime import semconv
from bus.runtime.tracing import span
from contracts.answers import SubmitReply
from contracts.decisions import Accepted, Adopted, Commit, EpochStarted, Released, Withdrawn
from contracts.messages import encode
from contracts.outcomes import RequestEvent
from contracts.requests import PodRequest, Withdraw
from contracts.subjects import EVENTS, SUBMIT
from contracts.units import RequestUid, request_key
from reconciler import errors, foreign
from reconciler.adopt import Adoption, Read, Refuse, Rest, Submit, TakeBack, adoption
from reconciler.annotations import Fault
from reconciler.calls import Kube
from reconciler.events import REFUSED, UNSCHEDULABLE, News
from reconciler.events_desk import EventsDesk
from reconciler.foreign import Refused, request_name, translate, wants_us
from reconciler.informer import Informer
from reconciler.objects import Pod
from reconciler.podspec import CARD_SOURCES
from reconciler.queue import WorkQueue
from reconciler.store import Change
from reconciler.view import View

STEPS = 4
SUBMIT_S = 5.0
AGAIN_S = (1.0, 300.0)
"""Pause before a pod is submitted again, which doubles, and its end."""

_log = logging.getLogger(__name__)


class Tried(msgspec.Struct):
    """One life of a pod: what it asked for when it was read, and how often it was submitted."""

    pod_uid: str
    asked_by: object = None
    """Its own annotations and labels at that time."""
    found: PodRequest | Refused | None = None
    submits: int = 0
    not_before_s: float = 0.0
    refused: str = ""
    told: RequestEvent | None = None


class AdoptDesk:
    """Adopts pods.

    Args:
        bus: to submit on and to hear why requests wait.
        view: the ledger.
        pods: what Kubernetes has.
        kube: the calls.
        desk: tells people.
        may_act: asked before each step.
        now_s: a clock that does not jump.
        rng: for pauses.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        view: View,
        pods: Informer[Pod],
        kube: Kube,
        desk: EventsDesk,
        may_act: Callable[[], bool],
        now_s: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._bus, self._view, self._pods, self._kube, self._desk = bus, view, pods, kube, desk
        self._may_act, self._now_s = may_act, now_s
        self.queue = WorkQueue(rng=rng)
        self._named: dict[str, set[RequestUid]] = {}
        self._tried: dict[str, Tried] = {}
        self._index()

    # --- what happened -----------------------------------------------------------------------------------------------

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        """A pod came, changed or went."""
        for change in changes:
            before = change.before is not None and wants_us(change.before)
            if before or wants_us(change.object) or change.key in self._named:
                self.queue.add(change.key)
            if change.kind == "gone":
                self._tried.pop(change.key, None)

    def folded(self, commit: Commit) -> None:
        """A request of such a pod was accepted, or is over."""
        if any(isinstance(record, EpochStarted) for record in commit.records):
            self._index()
        for record in commit.records:
            if isinstance(record, Accepted | Adopted | Withdrawn | Released):
                self._keep(record.uid)

    def everything(self) -> None:
        """Look at every pod that waits and every request of one."""
        for key, pod in self._pods.store.objects.items():
            if wants_us(pod):
                self.queue.add(key)
        for key in self._named:
            self.queue.add(key)

    def _index(self) -> None:
        self._named.clear()
        for uid in self._view.state.requests:
            self._keep(uid)

    def _keep(self, uid: RequestUid) -> None:
        request = self._view.state.get(uid)
        if request is None or request.request.external is None or foreign.made_up(request.request):
            return
        key = f"{request.accepted.namespace}/{request.request.external.name}"
        if request.live:
            self._named.setdefault(key, set()).add(uid)
        elif key in self._named:
            self._named[key].discard(uid)
            if not self._named[key]:
                del self._named[key]
        self.queue.add(key)

    # --- why requests wait -------------------------------------------------------------------------------------------

    async def hear(self) -> None:
        """Follow what users are told of requests of such pods, from now on."""
        at = await self._end()
        async with aclosing(self._bus.read(EVENTS.stream, from_sequence=at + 1)) as batches:
            async for batch in batches:
                for message in batch.messages:
                    self._heard(message)

    async def _end(self) -> int:
        try:
            return await self._bus.last_sequence(EVENTS.stream)
        except BusError:
            return 0

    def _heard(self, message: Received) -> None:
        where = EVENTS.parse(message.subject)
        key = self._pod_of(where["namespace"], where["name"]) if where else ""
        tried = self._tried.get(key)
        if tried is not None and not isinstance(told := decode_as(RequestEvent, message), Malformed):
            tried.told = told
            self.queue.add(key)

    def _pod_of(self, namespace: str, name: str) -> str:
        """The pod's key of a live request of one; empty for all others."""
        uid = self._view.state.by_key.get(request_key(namespace, name))
        request = self._view.state.get(uid) if uid else None
        external = request.request.external if request else None
        return f"{namespace}/{external.name}" if external else ""

    # --- one pod -----------------------------------------------------------------------------------------------------

    async def work(self, key: str) -> None:
        """Until there is nothing to do. Never raises."""
        try:
            await self._settle(key)
        except (errors.KubeError, BusError) as error:
            pause_s = self.queue.failed(key)
            why = {"reason": f"{type(error).__name__}: {error}", "pause_s": round(pause_s, 3)}
            _log.info("%s is looked at again", key, extra=why)
        except Exception:  # noqa: BLE001 - one pod that we cannot handle must not end the work for all others
            _log.exception("%s cannot be adopted", key)
            self.queue.failed(key)

    async def _settle(self, key: str) -> None:
        for _ in range(STEPS):
            if not self._may_act():
                self.queue.gate.clear()
                self.queue.add(key)
                return
            pod = self._pods.store.get(key)
            step = adoption(self._case(key, pod))
            if isinstance(step, Read) and pod is not None:
                await self._read(key, pod)
                continue
            await self._do(key, pod, step)
            return

    def _case(self, key: str, pod: Pod | None) -> Adoption:
        live = list(self._live(key))
        own = next((r for r in live if pod is not None and _is_of(r, pod)), None)
        tried = self._of(key, pod) if pod is not None else None
        return Adoption(
            waits=pod is not None and wants_us(pod),
            found=tried.found if tried else None,
            request=own,
            others=tuple(request for request in live if request is not own),
        )

    def _live(self, key: str) -> Iterator[RequestState]:
        for uid in sorted(self._named.get(key, ())):
            request = self._view.state.get(uid)
            if request is not None and request.live:
                yield request

    def _of(self, key: str, pod: Pod) -> Tried:
        """What is known of this life of the pod; what it asked for only while it still says so."""
        tried = self._tried.get(key)
        if tried is None or tried.pod_uid != pod.metadata.uid:
            tried = self._tried[key] = Tried(pod_uid=pod.metadata.uid)
        asked_by = (pod.metadata.annotations, pod.metadata.labels)
        if tried.asked_by != asked_by:
            tried.asked_by, tried.found = asked_by, None
        return tried

    async def _read(self, key: str, pod: Pod) -> None:
        namespace, _, name = key.partition("/")
        whole = await self._kube.read(f"/api/v1/namespaces/{namespace}/pods/{name}", foreign.DECODER)
        if whole is None or whole.metadata.uid != pod.metadata.uid:
            raise errors.Conflict(f"{key} is another one by now", "uid")
        found = translate(whole)
        tried = self._of(key, whole)
        lacking = foreign.uninjected(whole, CARD_SOURCES)
        if lacking and isinstance(found, PodRequest):
            found = Refused(faults=(Fault(where="admission", text=lacking),))
        tried.found = found

    async def _do(self, key: str, pod: Pod | None, step: Submit | TakeBack | Refuse | Rest | Read) -> None:
        if isinstance(step, TakeBack):
            await self._take_back(key, step)
        elif isinstance(step, Submit) and pod is not None:
            await self._submit(key, pod, step.request)
        elif isinstance(step, Refuse) and pod is not None:
            await self._desk.pending(pod, _news(pod, REFUSED, step.text))
        elif pod is not None and wants_us(pod):
            await self._say_why(key, pod)
        self.queue.worked(key)

    async def _take_back(self, key: str, step: TakeBack) -> None:
        word = Withdraw(name=step.name, reason=step.reason[:1024])
        await self._ask(key.partition("/")[0], encode(word))
        _log.info("request %s of %s is taken back", step.name, key, extra={"reason": step.reason})

    async def _submit(self, key: str, pod: Pod, request: PodRequest) -> None:
        tried = self._of(key, pod)
        early_s = tried.not_before_s - self._now_s()
        if early_s > 0:
            self.queue.add_later(key, early_s)
            return
        tried.not_before_s = self._now_s() + min(AGAIN_S[1], AGAIN_S[0] * 2**tried.submits)
        tried.submits = min(tried.submits + 1, 16)
        with span("adopt", parent=foreign.traceparent_of(pod), attributes={semconv.POD: key}):
            reply = await self._ask(key.partition("/")[0], encode(request))
        if not reply.accepted:
            text = "; ".join(refusal.text for refusal in reply.refusals)[:1024]
            self.queue.add_later(key, tried.not_before_s - self._now_s())
            await self._desk.pending(pod, _news(pod, REFUSED, text or "the scheduler refused it"))

    async def _ask(self, namespace: str, data: bytes) -> SubmitReply:
        reply = await self._bus.request(SUBMIT.subject(namespace=namespace), data, headers=inject(), timeout_s=SUBMIT_S)
        answer = decode_as(SubmitReply, reply)
        if isinstance(answer, Malformed):
            raise BusError(f"an answer that cannot be read: {answer}")
        return answer

    async def _say_why(self, key: str, pod: Pod) -> None:
        """What the scheduler said last of its request; asked for once, heard after that."""
        tried = self._of(key, pod)
        if tried.told is None:
            subject = EVENTS.subject(namespace=pod.metadata.namespace, name=request_name(pod))
            last = await self._bus.last(EVENTS.stream, subject)
            told = decode_as(RequestEvent, last) if last is not None else None
            tried.told = told if isinstance(told, RequestEvent) else None
        if tried.told is not None and tried.told.phase == "pending":
            await self._desk.pending(pod, _news(pod, UNSCHEDULABLE, tried.told.text))


def _is_of(request: RequestState, pod: Pod) -> bool:
    external = request.request.external
    return external is not None and external.uid == pod.metadata.uid


def _news(pod: Pod, reason: str, text: str) -> News:
    return News(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        reason=reason,
        note=text or "no reason was given",
    )
