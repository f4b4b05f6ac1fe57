"""What the driver says by itself: Xid messages and lost data, through an event set of NVML.

In: the seats to hear of. Out: signs against their cards. It blocks in the driver for short spells; who waits is told in
`listener`.

The set belongs to a session of the library. Whoever ends the session does so inside `released`, which waits for the
present spell to end; whoever begins one, or changes the seats, calls `renew`. The driver names a card by a handle; the
handle of each seat is noted when it is registered.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pynvml

from contracts.inventory import Card
from contracts.units import CardUuid
from monitor import xids
from monitor.cards import calls
from monitor.cards.protocol import DriverLost, Sign

log = logging.getLogger(__name__)

RELEASE_S = 2.0

_WHOLE_CARD = 0xFFFFFFFF
"""In place of a GPU instance: the event is of the whole card."""
_WANTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError


class Sitter(msgspec.Struct, frozen=True, kw_only=True):
    """A seat to hear of, and how to find who sits there when something happens."""

    seat: int
    cards: Callable[[], tuple[Card, ...]]


class EventSet:
    """One event set, made anew when its session is."""

    def __init__(self) -> None:
        self.slots: dict[int, dict[CardUuid, int | None]] = {}
        """GPU instance of each MIG card, by seat: an event may be of one instance alone."""
        self._stale = True
        self._set: Any = None
        self._by_handle: dict[int | None, Sitter] = {}
        self._in_driver = threading.Lock()
        self._renewed = threading.Event()

    def renew(self) -> None:
        """The session or the seats are other ones: the next wait makes another set, and begins at once."""
        self._stale = True
        self._renewed.set()

    @contextlib.contextmanager
    def released(self) -> Iterator[bool]:
        """The set is given back, and nobody waits, while this is open; False: the driver does not come back."""
        if not self._in_driver.acquire(timeout=RELEASE_S):
            yield False
            return
        try:
            self._free()
            yield True
        finally:
            self._in_driver.release()

    def wait(self, timeout_ms: int, sitters: Callable[[], tuple[Sitter, ...]]) -> tuple[Sign, ...]:
        """What happened, at once; nothing after `timeout_ms`. Raises DriverLost."""
        with self._in_driver:
            try:
                if self._stale:
                    self._make(sitters())
                event = self._next(timeout_ms)
            except pynvml.NVMLError as error:
                self._free()
                raise DriverLost(f"no events: {calls.words_of(error)}") from error
        return self._signs(event) if event is not None else ()

    def _make(self, sitters: tuple[Sitter, ...]) -> None:
        self._free()
        if not sitters:
            return
        self._stale = False  # first: who renews it from now on means the set after this one
        self._set = pynvml.nvmlEventSetCreate()
        for sitter in sitters:
            handle = calls.tell("nvmlDeviceGetHandleByIndex", sitter.seat)
            if handle is not None and _register(handle, self._set):
                self._by_handle[_address(handle)] = sitter

    def _next(self, timeout_ms: int) -> Any | None:
        """The next event. Without a card that has any the spell passes all the same, unless there are others now."""
        if not self._by_handle:
            self._renewed.wait(timeout_ms / 1000)
            self._renewed.clear()
            return None
        try:
            return pynvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise

    def _free(self) -> None:
        made, self._set, self._stale = self._set, None, True
        self._by_handle.clear()
        if made is not None:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(made)

    def _signs(self, event: Any) -> tuple[Sign, ...]:
        sitter = self._by_handle.get(_address(event.device))
        if sitter is None:
            log.warning("an event of a card that is not known", extra={"type": event.eventType})
            return ()
        code = int(event.eventData) if event.eventType == pynvml.nvmlEventTypeXidCriticalError else _DOUBLE_BIT
        slots = self.slots.get(sitter.seat, {})
        meant = [c for c in sitter.cards() if event.gpuInstanceId in (_WHOLE_CARD, slots.get(c.uuid, _WHOLE_CARD))]
        found = (xids.sign_of(card.uuid, code) for card in meant or sitter.cards())
        signs = tuple(sign for sign in found if sign is not None)
        log.warning("the driver reports Xid %d", code, extra={"seat": sitter.seat, "against": len(signs)})
        return signs


_DOUBLE_BIT = 48
"""Older cards have an event of its own for it."""


def _register(handle: Any, made: Any) -> bool:
    supported = calls.tell("nvmlDeviceGetSupportedEventTypes", handle)
    kinds = _WANTED & int(supported or 0)
    if not kinds:
        return False
    try:
        pynvml.nvmlDeviceRegisterEvents(handle, kinds, made)
    except pynvml.NVMLError as error:
        log.info("no events of a card: %s", calls.words_of(error))
        return False
    return True


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
