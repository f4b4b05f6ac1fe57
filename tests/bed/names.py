"""The name server of a bed: `python -m tests.bed.names KUBECONFIG`.

In: questions over UDP for `<service>.<namespace>.svc.cluster.local`, or with a pod's name before it. Out: the addresses
of the Service's pods, as Kubernetes tells them (EndpointSlices), asked for each question anew; no such name otherwise.
A Service in front of several pods is answered with all of them, as a headless one is. Ports are not translated, so a
Service here must listen where its pods do, which those of gpubus do.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
import struct
import sys
from pathlib import Path
from typing import Any, cast

from tests.bed.layout import ADDRESS, DOMAIN
from tests.servers.http import call

_HEADER = struct.Struct("!6H")
_ANSWER = struct.Struct("!HHHIH")
_NO_SUCH_NAME, _FAILED = 3, 2
_A, _IN, _TTL_S = 1, 1, 1


def question_of(packet: bytes) -> tuple[list[str], int, int]:
    """(labels, record type, where the question ends)."""
    labels, at = [], _HEADER.size
    while length := packet[at]:
        labels.append(packet[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    return labels, int.from_bytes(packet[at + 1 : at + 3], "big"), at + 5


def reply(packet: bytes, end: int, addresses: list[str] | None, *, failed: bool = False) -> bytes:
    """The answer to a question. None: there is no such name. Empty: the name is there, and has no such record."""
    number = _HEADER.unpack_from(packet)[0]
    code = _FAILED if failed else _NO_SUCH_NAME if addresses is None else 0
    found = addresses or []
    records = b"".join(
        _ANSWER.pack(0xC00C, _A, _IN, _TTL_S, 4) + ipaddress.IPv4Address(address).packed for address in found
    )
    return _HEADER.pack(number, 0x8580 | code, 1, len(found), 0, 0) + packet[_HEADER.size : end] + records


def looked_up(labels: list[str]) -> tuple[str, str, str] | None:
    """(pod or nothing, service, namespace) that a name means; None when it is none of ours."""
    suffix = ["svc", *DOMAIN.split(".")]
    if labels[-len(suffix) :] != suffix or len(labels) not in (len(suffix) + 2, len(suffix) + 3):
        return None
    *pod, service, namespace = labels[: -len(suffix)]
    return (pod[0] if pod else ""), service, namespace


def addresses_of(slices: list[dict[str, Any]], pod: str) -> list[str] | None:
    """The addresses in a Service's slices; those of one pod where it is named."""
    if not slices:
        return None
    endpoints = [endpoint for part in slices for endpoint in part.get("endpoints") or ()]
    if pod:
        endpoints = [endpoint for endpoint in endpoints if endpoint.get("hostname") == pod]
    else:
        endpoints = [endpoint for endpoint in endpoints if endpoint["conditions"].get("ready")]
    found = sorted({address for endpoint in endpoints for address in endpoint["addresses"]})
    return found if found or not pod else None


class Names(asyncio.DatagramProtocol):
    """Answers with what the API server says now."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self._url, self._token = cluster["server"], config["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._asked: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(data, addr))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _answer(self, packet: bytes, asker: tuple[str, int]) -> None:
        labels, kind, end = question_of(packet)
        meant = looked_up(labels)
        if meant is None:
            self._transport.sendto(reply(packet, end, None), asker)
            return
        pod, service, namespace = meant
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        answer = await call("GET", self._url + path, query=query, token=self._token, tls=self._tls, timeout_s=4.0)
        if answer.status != 200:
            self._transport.sendto(reply(packet, end, None, failed=True), asker)
            return
        found = addresses_of(answer.body["items"], pod)
        if kind != _A and found is not None:
            found = []
        self._transport.sendto(reply(packet, end, found), asker)


async def main(kubeconfig: Path) -> None:
    """Until it is ended."""
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Names(kubeconfig), local_addr=(ADDRESS, 53))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
