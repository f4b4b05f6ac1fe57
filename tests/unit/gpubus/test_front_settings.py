"""Where the bus is: the flag, the environment, the file, the running `gpubus local`, the default; in that order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpubus.errors import UsageError
from gpubus.local import runfile
from gpubus.local.runfile import Running
from gpubus.settings import effective

LOCAL = Running(
    pid=os.getpid(),
    nats_url="nats://127.0.0.1:5000",
    traces_url="http://127.0.0.1:5001",
    kube_url="http://127.0.0.1:5002",
    folder="/f",
)
ENV = {"GPUBUS_NATS_URL": "nats://env:1"}
FULL = {"GPUBUS_NATS__URLS": "nats://full:1,nats://full:2"}


@pytest.mark.parametrize(
    ("env", "flag", "running", "urls", "origin"),
    [
        ({}, None, None, ("nats://127.0.0.1:4222",), "default"),
        ({}, None, LOCAL, ("nats://127.0.0.1:5000",), f"the gpubus local with pid {os.getpid()}"),
        (ENV, None, LOCAL, ("nats://env:1",), "environment GPUBUS_NATS__URLS"),
        (ENV | FULL, None, None, ("nats://full:1", "nats://full:2"), "environment GPUBUS_NATS__URLS"),
        (ENV | FULL, "nats://flag:1", LOCAL, ("nats://flag:1",), "flag --nats"),
    ],
    ids=["default", "running local", "environment", "longer environment name", "flag"],
)
def test_the_strongest_word_wins(
    env: dict[str, str], flag: str | None, running: Running | None, urls: tuple[str, ...], origin: str
) -> None:
    """And each value knows where it came from."""
    loaded = effective(env=env, nats=flag, running=running)

    assert (loaded.settings.nats.urls, loaded.origins.get("nats.urls", "default")) == (urls, origin)


def test_spans_of_the_local_one_are_asked_for_only_when_its_bus_is_used() -> None:
    """Traces of another installation are not in its span store."""
    there = effective(env={}, running=LOCAL).settings
    elsewhere = effective(env=ENV, running=LOCAL).settings
    named = effective(env={"GPUBUS_JAEGER_URL": "http://jaeger:16686"}, running=LOCAL).settings

    assert (there.gpubus.jaeger_url, there.telemetry.otlp_endpoint) == (LOCAL.traces_url, LOCAL.traces_url)
    assert (elsewhere.gpubus.jaeger_url, elsewhere.telemetry.otlp_endpoint) == ("", "")
    assert named.gpubus.jaeger_url == "http://jaeger:16686"


def test_a_setting_that_is_wrong_is_named(tmp_path: Path) -> None:
    """In the environment and in the file."""
    file = tmp_path / "gpubus.toml"
    file.write_text('[gpubus]\nnamspace = "x"\n')

    with pytest.raises(UsageError, match=r"gpubus\.namspace.*gpubus\.namespace"):
        effective(env={}, file=file)
    with pytest.raises(UsageError, match="GPUBUS_NATS__URL"):
        effective(env={"GPUBUS_NATS__URL": "x"})


def test_the_run_file_is_found_while_its_process_lives_and_removed_by_its_owner_only(tmp_path: Path) -> None:
    """A note of a process that is gone is ignored; a newer one is not taken away by the older."""
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    older = LOCAL
    newer = Running(pid=os.getpid(), nats_url="nats://new:1", traces_url="", kube_url="", folder="")

    assert runfile.find(env) is None
    runfile.leave(older, env)
    assert runfile.find(env) == older
    runfile.leave(newer, env)
    runfile.remove(older, env)
    assert runfile.find(env) == newer
    runfile.remove(newer, env)
    assert runfile.find(env) is None


def test_a_run_file_of_a_dead_process_or_of_garbage_is_ignored(tmp_path: Path) -> None:
    """It is a hint, never a lock."""
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    runfile.leave(Running(pid=2**22 + 1, nats_url="x", traces_url="", kube_url="", folder=""), env)
    dead = runfile.find(env)
    runfile.path(env).write_text("{")

    assert (dead, runfile.find(env)) == (None, None)
    assert runfile.path({"HOME": "/h"}) == Path("/h/.cache/gpubus/local.json")
