"""The chart against a real API server: every object valid, every right needed, every pod but the monitor restricted."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.servers.binaries import program
from tests.servers.chart import PATHS, rendered
from tests.servers.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CONTROLLERS = ("Deployment", "StatefulSet", "DaemonSet", "Job")
LEFT_OUT = ("restartPolicy", "priorityClassName")
"""Of a template, when a pod is made of it by hand."""


def pod_of(document: dict[str, Any], namespace: str) -> dict[str, Any] | None:
    """A pod as the object's controller would make it."""
    template = document.get("spec", {}).get("template") if document["kind"] in CONTROLLERS else None
    if template is None:
        return None
    spec = {
        name: value for name, value in template["spec"].items() if name not in ("restartPolicy", "priorityClassName")
    }
    for claim in document["spec"].get("volumeClaimTemplates", ()):
        spec["volumes"] = [*spec["volumes"], {"name": claim["metadata"]["name"], "emptyDir": {}}]
    metadata = {"generateName": "x-", "namespace": namespace, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(control_plane: ControlPlane) -> tuple[str, list[dict[str, Any]]]:
    """The chart applied, strictly, into a namespace of its own; admission policies are judged, not put in force."""
    namespace = await control_plane.namespace("chart")
    documents = rendered(namespace, "--set", "tracing.jaeger=true")
    for document in documents:
        query = {"fieldValidation": "Strict"}
        if "{ns}" not in PATHS[document["kind"]] and not document["kind"].startswith("ClusterRole"):
            query["dryRun"] = "All"
        answer = await control_plane.api("POST", PATHS[document["kind"]].format(ns=namespace), document, query=query)
        assert answer.status in (201, 409), f"{document['kind']} {document['metadata']['name']}: {answer.body}"
    return namespace, documents


async def test_all_pods_but_the_monitor_pass_restricted(
    control_plane: ControlPlane, installed: tuple[str, list[dict[str, Any]]]
) -> None:
    """Pod Security `restricted`, enforced by the real admission; the monitor is refused for its three reasons."""
    strict = await control_plane.namespace("strict")
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await control_plane.api(
        "PATCH", f"/api/v1/namespaces/{strict}", labels, content_type="application/merge-patch+json"
    )
    refused, seen = {}, 0
    for document in installed[1]:
        pod = pod_of(document, strict)
        if pod is None:
            continue
        seen += 1
        answer = await control_plane.api("POST", f"/api/v1/namespaces/{strict}/pods", pod, query={"dryRun": "All"})
        if answer.status != 201:
            refused[document["metadata"]["name"]] = answer.body["message"]
    assert seen >= 6
    assert set(refused) == {"gpubus-monitor"}, refused
    for reason in ("hostPID=true", "hostPath", "runAsNonRoot"):
        assert reason in refused["gpubus-monitor"]
    assert "capabilities" not in refused["gpubus-monitor"]
    assert "privileged" not in refused["gpubus-monitor"]


def rights(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of a role's rules."""
    return {
        (group, resource, verb)
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def rights_of(plane: ControlPlane, namespace: str, account: str) -> set[tuple[str, str, str]]:
    """What the API server says that an account may do in the namespace."""
    token = await plane.service_account_token(namespace, account)
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = await plane.api("POST", path, {**body, "spec": {"namespace": namespace}}, token=token)
    return rights({"rules": answer.body["status"]["resourceRules"]})


async def test_each_account_can_do_what_its_role_says_and_nothing_else(
    control_plane: ControlPlane, installed: tuple[str, list[dict[str, Any]]]
) -> None:
    """Asked from the API server as each account (SelfSubjectRulesReview)."""
    namespace, documents = installed
    roles = {d["metadata"]["name"]: rights(d) for d in documents if d["kind"] in ("ClusterRole", "Role")}
    accounts = [d["metadata"]["name"] for d in documents if d["kind"] == "ServiceAccount"]
    assert len(accounts) == 9
    await control_plane.api("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "nobody"}})
    everybodys = await rights_of(control_plane, namespace, "nobody")
    for account in accounts:
        wanted = everybodys | roles.get(account, set())
        for _ in range(50):
            found = await rights_of(control_plane, namespace, account)
            if found == wanted:
                break
            await asyncio.sleep(0.1)  # the authorizer sees a new binding a moment after it is stored
        assert found == wanted, account


def test_the_rendered_manifest_is_fresh() -> None:
    """`deploy/gpubus.yaml` is what the chart renders today; run deploy/render.sh when this fails."""
    environment = {**os.environ, "HELM": str(program("helm"))}
    done = subprocess.run([DEPLOY / "render.sh", "-"], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == (DEPLOY / "gpubus.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--set", "nats.replicas=2"), "nats/replicas"),
        (("--set", "scheduler.replica=3"), "replica"),
        (("--set", "monitor.provider=magic"), "monitor/provider"),
        (("--set", "nats.urls={http://x}"), "nats/urls"),
    ],
)
def test_nonsense_in_the_values_is_refused_by_name(flags: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rendered("gpubus-system", *flags)


@pytest.mark.parametrize(
    ("version", "flags", "says"),
    [
        ("1.33.4", (), "1.33.4"),
        ("1.34.0", (), "policies.enabled: admission policies need Kubernetes 1.36"),
        ("1.34.0", ("--set", "policies.enabled=false"), ""),
        ("1.36.0", (), ""),
        ("1.37.2-gke.100", (), ""),
    ],
)
def test_what_a_version_of_kubernetes_cannot_do_is_said_before_anything_is_installed(
    version: str, flags: tuple[str, ...], says: str
) -> None:
    flags = ("--kube-version", version, *flags)
    if not says:
        assert any(document["kind"] == "Deployment" for document in rendered("gpubus-system", *flags))
        return
    with pytest.raises(ValueError, match=says):
        rendered("gpubus-system", *flags)


def test_an_upgrade_to_another_image_makes_another_set_up_job() -> None:
    """A job's pods cannot be changed in place: under the same name every upgrade would fail."""
    names = {
        next(d["metadata"]["name"] for d in rendered("gpubus-system", *flags) if d["kind"] == "Job")
        for flags in ((), ("--set", "image.tag=v2"), ("--set", "image.pullPolicy=Always"), ("--set", "nats.replicas=1"))
    }
    assert len(names) == 3


def test_with_a_nats_of_ones_own_nothing_of_ours_is_installed() -> None:
    documents = rendered("gpubus-system", "--set", "nats.urls={nats://nats.example:4222}")
    names = {document["metadata"]["name"] for document in documents}
    assert not names & {"gpubus-nats", "gpubus-setup", "gpubus-gatekeeper"}
    assert "gpubus-scheduler" in names
