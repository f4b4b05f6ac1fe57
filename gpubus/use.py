"""What each request uses, put together from what the monitors of its nodes say. Pure.

In: the last usage message of each node. Out: one row per request and card, with the CPU of its pod; rows of the busiest
first; and the processes that belong to nobody. A sum with an unknown part is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contracts.messages import Value
from contracts.usage import CardUsage, ContainerUsage, NodeUsage, ProcessUsage, SliceUsage


class RequestUse(Value, frozen=True, kw_only=True):
    """One request on one card; without a card, `card` is empty. None = unknown."""

    namespace: str
    pod: str
    uid: str
    node: str
    card: str = ""
    share_milli: int | None = None
    compute_percent: int | None = None
    average_milli: int | None = None
    memory_used_mib: int | None = None
    limit_mib: int | None = None
    cpu_used_milli: int | None = None
    cpu_limit_milli: int | None = None
    cpu_limited: bool | None = None
    throttled_permille: int | None = None
    host_memory_mib: int | None = None


class Stranger(Value, frozen=True, kw_only=True):
    """A process on a card that belongs to nobody we know, or to a request that has no share of that card."""

    node: str
    card: str
    pid: int
    command: str
    memory_mib: int | None
    request: str = ""


class Listed(Value, frozen=True, kw_only=True):
    """How many processes are on the cards, and whose they are."""

    ours: int = 0
    nobodys: int = 0
    unknown: int = 0
    heard: int = 0
    """Nodes that said."""


def request_use(usages: Mapping[str, NodeUsage]) -> list[RequestUse]:
    """All rows: the busiest first, then by name; unknown is last."""
    rows = [row for name in sorted(usages) for row in _of_node(usages[name])]
    return sorted(
        rows, key=lambda r: (-_known(r.compute_percent), -_known(r.cpu_used_milli), r.namespace, r.pod, r.card)
    )


def strangers(usages: Mapping[str, NodeUsage]) -> list[Stranger]:
    """By node and card; the largest first."""
    found = [
        Stranger(node=name, card=card.uuid, pid=p.pid, command=p.command, memory_mib=p.memory_mib, request=p.request)
        for name, card, p in _processes(usages)
        if p.belongs == "nobody"
    ]
    return sorted(found, key=lambda s: (s.node, s.card, -(s.memory_mib or 0), s.pid))


def listed(usages: Mapping[str, NodeUsage]) -> Listed:
    """Whose the processes are, in numbers. A process on two cards is counted once."""
    whose = {(name, p.pid): p.belongs for name, _, p in _processes(usages)}
    count = list(whose.values()).count
    return Listed(ours=count("request"), nobodys=count("nobody"), unknown=count("unknown"), heard=len(usages))


def cards(usages: Mapping[str, NodeUsage]) -> dict[str, CardUsage]:
    """By UUID."""
    return {card.uuid: card for usage in usages.values() for card in usage.cards}


def _known(value: int | None) -> int:
    return -1 if value is None else value


def _processes(usages: Mapping[str, NodeUsage]) -> Iterable[tuple[str, CardUsage, ProcessUsage]]:
    for name in sorted(usages):
        for card in usages[name].cards:
            for process in card.processes or ():
                yield name, card, process


def _of_node(usage: NodeUsage) -> Iterable[RequestUse]:
    containers: dict[str, list[ContainerUsage]] = {}
    for container in usage.containers or ():
        if container.own is not False:
            containers.setdefault(container.uid, []).append(container)
    pieces = [(card.uuid, piece) for card in usage.cards for piece in card.slices or ()]
    for card, piece in pieces:
        yield _row(usage.node, containers.get(piece.uid, []), card, piece)
    for uid in containers.keys() - {piece.uid for _, piece in pieces}:
        yield _row(usage.node, containers[uid], "", None)


def _row(node: str, containers: list[ContainerUsage], card: str, piece: SliceUsage | None) -> RequestUse:
    who = piece or containers[0]
    only = containers[0] if len(containers) == 1 else None
    return RequestUse(
        namespace=who.namespace,
        pod=who.pod,
        uid=who.uid,
        node=node,
        card=card,
        share_milli=piece.share_milli if piece else None,
        compute_percent=piece.compute_percent if piece else None,
        average_milli=piece.average_milli if piece else None,
        memory_used_mib=piece.memory_used_mib if piece else None,
        limit_mib=piece.limit_mib if piece else None,
        cpu_used_milli=_sum(c.cpu_used_milli for c in containers) if containers else None,
        cpu_limit_milli=only.cpu_limit_milli if only else None,
        cpu_limited=only.cpu_limited if only else None,
        throttled_permille=only.throttled_permille if only else None,
        host_memory_mib=_sum(c.memory_working_mib for c in containers) if containers else None,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    return None if None in found else sum(value or 0 for value in found)
