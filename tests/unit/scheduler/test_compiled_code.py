"""Compiled kernels in an image: a folder that cannot be written to is copied, every other one is left alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from scheduler.compiledcode import FOLDER, make_writable


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """As an image has it: a folder for a source file, with one function's code."""
    folder = tmp_path / "kept"
    (folder / "arrays_1").mkdir(parents=True)
    (folder / "arrays_1" / "kernel.nbi").write_bytes(b"compiled")
    return folder


def test_a_folder_that_cannot_be_written_to_is_copied_once(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy can be written to though what was kept cannot. Root may write everywhere, so the test says no."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for folder in (kept / "arrays_1", kept):
        folder.chmod(0o555)
    environments = [{FOLDER: str(kept)}, {FOLDER: str(kept)}]
    for environment in environments:
        make_writable(environment, lambda _: False)
    copies = {Path(environment[FOLDER]) for environment in environments}
    [copy] = copies
    assert copy != kept
    assert (copy / "arrays_1" / "kernel.nbi").read_bytes() == b"compiled"
    assert {path.stat().st_mode & 0o777 for path in (copy, copy / "arrays_1")} == {0o700}
    assert {path.name for path in tmp_path.iterdir()} == {"kept", copy.name}
    for folder in (kept, kept / "arrays_1"):
        folder.chmod(0o755)


@pytest.mark.parametrize("name", ["", "kept", "missing"])
def test_every_other_folder_is_left_alone(kept: Path, name: str) -> None:
    """Not named, writable, not there: numba copes by itself."""
    environment = {FOLDER: str(kept.parent / name)} if name else {}
    before = dict(environment)
    make_writable(environment)
    assert environment == before
