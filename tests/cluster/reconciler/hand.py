"""The calls of a reconciler in the hands of a test, with a namespace of its own."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler import kube, podspec
from reconciler.calls import Kube
from reconciler.objects import Pod
from reconciler.plan import pod_of
from reconciler.podspec import PodRules
from tests.builders.ledger import cluster, node, request
from tests.builders.pods import binding_of
from tests.servers.control_plane import ControlPlane

RULES = PodRules(run_as_user=65_532)
EPOCH = "e0000000"


class Hand:
    """The reconciler's calls in the hands of a test, with a namespace of its own."""

    def __init__(self, plane: ControlPlane, namespace: str, transport: kube.ApiServer, node: str) -> None:
        self.plane, self.namespace, self.transport, self.node = plane, namespace, transport, node
        self.kube = Kube(transport)
        self._ledger = cluster()
        self._ledger.add(_node(node))

    def held(self, name: str, on: str = "") -> Any:
        """A placed request."""
        where = on or self.node
        if where not in self._ledger.state.nodes:
            self._ledger.add(_node(where))
        held = self._ledger.hold(request(name).share(10).gpu_memory(10).cpu(10).memory(16), where, 0)
        accepted = msgspec.structs.replace(held.accepted, namespace=self.namespace)
        return msgspec.structs.replace(held, accepted=accepted)

    async def create(self, held: Any, **spec: Any) -> Pod:
        body = msgspec.json.decode(podspec.manifest(held, epoch=EPOCH, rules=RULES))
        body["spec"].update(spec)
        return await self.kube.create(self.namespace, msgspec.json.encode(body))

    async def bind(self, held: Any, uid: str) -> None:
        await self.kube.bind(self.namespace, pod_of(held), binding_of(held, uid, epoch=EPOCH))

    async def get(self, held: Any) -> Pod | None:
        return await self.kube.get(self.namespace, pod_of(held))

    async def api(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        answer = await self.plane.api(method, path.format(ns=f"/api/v1/namespaces/{self.namespace}"), body, **more)
        assert answer.status < 300, answer.body
        return answer.body


def _node(name: str) -> Any:
    return node(name).gpus(2)
