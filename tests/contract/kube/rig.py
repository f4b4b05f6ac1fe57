"""What the suite of the Kubernetes API runs against: the embedded server and the real one behind the same few methods.

Talks raw HTTP with a client of its own, so that neither server's author nor the reconciler's adapter is
trusted.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self
from urllib.parse import urlencode

import aiohttp

from tests.servers.http import Answer, call
from tests.servers.process import wait_until

if TYPE_CHECKING:
    from types import TracebackType

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

EVENTS_API = "/apis/events.k8s.io/v1"
LEASES_API = "/apis/coordination.k8s.io/v1"


class Backend(Protocol):
    """What differs between the two."""

    name: str
    url: str
    token: str
    tls: ssl.SSLContext | None
    node: str
    """A node whose kubelet lives: 8 cpus, 8 nvidia.com/gpu."""
    bookmark_watch_s: int
    """How long a watch must be to see a bookmark."""

    async def restart(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    async def start_node(self, name: str) -> None: ...
    async def kill_node(self, name: str) -> None: ...
    async def stop_node(self, name: str) -> None: ...


class Event(NamedTuple):
    kind: str
    object: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))

    @property
    def version(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])


class Watch:
    """An open watch: `next()` gives the next event, None at its end."""

    def __init__(self, rig: Rig, path: str, query: dict[str, Any]) -> None:
        self._rig, self._path, self._query = rig, path, query
        self._session: aiohttp.ClientSession | None = None
        self._answer: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> Self:
        backend = self._rig.backend
        headers = {"Authorization": f"Bearer {backend.token}"}
        # 2 MiB: an object may be one line of a MiB
        self._session = aiohttp.ClientSession(read_bufsize=2**21, timeout=aiohttp.ClientTimeout(total=None))
        url = f"{backend.url}{self._path}?{urlencode({'watch': 1, 'timeoutSeconds': 30, **self._query})}"
        self._answer = await self._session.get(url, headers=headers, ssl=backend.tls or True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._answer is not None:
            self._answer.close()
        if self._session is not None:
            await self._session.close()

    @property
    def status(self) -> int:
        assert self._answer is not None
        return self._answer.status

    async def next(self, timeout_s: float = 15.0) -> Event | None:
        """The next event; None at EOF or when the connection breaks; AssertionError when nothing comes."""
        assert self._answer is not None
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._answer.content.readline()
        except TimeoutError as error:
            raise AssertionError(f"no event within {timeout_s:g} s") from error
        except aiohttp.ClientError:
            return None
        if not line.endswith(b"\n"):
            return None
        raw = json.loads(line)
        return Event(raw["type"], raw["object"])

    async def until(self, kind: str, name: str, timeout_s: float = 15.0) -> Event:
        """The next event of this kind about this object; others are skipped."""
        async with asyncio.timeout(timeout_s):
            while (event := await self.next(timeout_s)) is not None:
                if (event.kind, event.name) == (kind, name):
                    return event
        raise AssertionError(f"the watch ended without {kind} of {name}")

    async def rest(self) -> list[Event]:
        """Everything up to the end."""
        found = []
        while (event := await self.next(90.0)) is not None:
            found.append(event)
        return found


class Rig:
    """One test's view of a server: a namespace of its own, and short words for what tests do."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self.backend, self.namespace = backend, namespace
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.events = f"{EVENTS_API}/namespaces/{namespace}/events"
        self.leases = f"{LEASES_API}/namespaces/{namespace}/leases"

    async def call(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        """One call; keywords of `tests.servers.http.call`."""
        more.setdefault("token", self.backend.token)
        return await call(method, self.backend.url + path, body=body, tls=self.backend.tls, **more)

    async def create_pod(self, name: str, **parts: Any) -> dict[str, Any]:
        """A pod, created: spec fields as keywords, `labels`, `annotations` and `finalizers` go to metadata."""
        answer = await self.call("POST", self.pods, pod(name, **parts))
        assert answer.status == 201, answer.body
        created: dict[str, Any] = answer.body
        return created

    async def get_pod(self, name: str) -> dict[str, Any]:
        answer = await self.call("GET", f"{self.pods}/{name}")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.body
        return found

    async def bind(self, name: str, node: str | None = None, **metadata: Any) -> Answer:
        body = binding(name, self.backend.node if node is None else node, **metadata)
        return await self.call("POST", f"{self.pods}/{name}/binding", body)

    async def patch_pod(self, name: str, body: object, kind: str = MERGE, sub: str = "") -> Answer:
        return await self.call("PATCH", f"{self.pods}/{name}{sub}", body, content_type=kind)

    async def delete_pod(self, name: str, **options: Any) -> Answer:
        return await self.call("DELETE", f"{self.pods}/{name}", options or None)

    async def version(self) -> int:
        """The version of a list taken now."""
        answer = await self.call("GET", self.pods)
        return int(answer.body["metadata"]["resourceVersion"])

    def watch(self, path: str = "", **query: Any) -> Watch:
        return Watch(self, path or self.pods, query)

    async def phase(self, name: str) -> str:
        return str((await self.get_pod(name))["status"]["phase"])

    async def wait_phase(self, name: str, wanted: str, timeout_s: float = 20.0) -> dict[str, Any]:
        async def reached() -> bool:
            return await self.phase(name) == wanted

        await wait_until(reached, what=f"pod {name} is {wanted}", timeout_s=timeout_s)
        return await self.get_pod(name)

    async def wait_gone(self, name: str, timeout_s: float = 20.0) -> None:
        async def gone() -> bool:
            return (await self.call("GET", f"{self.pods}/{name}")).status == 404

        await wait_until(gone, what=f"pod {name} is gone", timeout_s=timeout_s)

    async def node(self, name: str) -> dict[str, Any]:
        answer = await self.call("GET", f"/api/v1/nodes/{name}")
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.body
        return found


def pod(name: str, **parts: Any) -> dict[str, Any]:
    """A small pod: 10m of cpu, restartPolicy Never, no grace time."""
    meta = {key: parts.pop(key) for key in ("labels", "annotations", "finalizers") if key in parts}
    container = {"name": "c", "image": "busybox", "resources": {"limits": parts.pop("limits", {"cpu": "10m"})}}
    if command := parts.pop("command", None):
        container["command"] = command
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container], **parts}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    target = {"kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


def unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(3)}"


def refusal(answer: Answer) -> tuple[int, str, str]:
    """Code, reason and details.kind of a Status."""
    body = answer.body
    assert body["kind"] == "Status", body
    assert body["status"] == "Failure"
    assert body["code"] == answer.status
    return answer.status, body.get("reason", ""), (body.get("details") or {}).get("kind", "")


def causes(answer: Answer) -> dict[str, str]:
    """Field to reason of a 422."""
    return {cause["field"]: cause["reason"] for cause in answer.body["details"].get("causes", [])}


def condition(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    found = [c for c in obj["status"].get("conditions") or [] if c["type"] == kind]
    return found[0] if found else {}
