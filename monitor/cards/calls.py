"""Single questions to NVML through pynvml, each with the fate of its error.

Every NVML error has one of four fates, in the table `_FATE`:

    field     the card cannot tell this number: None. The default, also for codes that do not exist yet
    odd       the card did not answer as it should: counted, because one such answer means little
    card      the card is gone or needs a reset
    driver    nobody can be asked

`ask` is for what tells whether the card is well, `tell` for statistics: a hole in those is no loss, and only the
driver's failure is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pynvml

from monitor.cards.readings import RawMemory

Fate = Literal["field", "odd", "card", "driver"]

_FATE: dict[int, Fate] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "card",
    pynvml.NVML_ERROR_RESET_REQUIRED: "card",
    pynvml.NVML_ERROR_UNKNOWN: "odd",
    pynvml.NVML_ERROR_TIMEOUT: "odd",
    pynvml.NVML_ERROR_IRQ_ISSUE: "odd",
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: "odd",
    pynvml.NVML_ERROR_UNINITIALIZED: "driver",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver",
}

UNLOADED = (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
"""The kernel module is gone, or another one than before: whatever the cards had, they have been through a reset."""

_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
)
_COMPUTE_BEFORE_R510 = "nvmlDeviceGetComputeRunningProcesses_v2"


def fate_of(error: Any) -> Fate:
    """What an NVML error means for whom."""
    return _FATE.get(error.value, "field")


def words_of(error: Any) -> str:
    """The driver's words and its number."""
    return f"{error} (NVML {error.value})"


def ask(function: str, *arguments: Any) -> Any:
    """The answer, or None when only this field is unknown.

    Raises:
        pynvml.NVMLError: the card or the driver failed.
    """
    call: Callable[..., Any] = getattr(pynvml, function)
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if fate_of(error) != "field":
            raise
    except (pynvml.NVMLLibraryMismatchError, UnicodeDecodeError):
        pass  # a call that this driver lacks, a name that is no text
    return None


def tell(function: str, *arguments: Any) -> Any:
    """As `ask`, for what says nothing about a card's health: there only the driver's failure is raised."""
    try:
        return ask(function, *arguments)
    except pynvml.NVMLError as error:
        if fate_of(error) == "driver":
            raise
        return None


# --- questions that take more than one call ---------------------------------------------------------------------------


def memory(handle: Any) -> RawMemory | None:
    """Version 2 tells the reserved part; drivers before R510 have only version 1."""
    second = ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    if second is not None:
        return RawMemory(total=second.total, used=second.used, reserved=second.reserved)
    first = ask("nvmlDeviceGetMemoryInfo", handle)
    return None if first is None else RawMemory(total=first.total, used=first.used)


def temperature(handle: Any) -> int | None:
    """The versioned call; the older one, which goes away with CUDA 14, where the driver lacks it."""
    degrees = tell("nvmlDeviceGetTemperatureV", handle, pynvml.NVML_TEMPERATURE_GPU)
    if degrees is None:
        degrees = tell("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU)
    return degrees if degrees is None else int(degrees)


def processes(handle: Any) -> tuple[tuple[int, int | None], ...] | None:
    """All lists together (clients of MPS have one of their own); None when compute processes cannot be listed."""
    compute = tell(_PROCESS_LISTS[0], handle)
    if compute is None:
        compute = tell(_COMPUTE_BEFORE_R510, handle)
    if compute is None:
        return None
    others = [process for listing in _PROCESS_LISTS[1:] for process in tell(listing, handle) or ()]
    return tuple((int(p.pid), p.usedGpuMemory) for p in [*compute, *others])


def clock_mhz(handle: Any, domain: int) -> int | None:
    """The present clock of one domain."""
    return _number(tell("nvmlDeviceGetClockInfo", handle, domain))


def ecc_errors(handle: Any, kind: int) -> int | None:
    """Memory errors of one kind since the driver was loaded."""
    return _number(tell("nvmlDeviceGetTotalEccErrors", handle, kind, pynvml.NVML_VOLATILE_ECC))


def first_of(pair: Any) -> int | None:
    """The first of what a call returned; None when it returned nothing."""
    return None if pair is None else int(pair[0])


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


# --- conditions that speak against a card, for as long as they last ---------------------------------------------------

_RECOVERY = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "the driver asks for a reset of the card",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "the driver asks for a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "the driver asks to drain its peer traffic",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "the driver asks to drain and reset the card",
}


def conditions(handle: Any) -> tuple[str, ...]:
    """Why the card must not be used, in words; nothing when the driver sees no reason or cannot tell."""
    remapped = tell("nvmlDeviceGetRemappedRows", handle)
    found = []
    if remapped is not None:
        _, _, pending, failure = remapped
        found += ["a memory row could not be replaced"] if failure else []
        found += ["a memory row waits for a reset to be replaced"] if pending else []
    action = _recovery_action(handle)
    return (*found, _RECOVERY.get(action, f"the driver asks for recovery action {action}")) if action else tuple(found)


def _recovery_action(handle: Any) -> int | None:
    """Drivers since R570 tell it as a field; the field's own error is inside the answer."""
    fields = tell("nvmlDeviceGetFieldValues", handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if fields is None or fields[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(fields[0].value.uiVal)
