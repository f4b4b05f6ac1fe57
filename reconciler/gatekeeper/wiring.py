"""From settings to a running gatekeeper: the bus by its own key, the API server, and the judge between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from opentelemetry.metrics import CallbackOptions, Observation

from bus.auth import keys
from bus.auth.callout import Gatekeeper, Judge
from bus.runtime.connection import connected
from bus.runtime.exits import EndProcess, ExitCode
from bus.runtime.process import Process
from bus.runtime.settings import ServiceSettings, Settings, Text
from contracts.identities import Identity
from reconciler.errors import Unauthorized, classify
from reconciler.gatekeeper.judging import AUDIENCE, Review, identity_of
from reconciler.kube import connect
from reconciler.protocol import Transport
from reconciler.settings import KubernetesSettings

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
CREATED = 201


class GatekeeperGroup(Settings, frozen=True, kw_only=True):
    """How tokens are judged."""

    namespace: Text = "gpubus-system"
    """Where our own services run: service accounts of it have our roles, those of other namespaces are tenants."""
    issuer_seed_file: Text = ""
    """A file with the seed of the account key that the server's configuration names as the issuer."""
    life_s: int = 3600
    """How long a login lasts. Services log in again after `nats.renew_s`, which must be less."""
    kube: KubernetesSettings = KubernetesSettings()


class GatekeeperSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of `python -m reconciler.gatekeeper`."""

    gatekeeper: GatekeeperGroup = GatekeeperGroup()


def judge_by(server: Transport, *, namespace: str, timeout_s: float) -> Judge:
    """A judge that asks Kubernetes for each token."""

    async def judge(token: str) -> Identity:
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = await server.call("POST", PATH, body=msgspec.json.encode(body), timeout_s=timeout_s)
        if answer.status != CREATED:
            raise classify(answer)
        return identity_of(msgspec.json.decode(answer.body, type=Review).status, namespace=namespace)

    return judge


class GatekeeperService:
    """One gatekeeper as a process; two of them share the questions."""

    def __init__(self, settings: GatekeeperSettings, process: Process) -> None:
        self._settings = settings
        self._process = process

    async def run(self, stop: asyncio.Event) -> None:
        """Answer until `stop` is set."""
        own = self._settings.gatekeeper
        kube = own.kube
        try:
            issuer = keys.kept(Path(own.issuer_seed_file))
            async with (
                connect(url=kube.url, kubeconfig=kube.kubeconfig, context=kube.context) as server,
                connected(self._settings.nats, self._process) as bus,
            ):
                judge = judge_by(server, namespace=own.namespace, timeout_s=kube.timeout_s)
                keeper = Gatekeeper(judge, issuer, lambda: int(time.time()), life_s=own.life_s)
                self._measure(keeper)
                async with keeper.answering(bus):
                    await stop.wait()
        except Unauthorized as error:
            raise EndProcess(ExitCode.BAD_SETTINGS, str(error)) from error
        except (OSError, ValueError) as error:
            raise EndProcess(ExitCode.BAD_SETTINGS, f"gatekeeper.issuer_seed_file: {error}") from error

    def _measure(self, keeper: Gatekeeper) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(count, {"verdict": what}) for what, count in keeper.counts.items()]

        meter = self._process.telemetry.meter
        meter.create_observable_counter("gpubus.logins", callbacks=[observe], description="Logins judged, by verdict.")
