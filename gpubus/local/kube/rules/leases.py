"""coordination.k8s.io leases: a PUT must name the version it replaces, times carry six decimals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubus.local.kube.meta import check_metadata, check_micro_time
from gpubus.local.kube.rules.base import Rules
from gpubus.local.kube.status import Cause, invalid_value, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubus.local.kube.rules.base import Write

__all__ = ["LeaseRules"]


class LeaseRules(Rules):
    """Validation of a lease."""

    unconditional_update = False
    create_on_update = True

    def create(self, write: Write) -> dict[str, Any]:
        """Times of the right form, durations above zero."""
        return _checked(write)

    def update(self, write: Write) -> dict[str, Any]:
        """As at creation: everything may change."""
        return _checked(write)


def _checked(write: Write) -> dict[str, Any]:
    spec = write.obj.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        check_micro_time("Lease", spec.get(field))
    refuse(write.resource, write.name, [*check_metadata(write.obj), *_causes(spec)])
    return write.obj


def _causes(spec: dict[str, Any]) -> Iterator[Cause]:
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
