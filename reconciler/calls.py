"""The few calls that are made to Kubernetes, each with its path, its preconditions and its answer's type.

What flows in: names and ready-made bodies. What flows out: pods and nodes, or a typed error of `errors.py`.
Every write names what it relies on: a create its name, a binding and a deletion the life of the pod, a patch of
annotations that too; so that a decision made from an old view changes nothing. What was certainly not executed is
tried twice more in place, while the API server answers at all (`flow`); everything else is the caller's to decide.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Generic, Literal, TypeVar

import msgspec

from bus.runtime.retry import GaveUp, retrying
from reconciler import marks
from reconciler.errors import Expired, Failure, KubeError, NotFound, NotSent, OutcomeUnknown, classify
from reconciler.flow import Flow
from reconciler.lines import Lines, TooLong
from reconciler.objects import CONTAINER, ListOf, Node, Object, Pod, SharePod, Status, WatchLine
from reconciler.protocol import JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Answer, Transport

IN_FLIGHT = 16
"""Calls at once: more only wait longer (8 in flight give 279 create-and-bind pairs a second here, 32 give 332)."""
TRIES = 3
FIRST_PAUSE_S = 0.05
LIST_TIMES = 3
"""A list may take this many times the timeout of a call."""
SLACK_S = 10.0
"""A watch that says nothing this long after its own end is dead."""

T = TypeVar("T")


class Resource(msgspec.Struct, Generic[Object], frozen=True):
    """A kind of object: where it is, and how it is read."""

    path: str
    object: msgspec.json.Decoder[Object]
    list: msgspec.json.Decoder[ListOf[Object]]


PODS: Resource[Pod] = Resource("/api/v1/pods", msgspec.json.Decoder(Pod), msgspec.json.Decoder(ListOf[Pod]))
NODES: Resource[Node] = Resource("/api/v1/nodes", msgspec.json.Decoder(Node), msgspec.json.Decoder(ListOf[Node]))
SHAREPODS: Resource[SharePod] = Resource(
    "/apis/gpubus.dev/v1alpha1/sharepods", msgspec.json.Decoder(SharePod), msgspec.json.Decoder(ListOf[SharePod])
)


class Page(msgspec.Struct, Generic[Object], frozen=True, kw_only=True):
    """A page of a list; all pages of one list carry the same version."""

    items: tuple[Object, ...]
    version: int
    more: str
    """Where the next page begins; empty at the end."""


class WatchEvent(msgspec.Struct, Generic[Object], frozen=True, kw_only=True):
    """One event; a bookmark carries nothing but a version."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


class Kube:
    """What the reconciler asks of Kubernetes.

    Args:
        transport: what carries the calls.
        in_flight: calls at once; the rest wait here. Lists and watches do not count.
        timeout_s: for one call.
        rng: for the jitter of pauses.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        in_flight: int = IN_FLIGHT,
        timeout_s: float = 10.0,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self.flow = Flow(in_flight, rng=rng or random.Random())
        self._timeout_s = timeout_s

    # --- reading -----------------------------------------------------------------------------------------------------

    async def page(self, resource: Resource[Object], *, limit: int, after: str = "") -> Page[Object]:
        """One page of everything of that kind, one try. Raises Expired when `after` is too old."""
        query = {"limit": str(limit)} | ({"continue": after} if after else {})
        answer = _good(
            await self._transport.call("GET", resource.path, query=query, timeout_s=LIST_TIMES * self._timeout_s)
        )
        found = _decode(resource.list, answer.body)
        version = found.metadata.resource_version
        return Page(
            items=found.items or (), version=int(version) if version.isdecimal() else 0, more=found.metadata.continue_
        )

    async def watch(
        self, resource: Resource[Object], *, version: int, timeout_s: int, on_open: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[WatchEvent[Object], None]:
        """Events after `version`, until the server ends the watch after `timeout_s`.

        `on_open` is called when the server has accepted it and with each chunk; an idle watch is silent for a minute.

        Raises:
            Expired: the version is too old; list again.
        """
        query = {
            "watch": "1",
            "resourceVersion": str(version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }
        chunks = self._transport.stream(resource.path, query=query, silence_s=timeout_s + SLACK_S)
        lines = Lines()
        async with aclosing(chunks):
            async for chunk in chunks:
                on_open()
                for line in _fed(lines, chunk):
                    yield _event(resource, line)

    async def get(self, namespace: str, name: str) -> Pod | None:
        """The pod as it is now, read from the quorum; None when there is none."""
        try:
            answer = await self._read(_pod_path(namespace, name))
        except NotFound:
            return None
        return _decode(PODS.object, answer.body)

    async def read(self, path: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """Any object as it is now; None when there is none."""
        try:
            answer = await self._read(path)
        except NotFound:
            return None
        return _decode(decoder, answer.body)

    async def _read(self, path: str) -> Answer:
        async def once() -> Answer:
            return _good(await self._transport.call("GET", path, timeout_s=self._timeout_s))

        return await self._sent(f"GET {path}", once, on=(NotSent, OutcomeUnknown))

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(self, namespace: str, body: bytes) -> Pod:
        """Make a pod; Conflict "exists" when its name is taken. An unknown field in `body` is refused."""
        answer = await self._write("POST", f"/api/v1/namespaces/{namespace}/pods", body, {"fieldValidation": "Strict"})
        return _decode(PODS.object, answer.body)

    async def bind(self, namespace: str, name: str, body: bytes) -> None:
        """Give a pod its node. Success brings nothing back."""
        await self._write("POST", f"{_pod_path(namespace, name)}/binding", body)

    async def ungate(self, namespace: str, name: str, index: int) -> Pod:
        """Take our scheduling gate away, if it is still the one at `index`."""
        path = f"/spec/schedulingGates/{index}"
        patch = [{"op": "test", "path": path, "value": {"name": marks.GATE}}, {"op": "remove", "path": path}]
        return await self._patch(namespace, name, patch, JSON_PATCH)

    async def annotate(self, namespace: str, name: str, pod_uid: str, annotations: Mapping[str, str]) -> Pod:
        """Write annotations into this life of a pod; another life is refused as invalid (its uid cannot change)."""
        marks.checked(annotations)
        return await self._patch(
            namespace, name, {"metadata": {"uid": pod_uid, "annotations": annotations}}, MERGE_PATCH
        )

    async def resize(self, namespace: str, name: str, version: str, cpu_milli: int) -> Pod:
        """Change the CPU that the container asks for, in place, if the pod is still the one of `version`.

        The patch is a strategic one: a merge patch would replace the list of containers, and with it their limits.
        Annotations cannot be changed by it, and a pod's uid is no precondition of it, hence the version.
        """
        container = {"name": CONTAINER, "resources": {"requests": {"cpu": f"{cpu_milli}m"}}}
        patch = {"metadata": {"resourceVersion": version}, "spec": {"containers": [container]}}
        path = f"{_pod_path(namespace, name)}/resize"
        answer = await self._write("PATCH", path, msgspec.json.encode(patch), content_type=STRATEGIC_PATCH)
        return _decode(PODS.object, answer.body)

    async def delete(self, namespace: str, name: str, pod_uid: str, grace_s: int) -> None:
        """End this life of a pod, gracefully; that it is gone already is as good."""
        options = {"preconditions": {"uid": pod_uid}, "gracePeriodSeconds": grace_s}
        try:
            await self._write("DELETE", _pod_path(namespace, name), msgspec.json.encode(options))
        except NotFound:
            return

    async def write(self, method: str, path: str, body: bytes, *, content_type: str = JSON) -> None:
        """Any write whose answer nobody needs."""
        await self._write(method, path, body, content_type=content_type)

    async def _patch(self, namespace: str, name: str, patch: object, content_type: str) -> Pod:
        body = msgspec.json.encode(patch)
        answer = await self._write("PATCH", _pod_path(namespace, name), body, content_type=content_type)
        return _decode(PODS.object, answer.body)

    async def _write(
        self,
        method: str,
        path: str,
        body: bytes,
        query: Mapping[str, str] | None = None,
        *,
        content_type: str = JSON,
    ) -> Answer:
        async def once() -> Answer:
            return _good(
                await self._transport.call(
                    method, path, query=query, body=body, content_type=content_type, timeout_s=self._timeout_s
                )
            )

        return await self._sent(f"{method} {path}", once, on=(NotSent,))

    async def _sent(
        self, what: str, once: Callable[[], Awaitable[Answer]], *, on: tuple[type[KubeError], ...]
    ) -> Answer:
        """Within what the API server can take; whoever finds out whether it is back asks it once."""
        async with self.flow.leave(what):
            return await (once() if self.flow.troubled else _persist(what, once, on=on))


async def _persist(what: str, once: Callable[[], Awaitable[Answer]], *, on: tuple[type[KubeError], ...]) -> Answer:
    """Two more tries for what did not happen, or changes nothing; the last error as it is."""
    try:
        return await once()
    except on:
        await asyncio.sleep(FIRST_PAUSE_S)
    try:
        return await retrying(what, on=on, attempts=TRIES - 1, base_s=0.1, max_s=1.0)(once)
    except GaveUp as gave_up:
        raise gave_up.last from gave_up


def _good(answer: Answer) -> Answer:
    if not answer.ok:
        raise classify(answer)
    return answer


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """An answer that cannot be read is an answer that never came."""
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise OutcomeUnknown(f"an answer that cannot be read: {error}") from error


def _fed(lines: Lines, chunk: bytes) -> list[bytes]:
    try:
        return lines.feed(chunk)
    except TooLong as error:
        raise OutcomeUnknown(str(error)) from error


_WATCH_LINE = msgspec.json.Decoder(WatchLine)
_STATUS = msgspec.json.Decoder(Status)


def _event(resource: Resource[Object], line: bytes) -> WatchEvent[Object]:
    """The type comes first: an ERROR carries a Status, which has no name."""
    found = _decode(_WATCH_LINE, line)
    if found.type == "ERROR":
        raise _watch_error(bytes(found.object))
    return WatchEvent(kind=found.type, object=_decode(resource.object, bytes(found.object)))


def _watch_error(body: bytes) -> KubeError:
    status = _decode(_STATUS, body)
    error = classify(Failure(status=status.code, content_type=JSON, body=body))
    return error if isinstance(error, Expired) else OutcomeUnknown(f"the watch ended: {status.message or error}")
