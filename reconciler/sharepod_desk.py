"""Keeps SharePods: makes and ends their pods, and writes what there is of them.

In: changes of SharePods and of pods. Out: calls to the API server. The decision is `sharepod`. Where the CRD is not
installed the watch of it only fails now and then; nothing else notices.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable

import msgspec

from reconciler import errors
from reconciler.calls import Kube
from reconciler.events import News, micro_time
from reconciler.events_desk import EventsDesk
from reconciler.informer import Informer
from reconciler.objects import Pod, SharePod
from reconciler.protocol import MERGE_PATCH
from reconciler.queue import WorkQueue
from reconciler.sharepod import API_VERSION, KIND, EndPod, MakePod, owned, steps
from reconciler.sharepod_status import status
from reconciler.store import Change

_log = logging.getLogger(__name__)


class SharePodDesk:
    """Works off SharePods by key.

    Args:
        pods: what Kubernetes has.
        kube: the calls.
        desk: tells people.
        may_act: asked before each call.
        wall_ms: wall clock, for the times that people read.
        rng: for pauses.
    """

    def __init__(
        self,
        *,
        pods: Informer[Pod],
        kube: Kube,
        desk: EventsDesk,
        may_act: Callable[[], bool],
        wall_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._pods, self._kube, self._desk = pods, kube, desk
        self._may_act, self._wall_ms = may_act, wall_ms
        self.queue = WorkQueue(rng=rng)
        self.shared: Informer[SharePod] | None = None
        """Whose changes come in; set by who makes it, which needs `changed`."""
        self._owned: dict[str, set[str]] = {}
        """Pod keys by the uid of the SharePod that made them."""

    def changed(self, changes: Iterable[Change[SharePod]]) -> None:
        """A SharePod came, changed or went; what was its own is taken along by Kubernetes."""
        for change in changes:
            self.queue.add(change.key)

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        """A pod of a SharePod came, changed or went."""
        for change in changes:
            owner = owned(change.object)
            if owner is None:
                continue
            held = self._owned.setdefault(owner.uid, set())
            held.discard(change.key) if change.kind == "gone" else held.add(change.key)
            if not held:
                del self._owned[owner.uid]
            self.queue.add(f"{change.object.metadata.namespace}/{owner.name}")

    def everything(self) -> None:
        """Look at all of them."""
        for key in self.shared.store.objects if self.shared else ():
            self.queue.add(key)

    async def work(self, key: str) -> None:
        """One SharePod. Never raises."""
        shared = self.shared.store.get(key) if self.shared else None
        if shared is None or not self._may_act():
            return
        try:
            await self._keep(key, shared)
        except errors.KubeError as error:
            pause_s = self.queue.failed(key)
            why = {"reason": f"{type(error).__name__}: {error}", "pause_s": round(pause_s, 3)}
            _log.info("%s is looked at again", key, extra=why)
        except Exception:  # noqa: BLE001 - one SharePod that we cannot handle must not end the work for all others
            _log.exception("%s cannot be kept", key)
            self.queue.failed(key)

    async def _keep(self, key: str, shared: SharePod) -> None:
        refused = ""
        todo = steps(shared, self._of(shared))
        if any(isinstance(step, MakePod) for step in todo) and self._ended(shared):
            self.queue.failed(key)  # its pods end: the next ones are looked at after a pause that grows
        for step in todo:
            if not self._may_act():
                return
            refused = await self._do(shared, step)
            if refused:
                break
        if refused:
            self.queue.failed(key, at_least_s=1.0)
            await self._desk.tell(_news(shared, refused))
        elif not todo:
            self.queue.worked(key)
        await self._tell(shared, refused)

    async def _do(self, shared: SharePod, step: MakePod | EndPod) -> str:
        """Why it was refused; empty when it is done."""
        namespace = shared.metadata.namespace
        if isinstance(step, EndPod):
            await self._kube.delete(namespace, step.name, step.uid, step.grace_s)
            pod = self._pods.store.get(f"{namespace}/{step.name}")
            if pod is not None and pod.metadata.uid == step.uid:
                metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="requested")
                self._pods.own(msgspec.structs.replace(pod, metadata=metadata))
            return ""
        try:
            self._pods.own(await self._kube.create(namespace, msgspec.json.encode(step.body)))
        except errors.Conflict as error:
            if error.subtype != "exists":
                raise
            return await self._whose(shared, step)
        except errors.Refused as error:
            return f"{error.code}: {error}"[:1024]
        return ""

    async def _whose(self, shared: SharePod, step: MakePod) -> str:
        """A pod of that name is there: one of ours that was not seen yet, or somebody else's."""
        pod = await self._kube.get(shared.metadata.namespace, step.name)
        if pod is None:
            return ""
        owner = owned(pod)
        if owner is None or owner.uid != shared.metadata.uid:
            return f"name-taken: there is another pod {step.name}"
        self._pods.own(pod)
        return ""

    async def _tell(self, shared: SharePod, refused: str) -> None:
        found = status(shared, self._of(shared), refused=refused, now=micro_time(self._wall_ms())[:19] + "Z")
        if found == shared.status or shared.metadata.deletion_timestamp is not None:
            return
        where = shared.metadata
        path = f"/apis/{API_VERSION}/namespaces/{where.namespace}/sharepods/{where.name}/status"
        patch = {"metadata": {"uid": where.uid}, "status": found}
        try:
            await self._kube.write("PATCH", path, msgspec.json.encode(patch), content_type=MERGE_PATCH)
        except errors.NotFound:
            return

    def _of(self, shared: SharePod) -> list[Pod]:
        keys = sorted(self._owned.get(shared.metadata.uid, ()))
        return [pod for key in keys if (pod := self._pods.store.get(key)) is not None]

    def _ended(self, shared: SharePod) -> bool:
        return any(pod.status.phase in ("Succeeded", "Failed") for pod in self._of(shared))


def _news(shared: SharePod, refused: str) -> News:
    return News(
        namespace=shared.metadata.namespace,
        pod=shared.metadata.name,
        pod_uid=shared.metadata.uid,
        reason="FailedCreate",
        note=refused,
        action="Creating",
        of=KIND,
        api_version=API_VERSION,
    )
