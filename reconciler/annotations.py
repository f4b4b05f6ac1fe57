"""What a pod of anybody asks for in our own words: the annotations and labels under `gpubus.dev/`. Pure.

In: the metadata of a pod that names our scheduler. Out: a partial ask, and a fault for each key that is none of ours,
is one that only the platform writes, or has a value out of its bounds. A misspelt limit must not mean "no limit", so a
fault is a refusal, with the nearest key that there is.

A key may be a label instead (a Deployment's template is often labelled by tools that know no annotations); a key that
is both must say the same.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from contracts.requests import GangRef, GpuAsk, Locality
from reconciler import marks

SIMULATED = f"{marks.DOMAIN}simulated-run-s"
"""Read by simulated kubelets; says nothing about cards."""
WRITTEN_BY_US = frozenset(
    {
        marks.UID,
        marks.EPOCH,
        marks.SEQUENCE,
        marks.CARDS,
        marks.SHARES,
        marks.SPEC,
        marks.NONCE,
        marks.FOREIGN,
        marks.REQUEST,
    }
)
"""Keys of the assignment. `gpubus.dev/cards` is the list of cards that a pod was given: a number goes to card-count."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing in a pod that cannot be honoured: where it stands, and why, with the bound or the nearest key."""

    where: str
    text: str


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What was said, by field of the request; what was not said is absent."""

    gpu: dict[str, Any] = {}
    locality: dict[str, Any] = {}
    gang: dict[str, Any] = {}
    request: dict[str, Any] = {}
    traceparent: str = ""
    faults: tuple[Fault, ...] = ()


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,12}", text):
        raise ValueError("a whole number")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


Reader = Callable[[str], Any]
_KEYS: dict[str, tuple[str, str, Reader]] = {
    # key            part of the request, field, reader
    "card-count": ("gpu", "cards", _whole),
    "share-milli": ("gpu", "share_milli", _whole),
    "memory-mib": ("gpu", "memory_mib", _whole),
    "memory-milli": ("gpu", "memory_milli", _whole),
    "models": ("gpu", "models", _names),
    "min-card-memory-mib": ("gpu", "min_card_memory_mib", _whole),
    "nvlink": ("gpu", "nvlink", str),
    "affinity": ("locality", "affinity", str),
    "anti-affinity": ("locality", "anti_affinity", str),
    "exclusion": ("locality", "exclusion", str),
    "gang": ("gang", "name", str),
    "gang-size": ("gang", "size", _whole),
    "gang-min": ("gang", "min", _whole),
    "gang-within": ("gang", "within", str),
    "gang-topology-key": ("gang", "topology_key", str),
    "priority": ("request", "priority", _whole),
    "priority-class": ("request", "priority_class", str),
    "expected-s": ("request", "expected_s", _whole),
    "policy": ("request", "policy", str),
    "traceparent": ("", "traceparent", str),
}
ASKING = tuple(f"{marks.DOMAIN}{key}" for key in _KEYS)
"""The keys that users may set, for the admission policy and the documentation."""


def words(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Words:
    """What the metadata of a pod asks for."""
    faults: list[Fault] = []
    parts: dict[str, dict[str, Any]] = {"gpu": {}, "locality": {}, "gang": {}, "request": {}, "": {}}
    for key, text in _ours(annotations, labels, faults):
        entry = _KEYS.get(key.removeprefix(marks.DOMAIN))
        if entry is None:
            faults.append(_unknown(key))
            continue
        part, field, read = entry
        try:
            parts[part][field] = read(text.strip())
        except ValueError as error:
            faults.append(Fault(where=key, text=f"{text[:80]!r} is not {error}"))
    faults += _out_of_bounds(parts)
    return Words(
        gpu=parts["gpu"],
        locality=parts["locality"],
        gang=parts["gang"],
        request=parts["request"],
        traceparent=parts[""].get("traceparent", ""),
        faults=tuple(sorted(faults)),
    )


def _ours(annotations: Mapping[str, str], labels: Mapping[str, str], faults: list[Fault]) -> Iterator[tuple[str, str]]:
    """Keys of our domain that say something, each once."""
    found: dict[str, str] = {}
    for source in (labels, annotations):
        for key in sorted(key for key in source if key.startswith(marks.DOMAIN)):
            if key in (marks.MANAGED, marks.SHAREPOD, marks.REVISION, SIMULATED):
                continue
            if found.setdefault(key, source[key]) != source[key]:
                faults.append(Fault(where=key, text=f"the label says {found[key][:80]!r}, the annotation does not"))
    yield from found.items()


def _unknown(key: str) -> Fault:
    if key in WRITTEN_BY_US or key.startswith(marks.ISOLATION):
        hint = f"; how many cards: {marks.DOMAIN}card-count" if key == marks.CARDS else ""
        return Fault(where=key, text=f"is written by the platform{hint}")
    near = difflib.get_close_matches(key.removeprefix(marks.DOMAIN), _KEYS, n=1, cutoff=0.6)
    hint = f"; did you mean {marks.DOMAIN}{near[0]}?" if near else f"; there are {', '.join(sorted(_KEYS))}"
    return Fault(where=key, text=f"is no key of ours{hint}")


_KEY_OF = {(part, field): f"{marks.DOMAIN}{key}" for key, (part, field, _) in _KEYS.items()}


def _out_of_bounds(parts: dict[str, dict[str, Any]]) -> Iterator[Fault]:
    """Each value on its own against the type of its field; what goes together is the scheduler's to judge."""
    for part, kind in (("gpu", GpuAsk), ("locality", Locality)):
        for field, value in list(parts[part].items()):
            try:
                msgspec.convert({field: value}, kind)
            except msgspec.ValidationError as error:
                del parts[part][field]
                yield Fault(where=_KEY_OF[part, field], text=_bound(error))
    gang = parts["gang"]
    if not gang:
        return
    try:
        msgspec.convert(gang, GangRef)
    except msgspec.ValidationError as error:
        parts["gang"] = {}
        yield Fault(where=f"{marks.DOMAIN}gang", text=_bound(error).replace("`size`", f"{marks.DOMAIN}gang-size"))


def _bound(error: msgspec.ValidationError) -> str:
    return str(error).partition(" - at ")[0]
