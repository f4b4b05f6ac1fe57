"""/proc/<pid>: names with brackets, pids that are used again, processes that end while they are read."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.cgroups.paths import Home
from monitor.procs import reading
from monitor.procs.stat import ProcessStat, home, printable, process_stat

UID, ID = "8f9b5a2c-1d3e-4f60-9a7b-0c1d2e3f4a5b", "7f" * 32
POD = f"/kubepods/burstable/pod{UID}/{ID}"


def stat_line(pid: int = 42, name: str = "python3", parent: int = 1, started: int = 9000) -> str:
    """Field 3 on: state, parent, then zeros; utime 70, stime 7, started at field 22."""
    fields = ["S", str(parent), *["0"] * 9, "70", "7", "0", "0", "20", "0", "1", "0", str(started), *["0"] * 30]
    return f"{pid} ({name}) {' '.join(fields)}\n"


def put(proc: Path, pid: int, *, name: str = "python3", started: int = 9000, cgroup: str = f"0::{POD}\n") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(stat_line(pid, name, started=started))
    (folder / "cgroup").write_text(cgroup)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A host's: its second process is the kernel's."""
    put(tmp_path, 2, name="kthreadd", cgroup="0::/\n")
    return tmp_path


@pytest.mark.parametrize("name", ["python3", "a) S 1 (b", "((((", "))", "two words", "", "tab\tand\nline"])
def test_a_name_may_hold_anything(name: str) -> None:
    """Claim: everything up to the last bracket is name; the fields behind it stay in place."""
    assert process_stat(stat_line(name=name)) == ProcessStat(
        pid=42, command=printable(name), parent=1, started_ticks=9000, cpu_ticks=77
    )


@pytest.mark.parametrize("text", ["", "42", "42 (x", "x) 1 2", "42 (x) S 1", "a (x) " + "0 " * 50, stat_line()[:40]])
def test_what_is_no_stat_line_is_nothing(text: str) -> None:
    """Claim: cut, empty and foreign lines give None."""
    assert process_stat(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"0::{POD}\n", Home(pod_uid=UID, container=ID, qos="burstable")),
        (f"12:cpu,cpuacct:/\n4:memory:{POD}\n1:name=systemd:{POD}\n", Home(pod_uid=UID, container=ID, qos="burstable")),
        (f"4:memory:/docker/{ID}\n3:cpu:{POD}\n", Home(pod_uid=UID, container=ID, qos="burstable")),
        (
            f"0::/system.slice/containerd.service/kubepods-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}\n",
            Home(pod_uid=UID, container=ID, qos="guaranteed", runtime="containerd"),
        ),
        ("0::/user.slice\n", Home()),
        ("", Home()),
        ("rubbish\n1:2\n", Home()),
    ],
)
def test_the_line_that_names_a_pod_counts(text: str, expected: Home) -> None:
    """Claim: v2's one line, v1's many (some still at the root), paths with colons, and no pod at all."""
    assert home(text) == expected


def test_who_is_listed_who_has_ended_and_who_is_hidden(proc: Path) -> None:
    """Claim: three fates of a pid; a folder without a readable stat is there and unknown, not ended."""
    put(proc, 42)
    (proc / "43").mkdir()

    looked = reading.look(proc, [42, 43, 44])

    assert looked is not None
    assert {pid: p.home.pod_uid for pid, p in looked.processes.items()} == {42: UID}
    assert looked.ended == {44}


def test_another_pid_namespace_is_not_believed(tmp_path: Path) -> None:
    """Claim: without the kernel's own process the numbers are somebody else's, so nobody is looked at."""
    put(tmp_path, 42)
    put(tmp_path, 2, name="sleep")

    assert reading.look(tmp_path, [42]) is None


def test_a_pid_that_changes_hands_while_it_is_read_is_nobody(proc: Path) -> None:
    """Claim: the cgroup of one and the name of the other are never put together."""
    put(proc, 42, started=9000)
    (proc / "42" / "cgroup").unlink()
    os.mkfifo(proc / "42" / "cgroup")  # whoever reads it waits until the pid has changed hands

    def change_hands() -> None:
        with (proc / "42" / "cgroup").open("w") as gate:
            (proc / "42" / "stat").write_text(stat_line(started=9500))
            gate.write(f"0::{POD}\n")

    thread = threading.Thread(target=change_hands)
    thread.start()
    found = reading.process(proc, 42)
    thread.join()

    assert found is None


def test_this_very_process_is_seen() -> None:
    """Claim: on this machine's own /proc we find ourselves, since when, and our parent."""
    found = reading.read_stat(Path("/proc"), os.getpid())

    assert found is not None
    assert (found.pid, found.parent) == (os.getpid(), os.getppid())
    assert found.started_ticks > 0
    assert os.getpid() in reading.pids(Path("/proc"))


@settings(deadline=None)  # a busy machine is no failure
@given(st.one_of(st.text(), st.text().map(lambda name: stat_line(name=name)), st.text().map(lambda t: stat_line() + t)))
def test_any_text_is_a_process_or_none(text: str) -> None:
    """Claim: nothing raises; a name is printable and short."""
    found = process_stat(text)

    assert found is None or (found.command.isprintable() and len(found.command) <= 64)
    assert isinstance(home(text), Home)


def test_a_process_that_is_known_in_its_pod_is_not_looked_up_again(proc: Path) -> None:
    """Its start time tells that it is the same; with another one the pid is somebody else's, and is looked up."""
    put(proc, 42)
    first = reading.look(proc, [42])
    assert first is not None
    other = f"/kubepods/burstable/pod{UID[::-1].replace('-', '')}/{ID}"
    (proc / "42" / "cgroup").write_text(f"0::{other}\n")
    again = reading.look(proc, [42], first.processes)
    (proc / "42" / "stat").write_text(stat_line(started=9001))
    reused = reading.look(proc, [42], first.processes)

    assert again == first
    assert reused is not None
    assert reused.processes[42].home.pod_uid == UID[::-1].replace("-", "")


def test_a_process_that_was_in_no_pod_is_looked_up_each_time(proc: Path) -> None:
    """A runtime makes a process first and moves it into its cgroup then: it is not a stranger for ever."""
    put(proc, 42, cgroup="0::/system.slice/containerd.service\n")
    first = reading.look(proc, [42])
    (proc / "42" / "cgroup").write_text(f"0::{POD}\n")
    then = reading.look(proc, [42], first.processes if first else None)

    assert first is not None
    assert then is not None
    assert (first.processes[42].home.pod_uid, then.processes[42].home.pod_uid) == ("", UID)
