"""Real processes: how they begin, and that they always end, in time, with the exit code and the reason."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from bus.runtime.deadline import Deadline
from bus.runtime.exits import ExitCode
from bus.runtime.process import STOP_S
from tests.unit.bus.services import ROOT, Forker, Running


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    parent = Forker()
    yield parent
    parent.close()


@pytest.fixture
def start(forker) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def make(*argv: str, **parts) -> Running:
        started.append(Running(forker, *argv, **parts))
        return started[-1]

    yield make
    for child in started:
        child.close()


# --- asked to stop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_well(start, number):
    """What is in flight is finished, background tasks are cancelled, exit code 0, well within five seconds."""
    child = start(
        stop_s=STOP_S,
        setup="process.spawn('background', asyncio.sleep(3600))",
        work="work = asyncio.create_task(asyncio.sleep(0.5, 'finished'))",
        drain="print(await work, flush=True)",
    )
    child.wait_for()

    asked = child.signal(number)

    assert child.end() == ExitCode.STOPPED
    assert time.monotonic() - asked < 3
    assert child.out == ["finished"]
    assert child.messages() == ["started", "stopping", "ended"]


def test_a_second_interrupt_ends_at_once(start):
    """Somebody sits at a terminal and has waited long enough. SIGTERM after SIGINT does not count as a second one."""
    child = start(
        stop_s=STOP_S,
        drain="print('draining', flush=True)\nawait asyncio.sleep(0.4)\nprint('still draining', flush=True)\n"
        "await asyncio.sleep(60)",
    )
    child.wait_for()
    child.signal(signal.SIGINT)
    child.wait_for("draining")
    child.signal(signal.SIGTERM)
    child.wait_for("still draining")

    again = child.signal(signal.SIGINT)

    assert child.end() == ExitCode.DRAIN_CUT
    assert time.monotonic() - again < 2


# --- what hangs ------------------------------------------------------------------------------------------------------

STUBBORN = "while True:\n    try: await asyncio.sleep(60)\n    except asyncio.CancelledError: pass"
HUNG: dict[str, dict] = {
    "swallows cancellation": {"drain": STUBBORN},
    "blocks the event loop": {"drain": "time.sleep(60)"},
    "an executor thread": {"work": "lost = asyncio.create_task(asyncio.to_thread(time.sleep, 60))"},
    "a thread of its own": {"setup": "threading.Thread(target=time.sleep, args=(60,), name='nvml').start()"},
    "a crash": {
        "setup": f"async def stubborn():\n    {STUBBORN.replace(chr(10), chr(10) + '    ')}\n"
        "process.spawn('stubborn', stubborn())",
        "drain": "raise ValueError('boom')",
    },
    "a dead collector": {
        "stop_s": STOP_S,
        "env": {"GPUBUS_TELEMETRY__OTLP_ENDPOINT": "http://127.0.0.1:9"},
        "work": "from bus.runtime.tracing import span\nwith span('decide'): pass",
    },
    "a stuck drain": {"stop_s": STOP_S, "drain": "await asyncio.sleep(60)"},
    "a stuck drain that swallows cancellation": {"stop_s": STOP_S, "drain": STUBBORN},
}
"""In the order in which they end. Those without `stop_s` get 1.6 s instead of the 4.9 of a service."""


@pytest.fixture(scope="module")
def hung(forker) -> dict[str, tuple[int, float, Running]]:
    """All of them at the same time: exit code, seconds from SIGTERM to the end, and what they have said."""
    children = {name: Running(forker, **parts) for name, parts in HUNG.items()}
    try:
        for child in children.values():
            child.wait_for()
        asked = {name: child.signal() for name, child in children.items()}
        return {name: (child.end(), time.monotonic() - asked[name], child) for name, child in children.items()}
    finally:
        for child in children.values():
            child.close()


@pytest.mark.parametrize(
    ("name", "code", "stuck"),
    [
        ("swallows cancellation", ExitCode.DRAIN_CUT, "scheduler"),
        ("blocks the event loop", ExitCode.DRAIN_CUT, "scheduler"),
        ("an executor thread", ExitCode.DRAIN_CUT, "asyncio_0"),
        ("a thread of its own", ExitCode.DRAIN_CUT, "nvml"),
        ("a crash", ExitCode.CRASHED, "stubborn"),
    ],
)
def test_what_cannot_be_cancelled_is_cut_at_the_deadline(hung, name, code, stuck):
    """Whatever hangs, the process is gone when its time is up, and the last line names what was still running."""
    ended, took_s, child = hung[name]

    assert ended == code
    assert 1.5 < took_s < 4
    last = child.log()[-1]
    assert last["message"] == "time is up, cutting what is left"
    assert stuck in last["stuck"]


def test_a_stuck_drain_is_cancelled_with_a_second_to_spare(hung):
    """So that traces are flushed and the end is orderly; the exit code tells."""
    ended, took_s, child = hung["a stuck drain"]

    assert ended == ExitCode.DRAIN_CUT
    assert 3.8 < took_s < 8
    assert any("the drain was not finished in 3.9 s" in line.get("reason", "") for line in child.log())
    assert child.messages()[-1] == "ended"


def test_a_process_is_gone_within_five_seconds(hung):
    """As services run it, and with a drain that cannot be cancelled."""
    ended, took_s, child = hung["a stuck drain that swallows cancellation"]

    assert ended == ExitCode.DRAIN_CUT
    assert 4.7 < child.seconds_between("stopping", "time is up, cutting what is left") < 5
    assert took_s < 8  # and what a busy machine needs to reap it


def test_a_dead_collector_holds_the_end_for_two_seconds_at_most(hung):
    """The spans are lost, and a line says so."""
    ended, took_s, child = hung["a dead collector"]

    assert ended == ExitCode.STOPPED
    assert took_s < 3.5
    assert "telemetry was not flushed in time" in child.messages()


# --- ends by itself --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"work": "raise ValueError('boom')"}, "task 'scheduler': ValueError: boom"),
        ({"work": "return"}, "task 'scheduler' ended although nobody asked it to stop"),
        ({"setup": "raise ValueError('boom')"}, "ValueError: boom"),
        (
            {
                "setup": "async def ticker():\n    await asyncio.sleep(0.1)\n    raise ValueError('tick')\n"
                "process.spawn('ticker', ticker())"
            },
            "task 'ticker': ValueError: tick",
        ),
        ({"setup": "process.spawn('ticker', asyncio.sleep(0.1))"}, "task 'ticker' ended although nobody asked"),
        (
            {"work": "async with asyncio.TaskGroup() as g:\n    g.create_task(asyncio.to_thread(lambda: 1 / 0))"},
            "task 'scheduler': ZeroDivisionError",
        ),
    ],
    ids=["service fails", "service returns", "constructor fails", "task fails", "task returns", "group fails"],
)
def test_a_task_that_ends_unexpectedly_ends_the_process_loudly(start, parts, reason):
    """Exit code 1, the reason in a line of its own, and the traceback."""
    child = start(**parts)

    assert child.end() == ExitCode.CRASHED
    assert any(line["message"] == "ending" and reason in line["reason"] for line in child.log())
    assert any("Traceback" in line.get("exception", "") for line in child.log())


def test_a_failure_while_draining_is_a_crash(start):
    """Work in flight that fails is not a good end."""
    child = start(drain="raise ValueError('lost it')")
    child.wait_for()
    child.signal()

    assert child.end() == ExitCode.CRASHED
    assert "ValueError: lost it" in child.err


def test_a_task_may_end_when_it_says_so(start):
    """`may_end` is for work that has an end, such as warming up."""
    child = start(setup="process.spawn('warm-up', asyncio.sleep(0), may_end=True)", work="await asyncio.sleep(0.2)")
    child.wait_for()
    time.sleep(0.3)  # long enough for it to have ended wrongly
    child.signal()

    assert child.end() == ExitCode.STOPPED


def test_the_loss_of_the_bus_has_its_own_exit_code(start):
    """`end_when(bus.closed, BUS_CLOSED, ...)`: a supervisor starts it again."""
    child = start(
        setup="closed = asyncio.Event()\n"
        "process.end_when(closed, ExitCode.BUS_CLOSED, lambda: 'no answer for 12 s')\n"
        "asyncio.get_running_loop().call_later(0.1, closed.set)"
    )

    assert child.end() == ExitCode.BUS_CLOSED
    (line,) = (line for line in child.log() if line["message"] == "ending")
    assert (line["exit"], line["reason"]) == ("BUS_CLOSED", "no answer for 12 s")
    assert "Traceback" not in child.err


def test_an_order_to_end_is_found_in_the_groups_of_a_service(start):
    """Raised anywhere below, also in a nested TaskGroup."""
    child = start(
        work="async def fenced():\n    raise EndProcess(ExitCode.LEADERSHIP_LOST, 'another epoch')\n"
        "async with asyncio.TaskGroup() as g:\n    g.create_task(fenced())"
    )

    assert child.end() == ExitCode.LEADERSHIP_LOST


def test_a_failing_thread_is_logged(start):
    """A thread has no one to raise to; its traceback is a log line and the process goes on."""
    child = start(work="t = threading.Thread(target=lambda: 1 / 0, name='nvml')\nt.start()\nt.join()")
    child.wait_for()
    time.sleep(0.2)  # it must survive this: nothing to wait for
    child.signal()

    assert child.end() == ExitCode.STOPPED
    (line,) = (line for line in child.log() if line["message"] == "a thread failed")
    assert line["of"] == "nvml"
    assert "ZeroDivisionError" in line["exception"]


def test_a_stop_before_the_first_connection_ends_well(start):
    """Waiting for a server that is not up has nothing to drain."""
    child = start(stop_s=STOP_S, work="async with self.process.until_stop(): await asyncio.sleep(60)")
    child.wait_for()

    asked = child.signal()

    assert child.end() == ExitCode.STOPPED
    assert time.monotonic() - asked < 3
    assert "asked to stop before it had begun" in child.err


@pytest.mark.parametrize("inside", ["await asyncio.sleep(0)", "raise TimeoutError('its own')"])
def test_what_ends_before_the_stop_is_not_touched_by_it(start, inside):
    """The result, or the error, is that of the work; a later stop cancels nothing."""
    child = start(
        work=f"async with self.process.until_stop():\n    {inside}",
        drain="await asyncio.sleep(0.1)\nprint('drained', flush=True)",
    )
    if "raise" in inside:
        assert child.end() == ExitCode.CRASHED
        assert "TimeoutError: its own" in child.err
    else:
        child.wait_for()
        child.signal()
        assert child.end() == ExitCode.STOPPED
        assert child.out == ["drained"]


# --- readiness while stopping ----------------------------------------------------------------------------------------


def test_a_stopping_process_is_alive_and_not_ready(start):
    """No new work is sent to it, and nobody kills it for that."""
    child = start(
        drain="print(self.process.health.liveness().ok, self.process.health.readiness().checks['process'].reason)",
    )
    child.wait_for()
    child.signal()

    assert child.end() == ExitCode.STOPPED
    assert child.out == ["True stopping"]


# --- the command line ------------------------------------------------------------------------------------------------


def test_wrong_settings_are_told_and_have_their_own_exit_code(start):
    """All at once, on stderr, without a traceback."""
    child = start(env={"GPUBUS_NATS__REPLICAS": "9", "GPUBUS_NATS__URLZ": "x"})

    assert child.end() == ExitCode.BAD_SETTINGS
    assert child.err.splitlines() == [
        "scheduler: the settings are wrong:",
        "  environment: unknown setting 'GPUBUS_NATS__URLZ'; the nearest valid one is 'GPUBUS_NATS__URLS'",
        "  environment GPUBUS_NATS__REPLICAS: nats.replicas = '9': Expected `int` <= 5",
    ]


def test_settings_are_printed_with_their_origins(start, tmp_path):
    """`--print-settings` starts nothing."""
    file = tmp_path / "gpubus.toml"
    file.write_text("[nats]\nreplicas = 3\ntoken = 'hunter2'\n")
    child = start("--config", str(file), "--print-settings")

    assert child.end() == 0
    assert f"replicas = 3  # file {file}" in child.out
    assert "hunter2" not in "".join(child.out)


def test_help_shows_examples_and_exit_codes(start):
    """What an operator needs at three in the morning."""
    child = start("--help")

    assert child.end() == 0
    text = "\n".join(child.out)
    assert "GPUBUS_NATS__URLS=nats://10.0.0.5:4222 python -m scheduler" in text
    assert "4  drain cut" in text


def test_version(start):
    """Name and version."""
    child = start("--version")

    assert child.end() == 0
    assert child.out[0].startswith("gpubus scheduler ")


# --- the deadline ----------------------------------------------------------------------------------------------------


def test_a_deadline_that_is_disarmed_does_nothing():
    """The tests would end here."""
    deadline = Deadline()
    deadline.arm(0.2, ExitCode.DRAIN_CUT)
    deadline.arm(3600, ExitCode.CRASHED)
    deadline.disarm()

    assert not deadline._thread.is_alive()


def test_the_last_words_do_not_hold_up_the_end():
    """A full pipe that nobody reads: the process ends all the same, at the earliest of its deadlines."""
    program = (
        "import os, sys, time\nfrom bus.runtime.deadline import Deadline\nfrom bus.runtime.exits import ExitCode\n"
        "os.set_blocking(2, False)\n"
        "try:\n    while True: os.write(2, b'x' * 65536)\nexcept BlockingIOError: os.set_blocking(2, True)\n"
        "d = Deadline()\nd.arm(60, ExitCode.DRAIN_CUT)\nd.arm(0.1, ExitCode.DRAIN_CUT)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE) as child:
        assert child.wait(10) == ExitCode.DRAIN_CUT
