"""Everything in the simulated cluster that moves by itself, around one store. Deterministic; no clock of its own.

Changes of the store and planned steps come in, writes to the store go out. `advance(now)` does all that is
due and says when it wants to be called again; it never waits. A shell with a clock calls it (`LocalKube`),
or a simulation does, as fast as it likes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from gpubus.local.kube import machine as machines
from gpubus.local.kube.agenda import Agenda
from gpubus.local.kube.kubelets import Kubelets
from gpubus.local.kube.lifecycle import NodeLifecycle
from gpubus.local.kube.resources import NODES, PODS
from gpubus.local.kube.view import View

if TYPE_CHECKING:
    from gpubus.local.kube.history import Change
    from gpubus.local.kube.machine import Machine
    from gpubus.local.kube.store import Store

__all__ = ["Timings", "World"]


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take in the simulated cluster, in seconds of its clock."""

    start_s: float = 0.3
    """From bound to Running: what a kubelet and a container runtime with a warm image need."""

    stop_s: float = 0.2
    """From the deletion request to the end of the containers, unless the pod's grace time is shorter."""

    node_grace_s: float = 40.0
    """From the death of a kubelet to Ready=Unknown; Kubernetes has 50, tests want less."""

    orphan_s: float = 40.0
    """From the deletion of a node object to the deletion of the pods that are bound to it."""


class World:
    """The kubelets and controllers of one store. Give `notice` to the store as its `on_change`."""

    def __init__(self, store: Store, timings: Timings | None = None) -> None:
        timings = timings or Timings()
        self._agenda = Agenda()
        self._inbox: deque[Change] = deque()
        self._view = View(store, self._agenda)
        self._kubelets = Kubelets(self._view, start_s=timings.start_s, stop_s=timings.stop_s)
        self._lifecycle = NodeLifecycle(
            self._view, self._kubelets.alive, grace_s=timings.node_grace_s, orphan_s=timings.orphan_s
        )
        self.store = store

    def notice(self, change: Change) -> None:
        """A write has happened; it is looked at by the next `advance`."""
        if change.resource in {PODS, NODES}:
            self._inbox.append(change)

    def advance(self, now: float) -> float | None:
        """Do everything that is due; when to come again, None when nothing is planned."""
        while True:
            if self._inbox:
                self._see(self._inbox.popleft(), now)
            elif step := self._agenda.due(now):
                step.act(step, now)
            else:
                return self._agenda.next_at

    def add_node(self, machine: Machine, now: float) -> None:
        """A machine joins: its Node is there and Ready."""
        self.store.create(NODES, "", machines.node_object(machine, now))
        self._kubelets.add(machine.name)

    def kill_node(self, name: str, now: float) -> None:
        """The machine falls silent: pods stay as they are, the node is Unknown after the grace time."""
        self._kubelets.kill(name)
        self._lifecycle.silent(name, now)

    def revive_node(self, name: str, now: float) -> None:
        """The machine is back: the node is Ready, and what came due meanwhile happens now."""
        self._view.patch_node(name, lambda node: machines.ready(node, now))
        self._kubelets.revive(name, now)

    def _see(self, change: Change, now: float) -> None:
        obj, gone = change.entry.obj, change.kind == "DELETED"
        if change.resource == NODES:
            if gone:
                self._lifecycle.node_gone(obj["metadata"]["name"], now)
            elif self._view.node(obj["metadata"]["name"]):
                self._lifecycle.see_node(obj, now)
            return
        self._view.index(change)
        if not obj["spec"].get("nodeName"):
            return
        for part in (self._kubelets, self._lifecycle):
            if gone:
                part.forget(obj)
            else:
                part.see_pod(obj, now)
