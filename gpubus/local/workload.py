"""A mixed workload for the demo: sizes as in a real cluster, and a few requests that each show one thing. Pure.

Sizes are drawn from the openb trace (Alibaba, 2023; github.com/alibaba/clusterdata, `openb_pod_list_default.csv`): of
its 8,152 pods 1,088 ask for no card, 3,078 for a share of one, 3,911 for one whole card, and 16, 15 and 44 for two,
four and eight. The table holds every shape (cards, thousandths, CPU, memory) that at least 24 pods have, and all of
the larger ones: 59 of 151 shapes, 7,691 pods, 94 % of the trace.
"""

from __future__ import annotations

import random

from contracts.messages import Value
from contracts.requests import GangRef, GpuAsk, Locality, PodRequest, PodTemplate
from contracts.units import WHOLE_CARD

IMAGE = "registry.example/work:1"


class Shape(Value, frozen=True, kw_only=True):
    """What a pod asks for, and how many pods of the trace do."""

    count: int
    cards: int
    share_milli: int
    cpu_milli: int
    memory_mib: int


SHAPES: tuple[Shape, ...] = tuple(
    Shape(count=count, cards=cards, share_milli=share, cpu_milli=cpu, memory_mib=memory)
    for count, cards, share, cpu, memory in (
        (364, 0, 0, 12500, 57344),
        (284, 0, 0, 32000, 49152),
        (163, 0, 0, 8000, 30517),
        (120, 0, 0, 15400, 51200),
        (95, 0, 0, 16500, 51200),
        (1047, 1, 810, 3152, 5600),
        (857, 1, 1000, 11300, 49152),
        (534, 1, 1000, 11400, 48128),
        (470, 1, 1000, 3152, 5600),
        (388, 1, 470, 11908, 47104),
        (360, 1, 470, 8000, 30517),
        (255, 1, 1000, 18708, 64512),
        (237, 1, 650, 11908, 47104),
        (195, 1, 1000, 9810, 41560),
        (158, 1, 1000, 12000, 24576),
        (158, 1, 1000, 15700, 58368),
        (153, 1, 1000, 11908, 47104),
        (111, 1, 320, 4000, 22888),
        (108, 1, 1000, 16000, 32768),
        (104, 1, 1000, 4000, 24576),
        (104, 1, 1000, 8000, 16384),
        (99, 1, 1000, 12000, 16384),
        (93, 1, 1000, 14200, 58368),
        (84, 1, 230, 4000, 30517),
        (84, 1, 1000, 24200, 93184),
        (78, 1, 320, 4000, 15258),
        (75, 1, 590, 3152, 5600),
        (72, 1, 320, 8000, 30517),
        (72, 1, 550, 4152, 10600),
        (65, 1, 1000, 11400, 77824),
        (55, 1, 1000, 8000, 32768),
        (53, 1, 160, 4000, 15258),
        (51, 1, 460, 6000, 6144),
        (51, 1, 1000, 11900, 77824),
        (45, 1, 370, 4152, 10600),
        (44, 1, 1000, 12000, 15360),
        (43, 1, 320, 4000, 30517),
        (41, 1, 1000, 8200, 33792),
        (40, 1, 1000, 4000, 31250),
        (36, 1, 1000, 15200, 80896),
        (33, 1, 1000, 16000, 65536),
        (31, 1, 810, 4152, 10600),
        (29, 1, 460, 6000, 12288),
        (27, 1, 1000, 16400, 125952),
        (26, 1, 230, 4000, 22888),
        (24, 1, 220, 4000, 15258),
        (7, 2, 1000, 16200, 66560),
        (3, 2, 1000, 6000, 65536),
        (3, 2, 1000, 30200, 160768),
        (2, 2, 1000, 17400, 43008),
        (1, 2, 1000, 14000, 60000),
        (9, 4, 1000, 32200, 132096),
        (3, 4, 1000, 32000, 131072),
        (3, 4, 1000, 60200, 320512),
        (18, 8, 1000, 64200, 263168),
        (18, 8, 1000, 88000, 327680),
        (3, 8, 1000, 64000, 262144),
        (3, 8, 1000, 120000, 737280),
        (2, 8, 1000, 120200, 640000),
    )
)
"""Rows: pods with this shape, cards, thousandths of each card, CPU in milli-cores, host memory in MiB."""


def draw(count: int, rng: random.Random) -> list[Shape]:
    """Shapes as often as in the trace."""
    return rng.choices(SHAPES, weights=[shape.count for shape in SHAPES], k=count)


def requests(count: int, *, seed: int, prefix: str = "job") -> list[PodRequest]:
    """`count` requests: three in five end after one to eight seconds, the others stay."""
    rng = random.Random(seed)
    return [
        _request(f"{prefix}-{number:03d}", shape, rng.uniform(1, 8) if rng.random() < 0.6 else None)  # noqa: PLR2004
        for number, shape in enumerate(draw(count, rng), 1)
    ]


def _request(name: str, shape: Shape, run_s: float | None) -> PodRequest:
    command = ("sleep", "infinity" if run_s is None else f"{run_s:.2f}")
    pod = PodTemplate(image=IMAGE, command=command, cpu_milli=shape.cpu_milli, memory_mib=shape.memory_mib)
    return PodRequest(name=name, pod=pod, gpu=GpuAsk(cards=shape.cards, share_milli=shape.share_milli or WHOLE_CARD))


# --- one thing each --------------------------------------------------------------------------------------------------


def halves(count: int, *, burst: int) -> list[PodRequest]:
    """A burst of half cards: two on each, however fast they come."""
    pod = PodTemplate(image=IMAGE, cpu_milli=2000, memory_mib=8192)
    gpu = GpuAsk(share_milli=500)
    return [PodRequest(name=f"half-{burst}-{n:02d}", pod=pod, gpu=gpu) for n in range(1, count + 1)]


def gang(size: int = 4) -> list[PodRequest]:
    """A training job of `size` pods that is placed whole or not at all."""
    pod = PodTemplate(image=IMAGE, cpu_milli=8000, memory_mib=32_768)
    ref = GangRef(name="trainers", size=size)
    return [PodRequest(name=f"trainer-{n}", pod=pod, gpu=GpuAsk(), gang=ref, priority=10) for n in range(size)]


def impossible() -> PodRequest:
    """More memory than any card has: it waits, and `explain` tells what is missing."""
    gpu = GpuAsk(share_milli=100, memory_mib=200_000)
    return PodRequest(name="too-big", pod=PodTemplate(image=IMAGE, cpu_milli=100, memory_mib=1024), gpu=gpu)


def undecided() -> PodRequest:
    """Wants a model that is not there, and is withdrawn while it waits."""
    pod = PodTemplate(image=IMAGE, cpu_milli=1000, memory_mib=4096)
    return PodRequest(name="changed-mind", pod=pod, gpu=GpuAsk(models=("H200",)))


def misspelt() -> bytes:
    """A request that is refused: a share above a whole card."""
    return b'{"type":"pod.request.v1","name":"too-much","pod":{"image":"x:1"},"gpu":{"share_milli":1500}}'


def explained() -> PodRequest:
    """A quarter of a card with 8000 MiB of it: the one whose way is shown."""
    gpu = GpuAsk(share_milli=250, memory_mib=8000)
    return PodRequest(name="shown", pod=PodTemplate(image=IMAGE, cpu_milli=2000, memory_mib=8192), gpu=gpu)


def tagged() -> list[PodRequest]:
    """Two that never share a card, and two that share only with each other."""
    pod, gpu = PodTemplate(image=IMAGE, cpu_milli=1000, memory_mib=4096), GpuAsk(share_milli=200)
    apart, alone = Locality(anti_affinity="replica"), Locality(exclusion="tenant-x")
    return [
        *(PodRequest(name=f"apart-{n}", pod=pod, gpu=gpu, locality=apart) for n in (1, 2)),
        *(PodRequest(name=f"alone-{n}", pod=pod, gpu=gpu, locality=alone) for n in (1, 2)),
    ]
