"""`gpubus local` and the commands that talk to it, as a person uses them: real processes, real services, real NATS."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.client import connect
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = [pytest.mark.nats, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
READY_S = 60.0
STOP_S = 5.0


class Front:
    """The command line with a runtime folder of its own."""

    def __init__(self, runtime: Path) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("GPUBUS_")}
        self.environment = plain | {"XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT), "TMPDIR": str(runtime)}
        self.runtime = runtime

    def __call__(self, *arguments: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "gpubus", *arguments],
            env=self.environment | environment,
            cwd=self.runtime,
            input=given,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        """What a command answers with `-o json`."""
        done = self(*arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "gpubus", *arguments],
            env=self.environment,
            cwd=self.runtime,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


class Local:
    """A `gpubus local` that is ready."""

    def __init__(self, front: Front, *arguments: str) -> None:
        self.process = front.start("local", "--nodes", "2", "--cards", "2", *arguments)
        self.lines: list[str] = []
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip())
            if line.startswith("Ctrl-C"):
                return
        raise AssertionError("\n".join(self.lines))

    def children(self) -> dict[str, int]:
        """Name and pid of the processes that it said it has started."""
        found = (re.match(r"(\S+) .*\(pid (\d+)", line) for line in self.lines)
        return {match[1]: int(match[2]) for match in found if match}

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, float, str]:
        """Exit status, seconds that it took, and what it still said."""
        began = time.monotonic()
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, time.monotonic() - began, rest

    def kill(self) -> None:
        """Whatever is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)


def gone(pid: int) -> bool:
    """Whether no such process runs (a zombie that nobody has reaped yet does not run)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_gone(pids: list[int], within_s: float) -> list[int]:
    """Those that still run after so long."""
    until = time.monotonic() + within_s
    while time.monotonic() < until and not all(map(gone, pids)):
        time.sleep(0.05)
    return [pid for pid in pids if not gone(pid)]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Front:
    """A person's shell."""
    return Front(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def local(front: Front) -> Iterator[Local]:
    """One `gpubus local` for the tests that only use it."""
    running = Local(front)
    yield running
    running.kill()


IMAGE = ("--image", "registry.example/work:1")


def test_a_pod_runs_and_every_question_about_it_is_answered(front: Front, local: Local) -> None:
    """Submit and wait, get, explain, trace, watch, withdraw, audit: what `gpubus local` says to try, and more."""
    submitted = front("submit", "--name", "hello", *IMAGE, "--gpu-share", "0.5", "--gpu-memory", "8Gi", "--wait")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    assert re.findall(r" default/hello +(\w+)", submitted.stdout) == ["placed", "bound", "running"]

    (row,) = (r for r in front.json("get", "requests") if r["name"] == "hello")
    assert (row["phase"], row["share_milli"], row["memory_mib"]) == ("running", 500, 8192)

    explained = front("explain", "hello").stdout
    assert re.search(r"where +node-0\d: GPU-\S+ 500/1000 8192 MiB", explained)
    assert re.search(r"runner-up +node-0\d, score", explained)

    traced = front("trace", "hello").stdout
    assert {"gpubus-client", "gpubus-scheduler", "gpubus-reconciler"} <= set(re.findall(r"gpubus-\w+", traced))
    assert "its parent never arrived" not in traced

    watched = front("watch", "default/hello", "--since", "1h", "--count", "3").stdout
    assert re.findall(r"default/hello +(\w+)", watched) == ["placed", "bound", "running"]

    assert front("audit").returncode == 0
    assert front("withdraw", "hello").returncode == 0
    assert "adds up" in front("audit").stdout


def test_a_request_that_fits_nowhere_waits_and_says_what_is_missing(front: Front, local: Local) -> None:
    """`--wait` ends with 1 in time; `explain` names needed, free and the nearest change."""
    done = front(
        "submit", "--name", "big", *IMAGE, "--gpu-share", "0.1", "--gpu-memory", "100Gi", "--wait", "--timeout", "3s"
    )
    explained = front("explain", "big").stdout

    assert (done.returncode, "not running within 3 s" in done.stdout) == (1, True)
    assert re.search(r"card-memory +2 +102400 +40448 +MiB", explained), explained
    assert "nearest" in explained


def test_a_refusal_is_a_table_of_field_value_and_bound(front: Front, local: Local) -> None:
    """Exit status 1; from flags and from a file alike."""
    by_flag = front("submit", "--name", "many", *IMAGE, "--gpus", "99")
    by_file = front("submit", "-", given='{"name": "odd", "pod": {"image": "i:1"}, "gpu": {"shre_milli": 5}}')

    assert (by_flag.returncode, by_file.returncode) == (1, 1)
    assert re.search(r"gpu\.cards +99 ", by_flag.stdout)
    assert re.search(r"gpu\.shre_milli .*did you mean gpu\.share_milli", by_file.stdout)


def test_a_file_of_many_is_followed_to_its_end(front: Front, local: Local) -> None:
    """TOML, two requests that end by themselves, fired into the stream."""
    requests = "".join(
        f'[[request]]\nname = "short-{n}"\npod = {{ image = "i:1", command = ["sleep", "0.2"] }}\n' for n in (1, 2)
    )
    done = front("submit", "-", "--fire", "--wait", "ended", "-n", "team-a", given=requests)

    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"team-a/(short-\d) +ended", done.stdout)) == ["short-1", "short-2"]


def test_what_if_changes_nothing(front: Front, local: Local) -> None:
    """It tells where a request would go; afterwards there is no such request."""
    asked = front("explain", "--what-if", "-", given='name = "w"\npod = { image = "i:1" }\n')
    known = front("explain", "w")

    assert (asked.returncode, "would be placed" in asked.stdout) == (0, True)
    assert (known.returncode, known.stderr) == (1, "gpubus: there is no request, function or job default/w\n")


def test_the_cards_can_be_looked_at(front: Front, local: Local) -> None:
    """Tables, JSON and the bars agree on how many there are; monitors tell what is used; what is real is said to be."""
    cards, nodes = front.json("get", "cards"), front.json("get", "nodes")
    bars, real = front("top", "--once").stdout, front.json("top")["this_machine"]

    assert ([len(cards), len(nodes)], {c["card"]["memory_total_mib"] for c in cards}) == ([4, 2], {40_960})
    assert re.findall(r"^(node-\d+).* (\d+) %", bars, re.MULTILINE), bars
    assert {"nats-server", "scheduler", "reconciler"} <= {part["name"] for part in real}
    assert all(part["memory_mib"] > 0 for part in real)


async def test_what_cannot_be_understood_is_a_dead_letter(front: Front, local: Local) -> None:
    """Published by a stranger, shown by `gpubus dead-letters`."""
    url = next(line.split()[1] for line in local.lines if line.startswith("nats-server"))
    async with connect(url, name="a stranger") as bus:
        await bus.store("gpubus.v1.requests.team-a", b"\xff not JSON")

    async def told() -> bool:
        shown = await asyncio.to_thread(front, "dead-letters")
        return bool(re.search(r"GPUBUS_REQUESTS +\d+ +gpubus\.v1\.requests\.team-a +not JSON", shown.stdout))

    await wait_until(told, what="a dead letter with its origin and reason")


def test_settings_say_where_they_come_from(front: Front, local: Local) -> None:
    """The running local installation is found by its note, and named."""
    shown = front("settings").stdout

    assert f"# the gpubus local with pid {local.process.pid}" in shown


def test_ctrl_c_ends_everything_within_five_seconds(front: Front, tmp_path: Path) -> None:
    """Status 0, no process left, no note left, no temporary folder left."""
    alone = Front(tmp_path)
    running = Local(alone)
    pids = list(running.children().values())
    status, seconds, said = running.end()

    assert (status, said.strip()) == (0, "stopped")
    assert seconds < STOP_S
    assert (len(pids), wait_gone(pids, 0.5)) == (4, [])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_services_are_asked_to_stop_and_what_is_kept_is_used_again(tmp_path: Path) -> None:
    """SIGTERM before SIGKILL: their logs end with STOPPED. The next start goes on with the same ledger."""
    front, state = Front(tmp_path), tmp_path / "state"
    running = Local(front, "--keep", str(state))
    front("submit", "--name", "first", *IMAGE, "--wait")
    ended = running.end(signal.SIGTERM)
    services = ("scheduler", "reconciler", "autoscaler")
    last_lines = [(state / f"{name}.log").read_text().splitlines()[-1] for name in services]
    again = Local(front, "--keep", str(state))
    known = front("explain", "first").stdout
    audited = front("audit")
    again.kill()

    assert ended[0] == 0
    assert [json.loads(line)["exit"] for line in last_lines] == ["STOPPED"] * 3
    assert "default/first" in known
    assert (audited.returncode, "over-commits 0: adds up" in audited.stdout) == (0, True)


def test_a_part_that_dies_ends_the_whole_with_the_end_of_its_log(tmp_path: Path) -> None:
    """Status 5, the name of the part, its log; the other parts are gone too."""
    running = Local(Front(tmp_path))
    children = running.children()
    os.kill(children["scheduler"], signal.SIGKILL)
    said, _ = running.process.communicate(timeout=60)

    assert running.process.returncode == 5, said
    assert "gpubus: scheduler: ended with exit status -9" in said
    assert "--- the end of its log" in said
    assert "Traceback" not in said
    assert wait_gone(list(children.values()), 0.5) == []


def test_no_child_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Not even SIGKILL leaves servers behind."""
    running = Local(Front(tmp_path))
    pids = list(running.children().values())
    running.process.kill()
    running.process.communicate(timeout=30)

    assert wait_gone(pids, 5.0) == []


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    """Status 5, before anything is left behind."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        outcomes = [Front(tmp_path)("local", flag, port) for flag in ("--port", "--traces-port", "--kube-port")]

    assert [done.returncode for done in outcomes] == [5, 5, 5]
    assert [f"port {port}" in done.stderr and done.stderr.count("\n") == 1 for done in outcomes] == [True] * 3


async def test_a_bus_without_a_scheduler_is_no_answer(tmp_path: Path, nats_server: NatsServer) -> None:
    """Status 4 and who does not answer; an audit says the same of its witnesses."""
    async with connect(nats_server.url, name="setup") as bus:
        await bus.ensure_streams()
    front = Front(tmp_path)
    asked = front("get", "cards", "--nats", nats_server.url)
    audited = front("audit", "--settle", "0", GPUBUS_NATS_URL=nats_server.url)

    assert (asked.returncode, "the scheduler does not answer" in asked.stderr) == (4, True)
    assert (audited.returncode, re.findall(r"not-heard +(\w+)", audited.stdout)) == (1, ["Kubernetes", "scheduler"])
