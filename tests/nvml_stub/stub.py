"""Build the stand-in for libnvidia-ml.so.1, and write the world that it answers from.

    library = build(folder)                       # cc, once
    world = World(folder / "world")
    world.card(0, uuid="GPU-a", name="Tesla T4", total=16 * GIB)
    with driver(library, world): ...              # pynvml of this process talks to it
    subprocess.run(..., env=environment(library, world))   # or of another one

pynvml loads `libnvidia-ml.so.1` by that name alone, so another process finds the stand-in through LD_LIBRARY_PATH; in
this process, where the search path is fixed already, it is put into pynvml's own variable and taken out again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pynvml

SOURCE = Path(__file__).with_name("nvml_stub.c")
SONAME = "libnvidia-ml.so.1"
WORLD = "NVML_STUB_WORLD"
MIB = 1024 * 1024
GIB = 1024 * MIB


def build(folder: Path) -> Path:
    """Compile the library into `folder` (once) and return its path."""
    library = folder / SONAME
    if library.exists():
        return library
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("the stand-in driver is a small C library: put cc, gcc or clang on PATH, or name it in CC")
    command = [compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{SONAME}", "-o", str(library), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return library


class World:
    """The lines of the file, and the file; each change is written whole and at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, str] = {"driver": "570.86.15", "count": "0"}
        self._write()

    def set(self, key: str, value: object) -> None:
        self.lines[key] = str(value)
        self._write()

    def unset(self, key: str) -> None:
        self.lines.pop(key, None)
        self._write()

    def card(self, index: int, **values: object) -> None:
        """Add or change a card; the driver lists it from now on."""
        self.lines |= {f"card{index}.{key}": str(value) for key, value in values.items()}
        self.lines["count"] = str(max(index + 1, int(self.lines["count"])))
        self._write()

    def happen(self, card: int, data: int, *, kind: int = pynvml.nvmlEventTypeXidCriticalError, slot: str = "") -> None:
        """An event, once: an Xid, or whatever `kind` says; of one MIG instance when `slot` names it."""
        number = 1 + sum(key.startswith("event") for key in self.lines)
        self.set(f"event{number}", f"{card}:{kind}:{data}" + (f":{slot}" if slot else ""))

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{key}={value}\n" for key, value in self.lines.items()))
        new.replace(self.path)


@contextlib.contextmanager
def driver(library: Path, world: World) -> Iterator[None]:
    """Let pynvml of this process talk to the stand-in."""
    before = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), os.environ.get(WORLD)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = ctypes.CDLL(str(library))
    os.environ[WORLD] = str(world.path)  # os.environ, not a copy: C code reads the process's own environment
    try:
        yield
    finally:
        pynvml.nvmlLib = before[0]
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(before[1])
        os.environ.pop(WORLD) if before[2] is None else os.environ.update({WORLD: before[2]})


def environment(library: Path, world: World, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process whose driver is the stand-in."""
    paths = [str(library.parent), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    return {**base, "LD_LIBRARY_PATH": os.pathsep.join(paths), WORLD: str(world.path)}
