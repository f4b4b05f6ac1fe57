"""`python -m tests.bed.cluster`: two real nodes with sixteen made-up cards and gpubus on them, until Ctrl-C.

It prints how to get a shell in there and what to try. Everything it makes is gone when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shlex
import signal
import sys
import time
from pathlib import Path

from tests.bed import images, layout
from tests.bed.bed import REPOSITORY, Bed
from tests.bed.installing import NAMESPACE, VALUES, authority, install, namespace, token, wait_ready
from tests.bed.needs import missing
from tests.bed.world import SHOW, TEAM
from tests.servers.binaries import JAEGER
from tests.servers.binaries import folder as programs
from tests.servers.binaries import missing as unbuilt
from tests.servers.jaegerd import Jaeger

NODES = ("gpu-1", "gpu-2")
DAY_S = 86_400

say = functools.partial(print, flush=True)


async def run() -> None:
    """From nothing to a cluster, and nothing again."""
    say(f"a cluster of {len(NODES)} real nodes on this machine, in namespaces of its own (the first time takes longer)")
    async with contextlib.AsyncExitStack() as stack:
        bed = Bed(NODES)
        stack.push_async_callback(bed.close)
        await bed.start(say)
        with bed.entered():
            jaeger = None
            if not unbuilt(*JAEGER):
                jaeger = await stack.enter_async_context(Jaeger(host=layout.ADDRESS))
            await _install(bed, jaeger)
            shell = await _shell(bed, jaeger)
        say(_try(shell))
        await asyncio.Event().wait()


async def _install(bed: Bed, jaeger: Jaeger | None) -> None:
    began = time.monotonic()
    await namespace(bed, TEAM)
    await install(bed, {**VALUES, "tracing": {"otlpEndpoint": jaeger.otlp_url if jaeger else ""}})
    await wait_ready(bed)
    say(f"{time.monotonic() - began:6.2f} s  gpubus installed by its chart, every pod Ready")


async def _shell(bed: Bed, jaeger: Jaeger | None) -> Path:
    """A program that opens a shell in the bed, as its operator."""
    (bed.folder / "ca.crt").write_text(await authority(bed), encoding="ascii")
    (bed.folder / "token").write_text(await token(bed, NAMESPACE, "gpubus-operator", life_s=DAY_S), encoding="ascii")
    variables = {
        "KUBECONFIG": bed.kubeconfig,
        "GPUBUS_NATS__URLS": f"tls://gpubus-nats.{NAMESPACE}.svc.{layout.DOMAIN}:4222",
        "GPUBUS_NATS__IDENTITY": "operator",
        "GPUBUS_NATS__TOKEN_FILE": bed.folder / "token",
        "GPUBUS_NATS__TLS_CA_FILE": bed.folder / "ca.crt",
        "GPUBUS_JAEGER_URL": jaeger.query_url if jaeger else "",
    }
    texts = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    path = f"PATH={shlex.quote(f'{Path(sys.executable).parent}:{programs()}')}:$PATH"
    enter = f"nsenter --net --mount --pid --wd={shlex.quote(str(REPOSITORY))} -t {bed.first}"
    shell = bed.folder / "shell"
    shell.write_text(f'#!/bin/bash\nexec {enter} env {" ".join(texts)} {path} "${{@:-bash}}"\n', encoding="utf-8")
    shell.chmod(0o755)
    return shell


def _try(shell: Path) -> str:
    return f"""
Open another terminal and go in:

  sudo {shell}

There, as the operator of this cluster:

  gpubus get nodes
  gpubus submit -n {TEAM} --name hello --image {images.GPUBUS} --gpu-share 0.5 --wait -- python3 -c "{SHOW}"
  gpubus explain -n {TEAM} hello
  gpubus trace -n {TEAM} hello
  gpubus get cards
  gpubus audit
  helm -n {NAMESPACE} uninstall gpubus        # pods of tenants stay; install it again from deploy/chart

KUBECONFIG is set for a kubectl of your own. Ctrl-C here ends everything."""


async def _until_told() -> None:
    """Run until it fails or somebody says stop."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await run()
    say("gone")


def main() -> int:
    """The command."""
    if reason := missing():
        print(f"no cluster can be made here: {reason}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    asyncio.run(_until_told())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
