"""Paths of cgroups, as kubelets and runtimes write them: to the pod and the container."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.cgroups.paths import Home, home_of

UID = "8f9b5a2c-1d3e-4f60-9a7b-0c1d2e3f4a5b"
UNIT = UID.replace("-", "_")
STATIC = "4b52d75cab61380f07c0c5a69fb371d4"
ID = "7f" * 32
INNER = "3c" * 32

POD_IN = {"burstable": "/kubepods/burstable", "besteffort": "/kubepods/besteffort", "guaranteed": "/kubepods"}
SLICE_OF = {
    "burstable": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod",
    "besteffort": "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod",
    "guaranteed": "/kubepods.slice/kubepods-pod",
}
KIND = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable"
PREFIXES = {"containerd": "cri-containerd-", "cri-o": "crio-", "docker": "docker-"}


def home(qos: str, runtime: str = "", *, uid: str = UID, container: str = ID) -> Home:
    return Home(pod_uid=uid, container=container, runtime=runtime, qos=qos)  # type: ignore[arg-type] # a table's words


@pytest.mark.parametrize("qos", POD_IN)
@pytest.mark.parametrize("runtime", PREFIXES)
def test_every_driver_class_and_runtime(qos: str, runtime: str) -> None:
    """Claim: both drivers, three classes, three runtimes; a plain id under cgroupfs does not tell its runtime."""
    prefix = PREFIXES[runtime]

    assert home_of(f"{SLICE_OF[qos]}{UNIT}.slice/{prefix}{ID}.scope") == home(qos, runtime)
    assert home_of(f"{POD_IN[qos]}/pod{UID}/{prefix}{ID}") == home(qos, runtime)
    assert home_of(f"{POD_IN[qos]}/pod{UID}/{ID}") == home(qos)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/kubepods/burstable/pod{UID}", Home(pod_uid=UID, qos="burstable")),
        (f"/kubepods/pod{STATIC}/{ID}", home("guaranteed", uid=STATIC)),
        (f"{SLICE_OF['burstable']}{STATIC}.slice/crio-{ID}.scope", home("burstable", "cri-o", uid=STATIC)),
        (f"{SLICE_OF['burstable']}{UNIT}.slice/crio-{ID}.scope/container", home("burstable", "cri-o")),
        (f"{SLICE_OF['burstable']}{UNIT}.slice/crio-conmon-{ID}.scope", Home(pod_uid=UID, qos="burstable")),
        (
            f"{SLICE_OF['besteffort']}{UNIT}.slice/cri-containerd-{ID}.scope/init.scope",
            home("besteffort", "containerd"),
        ),
        (f"/kubepods/burstable/pod{UID}/{ID}/docker/{INNER}", home("burstable")),
        (f"/kubepods/pod{UID}/{ID}/kubelet/kubepods/pod{STATIC}/{INNER}", home("guaranteed")),
        (f"/docker/{INNER}/kubelet/kubepods/burstable/pod{UID}/{ID}", home("burstable")),
        (
            f"{KIND}/kubelet-kubepods-burstable-pod{UNIT}.slice/cri-containerd-{ID}.scope",
            home("burstable", "containerd"),
        ),
        (f"/../../burstable/pod{UID}/{ID}", home("burstable")),
        (f"/site/kubepods/besteffort/pod{UID}/{ID}", home("besteffort")),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{UNIT}.slice:cri-containerd:{ID}",
            home("burstable", "containerd"),
        ),
        (f"/kubepods/burstable/pod{UID}/{ID} (deleted)", home("burstable")),
        (f"/system.slice/docker-{ID}.scope", Home(container=ID, runtime="docker")),
        (f"/docker/{ID}", Home(container=ID)),
        (f"/machine.slice/libpod-{ID}.scope", Home(container=ID, runtime="podman")),
        ("/", None),
        ("", None),
        ("/system.slice/sshd.service", None),
        ("/user.slice/user-1000.slice/session-2.scope", None),
        ("/kubepods/burstable", None),
        ("/kubepods.slice/kubepods-burstable.slice", None),
        (f"/kubepods/burstable/pod{UID[:-1]}/{ID[:-1]}", None),
        (f"/kubepods/burstable/pod{UID}x/nothing", None),
    ],
)
def test_paths_seen_in_the_field(path: str, expected: Home | None) -> None:
    """Claim: static pods, CRI-O's keeper, cgroups inside containers, kind, a pod in a pod (the outer one counts)."""
    assert home_of(path) == expected


PARTS = [
    "kubepods",
    "burstable",
    f"pod{UID}",
    f"kubepods-pod{UNIT}.slice",
    ID,
    f"crio-{ID}.scope",
    "..",
    "",
    ":",
    "é\n",
]
WORDS = st.sampled_from(PARTS)


@settings(deadline=None)  # a busy machine is no failure
@given(st.one_of(st.text(), st.lists(WORDS).map("/".join)))
def test_any_path_has_a_home_or_none(path: str) -> None:
    """Claim: nothing raises, and what is found was in the path, in the form that Kubernetes uses."""
    found = home_of(path)

    if found is not None:
        assert found.pod_uid or found.container
        assert found.container in path
        assert found.pod_uid in path.replace("_", "-")
        assert "_" not in found.pod_uid
