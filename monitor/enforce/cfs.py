"""From a wanted CPU limit to the writes that bring a container to it, in the order that the kernel takes. Pure.

In: the quotas of a pod's cgroup and of its container's, as they stand, and the limit wanted. Out: the writes. Both
versions have a quota in µs of CPU time for each period in µs; none is `-1` in v1 and `max` in v2.

    growing     the pod first, if it has a quota below the new one: v1 refuses a child above its parent (EINVAL), and in
                v2 the parent would hold it back
    shrinking   the container only, and so for no limit, which below a pod with one means the pod's

The pod's quota is never lowered: below its container's limit the kubelet could not restart the container, which would
end in `RunContainerError`. So a pod that was raised once stays so; its containers have their own limits.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MIN_QUOTA_US = 1000
"""The kernel takes no less."""
PERIOD_US = 100_000
"""What kubelets set; used where a period cannot be read."""


class Cfs(msgspec.Struct, frozen=True, kw_only=True):
    """One cgroup's quota; None = no limit."""

    quota_us: int | None = None
    period_us: int = PERIOD_US


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write."""

    level: Literal["pod", "container"]
    cfs: Cfs


def writes(pod: Cfs, container: Cfs, want_milli: int | None) -> tuple[Write, ...]:
    """What to write, in this order; empty when it stands already.

    Args:
        pod: of the pod's cgroup.
        container: of its container's.
        want_milli: thousandths of a core; None = no limit.
    """
    wanted = Cfs(quota_us=quota_us(want_milli, container.period_us), period_us=container.period_us)
    if container.quota_us == wanted.quota_us:
        return ()
    return (*_raised(pod, container, wanted), Write(level="container", cfs=wanted))


def quota_us(milli: int | None, period_us: int) -> int | None:
    """CPU time for each period, rounded down, at least what the kernel takes."""
    return None if milli is None else max(MIN_QUOTA_US, milli * period_us // 1000)


def milli(cfs: Cfs) -> int | None:
    """The limit in thousandths of a core, rounded down; None = none."""
    return None if cfs.quota_us is None else cfs.quota_us * 1000 // cfs.period_us


def _raised(pod: Cfs, container: Cfs, wanted: Cfs) -> tuple[Write, ...]:
    """The pod makes room for the container's new limit beside what its other containers have."""
    if pod.quota_us is None or wanted.quota_us is None:
        return ()
    needs_us = _in_periods_of(pod, wanted)
    if pod.quota_us >= needs_us:
        return ()
    others_us = max(0, pod.quota_us - _in_periods_of(pod, container)) if container.quota_us is not None else 0
    return (Write(level="pod", cfs=Cfs(quota_us=needs_us + others_us, period_us=pod.period_us)),)


def _in_periods_of(pod: Cfs, one: Cfs) -> int:
    """A quota in the pod's periods, rounded up: the kernel compares the two as fractions."""
    return -(-(one.quota_us or 0) * pod.period_us // one.period_us)
