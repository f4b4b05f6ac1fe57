"""The instances that a card is cut into (MIG), through pynvml.

In: the handle of a card. Out: each instance as it says of itself. An instance is a card of its own to everybody else;
utilisation, power and temperature belong to the whole card and are unknown here, memory and processes are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml

from monitor.cards import calls, readings
from monitor.cards.readings import RawInstance

_MOST = 16
"""Seven is the most that a card has had; a driver that says more than this is not believed."""


def instances(handle: Any) -> tuple[RawInstance, ...]:
    """By their index on the card; those without a legal UUID are left out. Raises NVMLError: the card failed."""
    most = calls.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = (_instance(child) for child in _children(handle, min(int(most), _MOST)))
    return tuple(instance for instance in found if instance is not None)


def _children(handle: Any, most: int) -> Iterator[Any]:
    """An index without an instance is NOT_FOUND, and not the last one."""
    for index in range(most):
        child = calls.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if child is not None:
            yield child


def _instance(child: Any) -> RawInstance | None:
    uuid = readings.legal_uuid(calls.ask("nvmlDeviceGetUUID", child))
    if uuid is None:
        return None
    return RawInstance(
        uuid=uuid,
        name=calls.ask("nvmlDeviceGetName", child),
        slot=calls.ask("nvmlDeviceGetGpuInstanceId", child),
        memory=calls.memory(child),
        processes=calls.processes(child),
    )


def enabled(handle: Any) -> bool | None:
    """Whether the card is in MIG mode; None when it cannot tell."""
    mode = calls.first_of(calls.ask("nvmlDeviceGetMigMode", handle))
    return None if mode is None else mode == pynvml.NVML_DEVICE_MIG_ENABLE
