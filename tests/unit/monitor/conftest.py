"""The stand-in driver with three cards, for the tests of the real pynvml over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.cards.nvml import NvmlCards
from tests.nvml_stub.stub import MIB, World, build, driver

T4_TOTAL = 16106127360  # 15360 MiB, what a T4 of "16 GiB" reports with ECC on


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def world(library: Path, tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "world")
    world.set("cuda", 13010)
    for index in range(3):
        world.card(index, uuid=f"GPU-{index}", name="Tesla T4", total=T4_TOTAL, reserved=450 * MIB, used=0)
    with driver(library, world):
        yield world


@pytest.fixture
def cards(world: World) -> Iterator[NvmlCards]:
    cards = NvmlCards()
    yield cards
    cards.close()
