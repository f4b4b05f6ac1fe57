"""Keys, accounts and a certificate for our own NATS, made once in the cluster: `python -m reconciler.gatekeeper.setup`.

In: a namespace. Out: the Secret `gpubus-auth` (server configuration, keys, certificate) and the ConfigMap `gpubus-ca`
(what clients trust), created if they are not there and never changed. To make new ones delete both and run it again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bus.auth import keys, serverconfig
from bus.runtime.exits import ExitCode
from reconciler.errors import KubeError, classify
from reconciler.gatekeeper.certificates import Certificates, NoCertificate, make
from reconciler.kube import connect
from reconciler.protocol import Transport

AUTH = "gpubus-auth"
CONFIG_MAP = "gpubus-ca"
FOUND, CREATED, CONFLICT = 200, 201, 409


def contents(certificates: Certificates) -> dict[str, str]:
    """What the Secret holds: new keys, the configuration that names them, the certificate."""
    issuer, gatekeeper = keys.account_key(), keys.user_key()
    callout = serverconfig.Callout(issuer=issuer.public, user=gatekeeper.public)
    return {
        "accounts.conf": serverconfig.blocks({}, callout=callout),
        "issuer.nk": issuer.seed,
        "gatekeeper.nk": gatekeeper.seed,
        "ca.crt": certificates.authority,
        "tls.crt": certificates.certificate,
        "tls.key": certificates.key,
    }


def server_names(service: str, namespace: str) -> list[str]:
    """What clients and peers call the servers."""
    peers = f"{service}-peers.{namespace}.svc"
    here = f"{service}.{namespace}"
    alone = [service, here, f"{here}.svc", f"{here}.svc.cluster.local"]
    return [*alone, f"*.{peers}", f"*.{peers}.cluster.local", "localhost"]


async def set_up(server: Transport, *, namespace: str, service: str, folder: Path) -> str:
    """Create what is missing; what was done, in words.

    Raises:
        KubeError: Kubernetes refused or could not be asked.
        NoCertificate: openssl is missing or failed.
    """
    path = f"/api/v1/namespaces/{namespace}"
    answer = await server.call("GET", f"{path}/secrets/{AUTH}")
    if answer.status == FOUND:
        data = msgspec.json.decode(answer.body, type=_Secret).data
        authority = data.get("ca.crt", b"").decode("ascii")
        made = "kept"
    else:
        material = contents(await make(server_names(service, namespace), folder))
        await _create(server, f"{path}/secrets", _object("Secret", AUTH, {"stringData": material}))
        authority, made = material["ca.crt"], "made"
    await _create(server, f"{path}/configmaps", _object("ConfigMap", CONFIG_MAP, {"data": {"ca.crt": authority}}))
    return f"secret {AUTH} {made}, config map {CONFIG_MAP} there"


class _Secret(msgspec.Struct):
    data: dict[str, bytes] = {}


def _object(kind: str, name: str, content: Mapping[str, object]) -> bytes:
    labels = {"app.kubernetes.io/part-of": "gpubus"}
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels}, **content}
    )


async def _create(server: Transport, path: str, body: bytes) -> None:
    """Created, or there already."""
    answer = await server.call("POST", path, body=body)
    if answer.status not in (CREATED, CONFLICT):
        raise classify(answer)


async def _run(options: argparse.Namespace) -> int:
    try:
        async with connect(kubeconfig=options.kubeconfig) as server:
            with tempfile.TemporaryDirectory() as folder:
                told = await set_up(server, namespace=options.namespace, service=options.service, folder=Path(folder))
    except (KubeError, NoCertificate) as error:
        print(f"setup: {error}", file=sys.stderr)  # noqa: T201 - a command
        return int(ExitCode.CRASHED)
    print(told)  # noqa: T201 - a command
    return int(ExitCode.STOPPED)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m reconciler.gatekeeper.setup", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--namespace", default="gpubus-system", help="where the servers run")
    parser.add_argument("--service", default="gpubus-nats", help="name of their Service; peers are <service>-peers")
    parser.add_argument("--kubeconfig", default="", help="default: the pod's service account, else the usual place")
    return asyncio.run(_run(parser.parse_args(argv)))


if __name__ == "__main__":
    raise SystemExit(main())
