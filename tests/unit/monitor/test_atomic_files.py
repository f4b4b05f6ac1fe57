"""Files that are replaced whole, seen by a watcher of closed writes, whatever kills the writer."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from monitor.enforce import atomic
from tests.builders.inotify import Inotify

ROOT = Path(__file__).parents[3]


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Path, Path]:
    folder, staging = tmp_path / "config", tmp_path / ".staging"
    folder.mkdir()
    staging.mkdir()
    return folder, staging


def test_a_watcher_of_closed_writes_sees_the_new_content_once(watched: tuple[Path, Path]) -> None:
    """One event, of the file's own name, when the new content stands; none of the staged file."""
    folder, staging = watched
    inotify = Inotify(folder)
    atomic.write(folder / "GPU-1", b"old\n", staging=staging)
    assert inotify.closed() == ["GPU-1"]
    atomic.write(folder / "GPU-1", b"new\n", staging=staging)

    assert inotify.closed() == ["GPU-1"]
    assert (folder / "GPU-1").read_bytes() == b"new\n"
    assert [path.name for path in staging.iterdir()] == []


def test_a_nudge_is_an_event_and_no_change(watched: tuple[Path, Path]) -> None:
    """For content that stands already: whoever was killed before the event catches up on it."""
    folder, staging = watched
    atomic.write(folder / "GPU-1", b"content\n", staging=staging)
    inotify = Inotify(folder)
    atomic.nudge(folder / "GPU-1")

    assert inotify.closed() == ["GPU-1"]
    assert (folder / "GPU-1").read_bytes() == b"content\n"


def test_a_reader_that_holds_the_old_file_keeps_it(watched: tuple[Path, Path]) -> None:
    """The old file is replaced, not written into: who reads it slowly reads one content to its end."""
    folder, staging = watched
    atomic.write(folder / "GPU-1", b"a" * 10_000, staging=staging)
    with (folder / "GPU-1").open("rb") as reader:
        begun = reader.read(10)
        atomic.write(folder / "GPU-1", b"b" * 10_000, staging=staging)

        assert begun + reader.read() == b"a" * 10_000


WRITER = """
import itertools, os, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from monitor.enforce import atomic
from tests.builders.inotify import Inotify
folder, staging = Path(sys.argv[1]), Path(sys.argv[2])
os.write(1, b".")
for turn in itertools.count(1):
    letter = b"ab"[turn % 2 : turn % 2 + 1]
    atomic.write(folder / "GPU-1", letter * 50_000 + b"\\n", staging=staging)
"""


def test_a_writer_that_is_killed_leaves_the_old_or_the_new(watched: tuple[Path, Path]) -> None:
    """SIGKILL at two dozen moments of an endless loop of writes: never a part, never a mixture, never nothing."""
    folder, staging = watched
    atomic.write(folder / "GPU-1", b"b" * 50_000 + b"\n", staging=staging)
    whole = {letter * 50_000 + b"\n" for letter in (b"a", b"b")}
    seen: set[bytes] = set()
    read, write = os.pipe()
    for turn in range(24):
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", WRITER, str(folder), str(staging), str(ROOT)],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)],
        )
        assert os.read(read, 100) == b"."
        moments = range(turn * 7) if turn < 23 else range(1_000_000)
        for _ in moments:
            content = (folder / "GPU-1").read_bytes()
            assert content in whole
            seen.add(content)
            if turn == 23 and seen == whole:
                break
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert (folder / "GPU-1").read_bytes() in whole
    os.close(read)
    os.close(write)

    assert seen == whole  # the writers did write: both contents were met
