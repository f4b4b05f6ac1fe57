"""The controllers that watch over nodes: lost kubelets, cordons, evictions by taint, pods of nodes that are gone.

A silent kubelet's node is Unknown and tainted after `grace_s`; pods that do not tolerate this for ever are
marked for deletion, which nobody completes until the kubelet is back. Time frees nothing: only a node
object that is deleted lets its pods be collected, `orphan_s` later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubus.local.kube import machine, pod_life
from gpubus.local.kube.agenda import Step
from gpubus.local.kube.view import uid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubus.local.kube.view import View

__all__ = ["NodeLifecycle"]


class NodeLifecycle:
    """The node lifecycle, taint eviction and pod garbage controllers, as far as pods notice them."""

    def __init__(self, view: View, alive: Callable[[str], bool], *, grace_s: float, orphan_s: float) -> None:
        self._view, self._alive, self._grace_s, self._orphan_s = view, alive, grace_s, orphan_s
        self._deadlines: dict[str, float] = {}

    def silent(self, node: str, now: float) -> None:
        """A kubelet has stopped reporting."""
        self._view.agenda.plan(now + self._grace_s, Step(act=self._lose, node=node))

    def see_node(self, node: dict[str, Any], now: float) -> None:
        """A node has changed: its cordon may need its taint, its taints may drive pods away."""
        name = node["metadata"]["name"]
        self._view.patch_node(name, lambda n: machine.cordoned(n, now))
        for pod in self._view.pods_on(name):
            self.see_pod(pod, now)

    def node_gone(self, name: str, now: float) -> None:
        """A node object was deleted."""
        for pod in self._view.pods_on(name):
            self._orphan(pod, now)

    def see_pod(self, pod: dict[str, Any], now: float) -> None:
        """A bound pod is new or has changed."""
        node = self._view.node(pod["spec"]["nodeName"])
        if node is None:
            self._orphan(pod, now)
            return
        taints = machine.executing_taints(node)
        if not taints:
            self._deadlines.pop(uid_of(pod), None)
            return
        limit_s = machine.tolerated_s(pod, taints)
        if limit_s is not None and not _leaving(pod):
            self._evict_by(now + limit_s, pod)

    def forget(self, pod: dict[str, Any]) -> None:
        """A pod object is gone."""
        self._deadlines.pop(uid_of(pod), None)

    def _evict_by(self, deadline: float, pod: dict[str, Any]) -> None:
        """Plan the eviction; another taint may bring it nearer, looking again does not put it off."""
        if deadline < self._deadlines.get(uid_of(pod), float("inf")):
            self._deadlines[uid_of(pod)] = deadline
            self._view.plan(deadline, self._evict, pod)

    def _lose(self, step: Step, now: float) -> None:
        """The grace time is over; a kubelet that came back meanwhile has cancelled this."""
        if self._alive(step.node) or self._view.node(step.node) is None:
            return
        self._view.patch_node(step.node, lambda n: machine.lost(n, now))
        for pod in self._view.pods_on(step.node):
            self._view.report(pod, lambda p: pod_life.not_ready(p, now))

    def _evict(self, step: Step, now: float) -> None:
        """The pod has had its tolerated time; a taint that is gone again has cancelled this."""
        pod = self._view.pod(step)
        if pod is not None and self._deadlines.get(step.uid, float("inf")) <= now:
            self._view.delete(pod)

    def _orphan(self, pod: dict[str, Any], now: float) -> None:
        self._view.plan(now + self._orphan_s, self._collect, pod)

    def _collect(self, step: Step, _now: float) -> None:
        pod = self._view.pod(step)
        if pod is not None and self._view.node(step.node) is None:
            self._view.delete(pod, grace_s=0)


def _leaving(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
