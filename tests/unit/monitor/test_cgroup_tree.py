"""Trees of cgroups: recorded ones of both versions and drivers, and this machine's own where we may write to it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.cgroups.stats import Limit, Reading
from monitor.cgroups.tree import CgroupTree, Found, Hierarchies, hierarchies

U1, U2, U3 = (f"8f9b5a2c-1d3e-4f60-9a7b-0c1d2e3f4a5{n}" for n in range(3))
C1, C2, PAUSE = "7f" * 32, "3c" * 32, "00" * 32
V2 = {
    "cpu.stat": "usage_usec 5000\nnr_periods 10\nnr_throttled 4\nthrottled_usec 7\n",
    "cpu.max": "50000 100000\n",
    "memory.current": "3145728\n",
    "memory.stat": "anon 1\ninactive_file 1048576\n",
    "memory.max": "max\n",
}
READ = Reading(
    cpu_ns=5_000_000, periods=10, throttled_periods=4, throttled_ns=7_000, cpu_limit_milli=Limit(value=500),
    memory_mib=3, working_mib=2, memory_limit_mib=Limit(),
)  # fmt: skip


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def unit(uid: str, qos: str = "burstable") -> str:
    return f"kubepods.slice/kubepods-{qos}.slice/kubepods-{qos}-pod{uid.replace('-', '_')}.slice"


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """Systemd driver: two pods of ours, of two classes; containerd and CRI-O; a pod of others; services beside."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    write(tmp_path / unit(U1) / f"cri-containerd-{C1}.scope", V2)
    write(tmp_path / unit(U1) / f"cri-containerd-{PAUSE}.scope", {"cpu.stat": "usage_usec 1\n"})
    write(tmp_path / unit(U2, "besteffort") / f"crio-{C2}.scope", V2)
    write(tmp_path / unit(U2, "besteffort") / f"crio-conmon-{C2}.scope", V2)
    write(tmp_path / unit(U3) / f"cri-containerd-{C2}.scope", V2)
    write(tmp_path / "system.slice/sshd.service", V2)
    return tmp_path


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    """Cgroupfs driver, cpu and cpuacct mounted together: one guaranteed pod."""
    pod = f"kubepods/pod{U1}/{C1}"
    cpu = {"cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 7000\n", "cpuacct.usage": "5000000\n"}
    write(tmp_path / "cpu,cpuacct" / pod, cpu | {"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"})
    memory = {"memory.usage_in_bytes": "3145728\n", "memory.stat": "total_inactive_file 1048576\n"}
    write(tmp_path / "memory" / pod, memory | {"memory.limit_in_bytes": "9223372036854771712\n"})
    return tmp_path


def test_containers_of_our_pods_in_a_v2_tree(v2: Path) -> None:
    """Claim: by pod and container; CRI-O's keeper, a pod of others and services are left out."""
    found = CgroupTree(v2).look({U1, U2, "not-here"})

    assert found is not None
    assert [(f.pod_uid, f.container, f.runtime) for f in found] == [
        (U1, PAUSE, "containerd"),
        (U1, C1, "containerd"),
        (U2, C2, "cri-o"),
    ]
    assert found[1].reading == found[2].reading == READ
    assert found[0].reading == Reading(cpu_ns=1000)


def test_a_v1_tree_reads_the_same(v1: Path) -> None:
    """Claim: controllers that share a folder, another driver, other files: the same reading."""
    assert CgroupTree(v1).look({U1}) == (Found(pod_uid=U1, container=C1, runtime="", reading=READ),)
    assert hierarchies(v1) == Hierarchies(cpu=f"{v1}/cpu,cpuacct", cpuacct=f"{v1}/cpu,cpuacct", memory=f"{v1}/memory")


def test_pods_come_and_go_and_containers_restart(v2: Path) -> None:
    """Claim: a pod that appears later is found, a replaced container is another one, a pod that left is forgotten."""
    tree = CgroupTree(v2)
    assert [f.pod_uid for f in tree.look({U3}) or ()] == [U3]
    assert {f.pod_uid for f in tree.look({U2, U3}) or ()} == {U2, U3}

    (v2 / unit(U3) / f"cri-containerd-{C2}.scope").rename(v2 / unit(U3) / f"cri-containerd-{C1}.scope")
    assert [f.container for f in tree.look({U3}) or ()] == [C1]

    (v2 / unit(U3)).rename(v2 / "elsewhere")
    assert tree.look({U3}) == ()

    (v2 / "elsewhere").rename(v2 / unit(U3))
    assert [f.container for f in tree.look({U3}) or ()] == [C1]
    assert tree.look(()) == ()


def test_a_kubelet_with_a_root_of_its_own(tmp_path: Path) -> None:
    """Claim: kind's kubelet root is found by its name, any other one by the setting."""
    (tmp_path / "cgroup.controllers").write_text("")
    write(
        tmp_path / "kubelet.slice/kubelet-kubepods.slice" / f"kubelet-kubepods-pod{U1.replace('-', '_')}.slice" / C1, V2
    )
    write(tmp_path / "site/k8s/kubepods/burstable" / f"pod{U2}" / C2, V2)

    assert [f.pod_uid for f in CgroupTree(tmp_path).look({U1, U2}) or ()] == [U1]
    assert [f.pod_uid for f in CgroupTree(tmp_path, "/site/k8s/").look({U1, U2}) or ()] == [U2]


def test_no_cgroups_are_no_look(tmp_path: Path) -> None:
    """Claim: nothing mounted is unknown, which is not "no containers"; mounted later, it is found."""
    tree = CgroupTree(tmp_path / "cgroup")
    assert tree.look({U1}) is None

    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup" / "cgroup.controllers").write_text("")
    assert tree.look({U1}) == ()


# --- this machine's own -----------------------------------------------------------------------------------------------

MOUNT = Path("/sys/fs/cgroup")
BESIDE_V1 = MOUNT / "unified"
"""Where machines with v1 mount v2 as well: without controllers, but with the kernel's count of CPU time."""
SPIN = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


@contextlib.contextmanager
def real_pod(mount: Path) -> Iterator[tuple[str, list[Path]]]:
    """A pod with one container in every hierarchy that is mounted there; skipped where we may not make one."""
    mounted = hierarchies(mount)
    trees = sorted({t for t in (mounted.unified, mounted.cpu, mounted.cpuacct, mounted.memory) if t})
    uid = f"8f9b5a2c-1d3e-4f60-9a7b-{os.getpid():012x}"
    folders = [Path(tree) / "kubepods" / "burstable" / f"pod{uid}" / C1 for tree in trees]
    made: list[Path] = []
    try:
        try:
            for folder in folders:
                for part in reversed([folder, *folder.parents][:4]):
                    if not part.exists():
                        part.mkdir()
                        made.append(part)
        except OSError as error:
            pytest.skip(f"no cgroups may be made below {mount}: {error}")
        if not folders:
            pytest.skip(f"no cgroups are mounted at {mount}")
        yield uid, folders
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()


@pytest.mark.parametrize("mount", [MOUNT, BESIDE_V1], ids=["as mounted", "v2 beside v1"])
def test_a_busy_process_on_this_machine_is_seen_to_be_busy(mount: Path) -> None:
    """Claim: in the versions of cgroups that run here: counted CPU time rises, and the process is found by its pid.

    Where v1 holds the controllers, a container in the v2 tree has no limits, and that is said as unknown.
    """
    with real_pod(mount) as (uid, folders), subprocess.Popen([sys.executable, "-c", SPIN]) as busy:
        try:
            for folder in folders:
                (folder / "cgroup.procs").write_text(str(busy.pid))
            limited = any((folder / name).exists() for folder in folders for name in ("cpu.max", "cpu.cfs_quota_us"))
            tree = CgroupTree(mount)
            until = time.monotonic() + 20
            used_ns = 0
            while used_ns < 20_000_000 and time.monotonic() < until:
                (found,) = tree.look({uid}) or ()
                used_ns = found.reading.cpu_ns or 0
        finally:
            busy.kill()
            busy.wait()

    assert used_ns >= 20_000_000, f"{used_ns} ns counted in {folders}"
    assert (found.pod_uid, found.container) == (uid, C1)
    if not limited:
        assert found.reading.cpu_limit_milli is None
