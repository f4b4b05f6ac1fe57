"""How what runs in a pod gets onto the bus: as the worker of its function, or the trainer of its job. Pure.

In: the request of a replica or trainer, as the autoscaler makes it. Out: the service account that its pod runs under, a
token of it for the audience of the gatekeeper, and the settings that name both; nothing for any other request. The
token opens nothing at the API server, and whoever holds it is the worker of this one function, or a trainer of this
one job (`contracts.identities`).

    WORKER_FUNCTION=team-a/resize     gpubus-worker-resize     worker/team-a.resize
    JOB_NAME=bert, TRAINER_INDEX=3    gpubus-trainer-bert      trainer/team-a.bert

The namespace is that of the pod, whatever the request says. Service accounts are made by whoever owns the namespace:
one that is missing is told by Kubernetes when the pod is made.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.requests import PodRequest

FOLDER = "/var/run/gpubus"
TOKEN_S = 3600
AUDIENCE = "gpubus"
VOLUME = "gpubus-login"


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Who a pod is."""

    account: str
    """Service account in the pod's namespace."""
    identity: str


def login_of(asked: PodRequest, namespace: str) -> Login | None:
    """Of a request in that namespace; None = it is no replica and no trainer."""
    env = {variable.name: variable.value for variable in asked.pod.env}
    _, _, function = env.get("WORKER_FUNCTION", "").rpartition("/")
    if function:
        return Login(account=f"gpubus-worker-{function}", identity=f"worker/{namespace}.{function}")
    if (job := env.get("JOB_NAME", "")) and "TRAINER_INDEX" in env:
        return Login(account=f"gpubus-trainer-{job}", identity=f"trainer/{namespace}.{job}")
    return None


def env_of(login: Login, ca: str) -> list[dict[str, Any]]:
    """Settings of the client; `ca` names the config map with the certificate of the bus, empty = none."""
    settings = {"IDENTITY": login.identity, "TOKEN_FILE": f"{FOLDER}/token"}
    if ca:
        settings["TLS_CA_FILE"] = f"{FOLDER}/ca.crt"
    return [{"name": f"GPUBUS_NATS__{name}", "value": value} for name, value in settings.items()]


def volume(ca: str) -> dict[str, Any]:
    """The token, replaced on disk within its life, and the certificate."""
    token = {"serviceAccountToken": {"path": "token", "audience": AUDIENCE, "expirationSeconds": TOKEN_S}}
    certificate = {"configMap": {"name": ca, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    return {"name": VOLUME, "projected": {"sources": [token, certificate] if ca else [token]}}


def mount() -> dict[str, Any]:
    """Where it is."""
    return {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
