"""The door: hostile or malformed messages get an answer that names field, value and bound, or are dead letters."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.requests import PodRequest, Resize, Withdraw
from reconciler.podspec import RESERVED_PREFIXES
from scheduler.admission import DEVICE_VARIABLES, MAX_BYTES, Admitted, Refused, Unreadable, admit

GOOD = {"type": "pod.request.v1", "name": "train-1", "pod": {"image": "busybox"}, "gpu": {"share_milli": 500}}


def message(**changes: object) -> bytes:
    """The good request with top-level fields replaced; None removes one."""
    merged = {**GOOD, **changes}
    return json.dumps({k: v for k, v in merged.items() if v is not None}).encode()


def pod(**fields: object) -> bytes:
    """The good request with fields added to its pod template."""
    return message(pod={"image": "busybox", **fields})


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (message(), PodRequest),
        (b'{"type":"pod.withdraw.v1","name":"train-1"}', Withdraw),
        (b'{"type":"pod.resize.v1","name":"train-1","share_milli":200,"memory_mib":10}', Resize),
    ],
)
def test_good_messages_are_admitted(data: bytes, kind: type) -> None:
    """Each message of the requests subject in its smallest form."""
    verdict = admit(data)

    assert isinstance(verdict, Admitted)
    assert isinstance(verdict.message, kind)


HOSTILE = [
    ("privileged container", pod(privileged=True), "pod.privileged", "is no field"),
    ("host path", pod(hostPath="/"), "pod.hostPath", "is no field"),
    ("host network", pod(hostNetwork=True), "pod.hostNetwork", "is no field"),
    ("service account", pod(serviceAccountName="admin"), "pod.serviceAccountName", "is no field"),
    ("owner references", message(ownerReferences=[]), "ownerReferences", "is no field"),
    ("node name", pod(nodeName="n1"), "pod.nodeName", "is no field"),
    ("scheduler name", pod(schedulerName="x"), "pod.schedulerName", "is no field"),
    ("namespace in the payload", message(namespace="other"), "namespace", "is no field"),
    ("misspelt share", message(gpu={"share_mili": 5}), "gpu.share_mili", "did you mean gpu.share_milli?"),
    ("misspelt memory", message(gpu={"memory": 5}), "gpu.memory", "did you mean gpu.memory_mib?"),
    ("visible devices", pod(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]), "pod.env[0].name", "NVIDIA_"),
    ("cuda devices", pod(env=[{"name": "CUDA_VISIBLE_DEVICES"}]), "pod.env[0].name", "CUDA_VISIBLE_DEVICES"),
    ("lower-case devices", pod(env=[{"name": "nvidia_visible_devices"}]), "pod.env[0].name", "platform"),
    ("mps limit", pod(env=[{"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}]), "pod.env[0].name", "CUDA_MPS_"),
    ("device order", pod(env=[{"name": "CUDA_DEVICE_ORDER"}]), "pod.env[0].name", "CUDA_DEVICE_"),
    ("memory limit", pod(env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT_0"}]), "pod.env[0].name", "CUDA_DEVICE_"),
    ("manager", pod(env=[{"name": "POD_MANAGER_PORT"}]), "pod.env[0].name", "POD_MANAGER_"),
    ("preload", pod(env=[{"name": "A"}, {"name": "LD_PRELOAD"}]), "pod.env[1].name", "LD_"),
    ("our annotation", pod(annotations={"gpubus.dev/cards": "0"}), "pod.annotations", "reserved"),
    ("kubernetes label", pod(labels={"app.kubernetes.io/name": "x"}), "pod.labels", "reserved"),
    ("tolerates everything", message(tolerations=[{"operator": "Exists"}]), "tolerations[0].key", "every taint"),
    ("nul in an argument", pod(args=["a\0b"]), "pod.args", "NUL"),
    ("share zero", message(gpu={"share_milli": 0}), "gpu.share_milli", ">= 1"),
    ("share above a card", message(gpu={"share_milli": 1001}), "gpu.share_milli", "<= 1000"),
    ("share negative", message(gpu={"share_milli": -5}), "gpu.share_milli", ">= 1"),
    ("share as a fraction", message(gpu={"share_milli": 0.5}), "gpu.share_milli", "got `float`"),
    ("share as text", message(gpu={"share_milli": "500"}), "gpu.share_milli", "got `str`"),
    ("share empty", message(gpu={"share_milli": ""}), "gpu.share_milli", "got `str`"),
    ("memory with a unit", message(gpu={"memory_mib": "8000Mi"}), "gpu.memory_mib", "got `str`"),
    ("memory beyond any card", message(gpu={"memory_mib": 10**9}), "gpu.memory_mib", "<= "),
    ("too many cards", message(gpu={"cards": 65}), "gpu.cards", "<= 64"),
    ("memory without a card", message(gpu={"cards": 0, "memory_mib": 5}), "gpu.cards", "asks for no card"),
    ("priority beyond bounds", message(priority=10**9), "priority", "<= 1000000"),
    ("image with a space", pod(image="a b"), "pod.image", "regex"),
    ("no image", message(pod={}), "pod", "missing required field `image`"),
    ("gang of nobody", message(gang={"name": "g", "size": 0}), "gang.size", ">= 1"),
    (
        "gang that no commit can place",
        message(gpu={"cards": 8}, gang={"name": "g", "size": 314}),
        "gang.size",
        "at most 313 members of 8 cards",
    ),
    ("unknown type", message(type="pod.request.v9"), "type", "Invalid value"),
    ("no type", message(type=None), "type", "missing required field `type`"),
    ("unknown policy", message(policy="best"), "policy", "packing"),
]


@pytest.mark.parametrize(("data", "field", "words"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_what_is_outside_the_template_is_refused_with_its_field(data: bytes, field: str, words: str) -> None:
    """A refusal names the field and says what would be right."""
    verdict = admit(data, policies=frozenset({"packing"}))

    assert isinstance(verdict, Refused)
    assert verdict.name == "train-1"
    assert field in [r.field for r in verdict.refusals]
    assert words in " ".join(r.text for r in verdict.refusals)


DEAD = [
    ("empty", b""),
    ("not JSON", b"hello"),
    ("not UTF-8", b'{"name": "\xff"}'),
    ("an array", b"[]"),
    ("null", b"null"),
    ("a number", b"1e309"),
    ("not-a-number", b'{"type":"pod.request.v1","name":"a","gpu":{"share_milli":NaN}}'),
    ("cut off", message()[:-1]),
    ("deeply nested", b"[" * 100_000),
    ("name with a dot", message(name="a.b")),
    ("name with a wildcard", message(name="a*")),
    ("name in capitals", message(name="Train")),
    ("name too long", message(name="a" * 51)),
    ("name of bytes", message(name="a\u0000")),
    ("name missing", message(name=None)),
    ("name a number", message(name=5)),
    ("too large", message(cause="x" * MAX_BYTES)),
]


@pytest.mark.parametrize("data", [d[1] for d in DEAD], ids=[d[0] for d in DEAD])
def test_what_cannot_be_addressed_is_a_dead_letter_with_a_reason(data: bytes) -> None:
    """Without a valid name there is nobody to refuse to."""
    verdict = admit(data)

    assert isinstance(verdict, Unreadable)
    assert verdict.reason


def test_a_malformed_frame_is_a_dead_letter_whatever_it_holds() -> None:
    """A disguised control message is never decoded as a request."""
    assert admit(message(), malformed="status") == Unreadable(reason="malformed status in the NATS frame")


def test_all_faults_of_one_request_are_told_at_once() -> None:
    """A user repairs a file once, not once per fault."""
    verdict = admit(pod(privileged=True, env=[{"name": "LD_PRELOAD"}], labels={"k8s.io/x": "y"}))

    assert isinstance(verdict, Refused)
    assert [r.field for r in verdict.refusals] == ["pod.privileged", "pod.env[0].name", "pod.labels"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "name", "gpu", "pod", "priority", "gang", "x"]), json_values))
def test_no_json_object_raises(value: dict[str, object]) -> None:
    """Whatever is sent, there is a verdict."""
    assert isinstance(admit(json.dumps(value).encode()), Admitted | Refused | Unreadable)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    """Whatever is sent, there is a verdict."""
    assert isinstance(admit(data), Admitted | Refused | Unreadable)


def test_no_variable_is_taken_here_that_no_pod_can_be_made_with() -> None:
    """The prefixes that the reconciler reserves are refused at admission, not when the pod is made."""
    assert set(RESERVED_PREFIXES) <= set(DEVICE_VARIABLES)
