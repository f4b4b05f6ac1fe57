"""A Kubernetes-shaped API in this process, with simulated machines: for `gpubus local` and for fast tests.

It honours what the reconciler uses (pods, binding, nodes, namespaces, events, leases; list, watch, patch,
delete) with the codes, reasons and messages of a real API server; one suite runs on both. Decisions are
pure (`store`, `rules`, `world`), the HTTP shell is thin (`http`, `server`).
"""

from __future__ import annotations

from gpubus.local.kube.clock import Clock, ManualClock, ScaledClock
from gpubus.local.kube.faults import Fault
from gpubus.local.kube.machine import Machine
from gpubus.local.kube.server import LocalKube
from gpubus.local.kube.store import Store
from gpubus.local.kube.world import Timings, World

__all__ = ["Clock", "Fault", "LocalKube", "Machine", "ManualClock", "ScaledClock", "Store", "Timings", "World"]
