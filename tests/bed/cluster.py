"""`python -m tests.bed.cluster`: two real nodes with sixteen made-up cards and gpubus on them, until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
import time

from tests.bed.bed import Bed
from tests.bed.installing import VALUES, install, namespace, not_ready, wait_ready
from tests.bed.needs import missing

NODES = ("gpu-1", "gpu-2")


async def run() -> None:
    bed = Bed(NODES)
    print(f"starting a cluster of {len(NODES)} nodes in {bed.folder}", flush=True)
    try:
        await bed.start(print)
        with bed.entered():
            await namespace(bed, "team")
            began = time.monotonic()
            await install(bed, VALUES)
            print(f"{time.monotonic() - began:6.2f} s  chart installed", flush=True)
            try:
                await wait_ready(bed, pods=9)
            except AssertionError:
                print(await not_ready(bed))
            print(f"{time.monotonic() - began:6.2f} s  gpubus ready", flush=True)
            print(f"nsenter --net -t {bed._first()} env KUBECONFIG={bed.kubeconfig} bash", flush=True)
        await asyncio.Event().wait()
    finally:
        await bed.stop()


def main() -> int:
    if reason := missing():
        print(f"no cluster can be made here: {reason}", file=sys.stderr)
        return 1
    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        print("gone")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
