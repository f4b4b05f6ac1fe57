"""A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager; and hollow kubelets.

    async with ControlPlane() as plane, HollowNode(plane, "gpu-1", gpus=8):
        status, body, _ = await plane.api("GET", "/api/v1/nodes")
        await plane.restart_apiserver()          # SIGKILL and start: most watches must list again

What is real: storage, validation, admission, watch cache, garbage collection, node lifecycle, the kubelet's
pod workers. What is not: no scheduler runs (that is what is under test), no container runs, no secrets are
mounted (the ServiceAccount admission plugin is off). The API server is ended by SIGKILL always: with open
watches its SIGTERM takes a minute.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers.binaries import program
from tests.servers.http import Answer, call
from tests.servers.ports import Port, reserve_port
from tests.servers.process import Opened, ServerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ControlPlane", "HollowNode", "write_signing_key"]

_START_S = 60.0


class ControlPlane(Opened):
    """etcd + API server + controllers on free loopback ports, everything in one temporary folder.

    `admin_token` is in system:masters; `tenant_token` is a user `alice` of the group `tenants` without any
    rights. A node is called unreachable after `node_grace_s` (the real default is 50).
    """

    admin_token = "admin-token"
    tenant_token = "alice-token"

    def __init__(self, folder: Path | None = None, *, node_grace_s: int = 12) -> None:
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="gpubus-cluster-")
        self.folder = folder or Path(self._temporary.name if self._temporary else "")
        self._ports = [reserve_port() for _ in range(3)]
        self._tls: ssl.SSLContext | None = None
        self._namespaces: list[str] = []
        write_signing_key(self.folder / "sa.key")
        (self.folder / "tokens.csv").write_text(
            f'{self.admin_token},admin,admin,"system:masters"\n{self.tenant_token},alice,alice,"tenants"\n',
            encoding="ascii",
        )
        self.etcd = self._process("etcd", self._etcd_flags())
        self.apiserver = self._process("kube-apiserver", self._apiserver_flags())
        self.controllers = self._process("kube-controller-manager", self._controller_flags(node_grace_s))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports[2].number}"

    @property
    def etcd_url(self) -> str:
        """Of the store behind it, for tests that need many objects at once."""
        return f"http://127.0.0.1:{self._ports[0].number}"

    @property
    def certificate_authority(self) -> Path:
        """The certificate to verify the API server with (it signs itself and keeps it over restarts)."""
        return self.folder / "certs" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file of the administrator."""
        return self.folder / "admin.kubeconfig"

    @property
    def tls(self) -> ssl.SSLContext:
        """A context that trusts this API server and nobody else."""
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(self.certificate_authority))
        return self._tls

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig for any bearer token (a TokenRequest's, the tenant's)."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate_authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        return path

    async def start(self) -> None:
        """Start all three and wait until the API server serves and the controllers work."""
        self.etcd.launch()
        await self.etcd.ready(self._etcd_healthy, timeout_s=_START_S)
        await self.start_apiserver()
        self.write_kubeconfig(self.kubeconfig, self.admin_token)
        self.controllers.launch()
        await self.controllers.ready(self._controllers_work, timeout_s=_START_S)

    async def start_apiserver(self) -> None:
        self.apiserver.launch()
        await self.apiserver.ready(self.ready, timeout_s=_START_S)

    async def kill9_apiserver(self) -> None:
        await self.apiserver.kill()

    async def restart_apiserver(self) -> None:
        """SIGKILL and start again on the same port; two to three seconds."""
        await self.kill9_apiserver()
        await self.start_apiserver()

    def freeze(self) -> None:
        """SIGSTOP the API server: connections are accepted and never answered."""
        self.apiserver.freeze()

    def thaw(self) -> None:
        self.apiserver.thaw()

    async def close(self) -> None:
        """End everything, give the ports back, remove the folder."""
        for process in (self.controllers, self.apiserver, self.etcd):
            await process.kill()
        for port in self._ports:
            port.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    async def ready(self) -> bool:
        """Whether /readyz says ok and the `default` namespace is there."""
        if not self._certified():
            return False
        ready = await self.api("GET", "/readyz", timeout_s=2.0)
        namespace = await self.api("GET", "/api/v1/namespaces/default", timeout_s=2.0)
        return ready.status == 200 and namespace.status == 200

    def _certified(self) -> bool:
        """Whether the certificate is written whole; the API server makes it in its first second."""
        made = self.certificate_authority
        return made.exists() and "END CERTIFICATE" in made.read_text(encoding="ascii")

    async def api(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        token: str | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """One call as administrator (or with another token)."""
        return await call(
            method,
            self.url + path,
            query=query,
            body=body,
            content_type=content_type,
            token=token or self.admin_token,
            tls=self.tls,
            timeout_s=timeout_s,
        )

    async def namespace(self, prefix: str = "test") -> str:
        """A new namespace with a name nobody else has."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        answer = await self.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if answer.status != 201:
            raise RuntimeError(f"namespace {name}: {answer.status} {answer.body}")
        self._namespaces.append(name)
        return name

    async def delete_pods(self) -> None:
        """At once, in every namespace that `namespace` made."""
        while self._namespaces:
            path = f"/api/v1/namespaces/{self._namespaces.pop()}/pods"
            await self.api("DELETE", path, query={"gracePeriodSeconds": 0})

    async def service_account_token(self, namespace: str, name: str, *, expiration_s: int = 3600) -> str:
        """A TokenRequest token of an existing service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = await self.api("POST", path, {"spec": {"expirationSeconds": expiration_s}})
        if answer.status != 201:
            raise RuntimeError(f"token of {namespace}/{name}: {answer.status} {answer.body}")
        token: str = answer.body["status"]["token"]
        return token

    def _process(self, name: str, flags: list[str]) -> ServerProcess:
        return ServerProcess(name, [program(name), *flags], self.folder / f"{name}.log")

    def _etcd_flags(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port.number}" for port in self._ports[:2])
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _apiserver_flags(self) -> list[str]:
        key = self.folder / "sa.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._ports[0].number}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports[2].number}",
            f"--cert-dir={self.folder / 'certs'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
        ]

    def _controller_flags(self, node_grace_s: int) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--secure-port=0",
            f"--node-monitor-grace-period={node_grace_s}s",
            "--node-monitor-period=2s",
        ]

    async def _etcd_healthy(self) -> bool:
        url = f"http://127.0.0.1:{self._ports[0].number}/health"
        return (await call("GET", url, timeout_s=2.0)).status == 200

    async def _controllers_work(self) -> bool:
        """The service account controller has made `default`: the informers are synced."""
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        return (await self.api("GET", path, timeout_s=2.0)).status == 200


class HollowNode(Opened):
    """A real kubelet on a fake runtime, registered under `name`.

    Containers run until their pod is deleted, or for N seconds with command ["sleep","N"] or the pod
    annotation gpubus.dev/simulated-run-s.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        labels: Mapping[str, str] | None = None,
        *,
        cpus: int = 8,
        memory_mib: int = 32_768,
        gpus: int = 8,
        max_pods: int = 200,
    ) -> None:
        self.plane, self.name = plane, name
        self._folder = plane.folder / f"node-{name}"
        self._folder.mkdir()
        self._port: Port = reserve_port()
        flags = [
            f"-name={name}",
            f"-kubeconfig={plane.kubeconfig}",
            f"-root={self._folder}",
            f"-port={self._port.number}",
            f"-cpus={cpus}",
            f"-memory-mib={memory_mib}",
            f"-max-pods={max_pods}",
            f"-extended-resources=nvidia.com/gpu={gpus}",
            "-labels=" + ",".join(f"{k}={v}" for k, v in sorted((labels or {}).items())),
        ]
        command: list[str | Path] = [program("hollow-kubelet"), *flags]
        self.process = ServerProcess(f"hollow-kubelet {name}", command, self._folder / "kubelet.log")

    async def start(self) -> None:
        """Start and wait until the node is Ready."""
        self.process.launch()
        await self.process.ready(self.is_ready, timeout_s=_START_S)

    async def kill(self) -> None:
        """SIGKILL: the node object stays, and turns Unknown after the control plane's grace time."""
        await self.process.kill()

    def freeze(self) -> None:
        self.process.freeze()

    def thaw(self) -> None:
        self.process.thaw()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def close(self) -> None:
        """Kill the kubelet, force its pods away and delete the node object."""
        await self.kill()
        path = f"/api/v1/nodes/{self.name}"
        await self._delete_pods()
        await self.plane.api("DELETE", path)
        self._port.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def node(self) -> dict[str, Any]:
        """The node object; empty when there is none."""
        answer = await self.plane.api("GET", f"/api/v1/nodes/{self.name}", timeout_s=5.0)
        return answer.body if answer.status == 200 else {}

    async def is_ready(self) -> bool:
        status = (await self.node()).get("status", {})
        return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))

    async def wait_lost(self, timeout_s: float = 40.0) -> None:
        """Wait until the control plane has noticed that the kubelet is gone."""

        async def lost() -> bool:
            conditions = (await self.node()).get("status", {}).get("conditions", [])
            return any(c["type"] == "Ready" and c["status"] == "Unknown" for c in conditions)

        await wait_until(lost, what=f"node {self.name} is Unknown", timeout_s=timeout_s)

    async def _delete_pods(self) -> None:
        listed = await self.plane.api("GET", "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={self.name}"})
        items = listed.body.get("items", []) if listed.status == 200 else []
        async with asyncio.TaskGroup() as group:
            for pod in items:
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                now = {"gracePeriodSeconds": 0}
                group.create_task(self.plane.api("DELETE", path, query=now), name=f"delete {meta['name']}")


def write_signing_key(path: Path) -> None:
    """A fresh P-256 key as PEM (SEC 1), without openssl.

    A private key of this curve is any number in [1, n-1], n just under 2**256: 31 random bytes behind a 1
    are always one. DER: SEQUENCE { INTEGER 1, OCTET STRING (32 bytes), [0] OID prime256v1 }; the public
    half is optional and derived.
    """
    number = b"\x01" + secrets.token_bytes(31)
    der = bytes.fromhex("303102010104 20") + number + bytes.fromhex("a00a06082a8648ce3d030107")
    body = base64.encodebytes(der).decode("ascii")
    path.touch(mode=0o600)
    path.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{body}-----END EC PRIVATE KEY-----\n", encoding="ascii")
