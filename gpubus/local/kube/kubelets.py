"""Simulated kubelets: what happens to a pod on its node, from bound to gone.

A bound pod is admitted or refused, runs after `start_s`, ends when its time is up, and is gone `stop_s`
after its deletion was asked for. A kubelet that is killed does and reports nothing; what came due meanwhile
happens when it is revived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpubus.local.kube import pod_life
from gpubus.local.kube.view import uid_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubus.local.kube.agenda import Step
    from gpubus.local.kube.view import View

__all__ = ["Kubelets"]

_KILLED = 137


class _Host(msgspec.Struct):
    """One kubelet: the pods it has taken in, and what it will do once it lives again."""

    alive: bool = True
    taken: set[str] = msgspec.field(default_factory=set)
    put_off: list[tuple[Callable[[Step, float], None], Step]] = msgspec.field(default_factory=list)


class Kubelets:
    """All the kubelets of a simulated cluster."""

    def __init__(self, view: View, *, start_s: float, stop_s: float) -> None:
        self._view, self._start_s, self._stop_s = view, start_s, stop_s
        self._hosts: dict[str, _Host] = {}

    def add(self, node: str) -> None:
        """A kubelet registers."""
        self._hosts[node] = _Host()

    def alive(self, node: str) -> bool:
        """Whether a kubelet of ours works on this node."""
        host = self._hosts.get(node)
        return host is not None and host.alive

    def kill(self, node: str) -> None:
        """The kubelet falls silent."""
        self._hosts[node].alive = False

    def revive(self, node: str, now: float) -> None:
        """The kubelet is back: it does what it has missed and looks at its pods again."""
        host = self._hosts[node]
        host.alive, missed, host.put_off = True, host.put_off, []
        for act, step in missed:
            act(step, now)
        for pod in self._view.pods_on(node):
            self.see_pod(pod, now)

    def see_pod(self, pod: dict[str, Any], now: float) -> None:
        """A pod is new on its node, or has changed."""
        name = pod["spec"]["nodeName"]
        node = self._view.node(name)
        if node is None or not self.alive(name):
            return
        host = self._hosts[name]
        if pod["metadata"].get("deletionTimestamp"):
            wait_s = min(self._stop_s, pod["metadata"]["deletionGracePeriodSeconds"])
            self._plan(now + wait_s, self._stop, pod)
        elif uid_of(pod) not in host.taken:
            self._take(host, node, pod, now)

    def forget(self, pod: dict[str, Any]) -> None:
        """A pod object is gone."""
        if host := self._hosts.get(pod["spec"]["nodeName"]):
            host.taken.discard(uid_of(pod))

    def _take(self, host: _Host, node: dict[str, Any], pod: dict[str, Any], now: float) -> None:
        others = [p for p in self._view.pods_on(node["metadata"]["name"]) if uid_of(p) in host.taken]
        host.taken.add(uid_of(pod))
        why = pod_life.refusal(node, pod, others)
        if why is None:
            self._plan(now + self._start_s, self._start, pod)
        else:
            self._view.report(pod, lambda p: pod_life.rejected(p, *why, now))

    def _start(self, step: Step, now: float) -> None:
        pod = self._view.pod(step)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        self._view.report(pod, lambda p: pod_life.running(p, now))
        runs_s = pod_life.run_s(pod)
        if runs_s is not None:
            self._plan(now + runs_s, self._finish, pod)

    def _finish(self, step: Step, now: float) -> None:
        pod = self._view.pod(step)
        if pod is None:
            return
        code = pod_life.exit_code(pod)
        if pod["metadata"].get("deletionTimestamp") or not pod_life.restarts(pod, code):
            self._view.report(pod, lambda p: pod_life.ended(p, code, now))
        else:
            self._view.report(pod, lambda p: pod_life.between(p, code, now))
            self._plan(now + self._start_s, self._start, pod)

    def _stop(self, step: Step, now: float) -> None:
        """The containers of a deleted pod are gone: report their end, then let the object go."""
        pod = self._view.pod(step)
        if pod is None:
            return
        if pod["status"].get("phase") == "Running":
            self._view.report(pod, lambda p: pod_life.ended(p, _KILLED, now))
        self._view.delete(pod, grace_s=0)

    def _plan(self, at: float, act: Callable[[Step, float], None], pod: dict[str, Any]) -> None:
        """Do this then, or when the kubelet lives again."""

        def if_alive(step: Step, now: float) -> None:
            if self.alive(step.node):
                act(step, now)
            else:
                self._hosts[step.node].put_off.append((act, step))

        self._view.plan(at, if_alive, pod)
