"""Which port the manager of each pod listens on, where a node's token server needs one. A pure state machine.

In: who needs a port, who has one, what else is still in use, and the port that was given out last. Out: the ports, the
last one now, and who got none because the range is full. The next free one after the last is given, round and round, so
that a port rests as long as possible before it is used again. What is given stays with its pod until the ledger has
released it; nothing is given twice. Its memory is the last `NodeShares` of the node, which is stored with the sequence
before it expected, so that two writers cannot give the same port to two pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

FIRST, LAST = 50_051, 50_561
"""511 ports, the range of the token servers' launcher."""


class Allotment(msgspec.Struct, frozen=True, kw_only=True):
    """Ports by request uid."""

    ports: Mapping[str, int]
    last: int
    refused: tuple[str, ...] = ()
    """Uids for which no port is free."""


def allot(wanted: Iterable[str], held: Mapping[str, int], *, in_use: Collection[int] = (), last: int = 0) -> Allotment:
    """A port for each of `wanted`, in their order.

    Args:
        wanted: uids that need one.
        held: ports that uids have already; one outside the range is as good as none.
        in_use: ports that are taken by whatever else.
        last: the port that was given out last; 0 = none yet.
    """
    uids = list(dict.fromkeys(wanted))
    known = set(uids)
    ports: dict[str, int] = {}
    taken = {*in_use, *(port for uid, port in held.items() if uid not in known)}
    for uid in sorted(uids):  # two that hold the same one, which cannot be: the first by uid keeps it
        port = held.get(uid, 0)
        if FIRST <= port <= LAST and port not in taken:
            ports[uid] = port
            taken.add(port)
    free = _free(last, taken)
    refused: list[str] = []
    for uid in (uid for uid in uids if uid not in ports):
        found = next(free, None)
        if found is None:
            refused.append(uid)
        else:
            ports[uid] = last = found
    return Allotment(ports=ports, last=last, refused=tuple(refused))


def _free(last: int, taken: Collection[int]) -> Iterator[int]:
    """The free ports after `last`, once round; they end when the range is full."""
    size = LAST - FIRST + 1
    begin = last - FIRST + 1 if FIRST <= last <= LAST else 0
    ring = (FIRST + (begin + step) % size for step in range(size))
    return (port for port in ring if port not in taken)
