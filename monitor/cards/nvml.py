"""Cards as the NVIDIA driver knows them, through pynvml (of the distribution nvidia-ml-py).

In: nothing. Out: seats and what is found at each, with what speaks against it; events; wiring. Not here: units and
bounds (`readings`), the fate of single errors (`calls`), what a failure means over time (`monitor.standing`), threads
and deadlines (`runner`).

A card that is lost can often not even be asked for its UUID; it is then known by what sat at its seat before. The seat
serves nothing else: drivers and CUDA number cards differently, and both may renumber.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pynvml

from contracts.inventory import Card
from contracts.units import CardUuid
from contracts.usage import CardUsage
from monitor.cards import calls, links, mig, readings, topology
from monitor.cards.events import EventSet, Sitter
from monitor.cards.protocol import DriverInfo, DriverLost, DriverMissing, Look, Place, ProviderName, Sign, Weight
from monitor.cards.readings import MemoryRules, RawCard, RawInstance, RawUsage

log = logging.getLogger(__name__)

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

_NO_UUID = "it tells no UUID"

Against = tuple[tuple[Weight, str], ...]


class NvmlCards:
    """The cards of this machine. Threads as the protocol says: one a seat, one for the driver, one that waits."""

    def __init__(self, rules: MemoryRules | None = None) -> None:
        self._rules = rules or MemoryRules()
        self._open = False
        self._answered = False
        self._seats: tuple[int, ...] = ()
        self._held: dict[int, tuple[Card, ...]] = {}
        """What was last found well at each seat."""
        self._absent: set[int] = set()
        """Seats whose card could not be named."""
        self._uncorrected: dict[CardUuid, int] = {}
        self._sampled_to: dict[CardUuid, int] = {}
        self._events = EventSet()

    @property
    def name(self) -> ProviderName:
        """`nvml`."""
        return "nvml"

    # --- the driver as a whole --------------------------------------------------------------------------------------

    def seats(self) -> tuple[int, ...]:
        """0, 1, 2, ... as many as the driver lists.

        Raises:
            DriverMissing: library, kernel module or permission is missing, and never was there.
            DriverLost: the driver answered before and does not now.
        """
        self._ensure_open()
        try:
            seats = tuple(range(int(pynvml.nvmlDeviceGetCount())))
        except pynvml.NVMLError as error:
            self.close()
            raise _lost(error) from error
        if seats != self._seats:
            self._seats = seats
            self._events.renew()
        return seats

    def info(self) -> DriverInfo:
        """As `nvidia-smi` shows it."""
        with _driver_errors():
            cuda = calls.tell("nvmlSystemGetCudaDriverVersion_v2")
            return DriverInfo(
                version=str(calls.tell("nvmlSystemGetDriverVersion") or "")[:80],
                cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
            )

    def places(self, seats: tuple[int, ...]) -> Mapping[int, Place]:
        """By the driver's own words; seats without a handle are left out."""
        with _driver_errors():
            handles = {seat: calls.tell("nvmlDeviceGetHandleByIndex", seat) for seat in seats}
            return topology.places(links.wirings({seat: h for seat, h in handles.items() if h is not None}))

    def wait(self, timeout_ms: int) -> tuple[Sign, ...]:
        """What the driver's event set says; see `events`."""
        return self._events.wait(timeout_ms, self._sitters)

    def reopen(self) -> None:
        """A new session; the next call of `seats` opens it."""
        self.close()

    def close(self) -> None:
        """Shut the library down, unless the thread that waits for events does not let go of it."""
        if not self._open:
            return
        with self._events.released() as released:
            if released:
                self._open = False
                with contextlib.suppress(pynvml.NVMLError):
                    pynvml.nvmlShutdown()

    def _ensure_open(self) -> None:
        if self._open:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise self._unopened(error) from error
        self._open = self._answered = True
        self._events.renew()

    def _unopened(self, error: Any) -> DriverMissing | DriverLost:
        if self._answered:
            return _lost(error)
        missing, remedy = _MISSING.get(error.value, (f"the driver cannot be opened: {calls.words_of(error)}", ""))
        return DriverMissing(missing, remedy + _SIMULATE)

    def _sitters(self) -> tuple[Sitter, ...]:
        """Whom to hear of, for the event set: every seat with its cards."""
        return tuple(Sitter(seat=seat, cards=partial(self._sitting, seat)) for seat in self._seats)

    def _sitting(self, seat: int) -> tuple[Card, ...]:
        return self._held.get(seat, ())

    # --- one seat ---------------------------------------------------------------------------------------------------

    def look(self, seat: int) -> Look:
        """The card at a seat, or its instances. Raises DriverLost."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(seat)
            uuid = readings.legal_uuid(calls.ask("nvmlDeviceGetUUID", handle))
            if uuid is None:
                return self._unnamed(seat, "odd", _NO_UUID)
            self._welcome(seat)
            return self._named(seat, handle, uuid)
        except pynvml.NVMLError as error:
            fate = calls.fate_of(error)
            if fate == "driver":
                raise _lost(error) from error
            return self._unnamed(seat, "fatal" if fate == "card" else "odd", calls.words_of(error))

    def _named(self, seat: int, handle: Any, uuid: CardUuid) -> Look:
        raw = RawCard(
            uuid=uuid,
            index=seat,
            name=calls.ask("nvmlDeviceGetName", handle),
            memory=calls.memory(handle),
            mig=mig.enabled(handle),
        )
        usage = self._sample(handle, raw)
        against = self._against(handle, uuid, usage)
        cut = mig.instances(handle) if raw.mig else ()
        if cut:
            return self._split(seat, raw, cut, against)
        card = readings.card(raw, self._rules)
        self._held[seat] = (card,)
        return Look(cards=(card,), usage=(readings.usage(usage),), signs=_signs((card,), against))

    def _split(self, seat: int, whole: RawCard, cut: tuple[RawInstance, ...], against: Against) -> Look:
        """The instances instead of the card; what speaks against the card speaks against each of them."""
        cards = tuple(readings.instance(whole, one, self._rules) for one in cut)
        self._held[seat] = cards
        self._events.slots[seat] = {one.uuid: one.slot for one in cut}
        usage = (RawUsage(uuid=one.uuid, memory=one.memory, processes=one.processes) for one in cut)
        return Look(cards=cards, usage=tuple(map(readings.usage, usage)), signs=_signs(cards, against))

    def _welcome(self, seat: int) -> None:
        """A card that comes back must be heard of again."""
        if seat in self._absent:
            self._absent.discard(seat)
            self._events.renew()

    def _unnamed(self, seat: int, weight: Weight, reason: str) -> Look:
        """What sat at this seat before, with the sign against it; nobody when nothing did."""
        known = self._held.get(seat, ())
        self._absent.add(seat)
        if not known:
            log.warning("card %d is left out: it cannot be named, and was not seen before: %s", seat, reason)
        usage = tuple(CardUsage(uuid=card.uuid) for card in known)
        return Look(cards=known, usage=usage, signs=_signs(known, ((weight, reason),)), named=False)

    def _against(self, handle: Any, uuid: CardUuid, usage: RawUsage) -> Against:
        """Conditions of the card, and data that it has lost since the last look."""
        found: list[tuple[Weight, str]] = [("fatal", words) for words in calls.conditions(handle)]
        if usage.ecc_uncorrected is not None:
            before = self._uncorrected.get(uuid, usage.ecc_uncorrected)
            self._uncorrected[uuid] = usage.ecc_uncorrected
            if usage.ecc_uncorrected > before:
                found.append(("passing", "data in its memory was lost: the count of uncorrected errors rose"))
        return tuple(found)

    def _sample(self, handle: Any, raw: RawCard) -> RawUsage:
        rates = calls.tell("nvmlDeviceGetUtilizationRates", handle)
        return RawUsage(
            uuid=raw.uuid,
            utilization=None if rates is None else rates.gpu,
            memory=raw.memory,
            power_mw=calls.tell("nvmlDeviceGetPowerUsage", handle),
            temperature_c=calls.temperature(handle),
            sm_clock_mhz=calls.clock_mhz(handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=calls.clock_mhz(handle, pynvml.NVML_CLOCK_MEM),
            ecc_corrected=calls.ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrected=calls.ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            processes=calls.processes(handle),
            samples=self._process_samples(handle, raw.uuid),
        )

    def _process_samples(self, handle: Any, uuid: CardUuid) -> tuple[tuple[int, int, int], ...] | None:
        """Samples since the last call. The first call only finds the newest time stamp: its samples are of any age."""
        since = self._sampled_to.get(uuid)
        answer = calls.tell("nvmlDeviceGetProcessUtilization", handle, since or 0)
        if not answer:
            return None
        samples = tuple((int(s.pid), int(s.timeStamp), int(s.smUtil)) for s in answer)
        self._sampled_to[uuid] = max(at for _, at, _ in samples)
        return None if since is None else samples


def _signs(cards: tuple[Card, ...], against: Against) -> tuple[Sign, ...]:
    return tuple(Sign(card=card.uuid, weight=weight, reason=reason) for card in cards for weight, reason in against)


def _lost(error: Any) -> DriverLost:
    unloaded = error.value in calls.UNLOADED
    return DriverLost(f"the driver does not answer any more: {calls.words_of(error)}", unloaded=unloaded)


@contextlib.contextmanager
def _driver_errors() -> Iterator[None]:
    """What `tell` lets through is the driver's failure."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise _lost(error) from error
