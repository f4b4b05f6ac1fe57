"""The last usage message as gauges for Prometheus: what is not in it has no series. Pure.

Names and units of the cards are those of NVIDIA's dcgm-exporter, so that its dashboards show them:

    DCGM_FI_DEV_GPU_UTIL     %      one series per card and pod that holds a piece; what is nobody's, or of no process
    DCGM_FI_DEV_FB_USED      MiB    that we know, in one more series with empty labels: they add up to the card
    DCGM_FI_DEV_POWER_USAGE  W      one series per card
    DCGM_FI_DEV_GPU_TEMP     °C
    DCGM_FI_DEV_SM_CLOCK     MHz    and DCGM_FI_DEV_MEM_CLOCK
    gpubus_card_unmanaged_mib       memory of processes that belong to nobody

Where the driver does not tell of processes, a card has the one series with empty labels. Where the parts' memory is
more than the card's (peaks of one period that were not at one time), their sum is shown and the rest is 0.

The vertical scaler of KuScale exports Limit, Usage and AvgUsage per pod and resource, in percent of one core or card;
these are `kuscale_limit`, `kuscale_usage`, `kuscale_avg_usage` with its labels. Gauges, as they go down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from bus.runtime.series import Gauge
from contracts.usage import CardUsage, ContainerUsage, NodeUsage, SliceUsage

CARD = ("Hostname", "UUID")
CARD_POD = ("Hostname", "UUID", "namespace", "pod")
CONTAINER = ("node", "namespace", "pod", "container")
KUSCALE = ("name", "id", "node")

Part = TypeVar("Part", ContainerUsage, SliceUsage)

Series = tuple[tuple[str, ...], float]

_OF_A_CARD: tuple[tuple[str, str, Callable[[CardUsage], int | None]], ...] = (
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda card: card.power_w),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda card: card.temperature_c),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", lambda card: card.sm_clock_mhz),
    ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", lambda card: card.memory_clock_mhz),
    (
        "gpubus_card_unmanaged_mib",
        "Memory of processes that belong to nobody (in MiB).",
        lambda card: card.unmanaged_mib,
    ),
)
_OF_A_CONTAINER: tuple[tuple[str, str, Callable[[ContainerUsage], int | None]], ...] = (
    ("gpubus_container_cpu_used_milli", "CPU used, thousandths of a core.", lambda c: c.cpu_used_milli),
    ("gpubus_container_cpu_limit_milli", "CPU limit; absent = none.", lambda c: c.cpu_limit_milli),
    ("gpubus_container_throttled_permille", "Part of its periods held back.", lambda c: c.throttled_permille),
    ("gpubus_container_memory_working_mib", "Memory without droppable cache.", lambda c: c.memory_working_mib),
    ("gpubus_container_memory_limit_mib", "Memory limit; absent = none.", lambda c: c.memory_limit_mib),
)


def gauges(usage: NodeUsage | None) -> Iterator[Gauge]:
    """Everything; nothing before the first message."""
    if usage is not None:
        yield from _cards(usage)
        yield from _containers(usage)
        yield from _kuscale(usage)


# --- cards ------------------------------------------------------------------------------------------------------------


def _cards(usage: NodeUsage) -> Iterator[Gauge]:
    node = usage.node
    busy = [s for c in usage.cards for s in _shared(node, c, c.compute_percent, lambda piece: piece.compute_percent)]
    held = [s for c in usage.cards for s in _shared(node, c, c.memory_used_mib, lambda piece: piece.memory_used_mib)]
    yield _gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", CARD_POD, busy)
    yield _gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", CARD_POD, held)
    for name, text, read in _OF_A_CARD:
        known = [((node, card.uuid), float(n)) for card in usage.cards if (n := read(card)) is not None]
        yield _gauge(name, text, CARD, known)


def _shared(
    node: str, card: CardUsage, whole: int | None, part: Callable[[SliceUsage], int | None]
) -> Iterator[Series]:
    """The pods' parts, and the rest of the card; a card of which the whole is unknown has only the known parts."""
    known = [(piece, n) for piece in card.slices or () if (n := part(piece)) is not None]
    for piece, number in known:
        yield (node, card.uuid, piece.namespace, piece.pod), float(number)
    if whole is not None:
        yield (node, card.uuid, "", ""), float(max(0, whole - sum(number for _, number in known)))


# --- containers -------------------------------------------------------------------------------------------------------


def _containers(usage: NodeUsage) -> Iterator[Gauge]:
    for name, text, read in _OF_A_CONTAINER:
        known = [
            ((usage.node, c.namespace, c.pod, c.container[:12]), float(n))
            for c in usage.containers or ()
            if (n := read(c)) is not None
        ]
        yield _gauge(name, text, CONTAINER, known)


# --- KuScale's --------------------------------------------------------------------------------------------------------


def _kuscale(usage: NodeUsage) -> Iterator[Gauge]:
    containers, slices = _own(usage.containers or ()), _slices(usage.cards)
    rows: Sequence[tuple[str, str, dict[str, float], dict[str, float]]] = (
        (
            "kuscale_usage",
            "Use, percent of one core or card.",
            _tenths(containers, lambda c: c.cpu_used_milli),
            _tenths(slices, lambda s: None if s.compute_percent is None else 10 * s.compute_percent),
        ),
        (
            "kuscale_avg_usage",
            "Running mean of the use, the newest period with one eighth.",
            _tenths(containers, lambda c: c.cpu_average_milli),
            _tenths(slices, lambda s: s.average_milli),
        ),
        (
            "kuscale_limit",
            "Limit, percent of one core or card; absent = none.",
            _tenths(containers, lambda c: c.cpu_limit_milli),
            _tenths(slices, lambda s: s.share_milli),
        ),
    )
    for name, text, cpu, gpu in rows:
        series = [
            ((kind, pod, usage.node), n) for kind, found in (("CPU", cpu), ("GPU", gpu)) for pod, n in found.items()
        ]
        yield _gauge(name, text, KUSCALE, series)


def _own(containers: Iterable[ContainerUsage]) -> dict[str, list[ContainerUsage]]:
    """By pod: the request's own container; all of them while it is not known which that is."""
    pods: dict[str, list[ContainerUsage]] = {}
    for container in containers:
        if container.pod and container.own is not False:
            pods.setdefault(f"{container.namespace}/{container.pod}", []).append(container)
    return pods


def _slices(cards: Iterable[CardUsage]) -> dict[str, list[SliceUsage]]:
    """By pod: its pieces of cards."""
    pods: dict[str, list[SliceUsage]] = {}
    for piece in (piece for card in cards for piece in card.slices or ()):
        pods.setdefault(f"{piece.namespace}/{piece.pod}", []).append(piece)
    return pods


def _tenths(pods: dict[str, list[Part]], read: Callable[[Part], int | None]) -> dict[str, float]:
    """Thousandths, summed over a pod, in percent; a pod with an unknown part is left out."""
    sums = {pod: [read(part) for part in parts] for pod, parts in pods.items()}
    return {pod: sum(n or 0 for n in found) / 10 for pod, found in sorted(sums.items()) if None not in found}


def _gauge(name: str, text: str, labels: tuple[str, ...], series: Iterable[Series]) -> Gauge:
    return Gauge(name=name, text=text, labels=labels, series=tuple(series))
