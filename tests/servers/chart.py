"""Parts of the chart on a real API server: rendered by helm, applied as administrator, waited for until they act."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.servers.binaries import program
from tests.servers.control_plane import ControlPlane
from tests.servers.process import wait_until

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{ns}/configmaps",
    "Service": "/api/v1/namespaces/{ns}/services",
    "Deployment": "/apis/apps/v1/namespaces/{ns}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{ns}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{ns}/daemonsets",
    "Job": "/apis/batch/v1/namespaces/{ns}/jobs",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
    "Role": f"{RBAC}/namespaces/{{ns}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{ns}}/rolebindings",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingAdmissionPolicy": f"{ADMISSION}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"{ADMISSION}/mutatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
POLICIES = tuple(kind for kind in PATHS if "Admission" in kind)
SELECTED = {"gpubus-test": "policies"}
"""Label of the namespaces in which a test has put the policies in force."""


def rendered(namespace: str, *flags: str) -> list[dict[str, Any]]:
    """All objects of the chart. Raises ValueError with what helm said."""
    command: list[str | Path] = [program("helm"), "template", "gpubus", CHART]
    command += ["-n", namespace, "--kube-version", "1.37.0", "--include-crds", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


async def install(
    plane: ControlPlane, namespace: str, *kinds: str, only: str = "", variant: str = "", flags: Sequence[str] = ()
) -> None:
    """The objects of these kinds whose name begins with `only`, read strictly.

    `variant`: another set of policies beside the first, in force where the label has this value.
    """
    selector = [f"policies.namespaceSelector.matchLabels.{key}={variant or value}" for key, value in SELECTED.items()]
    for document in rendered(namespace, "--set-string", ",".join(selector), *flags):
        kind, name = document["kind"], document["metadata"]["name"]
        if kind not in kinds or not name.startswith(only):
            continue
        if variant:
            document["metadata"]["name"] = f"{name}-{variant}"
            if "policyName" in document["spec"]:
                document["spec"]["policyName"] += f"-{variant}"
        path = PATHS[kind].format(ns=namespace)
        answer = await plane.api("POST", path, document, query={"fieldValidation": "Strict"})
        assert answer.status == 201, f"{kind} {name}: {answer.body}"


async def tenants_namespace(plane: ControlPlane, *, variant: str = "") -> str:
    """A namespace in which the policies hold, and where the user `alice` may do everything with pods."""
    namespace = await plane.namespace("tenant")
    merge = "application/merge-patch+json"
    labels = {"metadata": {"labels": dict.fromkeys(SELECTED, variant) if variant else SELECTED}}
    await plane.api("PATCH", f"/api/v1/namespaces/{namespace}", labels, content_type=merge)
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    resources = ["pods", *(f"pods/{part}" for part in ("status", "binding", "ephemeralcontainers", "resize"))]
    rules = [
        {"apiGroups": [""], "resources": [*resources, "bindings"], "verbs": ["*"]},
        {"apiGroups": ["gpubus.dev"], "resources": ["*"], "verbs": ["*"]},
    ]
    await plane.api("POST", f"{path}/roles", {"metadata": {"name": "tenant"}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    body = {
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "tenant"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
    }
    await plane.api("POST", f"{path}/rolebindings", body)
    return namespace


async def in_force(plane: ControlPlane, namespace: str, *, token: str = "") -> None:
    """Wait until the policies act, which takes the API server about a second: seen by dry runs."""
    pod = {
        "metadata": {"name": "probe", "annotations": {"gpubus.dev/cards": "x"}},
        "spec": {"schedulerName": "gpubus", "containers": [{"name": "c", "image": "x"}]},
    }

    who = token or plane.tenant_token
    told: list[object] = []

    async def acts() -> bool:
        path, query = f"/api/v1/namespaces/{namespace}/pods", {"dryRun": "All"}
        refused = await plane.api("POST", path, pod, query=query, token=who)
        plain = {**pod, "metadata": {"name": "probe"}}
        made = await plane.api("POST", path, plain, query=query, token=who)
        env = made.body["spec"]["containers"][0].get("env", []) if made.status == 201 else []
        binding = {"metadata": {"name": "x", "annotations": {"gpubus.dev/x": "y"}}, "target": {"name": "n"}}
        bound = await plane.api("POST", f"{path}/x/binding", binding, token=who)
        told[:] = [refused.body.get("message"), made.body.get("message"), env, bound.body.get("message")]
        return refused.status == 403 and len(env) > 0 and bound.status == 403

    try:
        await wait_until(acts, what="the admission policies act", timeout_s=20.0, every_s=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}; told: {told}") from None
