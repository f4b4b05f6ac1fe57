"""Files that are not as they should be: what stands in them is a number, nothing, or a named error; never a crash.

Those of cgroups, of /proc/<pid> and of Gemini have such a test beside their examples; here are the others.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitor import smallfile
from monitor.cards.simulated import fault
from monitor.cgroups.stats import entry, table
from monitor.cgroups.tree import CpuPlace
from monitor.enforce import cpu, mps
from monitor.enforce.listeners import listening

WORDS = st.one_of(
    st.text(max_size=12),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["max", "-1", "0A", "0100007F:C383", "100000", "²", "", "key", "nr_periods"]),
)
TEXT = st.lists(st.lists(WORDS, max_size=6).map(" ".join), max_size=6).map("\n".join)
TCP = "  sl  local_address rem_address   st\n   0: 0100007F:C383 00000000:0000 0A 00000000:00000000 00:00000000\n"


@given(TEXT)
@example(TCP)
@example(TCP + "   1: 00000000:FFFFF 00000000:0000 0A\n   2: x 0A\n")
def test_any_text_is_a_table_of_listeners(text: str) -> None:
    """/proc/net/tcp: ports are ports; the real line is understood, whatever follows it."""
    found = listening(text)

    assert all(0 <= port <= 65_535 for port in found)
    assert (0xC383 in found) if text.startswith(TCP) else True


@given(TEXT, WORDS)
@example("anon 1\ninactive_file 7\ninactive_file 9", "inactive_file")
@example("inactive_file x\ninactive_file 9", "inactive_file")
@example("total7\ntotal_inactive 8\ntotal 9", "total")
def test_one_entry_is_the_one_that_the_whole_table_has(text: str, key: str) -> None:
    """memory.stat: the quick way and the thorough one never differ."""
    if " " not in key and len(key.splitlines()) == 1:
        assert entry(text, key) == table(text).get(key)


@settings(deadline=None, max_examples=40)
@given(limit=TEXT, period=TEXT, unified=st.booleans())
@example(limit="50000 100000", period="", unified=True)
@example(limit="-1", period="100000", unified=False)
def test_a_quota_is_read_or_refused(limit: str, period: str, *, unified: bool) -> None:
    """cpu.max, cpu.cfs_quota_us: what cannot be read is an error of the file, and never "no limit"."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("cpu.max", limit), ("cpu.cfs_quota_us", limit), ("cpu.cfs_period_us", period)):
            Path(folder, name).write_text(text, encoding="utf-8", errors="surrogatepass")
        place = CpuPlace(pod_uid="p", container="c", unified=unified, pod_folder=folder, folder=folder)
        try:
            found = cpu.read(folder, place)
        except (OSError, UnicodeDecodeError):
            return

    assert found.period_us > 0
    assert (found.quota_us is None) == (limit.split()[:1] == (["max"] if unified else ["-1"]))


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=200))
@example(b'["uid"]')
@example(b"[" * 5000)
def test_what_was_touched_is_a_set_of_uids_or_nothing(data: bytes) -> None:
    """The state file of the CPU limits: garbage is a file that was never written."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "state")
        file.write_bytes(data)
        found = cpu._read(file)

    assert all(isinstance(uid, str) for uid in found)


@given(st.integers(-1, 255), st.binary(max_size=400))
@example(0, b"4711\n4712\n")
def test_any_answer_of_the_mps_daemon_is_well_or_a_complaint_of_bounded_length(code: int, said: bytes) -> None:
    """Only pids, or nothing, with status 0 is well."""
    told = mps._verdict(code, said)

    assert len(told) <= 400
    assert (told == "") == (code == 0 and all(w.isdigit() for w in said.decode("utf-8", "replace").split()))


@given(st.text(max_size=30))
@example("2@20+30:Xid 48")
def test_a_fault_is_one_or_says_how_it_is_spelt(text: str) -> None:
    """What an operator types."""
    try:
        found = fault(text)
    except ValueError as error:
        assert "INDEX@AFTER+FOR" in str(error)  # noqa: PT017 - both ways are right
    else:
        assert found.index >= 0


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 70_000])
def test_a_small_file_is_read_to_its_end_and_a_large_one_to_its_bound(tmp_path: Path, size: int) -> None:
    """Also one that comes in pieces; of what is too long the beginning."""
    file = tmp_path / "file"
    file.write_bytes(os.urandom(size))

    assert smallfile.read(str(file)) == file.read_bytes()[: smallfile.MOST_BYTES]


def test_a_file_that_comes_in_pieces_is_whole() -> None:
    """The kernel gives /proc/<pid>/maps of a process in pages; one read has the first."""
    found = smallfile.read("/proc/self/maps")
    assert found is not None
    handle = os.open("/proc/self/maps", os.O_RDONLY)
    try:
        first = os.read(handle, smallfile.MOST_BYTES)
    finally:
        os.close(handle)

    assert len(found) > len(first) or len(found) == smallfile.MOST_BYTES


def test_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    """A missing file, a folder, a name that no file can have; and no descriptor stays open."""
    for path in (str(tmp_path / "none"), str(tmp_path), "a\0b"):
        assert smallfile.read(path) is None

    open_files = {str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
    assert str(tmp_path) not in open_files
