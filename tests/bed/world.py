"""An installation in a bed as its users know it: what they ask for, what runs, and whether it adds up.

In: a bed with gpubus in it. Out: requests published as a tenant does, with nothing but a Kubernetes token; the pods and
the ledger's view of the cards, to be compared with each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

from nats.errors import Error as NatsError

from tests.bed import images
from tests.bed.bed import Bed
from tests.bed.installing import NAMESPACE, tenant
from tests.bed.watching import containers
from tests.servers.jaegerd import Jaeger
from tests.servers.line import Stranger
from tests.servers.process import ServerProcess, wait_until

__all__ = ["MERGE", "SHOW", "TEAM", "World", "adds_up", "audit", "deployment", "lives", "request"]

MERGE = "application/merge-patch+json"
TEAM = "team"
SHOW = "import os, signal; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True); signal.pause()"


def request(name: str, share_milli: int = 500) -> dict[str, Any]:
    """A pod that prints which card it may see, and stays."""
    pod = {"image": images.GPUBUS, "command": ["python3", "-Sc", SHOW], "cpu_milli": 20, "memory_mib": 64, "grace_s": 1}
    return {"type": "pod.request.v1", "name": name, "pod": pod, "gpu": {"share_milli": share_milli}}


class World:
    """The bed, what is watched of it, and who asks in it."""

    def __init__(self, bed: Bed, jaeger: Jaeger) -> None:
        self.bed, self.jaeger = bed, jaeger
        self.installed_at = time.monotonic()
        self.started: list[ServerProcess] = []
        """Processes of the bed that a test has started; ended before it."""

    async def publish(self, *names: str, **headers: str) -> dict[str, dict[str, Any]]:
        """Publish as the team does, and hear until all run; the `placed` event of each."""
        async with tenant(self.bed, TEAM) as team:
            return await heard(team, names, **headers)

    async def cards(self) -> dict[str, dict[str, Any]]:
        """The ledger's view of each card, as an operator asks for it."""
        async with tenant(self.bed, NAMESPACE, "gpubus-operator") as operator:
            view = await operator.state("cards")
        return {card["card"]["uuid"]: card for card in view["cards"]}

    async def sold(self) -> int:
        """Thousandths of a card, over all cards."""
        return sum(int(card.get("used_milli", 0)) for card in (await self.cards()).values())

    async def by_room(self) -> list[str]:
        """The nodes, the fullest first."""
        sold = Counter(dict.fromkeys(self.bed.nodes, 0))
        for card in (await self.cards()).values():
            sold[card["node"]] += int(card.get("used_milli", 0))
        return sorted(sold, key=lambda node: (-sold[node], node))

    async def pods(self) -> dict[str, dict[str, Any]]:
        """The team's pods by the request that they were made for, else by their own names."""
        found = {}
        for pod in await self.bed.pods(TEAM):
            labels = pod["metadata"].get("labels", {})
            found[labels.get("gpubus.dev/request", pod["metadata"]["name"])] = pod
        return found

    async def lives(self) -> dict[str, tuple[str, ...]]:
        """Each pod's containers: another life has another id."""
        return {name: tuple(containers(pod)) for name, pod in (await self.pods()).items() if lives(pod)}

    async def run(self, names: Iterable[str], *, timeout_s: float = 60.0) -> None:
        """Wait until the pod of each request runs."""

        async def all_run() -> bool:
            pods = await self.pods()
            return all(name in pods and lives(pods[name]) for name in names)

        await wait_until(all_run, what=f"each runs: {', '.join(names)}", timeout_s=timeout_s, every_s=0.25)

    async def rolled(self, name: str, replicas: int) -> None:
        """Wait until a Deployment of the team is what its spec says, with no pod of another template."""
        path = f"/apis/apps/v1/namespaces/{TEAM}/deployments/{name}"

        async def done() -> bool:
            found = (await self.bed.api("GET", path)).body
            status = found["status"]
            counts = [status.get(field, 0) for field in ("replicas", "updatedReplicas", "readyReplicas")]
            return counts == [replicas] * 3 and status.get("observedGeneration") == found["metadata"]["generation"]

        await wait_until(done, what=f"{replicas} pods of {name}, all new and Ready", timeout_s=90, every_s=0.25)

    @contextlib.asynccontextmanager
    async def cordoned(self, node: str) -> AsyncIterator[None]:
        """It takes no new pods meanwhile."""
        path = f"/api/v1/nodes/{node}"
        await self.bed.api("PATCH", path, {"spec": {"unschedulable": True}}, content_type=MERGE)

        async def known() -> bool:
            async with tenant(self.bed, NAMESPACE, "gpubus-operator") as operator:
                nodes = (await operator.state("nodes"))["nodes"]
            return any(found["node"] == node and not found["ready"] for found in nodes)

        try:
            await wait_until(known, what=f"the ledger knows that {node} is cordoned", timeout_s=30, every_s=0.2)
            yield
        finally:
            await self.bed.api("PATCH", path, {"spec": {"unschedulable": None}}, content_type=MERGE)

    async def kill(self, part: str) -> None:
        """One pod of a part, without warning."""
        victim = random.choice(await self.bed.pods(NAMESPACE, **{"app.kubernetes.io/name": f"gpubus-{part}"}))
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{victim['metadata']['name']}"
        await self.bed.api("DELETE", path, query={"gracePeriodSeconds": 0})


def lives(pod: dict[str, Any]) -> bool:
    """It runs, and nobody has deleted it."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


async def heard(team: Stranger, names: tuple[str, ...], **headers: str) -> dict[str, dict[str, Any]]:
    """Publish requests of these names; live copies of their events until every one runs."""
    placed: dict[str, dict[str, Any]] = {}
    running: set[str] = set()
    listening = await team.client.subscribe(f"gpubus.v1.events.{TEAM}.>")
    await team.client.flush()
    await asyncio.gather(*(team.publish(TEAM, request(name), **headers) for name in names))
    while running < set(names):
        message = await listening.next_msg(timeout=60)
        event = json.loads(message.data)
        name = message.subject.rpartition(".")[2]
        if event["phase"] == "placed":
            placed[name] = event
        if event["phase"] == "running":
            running.add(name)
    await listening.unsubscribe()
    return {name: placed[name] for name in names}


def deployment(name: str, replicas: int) -> dict[str, Any]:
    """Anybody's Deployment, whose pods ask for a quarter of a card and a quarter of a core at most."""
    cpu = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"cpu": "250m", "memory": "64Mi"}}
    container = {"name": "main", "image": images.GPUBUS, "command": ["python3", "-Sc", SHOW], "resources": cpu}
    marked = {"labels": {"app": name}, "annotations": {"gpubus.dev/share-milli": "250"}}
    spec = {"schedulerName": "gpubus", "terminationGracePeriodSeconds": 1, "containers": [container]}
    template = {"metadata": marked, "spec": spec}
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def sold_by(pods: Iterable[dict[str, Any]]) -> Counter[str]:
    """Thousandths of each card, as the annotations of those that live say."""
    sold: Counter[str] = Counter()
    for pod in pods:
        shares = pod["metadata"]["annotations"].get("gpubus.dev/shares", "") if lives(pod) else ""
        for piece in filter(None, shares.split(",")):
            card, _, amounts = piece.partition("=")
            sold[card] += int(amounts.partition(":")[0])
    return sold


async def adds_up(world: World) -> None:
    """The pods' own annotations oversell no card, and the ledger says the same of each, as soon as all is settled."""
    sold: Counter[str] = Counter()

    async def same() -> bool:
        nonlocal sold
        sold = sold_by((await world.pods()).values())
        assert max(sold.values(), default=0) <= 1000, sold
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            ledger = {uuid: card.get("used_milli", 0) for uuid, card in (await world.cards()).items()}
            return {uuid: used for uuid, used in ledger.items() if used} == dict(sold)
        return False

    await wait_until(same, what="a ledger that says what the pods say", timeout_s=60, every_s=0.5)


async def audit(bed: Bed) -> str:
    """What it prints; AssertionError when it exits with anything but 0."""
    name = f"audit-{secrets.token_hex(2)}"
    scheduler = (await bed.pods(NAMESPACE, **{"app.kubernetes.io/name": "gpubus-scheduler"}))[0]["spec"]
    own = scheduler["containers"][0]
    env = [
        {**entry, "value": "operator"} if entry["name"] == "GPUBUS_NATS__IDENTITY" else entry
        for entry in own["env"]
        if entry["name"].startswith("GPUBUS_NATS__")
    ]
    container = {**own, "name": "audit", "args": ["-m", "gpubus", "audit"], "env": env}
    for unwanted in ("ports", "livenessProbe", "readinessProbe", "startupProbe"):
        container.pop(unwanted, None)
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": "gpubus-operator",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # else the Service gpubus-nats puts GPUBUS_NATS_PORT… into the environment
        "securityContext": scheduler["securityContext"],
        "containers": [container],
        "volumes": scheduler["volumes"],
    }
    await bed.api("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": {"name": name}, "spec": spec})
    path, phase = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", ""

    async def over() -> bool:
        nonlocal phase
        phase = (await bed.api("GET", path)).body["status"]["phase"]
        return phase in ("Succeeded", "Failed")

    await wait_until(over, what="the audit ends", timeout_s=90, every_s=0.25)
    said = await bed.log(NAMESPACE, name)
    await bed.api("DELETE", path)
    assert phase == "Succeeded", said
    return said
