"""What an operator may set of the reconciler; the common groups (nats, telemetry, health, log) are the runtime's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from bus.runtime.settings import Seconds, ServiceSettings, Settings, Text
from contracts.isolation import DEFAULT_PATHS, HostPaths
from reconciler.placeholders.values import Rules
from reconciler.podspec import PodRules


class KubernetesSettings(Settings, frozen=True, kw_only=True):
    """How to reach the API server."""

    url: Text = ""
    """Base URL of an API server that wants no credentials, as the embedded one. Empty: by the next two."""
    kubeconfig: Text = ""
    """Path of a kubeconfig file. Empty: $KUBECONFIG, else the pod's service account, else the usual place."""
    context: Text = ""
    """Context of that file. Empty: its current one."""
    timeout_s: Seconds = 10.0
    """Seconds for one call; a list gets three times as many. The library itself has no timeout at all."""
    in_flight: Annotated[int, Meta(ge=1, le=256)] = 16
    """Writes at once. On two cores 8 give 84 % of what 32 give, and beyond 16 only the waiting grows."""


class PodSettings(Settings, frozen=True, kw_only=True):
    """What all pods have in common."""

    run_as_user: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 65_532
    """Numeric user of every container, `nonroot` by custom. 0: the image's own, which then must not be root.

    Most images name no user, which is root, and under `restricted` a kubelet never starts those.
    """
    mps_path: Text = DEFAULT_PATHS.mps
    """Folder of the MPS control daemon on every node, as `monitor.enforce.mps_path` says it."""
    hami_path: Text = DEFAULT_PATHS.hami
    """Folder of HAMi-core's library on every node, as `monitor.enforce.hami_path` says it."""
    gemini_path: Text = DEFAULT_PATHS.gemini
    """Folder of KubeShare on every node, as `monitor.enforce.gemini_path` says it."""
    bus_login: bool = False
    """Pods of functions and jobs get a token by which the bus knows them as worker of that function, trainer of that
    job. Their namespace needs service accounts `gpubus-worker-FUNCTION` and `gpubus-trainer-JOB`."""
    bus_ca: Text = ""
    """With `bus_login`: config map in their namespace whose `ca.crt` the bus is trusted by. Empty: none."""
    keep_ended_s: Annotated[float, Meta(ge=0, le=30 * 86_400)] | None = None
    """Seconds that the pod of a finished request is kept, so that its logs can be read. Unset: for ever.

    Its card is free at once, whatever this says. A restart of the reconciler begins the time anew.
    """

    def rules(self) -> PodRules:
        """As the pods are made by."""
        return PodRules(
            run_as_user=self.run_as_user or None,
            paths=HostPaths(mps=self.mps_path, hami=self.hami_path, gemini=self.gemini_path),
            bus_login=self.bus_login,
            bus_ca=self.bus_ca,
        )


class PlaceholderSettings(Settings, frozen=True, kw_only=True):
    """On nodes with the label `gpubus.dev/mode=coexist` placeholders get cards one by one from the device plugin."""

    namespace: Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] = "gpubus-system"
    """Where placeholder pods live; whoever may write pods there can say that a card is ours."""
    image: Text = "registry.k8s.io/pause:3.10"
    """A program that does nothing and ends on SIGTERM."""
    priority_class: Text = "system-node-critical"
    """Of the placeholders: above every tenant. A kubelet short of memory evicts pods of any other class."""
    runtime_class: Text = ""
    """Only where the nodes' default runtime cannot start the image."""
    resource: Text = "nvidia.com/gpu"
    """What the device plugin calls its cards."""
    release_idle_after_s: Annotated[float, Meta(ge=0, le=30 * 86_400)] = 300.0
    """How long a card that nobody uses is kept before it goes back to the others."""
    release_idle: bool = True
    """False: a card that was acquired stays ours."""
    min_idle: Annotated[int, Meta(ge=0, le=64)] = 0
    """Idle cards that each of these nodes keeps, so that the next request does not wait for a pod to start."""
    acquire_after_s: Annotated[float, Meta(ge=0, le=3600)] = 0.5
    """How long a request waits before a card is got for it: meanwhile the scheduler finds a place on those we have."""
    start_timeout_s: Seconds = 60.0
    """After this a placeholder that holds no card is given up, and the next try waits longer."""

    def rules(self) -> Rules:
        """As the decisions take it."""
        return Rules(
            namespace=self.namespace,
            image=self.image,
            priority_class=self.priority_class,
            runtime_class=self.runtime_class,
            resource=self.resource,
            release_idle_after_s=self.release_idle_after_s if self.release_idle else None,
            min_idle=self.min_idle,
            acquire_after_s=self.acquire_after_s,
            start_timeout_s=self.start_timeout_s,
        )


class ReconcilingSettings(Settings, frozen=True, kw_only=True):
    """How the cluster is brought to what the ledger says."""

    pool: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}$")] = "default"
    """Name of the pool whose ledger is followed."""
    facts_every_s: Annotated[float, Meta(ge=0, le=60)] = 0.2
    """Pause in which changes of a node gather before its facts are published again."""
    shares_every_s: Annotated[float, Meta(ge=0, le=60)] = 0.05
    """The same for the shares of its pods: they should be on the node before the container begins."""
    lease_renew_s: Seconds = 0.4
    """Pause between renewals of the lease that makes one reconciler the active one."""
    lease_duration_s: Seconds = 1.2
    """Silence after which another takes over. Two active ones do no harm, they only ask Kubernetes twice."""
    sweep_s: Seconds = 60.0
    """Pause between full comparisons of ledger and pods: an event that was lost is made good, words are forgotten."""
    kube: KubernetesSettings = KubernetesSettings()
    pods: PodSettings = PodSettings()
    placeholders: PlaceholderSettings = PlaceholderSettings()

    def problems(self) -> Iterator[str]:
        """The lease outlives two renewals."""
        if self.lease_duration_s < 2 * self.lease_renew_s:
            yield f"lease_duration_s {self.lease_duration_s:g} is less than two lease_renew_s {self.lease_renew_s:g}"


class ReconcilerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of `python -m reconciler`."""

    reconciler: ReconcilingSettings = ReconcilingSettings()
