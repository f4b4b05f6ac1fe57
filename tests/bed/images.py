"""Container images without a container engine: archives for `ctr images import`, made of this machine's files.

In: the programs that the tests built, this interpreter, the installed packages that gpubus needs, and the working tree.
Out: two archives, one of a pause program and nats-server, one of Python and gpubus, each made again only when something
in it has changed. What deploy/docker/Dockerfile makes in the world is another image with the same entry point and the
same services; this one runs what stands here now.

Files keep the path that they have on this machine: then Python finds itself without being told, and compiled code that
is kept by path and date stays valid.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement

from tests.servers.binaries import folder as programs
from tests.servers.binaries import program
from tests.servers.natsd import nats_server_binary

__all__ = ["GPUBUS", "NATS", "PAUSE", "archives", "make"]

REPOSITORY = Path(__file__).resolve().parents[2]
PAUSE, NATS, GPUBUS = "localhost/pause:bed", "localhost/nats:bed", "localhost/gpubus:bed"
PACKAGES = ("autoscaler", "bus", "contracts", "gpubus", "monitor", "reconciler", "scheduler")
EXTRAS = {"nkeys", "uvloop", "lp"}
SKIPPED = re.compile(
    r"(^|/)(test|tests|idlelib|turtledemo|ensurepip|lib2to3|config-3[^/]*|tkinter|pip|setuptools)(/|$)"
)
_LIBRARY = re.compile(r"(/[^\s():]+\.so[^\s():]*)")
_USR = re.compile(r"^/(lib|lib64|bin|sbin)/")


def archives() -> list[Path]:
    """Where the archives are."""
    return [programs().parent / "bed" / f"{name}.tar" for name in ("pause", "nats", "gpubus")]


def make() -> None:
    """Make the archives that are missing or stale."""
    pause, nats, gpubus = archives()
    gpubus.parent.mkdir(parents=True, exist_ok=True)
    _kept(pause, PAUSE, {"/pause": program("pause")}, {"Entrypoint": ["/pause"]})
    server = {"/usr/bin/nats-server": nats_server_binary()}
    _kept(nats, NATS, server, {"Cmd": ["/usr/bin/nats-server"], "Env": ["PATH=/usr/bin"]})
    _gpubus(gpubus.parent)


def _gpubus(place: Path) -> None:
    application = place / "app"
    kernels = place / "numba"
    compiled = place / "compiled"
    if _stage(application) or not compiled.exists():
        compiled.unlink(missing_ok=True)
        _compile(application, {"PYTHONPATH": str(application), "NUMBA_CACHE_DIR": str(kernels)})
        compiled.touch()
    files = {**_python(), **_dependencies(place / "site"), **_tree(application), **_tree(kernels)}
    files["/usr/bin/openssl"] = Path(shutil.which("openssl") or "")
    files |= {path: Path(path) for path in ("/etc/ssl/openssl.cnf", "/usr/lib/ssl/openssl.cnf") if Path(path).exists()}
    binaries = [path for name, path in files.items() if ".so" in name or "/bin/" in name]
    packages = sysconfig.get_path("platlib")  # what a package brings with it, it finds beside itself
    files |= {name: path for name, path in _libraries(binaries).items() if not name.startswith(packages)}
    python = os.path.realpath(sys.executable)
    settings = {
        "Entrypoint": [python],
        "User": "65532:65532",
        "Env": [
            f"PATH={Path(python).parent}:/usr/bin",
            f"PYTHONPATH={application}:{place / 'site'}",
            f"NUMBA_CACHE_DIR={kernels}",
            "PYTHONUNBUFFERED=1",
            "PYTHONDONTWRITEBYTECODE=1",
            "LANG=C.UTF-8",
            "HOME=/tmp",
        ],
    }
    _kept(place / "gpubus.tar", GPUBUS, files, settings)


# --- what is in it ---------------------------------------------------------------------------------------------------


def _stage(application: Path) -> bool:
    """A copy of the working tree's packages; whether it changed. The rest keeps its date, and so what was compiled."""
    wanted: set[Path] = set()
    changed = False
    for package in PACKAGES:
        for source in (REPOSITORY / package).rglob("*"):
            if source.is_dir() or "__pycache__" in source.parts:
                continue
            copy = application / source.relative_to(REPOSITORY)
            wanted.add(copy)
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(source.read_bytes())
                os.utime(copy, (int(source.stat().st_mtime),) * 2)  # a whole second: what an archive can tell
                changed = True
    for stale in set(application.rglob("*")) - wanted:
        if stale.is_file() and stale.suffix != ".pyc":
            stale.unlink()
    return changed


def _compile(application: Path, environment: Mapping[str, str]) -> None:
    """Byte code, and the scheduler's kernels: a container's root is read-only."""
    env = {**os.environ, **environment}
    subprocess.run([sys.executable, "-m", "compileall", "-q", application], check=True, env=env)
    subprocess.run([sys.executable, "-m", "scheduler.core.arrays.warm"], check=True, env=env, cwd=application)


def _python() -> dict[str, Path]:
    """The interpreter and its standard library."""
    binary = Path(os.path.realpath(sys.executable))
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    roots = {Path(sysconfig.get_path(name, vars=base)) for name in ("stdlib", "platstdlib")}
    files = {str(binary): binary, "/usr/bin/python3": binary}
    for root in roots:
        files |= {name: path for name, path in _tree(root).items() if "/site-packages/" not in name}
    return {name: path for name, path in files.items() if not SKIPPED.search(name.removeprefix(sys.base_prefix))}


def _dependencies(place: Path) -> dict[str, Path]:
    """Every file of the distributions that gpubus needs, as if installed in `place`."""
    found: dict[str, Path] = {}
    for name in ("gpubus", *sorted(_needed())):
        for file in importlib.metadata.files(name) or ():
            path = Path(str(file.locate()))
            inside = str(file)
            if name == "gpubus" and ".dist-info/" not in inside:
                continue  # its code stands beside; this says which version it is
            if not inside.startswith("..") and path.is_file() and not SKIPPED.search(inside):
                found[str(place / inside)] = path
    return found


def _needed() -> set[str]:
    """The installed distributions that gpubus needs, by what pyproject.toml says today."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(text for name in EXTRAS for text in project["optional-dependencies"][name])]
    seen: set[str] = set()
    _follow(asked, set(), seen)
    return seen


def _follow(texts: Iterable[str], extras: set[str], seen: set[str]) -> None:
    for requirement in map(Requirement, texts):
        contexts: list[dict[str, str]] = [{"extra": extra} for extra in (*extras, "")]
        if requirement.marker is not None and not any(requirement.marker.evaluate(c) for c in contexts):
            continue
        key = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if key not in seen and _installed(requirement.name):
            seen.add(key)
            _follow(importlib.metadata.requires(requirement.name) or (), set(requirement.extras), seen)


def _installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _tree(root: Path) -> dict[str, Path]:
    return {str(path): path for path in sorted(root.rglob("*")) if path.is_file()}


def _libraries(binaries: list[Path]) -> dict[str, Path]:
    """The shared libraries of the system that they need, by `ldd`."""
    found: dict[str, Path] = {}
    elf = [path for path in binaries if path.open("rb").read(4) == b"\x7fELF"]
    for start in range(0, len(elf), 50):
        said = subprocess.run(["ldd", *elf[start : start + 50]], capture_output=True, text=True, check=False).stdout
        found |= {name: Path(name) for name in _LIBRARY.findall(said) if Path(name).is_file()}
    # Loaded by name while the program runs, so that no list names it: threads that are cancelled need it.
    for extra in ("libgcc_s.so.1",):
        for folder in {Path(name).parent for name in found}:
            if (folder / extra).exists():
                found[str(folder / extra)] = folder / extra
    return found


# --- how it is packed ------------------------------------------------------------------------------------------------


def _kept(archive: Path, name: str, files: Mapping[str, Path], settings: Mapping[str, object]) -> None:
    """The archive, packed again only when what goes into it is not what went into it."""
    stamp = hashlib.sha256(json.dumps([name, settings, *_facts(files)], sort_keys=True).encode()).hexdigest()
    kept = archive.with_suffix(".stamp")
    if not archive.exists() or not kept.exists() or kept.read_text(encoding="ascii") != stamp:
        new = archive.with_suffix(".new")
        _pack(new, name, _layer(files), settings)
        new.replace(archive)
        kept.write_text(stamp, encoding="ascii")


def _facts(files: Mapping[str, Path]) -> Iterator[tuple[str, int, int]]:
    for name, path in sorted(files.items()):
        status = path.stat()
        yield name, status.st_size, status.st_mtime_ns


def _layer(files: Mapping[str, Path]) -> bytes:
    """One layer, owned by root and readable by all, as on a system where /lib is a link into /usr."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folders: set[str] = set()
        for link in ("lib", "lib64", "bin", "sbin"):
            _add_folders(tar, f"usr/{link}/x", folders)
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{link}"
            tar.addfile(entry)
        for name, path in sorted(files.items()):
            inside = _USR.sub(r"/usr/\1/", name).lstrip("/")
            _add_folders(tar, inside, folders)
            status = path.stat()
            entry = tarfile.TarInfo(inside)
            entry.size, entry.mtime = status.st_size, int(status.st_mtime)
            entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
        _add_text(tar, "etc/passwd", "root:x:0:0:root:/root:/\nnobody:x:65532:65532::/tmp:/\n")
        _add_text(tar, "etc/nsswitch.conf", "hosts: files dns\n")
        entry = tarfile.TarInfo("tmp")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(entry)
    return buffer.getvalue()


def _add_folders(tar: tarfile.TarFile, inside: str, made: set[str]) -> None:
    for parent in reversed(Path(inside).parents):
        if str(parent) not in made and str(parent) != ".":
            made.add(str(parent))
            entry = tarfile.TarInfo(str(parent))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), 0o644
    tar.addfile(entry, io.BytesIO(text.encode("ascii")))


def _pack(archive: Path, name: str, layer: bytes, settings: Mapping[str, object]) -> None:
    """An OCI image layout as one tar."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": f"sha256:{digest}", "size": len(content)}

    data = blob(layer, "layer.v1.tar")
    config = {"architecture": _architecture(), "os": "linux", "config": settings}
    config["rootfs"] = {"type": "layers", "diff_ids": [data["digest"]]}
    described = blob(json.dumps(config, sort_keys=True).encode(), "config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    named = blob(json.dumps({**manifest, "config": described, "layers": [data]}).encode(), "manifest.v1+json")
    annotations = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [{**named, "annotations": annotations}]}
    blobs |= {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    with tarfile.open(archive, "w") as tar:
        for path, content in blobs.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
