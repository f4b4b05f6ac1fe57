"""gpubus in a bed: what the chart is told there, and when it is up.

In: a bed. Out: a helm release in `gpubus-system`, its pods Ready, and a client for tenants that brings nothing but a
Kubernetes token.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats

from tests.bed import images
from tests.bed.bed import REPOSITORY, Bed
from tests.servers.line import Stranger
from tests.servers.process import wait_until

__all__ = ["NAMESPACE", "VALUES", "install", "not_ready", "tenant", "token", "url"]

NAMESPACE = "gpubus-system"
CHART = REPOSITORY / "deploy" / "chart"
VALUES: dict[str, Any] = {
    "image": {
        "repository": images.GPUBUS.rpartition(":")[0],
        "tag": images.GPUBUS.rpartition(":")[2],
        "pullPolicy": "Never",
    },
    "nats": {"replicas": 1, "image": images.NATS, "storageClass": "emptyDir"},
    "scheduler": {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
    "gatekeeper": {"replicas": 1},
    "reconciler": {"replicas": 1, "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}}},
    "monitor": {"provider": "simulated", "env": {"GPUBUS_MONITOR__SIMULATED__CARDS": "8"}},
}
"""Local images, made-up cards, one server without a volume; small requests: a bed's nodes are this machine twice."""


async def install(bed: Bed, values: dict[str, Any] = VALUES, *, wait_s: int = 0) -> None:
    """Label the nodes, `helm upgrade --install`; returns before anything is Ready, unless `wait_s` says how long."""
    for node in bed.nodes:
        await bed.api(
            "PATCH",
            f"/api/v1/nodes/{node}",
            {"metadata": {"labels": {"gpubus.dev/cards": "true"}}},
            content_type="application/merge-patch+json",
        )
    file = bed.folder / "values.json"
    file.write_text(json.dumps(values), encoding="utf-8")
    wait = ("--wait", "--timeout", f"{wait_s}s") if wait_s else ()
    await bed.helm("upgrade", "--install", "gpubus", CHART, "-n", NAMESPACE, "--create-namespace", "-f", file, *wait)


async def not_ready(bed: Bed, namespace: str = NAMESPACE) -> dict[str, str]:
    """Pods that should be Ready and are not, with why."""
    found = {}
    for pod in await bed.pods(namespace):
        conditions = {c["type"]: c for c in pod["status"].get("conditions", ())}
        if conditions.get("Ready", {}).get("status") == "True" or pod["status"].get("phase") == "Succeeded":
            continue
        states = [json.dumps(c["state"]) for c in pod["status"].get("containerStatuses", ())]
        found[pod["metadata"]["name"]] = " ".join([pod["status"].get("phase", "?"), *states])
    return found


async def wanted(bed: Bed) -> int:
    """How many pods of ours there should be, the set-up job's left out."""
    count = 0
    for kind in ("deployments", "statefulsets"):
        answer = await bed.api("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}")
        count += sum(item["spec"]["replicas"] for item in answer.body["items"])
    answer = await bed.api("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")
    return count + len(answer.body["items"]) * len(bed.nodes)


async def wait_ready(bed: Bed, *, timeout_s: float = 120.0) -> float:
    """Until every pod of ours is there and Ready; the seconds that it took."""
    began = time.monotonic()

    async def ready() -> bool:
        if await not_ready(bed):
            return False
        there = [pod for pod in await bed.pods(NAMESPACE) if pod["status"]["phase"] == "Running"]
        return len(there) == await wanted(bed)

    try:
        await wait_until(ready, what="every pod of gpubus Ready", timeout_s=timeout_s, every_s=0.25)
    except AssertionError as error:
        for name, why in (await not_ready(bed)).items():
            error.add_note(f"--- {name}: {why}\n{await bed.log(NAMESPACE, name, tailLines=12)}")
        raise
    return time.monotonic() - began


async def token(bed: Bed, namespace: str, account: str = "default", *, life_s: int = 3600) -> str:
    """A token for the bus, as a projected volume would hold it."""
    spec = {"expirationSeconds": life_s, "audiences": ["gpubus"]}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = await bed.api("POST", path, {"spec": spec})
    if answer.status != 201:
        raise RuntimeError(f"token of {namespace}/{account}: {answer.status} {answer.body}")
    return str(answer.body["status"]["token"])


async def authority(bed: Bed) -> str:
    """The certificate of the bus, as published to the cluster."""
    answer = await bed.api("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpubus-ca")
    return str(answer.body["data"]["ca.crt"])


async def url(bed: Bed) -> str:
    """The address of the first server that runs."""
    servers = await bed.pods(NAMESPACE, **{"app.kubernetes.io/name": "gpubus-nats"})
    server = next(
        found for found in servers if found["status"].get("podIP") and not found["metadata"].get("deletionTimestamp")
    )
    return f"tls://{server['status']['podIP']}:4222"


@asynccontextmanager
async def tenant(bed: Bed, namespace: str, account: str = "default") -> AsyncIterator[Stranger]:
    """A bare NATS client with the token of a service account, over TLS that it verifies."""
    tls = ssl.create_default_context(cadata=await authority(bed))
    who = f"tenant_{namespace}" if namespace != NAMESPACE else account.removeprefix("gpubus-")
    client = await nats.connect(
        await url(bed),
        token=await token(bed, namespace, account),
        tls=tls,
        tls_hostname=f"gpubus-nats.{NAMESPACE}.svc",
        tls_handshake_first=True,
        inbox_prefix=f"_INBOX_{who}".encode(),
        error_cb=_expected,
    )
    try:
        yield Stranger(client)
    finally:
        await client.close()


async def _expected(_: Exception) -> None:
    """Servers are killed here."""


async def namespace(bed: Bed, name: str) -> str:
    """A new namespace with its default account."""
    await bed.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    async def account() -> bool:
        return (await bed.api("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")).status == 200

    await wait_until(account, what=f"the default account of {name}")
    return name
