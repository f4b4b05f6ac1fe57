"""The image that is built in the world and the one that the tests run are made of the same things."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.bed import images

REPOSITORY = Path(__file__).resolve().parents[3]
DOCKER = REPOSITORY / "deploy" / "docker"


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each instruction, continued lines joined, comments left out."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_every_package_is_copied_and_nothing_else() -> None:
    """Also the build sees them: what is not in the list of the build context does not exist for it."""
    copied = [rest.split() for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    folders = {source for parts in copied for source in parts[:-1] if (REPOSITORY / source).is_dir()}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    kept = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()

    assert folders == set(images.PACKAGES) == set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert {source for parts in copied for source in parts[:-1]} == {line[1:] for line in kept if line.startswith("!")}


def test_the_same_extras_are_installed_under_the_same_constraints() -> None:
    [install] = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    extras = re.search(r"'\.\[([a-z,]+)\]'", install)

    assert extras is not None
    assert set(extras[1].split(",")) == images.EXTRAS
    assert "-c constraints.txt" in install
    assert "--no-cache-dir" in install


def test_the_kernels_are_compiled_for_where_they_are_read() -> None:
    """A container's root is read-only: what is not compiled here is compiled at each start."""
    settings = [rest for word, rest in instructions() if word == "ENV"]
    places = [re.search(r"NUMBA_CACHE_DIR=(\S+)", rest) for rest in settings]
    processors = [re.search(r"NUMBA_CPU_NAME=(\S+)", rest) for rest in settings]
    runs = " ".join(rest for word, rest in instructions() if word == "RUN")

    assert {place[1] for place in places if place} == {"/opt/gpubus/kernels"}
    assert sum(place is not None for place in places) == 2
    assert {one[1] for one in processors if one} == {"generic"}
    assert "-m scheduler.core.arrays.warm" in runs
    assert "-m compileall" in runs


@pytest.mark.parametrize(
    ("word", "value"),
    [("USER", "65532:65532"), ("ENTRYPOINT", '["python"]'), ("CMD", '["-m", "gpubus", "--help"]')],
)
def test_it_runs_as_nobody_with_the_service_as_its_argument(word: str, value: str) -> None:
    """The chart names the module only; an entry point through a shell would not get signals."""
    assert [rest for found, rest in instructions() if found == word][-1:] == [value]


def test_base_images_have_a_tag_and_no_package_manager_is_left_open() -> None:
    """What a linter of such files asks first: no `latest`, no caches, no root at the end, no ADD."""
    bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    runs = " ".join(rest for word, rest in instructions() if word == "RUN")

    assert all(":" in base and not base.endswith(":latest") for base in bases)
    assert len(set(bases)) == 1, "what is compiled in one runs in the other"
    assert "ADD" not in {word for word, _ in instructions()}
    assert not re.search(r"\b(apt-get|apt|sudo|curl|wget)\b", runs)
