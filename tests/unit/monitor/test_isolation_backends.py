"""Each backend on real files, sockets and processes: what it does, and how it finds out whether it holds."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contracts.inventory import Card, IsolationMode
from contracts.outcomes import ShareAssignment
from contracts.units import CardUuid, RequestUid
from monitor.enforce.backend import Backend, Findings
from monitor.enforce.gemini import Gemini
from monitor.enforce.hami import HamiCore
from monitor.enforce.listeners import listening, on_host
from monitor.enforce.mig import MigInstances
from monitor.enforce.mps import MpsDaemon, _verdict
from monitor.enforce.none import NoIsolation
from monitor.enforce.wanted import CardShares
from tests.builders.inotify import Inotify


def share(uid: str, milli: int = 250, memory_mib: int = 1024, **more: Any) -> ShareAssignment:
    fields = {"namespace": "team", "pod": f"pod-{uid}", "card": "GPU-a"} | more
    return ShareAssignment(uid=RequestUid(uid), share_milli=milli, memory_mib=memory_mib, **fields)


def on(uuid: str, mode: IsolationMode, *held: ShareAssignment) -> CardShares:
    card = Card(uuid=CardUuid(uuid), index=0, model="T4", memory_total_mib=16_000, isolation=mode)
    return CardShares(card=card, assignments=held)


def done(backend: Backend, *wanted: CardShares) -> Findings:
    backend.apply(wanted)
    return backend.check(wanted)


def pods(found: Findings) -> dict[str, tuple[str, str]]:
    return {one.uid: (one.state, one.reason) for one in found.pods}


def enforced(found: Findings) -> dict[str, tuple[str, str]]:
    return {one.card: (one.enforced, one.reason) for one in found.cards}


# --- none and mig ----------------------------------------------------------------------------------------------------


def test_without_isolation_nothing_is_claimed() -> None:
    """Applied, in that there is nothing to do; enforced: none, and the note says that shares are only counted."""
    found = done(NoIsolation(), on("GPU-a", "none", share("a")))

    assert pods(found) == {"a": ("applied", "")}
    assert [(c.declared, c.enforced, c.note) for c in found.cards] == [
        ("none", "none", "shares are counted, nothing is enforced")
    ]


def test_an_instance_holds_one_tenant_and_not_two_apart() -> None:
    """Claim S106: the profile is held by the hardware; two pods on one instance are not, and that is said."""
    one = done(MigInstances(), on("MIG-1", "mig", share("a", 1000, card="MIG-1")))
    two = done(MigInstances(), on("MIG-1", "mig", share("a", card="MIG-1"), share("b", card="MIG-1")))

    assert enforced(one) == {"MIG-1": ("both", "")}
    assert enforced(two) == {"MIG-1": ("none", "2 pods share this instance, nothing holds them apart within it")}


# --- HAMi-core -------------------------------------------------------------------------------------------------------


def test_pods_wait_for_the_library(tmp_path: Path) -> None:
    """A preload that is not there is a warning and a container without limits; so it is looked for first."""
    backend, held = HamiCore(tmp_path), on("GPU-a", "hami-core", share("a"))
    library = tmp_path / "libvgpu.so"
    missing = f"HAMi-core's library cannot be read: No such file or directory: {library}; install it there"
    assert pods(done(backend, held)) == {"a": ("waiting", missing)}
    library.write_bytes(b"#!/bin/sh\n")
    assert enforced(done(backend, held)) == {"GPU-a": ("none", f"{library} is no shared library")}
    library.write_bytes(b"\x7fELF\x02\x01")
    library.chmod(0o600)
    assert pods(done(backend, held))["a"] == ("waiting", f"{library} is not readable by all users; chmod o+r")
    library.chmod(0o644)

    assert pods(done(backend, held)) == {"a": ("applied", "")}
    assert enforced(done(backend, held)) == {"GPU-a": ("both", "")}


# --- MPS -------------------------------------------------------------------------------------------------------------

CONTROL = """#!{python} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    try:
        line.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
    except OSError:
        print("Cannot find MPS control daemon process")
        sys.exit(1)
    line.sendall(sys.stdin.buffer.read())
    line.shutdown(socket.SHUT_WR)
    while data := line.recv(4096):
        sys.stdout.buffer.write(data)
"""


@pytest.fixture
def control(tmp_path: Path) -> str:
    """A stand-in for nvidia-cuda-mps-control: asks whoever listens in the pipe directory."""
    command = tmp_path / "mps-control"
    command.write_text(CONTROL.format(python=sys.executable))
    command.chmod(0o755)
    return str(command)


@contextlib.contextmanager
def daemon(pipe: Path, answer: bytes | None) -> Iterator[list[bytes]]:
    """A control daemon that gives this answer, or none at all; what it was asked."""
    asked: list[bytes] = []
    pipe.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(pipe / "control"))
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line = server.accept()[0]
                    if answer is None:
                        continue  # the connection is dropped without a word when it is collected
                    asked.append(line.recv(4096))
                    line.sendall(answer)
                    line.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    (pipe / "control").unlink()


def test_pods_wait_until_the_mps_daemon_answers(tmp_path: Path, control: str) -> None:
    """Claim S113: not started, dead with its socket left, complaining, then well: each reason is the daemon's own."""
    backend, held = MpsDaemon(tmp_path / "mps", control), on("GPU-a", "mps", share("a"))
    pipe = tmp_path / "mps" / "pipe"
    absent = done(backend, held)
    assert pods(absent)["a"][0] == "waiting"
    assert pods(absent)["a"][1].startswith(f"no MPS control daemon has opened {pipe}/control; start {control} -d")
    assert enforced(absent)["GPU-a"][0] == "none"
    (pipe / "control").touch()  # left by one that was killed
    dead = "the MPS control daemon does not answer: Cannot find MPS control daemon process"
    assert pods(done(backend, held)) == {"a": ("waiting", dead)}
    (pipe / "control").unlink()
    with daemon(pipe, b"Failed to start\n"):
        assert pods(done(backend, held))["a"][1] == "the MPS control daemon does not answer: Failed to start"
    for answer in (b"", b"4711\n4712\n"):
        with daemon(pipe, answer) as asked:
            well = done(backend, held)

        assert asked == [b"get_server_list\n"]
        assert pods(well) == {"a": ("applied", "")}
        assert enforced(well) == {"GPU-a": ("both", "")}
        assert "for each process, not for the container" in well.cards[0].note  # S114 is not held, and that is said


@pytest.mark.parametrize(
    ("code", "said", "complaint"),
    [
        (0, b"", ""),
        (0, b"4711\n", ""),
        (1, b"", "the MPS control daemon does not answer: exit status 1"),
        (1, b"4711\n", "the MPS control daemon does not answer: 4711"),
        (0, b"4711 is dead\n", "the MPS control daemon does not answer: 4711 is dead"),
    ],
)
def test_only_a_list_of_servers_is_an_answer(code: int, said: bytes, complaint: str) -> None:
    """Whatever else the command says, or how it ends, is a complaint."""
    assert _verdict(code, said) == complaint


def test_a_node_without_mps_cards_has_no_daemon_to_miss(tmp_path: Path) -> None:
    """Nothing is made, asked or reported."""
    assert done(MpsDaemon(tmp_path / "mps", "/nowhere")) == Findings()
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    """An installation without the tool: the reason names it."""
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "control").touch()
    found = done(MpsDaemon(tmp_path, "/nowhere/mps-control"), on("GPU-a", "mps", share("a")))

    assert pods(found)["a"] == ("waiting", "/nowhere/mps-control cannot be started: No such file or directory")


# --- Gemini ----------------------------------------------------------------------------------------------------------


class Node:
    """KubeShare's folder and who listens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listening: frozenset[int] | None = frozenset()
        self.backend = self.new()

    def new(self, *, borrow: bool = False) -> Gemini:
        """The backend of a new monitor."""
        self.backend = Gemini(self.folder, lambda: self.listening, borrow=borrow)
        return self.backend

    def files(self) -> dict[str, bytes]:
        at = self.folder / "scheduler"
        return {f"{p.parent.name}/{p.name}": p.read_bytes() for n in FOLDERS for p in sorted((at / n).glob("*"))}

    def done(self, *wanted: CardShares) -> Findings:
        return done(self.backend, *wanted)


FOLDERS = ("config", "podmanagerport")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


A, B = share("a", port=50_051), share("b", 500, 2048, port=50_052)


def test_the_files_of_a_card_hold_its_tenants(node: Node) -> None:
    """Byte for byte, memory in bytes, names as the pods say them; a limit is the share unless borrowing is allowed."""
    node.done(on("GPU-a", "gemini", A, B), on("GPU-b", "gemini"))

    assert node.files() == {
        "config/GPU-a": b"2\nteam/pod-a 0.250000 0.250000 1073741824\nteam/pod-b 0.500000 0.500000 2147483648\n",
        "config/GPU-b": b"0\n",
        "podmanagerport/GPU-a": b"2\nteam/pod-a 50051\nteam/pod-b 50052\n",
        "podmanagerport/GPU-b": b"0\n",
    }


def test_idle_compute_may_be_borrowed(node: Node) -> None:
    """Claim S152: the share is guaranteed, the whole card is the limit; Gemini gives it back when the owner asks."""
    node.new(borrow=True)
    node.done(on("GPU-a", "gemini", A))

    assert node.files()["config/GPU-a"] == b"1\nteam/pod-a 0.250000 1.000000 1073741824\n"


def test_a_pod_waits_until_its_manager_listens(node: Node) -> None:
    """Files first, then the launcher starts a manager, then the pod may run: its hook would block before."""
    held = on("GPU-a", "gemini", A, B, share("c"))
    waits = "no pod manager listens on port {}; does Gemini's launcher run?"
    no_port = ("waiting", "no port is free for its manager")
    found = node.done(held)
    assert pods(found) == {
        "a": ("waiting", waits.format(50_051)),
        "b": ("waiting", waits.format(50_052)),
        "c": no_port,
    }
    assert enforced(found) == {"GPU-a": ("both", "")}
    node.listening = frozenset({50_052, 22})
    assert pods(node.done(held)) == {"a": ("waiting", waits.format(50_051)), "b": ("applied", ""), "c": no_port}
    node.listening = None

    assert pods(node.done(held))["b"] == (
        "waiting",
        "it cannot be seen who listens: /proc/1/net/tcp is not readable",
    )


def test_an_assignment_that_ends_is_cleaned_up(node: Node) -> None:
    """A tenant that left is out of both files; a card that is not shared by Gemini any more has none."""
    node.done(on("GPU-a", "gemini", A, B), on("GPU-b", "gemini", share("c", card="GPU-b", port=50_053)))
    node.done(on("GPU-a", "gemini", B))

    assert node.files() == {
        "config/GPU-a": b"1\nteam/pod-b 0.500000 0.500000 2147483648\n",
        "config/GPU-b": b"0\n",
        "podmanagerport/GPU-a": b"1\nteam/pod-b 50052\n",
        "podmanagerport/GPU-b": b"0\n",
    }
    node.done()
    assert set(node.files().values()) == {b"0\n"}


def test_what_others_keep_there_is_left_alone(node: Node) -> None:
    """Only files of our form are ours to empty."""
    node.done(on("GPU-a", "gemini", A))
    foreign = node.folder / "scheduler" / "config" / "README"
    foreign.write_bytes(b"of somebody else")
    node.done(on("GPU-a", "gemini", B))

    assert foreign.read_bytes() == b"of somebody else"


def test_somebody_elses_write_is_found_and_repaired(node: Node) -> None:
    """Between the rounds: what was checked is what stands, and the next round brings it back."""
    held = on("GPU-a", "gemini", A)
    node.listening = frozenset({50_051})
    node.done(held)
    config = node.folder / "scheduler" / "config" / "GPU-a"
    for wrong, reason in (
        (b"1\nteam/pod-a 1.000000 1.000000 1\n", "the files of GPU-a hold other clients than its pods"),
        (b"garbage\n", "a file of GPU-a is not ours: line 1 is no count: 'garbage'"),
    ):
        config.write_bytes(wrong)
        found = node.backend.check([held])

        assert enforced(found) == {"GPU-a": ("none", reason)}
        assert pods(found) == {"a": ("failed", reason)}
        assert pods(node.done(held)) == {"a": ("applied", "")}


def test_the_same_again_writes_nothing_and_a_new_life_nudges_once(node: Node) -> None:
    """Idempotent by content; the last life may have ended before its watcher was told, so the next one tells again."""
    held = on("GPU-a", "gemini", A)
    node.done(held)
    inode = (node.folder / "scheduler" / "config" / "GPU-a").stat().st_ino
    watchers = [Inotify(node.folder / "scheduler" / name) for name in FOLDERS]
    node.done(held)
    assert [watcher.closed() for watcher in watchers] == [[], []]
    node.new()
    node.done(held)
    assert [watcher.closed() for watcher in watchers] == [["GPU-a"], ["GPU-a"]]
    node.done(held)

    assert [watcher.closed() for watcher in watchers] == [[], []]
    assert (node.folder / "scheduler" / "config" / "GPU-a").stat().st_ino == inode


def test_a_uuid_is_a_name_and_never_a_path(node: Node) -> None:
    """What a driver names a card never leads out of the folder."""
    with pytest.raises(OSError, match="cannot name a file"):
        node.done(on("GPU-/../../../etc/passwd", "gemini", A))


# --- who listens -----------------------------------------------------------------------------------------------------


def test_the_kernels_table_tells_who_listens(tmp_path: Path) -> None:
    """A real socket that listens is found in the real table; one that is only bound or connected is not."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        table = Path("/proc/self/net/tcp").read_text()

        assert server.getsockname()[1] in listening(table)
        assert bound.getsockname()[1] not in listening(table)
    assert on_host(tmp_path) is None
    (tmp_path / "1" / "net").mkdir(parents=True)
    (tmp_path / "1" / "net" / "tcp").write_text("head\n  0: 0100007F:C383 00000000:0000 0A 0\n 1: x:y\n junk\n")
    (tmp_path / "1" / "net" / "tcp6").write_text("head\n 0: 00000000000000000000000000000000:C384 0:0 0A\n")

    assert on_host(tmp_path) == {50_051, 50_052}


def test_backends_are_what_they_say() -> None:
    """One for each mode, under its own name."""
    backends: Sequence[Backend] = (
        NoIsolation(),
        HamiCore(Path(os.devnull)),
        MpsDaemon(Path(os.devnull)),
        Gemini(Path(os.devnull), frozenset),
        MigInstances(),
    )

    assert [one.mode for one in backends] == ["none", "hami-core", "mps", "gemini", "mig"]
