"""Which cards of a node belong together, from what each says of its links. Pure.

In: per seat its bus address, the far ends of its active NVLinks, the seats below the same PCIe switch, its memory node.
Out: a `Place` per seat. Groups are connected components, numbered from 0 by their lowest seat, so that the same wiring
has the same numbers on every start. A link counts when one of its two ends reports it: drivers have been seen to
report only one. All NVSwitches of a node are one: every card on them reaches every other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from monitor.cards.protocol import Place

SWITCH = "nvswitch"


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """What one seat says. `links` and `neighbours` are None when it cannot tell."""

    bus: str = ""
    """PCI address, as far ends name it."""
    links: tuple[str, ...] | None = None
    """Far end of each active NVLink: a PCI address, or `SWITCH`."""
    neighbours: tuple[int, ...] | None = None
    """Seats below the same PCIe switch."""
    numa_node: int | None = None


def places(wirings: Mapping[int, Wiring]) -> dict[int, Place]:
    """Every seat that said something."""
    seats = {wiring.bus.lower(): seat for seat, wiring in wirings.items() if wiring.bus}
    over_nvlink = _groups({s: _ends(w.links, seats) for s, w in wirings.items() if w.links})
    over_pcie = _groups({s: w.neighbours for s, w in wirings.items() if w.neighbours})
    return {
        seat: Place(nvlink_group=over_nvlink.get(seat), pcie_group=over_pcie.get(seat), numa_node=wiring.numa_node)
        for seat, wiring in wirings.items()
    }


def _ends(links: tuple[str, ...] | None, seats: Mapping[str, int]) -> tuple[int | str, ...]:
    """Far ends as seats; a far end that is no card of ours (a CPU, a card that is not listed) joins nobody."""
    ends = (SWITCH if end == SWITCH else seats.get(end.lower()) for end in links or ())
    return tuple(end for end in ends if end is not None)


def _groups(edges: Mapping[int, Iterable[int | str]]) -> dict[int, int]:
    """Component number of each seat that reaches another one."""
    root: dict[int | str, int | str] = {}

    def find(node: int | str) -> int | str:
        while root.setdefault(node, node) != node:
            node = root[node]
        return node

    for seat, ends in edges.items():
        for end in ends:
            root[find(end)] = find(seat)
    members: dict[int | str, list[int]] = {}
    for node in sorted(node for node in root if isinstance(node, int)):
        members.setdefault(find(node), []).append(node)
    joined = [seats for seats in members.values() if len(seats) > 1]
    return {seat: number for number, seats in enumerate(joined) for seat in seats}
