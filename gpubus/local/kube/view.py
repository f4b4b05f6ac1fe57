"""The store as the simulated kubelets and controllers see it: pods by node, and the few writes they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpubus.local.kube.agenda import Agenda, Key, Step
from gpubus.local.kube.resources import NODES, PODS
from gpubus.local.kube.status import StatusError
from gpubus.local.kube.store import DeleteOptions, Store

if TYPE_CHECKING:
    from gpubus.local.kube.history import Change

__all__ = ["View", "key_of", "uid_of"]

_Obj = dict[str, Any]


def key_of(pod: _Obj) -> Key:
    """Namespace and name of a pod."""
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def uid_of(pod: _Obj) -> str:
    """The uid of an object."""
    return str(pod["metadata"]["uid"])


class View:
    """One store, indexed for those who live on nodes."""

    def __init__(self, store: Store, agenda: Agenda) -> None:
        self.store, self.agenda = store, agenda
        self._on: dict[str, dict[str, Key]] = {}

    def index(self, change: Change) -> None:
        """Take a change of a pod in."""
        pod = change.entry.obj
        if node := pod["spec"].get("nodeName"):
            here = self._on.setdefault(node, {})
            if change.kind == "DELETED":
                here.pop(uid_of(pod), None)
            else:
                here[uid_of(pod)] = key_of(pod)

    def node(self, name: str) -> _Obj | None:
        """The Node object, None when there is none."""
        found = self.store.find(NODES, "", name)
        return found.obj if found else None

    def pod(self, step: Step) -> _Obj | None:
        """The pod a step is about, as it is now; None when it is gone, or another has its name."""
        found = self.store.find(PODS, *step.key)
        return found.obj if found and uid_of(found.obj) == step.uid else None

    def pods_on(self, node: str) -> list[_Obj]:
        """The pods bound to a node, in the order they were bound."""
        found = [self.store.find(PODS, *key) for key in self._on.get(node, {}).values()]
        return [entry.obj for entry in found if entry]

    def plan(self, at: float, act: Callable[[Step, float], None], pod: _Obj) -> None:
        """Do something about a pod on its node at a time."""
        node = pod["spec"]["nodeName"]
        self.agenda.plan(at, Step(act=act, node=node, uid=uid_of(pod), key=key_of(pod)))

    def report(self, pod: _Obj, change: Callable[[_Obj], _Obj]) -> None:
        """Update a pod's status. A pod whose metadata is illegal refuses it, now and for ever."""
        try:
            self.store.patch(PODS, *key_of(pod), change, subresource="status")
        except StatusError as error:
            if error.code not in {404, 422}:
                raise

    def patch_node(self, name: str, change: Callable[[_Obj], _Obj]) -> None:
        """Change a node; spec and status are written apart, as the controllers do."""
        self.store.patch(NODES, "", name, change, subresource="status")
        self.store.patch(NODES, "", name, change)

    def delete(self, pod: _Obj, grace_s: int | None = None) -> None:
        """Delete this very pod."""
        self.store.delete(PODS, *key_of(pod), DeleteOptions(grace_s=grace_s, uid=uid_of(pod)))
