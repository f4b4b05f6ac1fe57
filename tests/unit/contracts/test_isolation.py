"""What each mode sets in a pod: names and values as programs read them, one mode a pod, nothing over 100 percent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.decisions import CardSlice
from contracts.inventory import IsolationMode
from contracts.isolation import (
    DECLARED,
    NOTES,
    Assigned,
    CannotIsolate,
    HostPaths,
    PodChanges,
    mode_of,
    needs_node,
    percent,
    pod_changes,
)
from contracts.shares import NodeEnforcement, PodEnforcement, state_of
from contracts.units import CardUuid, NodeName, RequestUid

PATHS = HostPaths(mps="/run/mps", hami="/opt/vgpu", gemini="/opt/kubeshare")


def assigned(*sizes: tuple[int, int], port: int = 0) -> Assigned:
    slices = tuple(
        CardSlice(card=CardUuid(f"GPU-{i}"), share_milli=milli, memory_mib=mib) for i, (milli, mib) in enumerate(sizes)
    )
    return Assigned(pod="team/train-abcde", slices=slices, port=port)


def entries(changes: PodChanges) -> dict[str, str]:
    return {entry.name: entry.value or entry.field for entry in changes.env}


def test_mps_limits_threads_and_pinned_memory_by_ordinal() -> None:
    """Two cards: one percentage, a memory limit for each; only the two that change with the share are marks."""
    changes = pod_changes("mps", assigned((333, 4096), (333, 4096)), PATHS)

    assert entries(changes) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps/pipe",
        "CUDA_MPS_LOG_DIRECTORY": "/run/mps/log",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M,1=4096M",
    }
    assert set(changes.marks) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}
    assert [(m.host_path, m.path, m.read_only) for m in changes.mounts] == [
        ("/run/mps/pipe", "/run/mps/pipe", False),
        ("/run/mps/log", "/run/mps/log", False),
        ("/run/mps/shm", "/dev/shm", False),
    ]


def test_hami_core_limits_each_card_and_keeps_its_accounts_where_a_restart_clears_them() -> None:
    """Claims S045 (by ordinal of what the pod was given) and S122: no file of a dead container is met again."""
    changes = pod_changes("hami-core", assigned((500, 8000), (500, 8000)), PATHS)

    assert entries(changes) == {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "8000m",
        "CUDA_DEVICE_SM_LIMIT_0": "50",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "8000m",
        "CUDA_DEVICE_SM_LIMIT_1": "50",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/gpubus-vgpu.cache",
        "LD_PRELOAD": "/opt/vgpu/libvgpu.so",
    }
    cache = entries(changes)["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    assert not any(cache.startswith(f"{mount.path}/") for mount in changes.mounts)
    assert [(m.host_path, m.path, m.read_only) for m in changes.mounts] == [("/opt/vgpu", "/opt/vgpu", True)]


def test_gemini_names_the_pod_its_manager_and_the_hook() -> None:
    """As the launcher and the hook read them; the port travels in a mark, because it is known after the pod is made."""
    changes = pod_changes("gemini", assigned((250, 1000), port=50_051), PATHS)

    assert entries(changes) == {
        "LD_PRELOAD": "/opt/kubeshare/library/libgemhook.so.1",
        "POD_MANAGER_IP": "status.hostIP",
        "POD_MANAGER_PORT": "50051",
        "POD_NAME": "team/train-abcde",
    }
    assert changes.marks == {"POD_MANAGER_PORT": "50051"}
    assert pod_changes("gemini", assigned((250, 1000)), PATHS).marks == {"POD_MANAGER_PORT": ""}


def test_gemini_serves_one_card_a_pod() -> None:
    """A hook has one manager, a manager one scheduler: two cards would be held by one of them only."""
    with pytest.raises(CannotIsolate, match=r"gemini serves one card a pod, team/train-abcde has 2"):
        pod_changes("gemini", assigned((1, 1), (1, 1)))


@pytest.mark.parametrize("mode", ["none", "mig"])
def test_a_whole_device_needs_nothing(mode: IsolationMode) -> None:
    """What the container sees is in its list of cards already; nothing must be prepared."""
    assert pod_changes(mode, assigned((1000, 1000))) == PodChanges()
    assert not needs_node(mode)


@pytest.mark.parametrize(
    ("modes", "mode"),
    [([], "none"), (["mps"], "mps"), (["mps", "mps"], "mps"), (["none"], "none"), (["mig", "mig"], "mig")],
)
def test_a_pod_has_one_mode(modes: list[IsolationMode], mode: str) -> None:
    """Claims S116 and S112: that of all its cards; two instances of one card are of one mode."""
    assert mode_of(modes, "p") == mode


def test_modes_are_not_mixed() -> None:
    """Claim S116: two cards of different modes are refused by name."""
    with pytest.raises(CannotIsolate, match="the cards of p are shared by mps and none; a pod takes one mode"):
        mode_of(["none", "mps"], "p")


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30))
def test_the_percentages_of_a_card_never_exceed_it(shares: list[int]) -> None:
    """Shares of at least a percent that fit a card have percentages that fit it: rounding is against the tenant."""
    fits = [share for share in shares if share >= 10]
    while sum(fits) > 1000:
        fits.pop()

    assert sum(map(percent, fits)) <= 100
    assert all(1 <= percent(share) <= 100 for share in shares)


def test_every_mode_says_what_it_does_and_does_not() -> None:
    """No mode without a declaration and a caveat."""
    modes = {"none", "mps", "hami-core", "gemini", "mig"}

    assert modes == set(DECLARED) == set(NOTES)
    assert all(NOTES.values())


def test_a_pod_is_as_far_as_its_worst_part() -> None:
    """Two cards: both must be applied; a CPU limit is not waited for."""

    def report(*states: tuple[str, str, str]) -> NodeEnforcement:
        pods = tuple(
            PodEnforcement(uid=RequestUid("a"), what=what, state=state, reason=reason)  # type: ignore[arg-type]
            for what, state, reason in states
        )
        return NodeEnforcement(node=NodeName("n1"), incarnation="i", pods=pods)

    assert state_of(None, "a") == (None, "")
    assert state_of(report(("cpu", "failed", "x")), "a") == (None, "")
    assert state_of(report(("g1", "applied", ""), ("g2", "applied", ""), ("cpu", "failed", "x")), "a") == (
        "applied",
        "",
    )
    assert state_of(report(("g1", "waiting", "soon"), ("g2", "applied", "")), "a") == ("waiting", "soon")
    assert state_of(report(("g1", "waiting", "soon"), ("g2", "refused", "no")), "a") == ("refused", "no")
    assert state_of(report(("g1", "applied", "")), "b") == (None, "")
