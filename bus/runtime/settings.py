"""The groups of settings that every service shares: how to reach NATS, where traces go, health, logs.

A service adds its own group:

    class SchedulerSettings(ServiceSettings, frozen=True, kw_only=True):
        scheduler: SchedulingSettings = SchedulingSettings()

and reads them with `load(SchedulerSettings, file, os.environ)`: defaults, then the TOML file, then the environment,
where `GPUBUS_SCHEDULER__LEASE_RENEW_S` is `lease_renew_s` of the group `scheduler`. How that works: `config.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from bus.runtime.config import Loaded, Secret, Settings, SettingsError, load, load_traced, render
from contracts.identities import UnknownIdentity, identity

Seconds = Annotated[float, Meta(gt=0, le=3600)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Text = Annotated[str, Meta(max_length=1024)]


class NatsSettings(Settings, frozen=True, kw_only=True):
    """How to reach the bus."""

    urls: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=32)] = ("nats://127.0.0.1:4222",)
    """Servers to try, in random order. nats:// or tls://; in the environment separated by commas."""
    identity: Text = ""
    """Who we are on a server with accounts, as `monitor/gpu-1` or `tenant/team-a`: `gpubus identities` lists the roles.
    Empty: a server that knows no identities."""
    credentials_file: Text = ""
    """A `.creds` file (JWT and seed). Empty: none."""
    nkey_seed_file: Text = ""
    """A file with an nkey seed: long-lived, so no expiry closes the connection. Empty: none."""
    token: Secret = ""
    """A shared token; for development. Empty: none."""
    token_file: Text = ""
    """A file with a Kubernetes service-account token, read anew for each login. Empty: none."""
    renew_s: Seconds = 2400.0
    """Seconds between logins with `token_file`: two thirds of what the callout service grants, or the server ends the
    connection."""
    tls_ca_file: Text = ""
    """CA certificates (PEM) to trust. Empty: those of the system."""
    tls_cert_file: Text = ""
    """Client certificate (PEM) for mutual TLS; goes with `tls_key_file`."""
    tls_key_file: Text = ""
    """Key of the client certificate (PEM)."""
    connect_timeout_s: Seconds = 2.0
    """Seconds for one try to connect. A server that is up answers in milliseconds; a dead address costs all of it."""
    replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """Copies of each stream. 3 in a cluster: one server may be lost. A single server can only have 1."""

    def problems(self) -> Iterator[str]:
        """At most one credential; certificate and key come together; URLs that we can speak."""
        given = [name for name in ("credentials_file", "nkey_seed_file", "token", "token_file") if getattr(self, name)]
        if len(given) > 1:
            yield f"{' and '.join(given)} are both set; choose one"
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            yield "tls_cert_file and tls_key_file go together; one of them is missing"
        for url in self.urls:
            if not url.startswith(("nats://", "tls://")):
                yield f"urls: {url.rpartition('@')[2]!r} does not begin with nats:// or tls://"
        if self.identity:
            try:
                identity(self.identity)
            except UnknownIdentity as error:
                yield str(error)
        if self.replicas in (2, 4):
            yield f"replicas = {self.replicas}: an even number survives no more losses than the odd one below it"


class TelemetrySettings(Settings, frozen=True, kw_only=True):
    """Traces and metrics."""

    otlp_endpoint: Text = ""
    """Base URL of an OTLP/HTTP collector, as http://127.0.0.1:4318. Empty: traces are off, context is passed on."""
    service_name: Text = ""
    """`service.name` of the resource. Empty: gpubus-<service>."""
    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Part of the traces that begin here and are recorded; a trace that was begun elsewhere follows its beginning.

    All by default: only requests and decisions are traced, and one recorded span costs about 21 microseconds.
    """
    metrics_interval_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Seconds between pushes of metrics to the collector. 0: never (Jaeger takes none); /metrics is there always."""

    def problems(self) -> Iterator[str]:
        """An endpoint is an http(s) base URL; pushing metrics needs one."""
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            yield f"otlp_endpoint {self.otlp_endpoint!r} does not begin with http:// or https://"
        if self.metrics_interval_s and not self.otlp_endpoint:
            yield "metrics_interval_s is set, otlp_endpoint is not: there is nowhere to push metrics to"


class HealthSettings(Settings, frozen=True, kw_only=True):
    """/healthz, /readyz and /metrics."""

    host: Text = "127.0.0.1"
    """Address to listen on. In a pod 0.0.0.0, so that the kubelet reaches it."""
    port: Port = 0
    """Port to listen on. 0: no server; many services share one machine when nobody asks."""
    max_loop_lag_s: Seconds = 2.0
    """/healthz fails when the event loop is late by more. Normal is under 0.05, a full garbage collection under 0.5."""


class LogSettings(Settings, frozen=True, kw_only=True):
    """Log lines on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""
    format: Literal["auto", "json", "text"] = "auto"
    """json: one object a line, for machines. text: for eyes. auto: text on a terminal, else json."""


class ServiceSettings(Settings, frozen=True, kw_only=True):
    """What every service has; each adds a group with its own name."""

    nats: NatsSettings = NatsSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()


__all__ = [
    "HealthSettings",
    "Loaded",
    "LogSettings",
    "NatsSettings",
    "Secret",
    "ServiceSettings",
    "Settings",
    "SettingsError",
    "TelemetrySettings",
    "load",
    "load_traced",
    "render",
]
