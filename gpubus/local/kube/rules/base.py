"""Plain storage: what holds for an object that has no rules of its own."""

from __future__ import annotations

from typing import Any

import msgspec

from gpubus.local.kube.meta import check_metadata
from gpubus.local.kube.resources import Resource
from gpubus.local.kube.status import refuse

__all__ = ["Rules", "Write"]


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A write about to happen: what would be stored, over what (nothing: a creation), and when."""

    resource: Resource
    obj: dict[str, Any]
    before: dict[str, Any] = {}
    subresource: str = ""
    now: float = 0.0

    @property
    def name(self) -> str:
        """The name of the object, for messages; empty when it has none."""
        return str((self.before or self.obj)["metadata"].get("name", ""))


class Rules:
    """Defaults and validation of one kind of object. All methods are pure."""

    unconditional_update = True
    """Whether a PUT without resourceVersion is accepted."""

    create_on_update = False
    """Whether a PUT makes the object when it is not there."""

    def create(self, write: Write) -> dict[str, Any]:
        """The object to store for a POST; StatusError when it is refused."""
        return checked(write)

    def update(self, write: Write) -> dict[str, Any]:
        """The object to store for a PUT or PATCH; StatusError when it is refused."""
        return checked(write)


def checked(write: Write) -> dict[str, Any]:
    """The object, once its metadata has been found legal."""
    refuse(write.resource, write.name, check_metadata(write.obj))
    return write.obj
