"""Cards as the NVIDIA driver knows them, through pynvml (of the distribution nvidia-ml-py).

In: nothing. Out: cards and their use. Not here: units and bounds (`readings`), what a failure means over time
(`monitor.health`), threads and deadlines (`runner`).

Every NVML error has one of three fates, in the table `_FATE`:

    field     the card cannot tell this number: None. The default, also for codes that do not exist yet
    card      the card is gone or needs a reset: `failed` with the reason, the others go on
    driver    nobody can be asked: DriverLost, and the library is opened anew at the next call

A card that is lost can often not even be asked for its UUID; it is then known by what sat at its index before. The
index serves nothing else: drivers and CUDA number cards differently, and both may renumber.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pynvml

from contracts.inventory import Card
from contracts.units import CardUuid
from contracts.usage import CardUsage
from monitor.cards import readings
from monitor.cards.protocol import DriverLost, DriverMissing, ProviderName
from monitor.cards.readings import MemoryRules, RawCard, RawMemory, RawUsage

log = logging.getLogger(__name__)

Fate = Literal["field", "card", "driver"]

_FATE: dict[int, Fate] = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "card",
    pynvml.NVML_ERROR_RESET_REQUIRED: "card",
    pynvml.NVML_ERROR_UNKNOWN: "card",
    pynvml.NVML_ERROR_UNINITIALIZED: "driver",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "driver",
}

_SIMULATE = "On a machine without cards choose simulated ones: GPUBUS_MONITOR__PROVIDER=simulated"

_MISSING: dict[int, tuple[str, str]] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is not found",
        "Install the NVIDIA driver; a container needs the NVIDIA runtime and NVIDIA_DRIVER_CAPABILITIES=utility. ",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the kernel module `nvidia` is not loaded",
        "Load it (modprobe nvidia) or wait for the driver container of this node. ",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "the driver refuses us (/dev/nvidiactl cannot be opened)",
        "Run as uid 0, and let the NVIDIA runtime pass the devices. ",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "libnvidia-ml.so.1 and the loaded kernel module are of different versions",
        "Restart the container, or reboot the node after a driver update. ",
    ),
}

_REOPEN_AFTER = 10
"""With a failed card the library is opened anew after so many inventories: a session does not see a card come back."""

_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
)
_COMPUTE_BEFORE_R510 = "nvmlDeviceGetComputeRunningProcesses_v2"


class NvmlCards:
    """The cards of this machine. Not thread-safe: one thread, as the protocol says."""

    def __init__(self, rules: MemoryRules | None = None) -> None:
        self._rules = rules or MemoryRules()
        self._open = False
        self._answered = False
        self._by_index: dict[int, Card] = {}
        self._with_failures = 0
        self._sampled_to: dict[CardUuid, int] = {}

    @property
    def name(self) -> ProviderName:
        """`nvml`."""
        return "nvml"

    def inventory(self) -> tuple[Card, ...]:
        """Every card that the driver lists.

        Raises:
            DriverMissing: library, kernel module or permission is missing, and never was there.
            DriverLost: the driver answered before and does not now.
        """
        self._renew()
        found = [self._card(index) for index in range(self._count())]
        alive = {card.uuid for card in found if card and card.health == "healthy"}
        cards = tuple(c for c in found if c and (c.health == "healthy" or c.uuid not in alive))
        self._by_index |= {card.index: card for card in cards if card.health == "healthy"}
        self._with_failures = self._with_failures + 1 if len(alive) < len(found) else 0
        return cards

    def usage(self) -> tuple[CardUsage, ...]:
        """One sample of every card that can be found; raises as `inventory`."""
        sampled = (self._usage(index) for index in range(self._count()))
        return tuple(usage for usage in sampled if usage)

    def driver_version(self) -> str:
        """As `nvidia-smi` shows it; empty when the driver does not tell."""
        self._ensure_open()
        try:
            return str(_tell("nvmlSystemGetDriverVersion") or "")[:80]
        except pynvml.NVMLError as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """Shut the library down; the next call would open it again."""
        if self._open:
            self._open = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                log.debug("nvmlShutdown: %s", error)

    # --- session ------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        if self._with_failures >= _REOPEN_AFTER:
            self._with_failures = 0
            self.close()

    def _ensure_open(self) -> None:
        if self._open:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise self._unopened(error) from error
        self._open = self._answered = True

    def _unopened(self, error: Any) -> DriverMissing | DriverLost:
        if self._answered:
            return DriverLost(f"the driver does not answer any more: {error}")
        missing, remedy = _MISSING.get(error.value, (f"the driver cannot be opened: {error} (NVML {error.value})", ""))
        return DriverMissing(missing, remedy + _SIMULATE)

    def _count(self) -> int:
        self._ensure_open()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            raise self._lost(error) from error

    # --- one card -----------------------------------------------------------------------------------------------

    def _card(self, index: int) -> Card | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = readings.legal_uuid(_ask("nvmlDeviceGetUUID", handle))
            if uuid is None:
                return self._unnamed(index, "it tells no UUID")
            raw = RawCard(
                uuid=uuid,
                index=index,
                name=_ask("nvmlDeviceGetName", handle),
                memory=_memory(handle),
                mig=_first(_ask("nvmlDeviceGetMigMode", handle)),
            )
        except pynvml.NVMLError as error:
            return self._failed(index, error)
        return readings.card(raw, self._rules)

    def _failed(self, index: int, error: Any) -> Card | None:
        self._unless_driver(error)
        return self._unnamed(index, f"{error} (NVML {error.value})")

    def _unnamed(self, index: int, reason: str) -> Card | None:
        """The card that sat at this index before, as failed; nobody when none did."""
        known = self._by_index.get(index)
        if known is None:
            log.warning("card %d is left out: it cannot be named, and was not seen before: %s", index, reason)
            return None
        return msgspec.structs.replace(known, health="failed", health_reason=reason[:1024])

    def _usage(self, index: int) -> CardUsage | None:
        known = self._by_index.get(index)
        uuid = known.uuid if known else None
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = readings.legal_uuid(_ask("nvmlDeviceGetUUID", handle)) or uuid
            return readings.usage(self._sample(handle, uuid)) if uuid else None
        except pynvml.NVMLError as error:
            self._unless_driver(error)
            return CardUsage(uuid=uuid) if uuid else None

    def _sample(self, handle: Any, uuid: CardUuid) -> RawUsage:
        """Memory is asked first and strictly: a lost card costs one question, and a hole in a statistic is no loss."""
        memory = _memory(handle)
        rates = _tell("nvmlDeviceGetUtilizationRates", handle)
        return RawUsage(
            uuid=uuid,
            utilization=None if rates is None else rates.gpu,
            memory=memory,
            power_mw=_tell("nvmlDeviceGetPowerUsage", handle),
            temperature_c=_temperature(handle),
            processes=_processes(handle),
            samples=self._process_samples(handle, uuid),
        )

    def _process_samples(self, handle: Any, uuid: CardUuid) -> tuple[tuple[int, int, int], ...] | None:
        """Samples since the last call. The first call only finds the newest time stamp: its samples are of any age."""
        since = self._sampled_to.get(uuid)
        answer = _tell("nvmlDeviceGetProcessUtilization", handle, since or 0)
        if not answer:
            return None
        samples = tuple((int(s.pid), int(s.timeStamp), int(s.smUtil)) for s in answer)
        self._sampled_to[uuid] = max(at for _, at, _ in samples)
        return None if since is None else samples

    def _unless_driver(self, error: Any) -> None:
        """Return when the error is one card's; raise DriverLost when it is everybody's."""
        if _FATE.get(error.value) == "driver":
            raise self._lost(error) from error

    def _lost(self, error: Any) -> DriverLost:
        self.close()
        return DriverLost(f"the driver does not answer any more: {error} (NVML {error.value})")


# --- single questions -------------------------------------------------------------------------------------------------


def _ask(function: str, *arguments: Any) -> Any:
    """The answer, or None when only this field is unknown.

    Raises:
        pynvml.NVMLError: the card or the driver failed.
    """
    call: Callable[..., Any] = getattr(pynvml, function)
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if _FATE.get(error.value, "field") != "field":
            raise
    except (pynvml.NVMLLibraryMismatchError, UnicodeDecodeError):
        pass  # a call that this driver lacks, a name that is no text
    return None


def _tell(function: str, *arguments: Any) -> Any:
    """As `_ask`, for what says nothing about a card's health: there only the driver's failure is raised."""
    try:
        return _ask(function, *arguments)
    except pynvml.NVMLError as error:
        if _FATE.get(error.value) == "driver":
            raise
        return None


def _memory(handle: Any) -> RawMemory | None:
    """Version 2 tells the reserved part; drivers before R510 have only version 1."""
    second = _ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    if second is not None:
        return RawMemory(total=second.total, used=second.used, reserved=second.reserved)
    first = _ask("nvmlDeviceGetMemoryInfo", handle)
    return None if first is None else RawMemory(total=first.total, used=first.used)


def _temperature(handle: Any) -> int | None:
    """The versioned call; the older one, which goes away with CUDA 14, where the driver lacks it."""
    degrees = _tell("nvmlDeviceGetTemperatureV", handle, pynvml.NVML_TEMPERATURE_GPU)
    if degrees is None:
        degrees = _tell("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU)
    return degrees if degrees is None else int(degrees)


def _processes(handle: Any) -> tuple[tuple[int, int | None], ...] | None:
    """All lists together (clients of MPS have one of their own); None when compute processes cannot be listed."""
    compute = _tell(_PROCESS_LISTS[0], handle)
    if compute is None:
        compute = _tell(_COMPUTE_BEFORE_R510, handle)
    if compute is None:
        return None
    others = [process for listing in _PROCESS_LISTS[1:] for process in _tell(listing, handle) or ()]
    return tuple((int(p.pid), p.usedGpuMemory) for p in [*compute, *others])


def _first(pair: Any) -> int | None:
    return None if pair is None else int(pair[0])
