"""How a card is wired, asked of NVML: its NVLinks, its neighbours on PCIe, its memory node.

In: the handles of all seats. Out: a `Wiring` per seat for `topology`. These are a few calls per link and per pair of
cards; they are made once for a set of cards, not at every look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pynvml

from monitor.cards import calls
from monitor.cards.topology import SWITCH, Wiring

_SET_WORDS = 4
"""Words of 64 memory nodes each."""
_WORD = 64


def wirings(handles: Mapping[int, Any]) -> dict[int, Wiring]:
    """What each seat says. Raises NVMLError: the driver failed."""
    return {
        seat: Wiring(
            bus=_bus(calls.tell("nvmlDeviceGetPciInfo", handle)),
            links=_links(handle),
            neighbours=_neighbours(seat, handles),
            numa_node=_numa_node(handle),
        )
        for seat, handle in handles.items()
    }


def _bus(info: Any) -> str:
    return "" if info is None else _text(info.busId)


def _text(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _links(handle: Any) -> tuple[str, ...] | None:
    """Far ends of the active links; None when the card has no NVLink at all, or cannot tell."""
    states = [calls.tell("nvmlDeviceGetNvLinkState", handle, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS)]
    if all(state is None for state in states):
        return None
    active = [link for link, state in enumerate(states) if state == pynvml.NVML_FEATURE_ENABLED]
    return tuple(end for link in active if (end := _far_end(handle, link)))


def _far_end(handle: Any, link: int) -> str:
    kind = calls.tell("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return SWITCH
    return _bus(calls.tell("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))


def _neighbours(seat: int, handles: Mapping[int, Any]) -> tuple[int, ...] | None:
    """Seats that are reached through PCIe switches alone; None when that cannot be told of any."""
    others = [(other, handle) for other, handle in handles.items() if other != seat]
    levels = {o: calls.tell("nvmlDeviceGetTopologyCommonAncestor", handles[seat], h) for o, h in others}
    if all(level is None for level in levels.values()):
        return None
    return tuple(o for o, level in levels.items() if level is not None and level <= pynvml.NVML_TOPOLOGY_MULTIPLE)


def _numa_node(handle: Any) -> int | None:
    """The one memory node that is nearest; None when there are several, as on machines without NUMA."""
    words = calls.tell("nvmlDeviceGetMemoryAffinity", handle, _SET_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)
    if words is None:
        return None
    nodes = [at * _WORD + bit for at, word in enumerate(words) for bit in range(_WORD) if word >> bit & 1]
    return nodes[0] if len(nodes) == 1 else None
