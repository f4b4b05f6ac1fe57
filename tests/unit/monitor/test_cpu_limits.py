"""CPU limits on trees of cgroups as both versions have them: the order of writes, restarts, and giving back.

The trees are folders with the kernel's files. What the kernel itself refuses is tested on the real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.shares import PodEnforcement
from contracts.units import RequestUid
from monitor.cgroups.tree import CgroupTree
from monitor.enforce.cfs import MIN_QUOTA_US, Cfs, Write, milli, quota_us, writes
from monitor.enforce.cpu import CpuLimits
from monitor.enforce.wanted import PodCpu

POD = "11111111-2222-3333-4444-555555555555"
CONTAINER, NEXT, PAUSE = "c" * 64, "d" * 64, "e" * 64
Version = Literal["v1", "v2"]


# --- what is written, in which order ---------------------------------------------------------------------------------


def us(quota: int | None, period: int = 100_000) -> Cfs:
    return Cfs(quota_us=quota, period_us=period)


@pytest.mark.parametrize(
    ("pod", "container", "want", "expected"),
    [
        # shrinking, growing and taking away where the pod has no limit: the container only
        (us(None), us(None), 500, [("container", 50_000)]),
        (us(None), us(50_000), 1500, [("container", 150_000)]),
        (us(None), us(50_000), None, [("container", None)]),
        # it stands already
        (us(None), us(50_000), 500, []),
        (us(100_000), us(None), None, []),
        # the pod has a limit: it is raised before the container, and never lowered
        (us(100_000), us(100_000), 2000, [("pod", 200_000), ("container", 200_000)]),
        (us(200_000), us(200_000), 1000, [("container", 100_000)]),
        (us(100_000), us(100_000), None, [("container", None)]),
        (us(100_000), us(20_000), 1000, [("container", 100_000)]),
        # others in the pod keep what they have: 0.5 of 1.5 cores were this one's
        (us(150_000), us(50_000), 2000, [("pod", 300_000), ("container", 200_000)]),
        # periods that differ
        (us(50_000, 50_000), us(100_000), 2000, [("pod", 100_000), ("container", 200_000)]),
        # the kernel takes no less than a millisecond
        (us(None), us(None), 5, [("container", MIN_QUOTA_US)]),
    ],
)
def test_the_order_of_writes(pod: Cfs, container: Cfs, want: int | None, expected: list[Any]) -> None:
    """Growing from above, shrinking from below, nothing where nothing is to do."""
    assert [(w.level, w.cfs.quota_us) for w in writes(pod, container, want)] == expected


QUOTAS = st.none() | st.integers(MIN_QUOTA_US, 1_000_000)
PERIODS = st.sampled_from([10_000, 50_000, 100_000])
STANDS = st.builds(us, QUOTAS, PERIODS)


@given(STANDS, STANDS, st.none() | st.integers(10, 20_000))
def test_the_kernel_takes_every_write(pod: Cfs, container: Cfs, want: int | None) -> None:
    """Any state and any limit: no write is refused, the pod is never lowered, at the end the limit stands.

    Then nothing is left to write.
    """
    legal = _below(container, pod)
    for write in writes(pod, container, want):
        if write.level == "pod":
            assert _below(pod, write.cfs)
            pod = write.cfs
        else:
            container = write.cfs
        assert not legal or _below(container, pod) or write.level == "pod"

    assert container.quota_us == quota_us(want, container.period_us)
    assert writes(pod, container, want) == ()


def _below(child: Cfs, parent: Cfs) -> bool:
    """As v1 judges it; a child without a limit of its own has its parent's. A µs of rounding is not counted."""
    if child.quota_us is None or parent.quota_us is None:
        return True
    return child.quota_us * parent.period_us <= (parent.quota_us + 1) * child.period_us


@given(st.integers(10, 100_000), PERIODS)
def test_a_limit_is_read_as_it_was_written(want: int, period: int) -> None:
    """To the thousandth, down to what the kernel takes at least."""
    least = MIN_QUOTA_US * 1000 // period

    assert milli(us(quota_us(want, period), period)) == max(least, want)


# --- trees -----------------------------------------------------------------------------------------------------------


class Tree:
    """A pod in a tree of either version; containers come and go as a runtime makes them."""

    def __init__(self, root: Path, version: Version) -> None:
        self.root, self.version = root, version
        if version == "v2":
            (root / "cgroup.controllers").write_text("cpu memory\n")
            self.cpu, path = (
                root,
                f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice",
            )
        else:
            self.cpu, path = root / "cpu", f"kubepods/burstable/pod{POD}"
        self.pod = self.cpu / path
        self._make(self.pod, None)

    def folder(self, container: str) -> Path:
        return self.pod / (f"cri-containerd-{container}.scope" if self.version == "v2" else container)

    def start(self, container: str, limit_us: int | None = None) -> None:
        self._make(self.folder(container), limit_us)

    def end(self, container: str) -> None:
        for file in self.folder(container).iterdir():
            file.unlink()
        self.folder(container).rmdir()

    def put(self, folder: Path, quota_us: int | None) -> None:
        if self.version == "v2":
            (folder / "cpu.max").write_text(f"{'max' if quota_us is None else quota_us} 100000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{-1 if quota_us is None else quota_us}\n")

    def _make(self, folder: Path, quota_us: int | None) -> None:
        folder.mkdir(parents=True)
        if self.version == "v1":
            (folder / "cpu.cfs_period_us").write_text("100000\n")
        self.put(folder, quota_us)

    def stands(self, container: str = CONTAINER) -> str:
        """The limit as it was last written."""
        name = "cpu.max" if self.version == "v2" else "cpu.cfs_quota_us"
        return (self.folder(container) / name).read_text().split()[0]


@pytest.fixture(params=["v1", "v2"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    root = tmp_path / "cgroup"
    root.mkdir()
    return Tree(root, request.param)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def limits(tree: Tree, state: Path) -> CpuLimits:
    return CpuLimits(CgroupTree(tree.root), state)


def pod(limit: int | None, *, spec: int | None = None, container: str = CONTAINER, uid: str = "e-1-0") -> PodCpu:
    return PodCpu(uid=RequestUid(uid), pod_uid=POD, container_id=container, spec_milli=spec, limit_milli=limit)


def told(found: tuple[PodEnforcement, ...]) -> list[tuple[str, str, int | None]]:
    return [(one.state, one.reason, one.limit_milli) for one in found]


NONE = {"v1": "-1", "v2": "max"}


def test_a_container_gets_its_limit_and_gives_it_back(tree: Tree, state: Path) -> None:
    """Up, down, and the spec's again; the pause container beside it and the pod's own cgroup are never written to."""
    tree.start(CONTAINER)
    tree.start(PAUSE)
    held = limits(tree, state)
    assert told(held.hold([pod(500)])) == [("applied", "", 500)]
    assert tree.stands() == "50000"
    assert told(held.hold([pod(1250)])) == [("applied", "", 1250)]
    assert tree.stands() == "125000"
    assert held.hold([pod(None)]) == ()

    assert tree.stands() == NONE[tree.version]
    assert tree.stands(PAUSE) == NONE[tree.version]


def test_a_restarted_container_gets_it_again(tree: Tree, state: Path) -> None:
    """Claim S044: the runtime makes a new cgroup with the spec's limit; the next round writes ours."""
    tree.start(CONTAINER, 200_000)
    tree.put(tree.pod, 200_000)
    held = limits(tree, state)
    held.hold([pod(500, spec=2000)])
    tree.end(CONTAINER)
    assert told(held.hold([pod(500, spec=2000)])) == [("waiting", "container cccccccccccc has no cgroup here", None)]
    tree.start(NEXT, 200_000)
    assert told(held.hold([pod(500, spec=2000, container=NEXT)])) == [("applied", "", 500)]

    assert tree.stands(NEXT) == "50000"


def test_a_resize_by_kubernetes_is_overwritten_again(tree: Tree, state: Path) -> None:
    """A kubelet that writes its own limit into a running container: repaired by the next round."""
    tree.start(CONTAINER)
    held = limits(tree, state)
    held.hold([pod(500)])
    tree.put(tree.folder(CONTAINER), 100_000)

    assert told(held.hold([pod(500, spec=1000)])) == [("applied", "", 500)]
    assert tree.stands() == "50000"


def test_a_new_life_gives_back_what_the_last_one_took(tree: Tree, state: Path) -> None:
    """Killed while a limit stood, and the limit was taken away meanwhile: what was touched stands in a file."""
    tree.start(CONTAINER, 200_000)
    limits(tree, state).hold([pod(500, spec=2000)])
    limits(tree, state).hold([pod(None, spec=2000)])

    assert tree.stands() == "200000"


def test_a_pod_that_was_never_limited_is_never_written_to(tree: Tree, state: Path) -> None:
    """Its limit is Kubernetes' own affair, also when it differs from what we were told of it."""
    tree.start(CONTAINER, 70_000)
    assert limits(tree, state).hold([pod(None, spec=2000)]) == ()

    assert tree.stands() == "70000"
    assert not state.exists()


def test_a_pod_that_is_forgotten_for_a_moment_is_given_back_later(tree: Tree, state: Path) -> None:
    """A snapshot without the pod, or without its container: as long as its cgroup is there, it is remembered."""
    tree.start(CONTAINER)
    held = limits(tree, state)
    held.hold([pod(500)])
    held.hold([])
    held.hold([pod(None, container="")])
    held.hold([pod(None)])

    assert tree.stands() == NONE[tree.version]


def test_unknown_pods_wait_with_their_reason(tree: Tree, state: Path) -> None:
    """Not bound yet, not started yet, another node's: told, never guessed by size or age (S038)."""
    tree.start(PAUSE)
    unknown = [pod(500, container=""), pod(500, uid="e-2-0", container=NEXT)]

    assert told(limits(tree, state).hold(unknown)) == [
        ("waiting", "its container is not known to run here", None),
        ("waiting", "container dddddddddddd has no cgroup here", None),
    ]
    assert tree.stands(PAUSE) == NONE[tree.version]


def test_a_quota_that_cannot_be_read_is_not_no_limit(tree: Tree, state: Path) -> None:
    """Unknown is never "none": nothing is written beside it."""
    tree.start(CONTAINER)
    name = "cpu.max" if tree.version == "v2" else "cpu.cfs_quota_us"
    (tree.folder(CONTAINER) / name).write_text("what?\n")
    [(how, reason, _)] = told(limits(tree, state).hold([pod(500)]))

    assert how == "failed"
    assert "'what?' is no quota" in reason


def test_a_node_without_cgroups_says_so(tmp_path: Path) -> None:
    """Neither version mounted: told for each pod that asks."""
    found = CpuLimits(CgroupTree(tmp_path), tmp_path / "state").hold([pod(500)])

    assert told(found) == [("failed", "there is no CPU hierarchy of cgroups here", None)]


def test_writes_name_their_level() -> None:
    """The vocabulary of the two levels, for who reads logs."""
    assert Write(level="pod", cfs=us(None)).level == "pod"
