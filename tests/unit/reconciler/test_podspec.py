"""The pod and the binding that a decision becomes: nothing but what was asked for, nothing that is refused later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus.ledger.state import RequestState
from contracts.requests import EnvVar, GpuAsk, PodRequest, PodTemplate, Toleration
from contracts.units import pod_name
from reconciler import marks, podspec
from reconciler.podspec import NotRenderable, PodRules
from tests.builders.ledger import cluster, node
from tests.builders.pods import binding_of

GOLDEN = Path(__file__).parents[2] / "golden" / "pods"
EPOCH = "e0000000"


def placed(request: PodRequest, *cards: int) -> RequestState:
    return cluster(node("gpu-1").gpus(2)).hold(request, "gpu-1", *cards)


FULL = PodRequest(
    name="train",
    pod=PodTemplate(
        image="registry.example/train:1",
        command=("python",),
        args=("-m", "train"),
        env=(EnvVar(name="EPOCHS", value="3"), EnvVar(name="EMPTY")),
        cpu_milli=1500,
        memory_mib=4096,
        labels={"team": "vision"},
        annotations={"example.com/owner": "ana"},
        working_dir="/data",
        restart_policy="OnFailure",
        grace_s=10,
    ),
    gpu=GpuAsk(cards=2, share_milli=250, memory_mib=8000),
    node_selector={"zone": "b"},
    tolerations=(
        Toleration(key="gpu", value="yes", effect="NoSchedule"),
        Toleration(key="spot", operator="Exists"),
    ),
)
BARE = PodRequest(name="cpu-only", pod=PodTemplate(image="busybox", cpu_milli=0, memory_mib=0), gpu=GpuAsk(cards=0))


def manifest(request: PodRequest, *cards: int, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(podspec.manifest(placed(request, *cards), epoch=EPOCH, **more))
    return found


def for_bus(**env: str) -> PodRequest:
    pod = PodTemplate(image="x:1", env=tuple(EnvVar(name=name, value=value) for name, value in env.items()))
    return PodRequest(name="f-0", pod=pod, gpu=GpuAsk())


LOGINS: list[tuple[dict[str, str], str, str]] = [
    ({"WORKER_FUNCTION": "elsewhere/resize"}, "gpubus-worker-resize", "worker/{}.resize"),
    ({"JOB_NAME": "bert", "TRAINER_INDEX": "3"}, "gpubus-trainer-bert", "trainer/{}.bert"),
]


@pytest.mark.parametrize(("env", "account", "identity"), LOGINS)
def test_a_replica_and_a_trainer_get_a_token_for_the_bus(env: dict[str, str], account: str, identity: str) -> None:
    """Of their own namespace, whatever the request says; the container's own variables do not win over ours."""
    held = placed(for_bus(**env, GREETING="hello"), 0)
    rules = PodRules(bus_login=True, bus_ca="gpubus-ca")
    spec = msgspec.json.decode(podspec.manifest(held, epoch=EPOCH, rules=rules))["spec"]
    container = spec["containers"][0]

    assert spec["serviceAccountName"] == account
    assert spec["automountServiceAccountToken"] is False
    assert {e["name"]: e.get("value") for e in container["env"]} | env == {
        e["name"]: e.get("value") for e in container["env"]
    }
    assert {e["name"]: e["value"] for e in container["env"] if e["name"].startswith("GPUBUS_")} == {
        "GPUBUS_NATS__IDENTITY": identity.format(held.accepted.namespace),
        "GPUBUS_NATS__TOKEN_FILE": "/var/run/gpubus/token",
        "GPUBUS_NATS__TLS_CA_FILE": "/var/run/gpubus/ca.crt",
    }
    sources = next(v for v in spec["volumes"] if v["name"] == "gpubus-login")["projected"]["sources"]
    assert sources[0]["serviceAccountToken"]["audience"] == "gpubus"
    assert {"name": "gpubus-login", "mountPath": "/var/run/gpubus", "readOnly": True} in container["volumeMounts"]


@pytest.mark.parametrize("env", [{}, {"JOB_NAME": "bert"}, {"WORKER_FUNCTION": ""}])
def test_nobody_else_gets_one(env: dict[str, str]) -> None:
    """Nor anybody, where the installation does not say so."""
    for rules, request_ in ((PodRules(bus_login=True), for_bus(**env)), (PodRules(), for_bus(**LOGINS[0][0]))):
        spec = manifest(request_, 0, rules=rules)["spec"]
        assert "serviceAccountName" not in spec
        assert "volumes" not in spec


@pytest.mark.parametrize(("name", "request_", "cards"), [("full", FULL, (0, 1)), ("bare", BARE, ())])
def test_manifest_is_as_reviewed(name: str, request_: PodRequest, cards: tuple[int, ...]) -> None:
    """The pod and its binding, byte for byte (formatted): a change shows in the review of the golden file."""
    held = placed(request_, *cards)
    written = b"\n".join(
        msgspec.json.format(part, indent=2)
        for part in (podspec.manifest(held, epoch=EPOCH), binding_of(held, "0000-uid", epoch=EPOCH))
    )

    assert written.decode() + "\n" == (GOLDEN / f"{name}.json").read_text(encoding="utf-8")


def test_the_pod_is_restricted() -> None:
    """Everything that the pod security standard `restricted` asks for, and no token."""
    spec = manifest(FULL, 0, 1)["spec"]
    container = spec["containers"][0]

    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert (spec["automountServiceAccountToken"], spec["schedulerName"]) == (False, "gpubus")
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes", "nodeName", "serviceAccountName"} & spec.keys()


def test_cards_come_last_in_the_environment() -> None:
    """The last of equal names wins over the image and over envFrom; both variables read the binding's annotation."""
    env = manifest(FULL, 0, 1)["spec"]["containers"][0]["env"]

    assert [e["name"] for e in env] == ["EPOCHS", "EMPTY", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
    assert {e["valueFrom"]["fieldRef"]["fieldPath"] for e in env[2:]} == {"metadata.annotations['gpubus.dev/cards']"}


def test_the_assignment_is_not_in_the_pod_but_in_its_binding() -> None:
    """Node, cards and shares are written in one breath; before it a pod carries no cards at all."""
    held = placed(FULL, 0, 1)
    annotations = msgspec.json.decode(podspec.manifest(held, epoch=EPOCH))["metadata"]["annotations"]
    bound = msgspec.json.decode(binding_of(held, "u", epoch=EPOCH))

    assert not {marks.CARDS, marks.SHARES, marks.NONCE} & annotations.keys()
    assert bound["metadata"]["uid"] == "u"
    assert bound["target"] == {"kind": "Node", "name": "gpu-1"}
    assert bound["metadata"]["annotations"][marks.CARDS] == "gpu-1-gpu0,gpu-1-gpu1"
    assert bound["metadata"]["annotations"][marks.SHARES] == "gpu-1-gpu0=250:8000,gpu-1-gpu1=250:8000"


def test_a_request_without_cards_sees_none() -> None:
    """An empty annotation hides the cards that the image would ask for."""
    bound = msgspec.json.decode(binding_of(placed(BARE), "u", epoch=EPOCH))

    assert bound["metadata"]["annotations"][marks.CARDS] == ""


def test_grace_is_never_zero() -> None:
    """Zero in the spec would make every deletion a forced one, and a forced one leaves the process running."""
    asked = msgspec.structs.replace(BARE, pod=PodTemplate(image="i", grace_s=0))

    assert manifest(asked)["spec"]["terminationGracePeriodSeconds"] == 1


def test_the_pods_name_is_the_same_for_ever_and_new_for_a_new_life() -> None:
    """Deterministic, at most 56 characters, a legal name, and another one for another uid of the same request."""
    name = pod_name("a" * 50, "e0000000-1-0")

    assert name == pod_name("a" * 50, "e0000000-1-0") == "a" * 50 + "-5bsdf"
    assert len(name) == 56
    assert name != pod_name("a" * 50, "e0000000-2-0")


def test_an_installation_may_choose_the_user() -> None:
    """Images that say root then run as that user instead of not at all."""
    container = manifest(FULL, 0, 1, rules=PodRules(run_as_user=65532))["spec"]["containers"][0]

    assert container["securityContext"]["runAsUser"] == 65532
    assert container["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    "name", ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY",
             "LD_PRELOAD", "LD_LIBRARY_PATH", "GPUBUS_X"]
)  # fmt: skip
def test_variables_of_the_platform_are_refused(name: str) -> None:
    """Admission refuses them; should it ever not, no pod is made."""
    asked = PodRequest(name="x", pod=PodTemplate(image="i", env=(EnvVar(name=name, value="all"),)))

    with pytest.raises(NotRenderable, match=name):
        manifest(asked, 0)


@pytest.mark.parametrize("key", ["gpubus.dev/cards", "gpubus.dev/managed", "x.gpubus.dev/y"])
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_keys_in_our_domain_are_refused(kind: str, key: str) -> None:
    """A forged assignment never gets as far as the API server."""
    asked = PodRequest(name="x", pod=PodTemplate(image="i", **{kind: {key: "1"}}))

    with pytest.raises(NotRenderable, match="domain of ours"):
        manifest(asked, 0)


def test_a_simulated_run_time_may_be_asked_for() -> None:
    """Real kubelets ignore it."""
    asked = PodRequest(name="x", pod=PodTemplate(image="i", annotations={"gpubus.dev/simulated-run-s": "3"}))

    assert manifest(asked, 0)["metadata"]["annotations"]["gpubus.dev/simulated-run-s"] == "3"


def test_too_many_annotations_are_refused_before_the_pod_is_made() -> None:
    """The binding would be accepted and the pod unmanageable ever after."""
    notes = {f"example.com/n{i}": "x" * 1000 for i in range(32)}
    env = tuple(EnvVar(name=f"V{i}", value="y" * 8000) for i in range(28))
    asked = PodRequest(name="x", pod=PodTemplate(image="i", annotations=notes, env=env))

    with pytest.raises(NotRenderable, match="limit"):
        manifest(asked, 0)
