"""What pods ask of other GPU-sharing schedulers, in our words: KAI, HAMi, gpushare, and NVIDIA's device plugin. Pure.

In: a pod's annotations, and what each of its containers asks for. Out: for each dialect that the pod speaks, a partial
ask with the same fields as our own annotations; merged, the same thing said twice must be the same thing.

    dialect        where                                  says                       becomes
    KAI            annotation gpu-fraction: "0.5"         half of a card             share 500, memory 500 thousandths
                   annotation gpu-memory: "2000"          MiB of a card              memory 2000 MiB
                   annotation gpu-fraction-num-devices    of so many cards           cards
    HAMi           limit nvidia.com/gpu                   of so many cards           cards
                   limit nvidia.com/gpumem: 3000          MiB of each                memory 3000 MiB
                   limit nvidia.com/gpumem-percentage     percent of each's memory   memory thousandths
                   limit nvidia.com/gpucores              percent of each's compute  share
    gpushare       limit aliyun.com/gpu-mem: 3            GiB of one card            memory 3072 MiB
    device plugin  limit nvidia.com/gpu, and nothing else whole cards                share 1000

Who asks for memory alone gets `MEMORY_ONLY_SHARE` of the compute: those schedulers promise none, ours counts it.
Sources: the documentation of kai-scheduler ("GPU sharing"), HAMi ("Allocate device memory/core"), and
gpushare-scheduler-extender ("user guide"), as of 2025.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from contracts.units import WHOLE_CARD
from reconciler.annotations import Fault
from reconciler.objects import Quantities
from reconciler.quantity import ONE, BadQuantity, parse

MEMORY_ONLY_SHARE = 100
"""Thousandths: a tenth, so that ten pods that name no share still fit a card. `gpubus.dev/share-milli` says another."""
GIB_MIB = 1024

DEVICES = "nvidia.com/gpu"
HAMI_MIB, HAMI_PERCENT, HAMI_CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
GPUSHARE = "aliyun.com/gpu-mem"
FRACTION, MEMORY, FRACTION_DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
NOT_TRANSLATED = {
    "nvidia.com/use-gputype": "name exact models in gpubus.dev/models",
    "nvidia.com/nouse-gputype": "name the allowed models in gpubus.dev/models",
    "nvidia.com/use-gpuuuid": "cards are chosen by the scheduler",
}
"""Annotations of HAMi that would change where a pod goes; passing them by in silence would break what they promise."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one dialect says of a pod: fields of a GpuAsk, and what of it cannot be honoured."""

    dialect: str
    ask: dict[str, Any] = {}
    faults: tuple[Fault, ...] = ()


def dialects(annotations: Mapping[str, str], containers: Mapping[str, Quantities]) -> list[Said]:
    """What each dialect that the pod speaks says.

    Args:
        annotations: of the pod.
        containers: limits by container name, of all containers that run at the same time.
    """
    asking = {name: gpu for name, limits in containers.items() if (gpu := _gpu_limits(limits))}
    if len(asking) > 1:
        text = f"the containers {', '.join(sorted(asking))} ask for cards; one container of a pod may"
        return [Said(dialect="limits", faults=(Fault(where="containers", text=text),))]
    limits = next(iter(asking.values()), {})
    found = (_kai(annotations), _hami(annotations, limits), _gpushare(limits), _plugin(limits))
    return [said for said in found if said.ask or said.faults]


def merged(own: Mapping[str, Any], said: list[Said]) -> tuple[dict[str, Any], list[Fault]]:
    """One ask of all that was said; our own words are one of the voices."""
    ask: dict[str, Any] = dict(own)
    who = dict.fromkeys(own, "gpubus.dev")
    faults: list[Fault] = [fault for one in said for fault in one.faults]
    for one in said:
        for field, value in one.ask.items():
            if ask.setdefault(field, value) != value:
                text = f"{who[field]} says {ask[field]}, {one.dialect} says {value}"
                faults.append(Fault(where=field, text=text))
            who.setdefault(field, one.dialect)
    if ask.get("memory_mib") is not None and ask.get("memory_milli") is not None:
        names = (
            f"{who['memory_mib']} says {ask['memory_mib']} MiB, {who['memory_milli']} {ask['memory_milli']} thousandths"
        )
        faults.append(Fault(where="memory", text=names))
    memory_of_others = any(who.get(field, "gpubus.dev") != "gpubus.dev" for field in ("memory_mib", "memory_milli"))
    if memory_of_others:
        ask.setdefault("share_milli", MEMORY_ONLY_SHARE)
    return ask, faults


# --- the dialects ----------------------------------------------------------------------------------------------------


def _kai(annotations: Mapping[str, str]) -> Said:
    ask: dict[str, Any] = {}
    faults: list[Fault] = []
    if FRACTION in annotations:
        milli = _thousandths(annotations[FRACTION])
        if milli is None:
            bound = "a fraction above 0 and below 1 in steps of a thousandth"
            faults.append(Fault(where=FRACTION, text=f"{annotations[FRACTION][:40]!r} is not {bound}"))
        else:
            ask |= {"share_milli": milli, "memory_milli": milli}
    if MEMORY in annotations:
        ask["memory_mib"] = _whole(MEMORY, annotations[MEMORY], faults)
    if FRACTION_DEVICES in annotations and (ask or faults):
        ask["cards"] = _whole(FRACTION_DEVICES, annotations[FRACTION_DEVICES], faults)
    if FRACTION in annotations and MEMORY in annotations:
        faults.append(Fault(where=MEMORY, text=f"{FRACTION} stands beside it; one of the two"))
    return Said(dialect="KAI", ask=ask, faults=tuple(faults))


def _hami(annotations: Mapping[str, str], limits: Quantities) -> Said:
    faults = [
        Fault(where=key, text=f"is not translated: {hint}")
        for key, hint in NOT_TRANSLATED.items()
        if key in annotations
    ]
    ask: dict[str, Any] = {}
    if not {HAMI_MIB, HAMI_PERCENT, HAMI_CORES} & set(limits):
        return Said(dialect="HAMi", faults=tuple(faults))
    for key, field, scale in _HAMI:
        if key in limits:
            number = _whole(key, limits[key], faults)
            if number is not None and scale * number > WHOLE_CARD and scale > 1:
                faults.append(Fault(where=key, text=f"{number} percent is more than a card"))
            elif number or key != HAMI_CORES:  # no cores: nothing promised
                ask[field] = None if number is None else scale * number
    return Said(dialect="HAMi", ask=ask, faults=tuple(faults))


def _gpushare(limits: Quantities) -> Said:
    ask: dict[str, Any] = {}
    faults: list[Fault] = []
    if GPUSHARE in limits:
        gib = _whole(GPUSHARE, limits[GPUSHARE], faults)
        ask |= {"memory_mib": None if gib is None else gib * GIB_MIB, "cards": 1}
    return Said(dialect="gpushare", ask=ask, faults=tuple(faults))


def _plugin(limits: Quantities) -> Said:
    """Whole cards, unless somebody says beside it how much of each."""
    faults = [
        Fault(where=key, text="MIG instances are placed by UUID here: ask for a share of a card instead")
        for key in limits
        if key.startswith("nvidia.com/mig-")
    ]
    ask: dict[str, Any] = {}
    if DEVICES in limits and not {HAMI_MIB, HAMI_PERCENT, HAMI_CORES} & set(limits):
        ask["cards"] = _whole(DEVICES, limits[DEVICES], faults)
    return Said(dialect="nvidia.com/gpu", ask=ask, faults=tuple(faults))


_HAMI = (
    (DEVICES, "cards", 1),
    (HAMI_MIB, "memory_mib", 1),
    (HAMI_PERCENT, "memory_milli", 10),
    (HAMI_CORES, "share_milli", 10),
)
"""Limit, field, and how much of the field one is; percent are ten thousandths each."""


# --- numbers ---------------------------------------------------------------------------------------------------------


def _gpu_limits(limits: Quantities) -> Quantities:
    known = (DEVICES, HAMI_MIB, HAMI_PERCENT, HAMI_CORES, GPUSHARE)
    return {key: value for key, value in limits.items() if key in known or key.startswith("nvidia.com/mig-")}


def _whole(where: str, text: str | int, faults: list[Fault]) -> int | None:
    """A whole number of its unit; None, and a fault, when it is none."""
    try:
        billionths = parse(text)
    except BadQuantity:
        billionths = -1
    if billionths < 0 or billionths % ONE:
        faults.append(Fault(where=where, text=f"{str(text)[:40]!r} is not a whole number"))
        return None
    return billionths // ONE


def _thousandths(text: str) -> int | None:
    """`0.5` -> 500, without a float; None when it is no fraction of a card, or a finer one than we count."""
    match = re.fullmatch(r"0?\.([0-9]{1,9})", text.strip())
    if match is None:
        return None
    digits = match[1].ljust(3, "0")
    milli = int(digits[:3])
    return milli if milli and not digits[3:].strip("0") else None
