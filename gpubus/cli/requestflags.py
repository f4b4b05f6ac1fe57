"""The flags that describe a request, and the request they mean. Pure, except that cyclopts reads the class."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from contracts.units import NAME_PATTERN
from gpubus.errors import UsageError
from gpubus.expressions import BadExpression, expression, preferred, spread, topology
from gpubus.quantities import BadQuantity, memory_mib, share_milli
from gpubus.requestfile import TAG, Wanted

Quiet = Parameter(show_default=False)
Many = Parameter(show_default=False, negative="")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RequestFlags:
    """One request, by flags."""

    name: Annotated[str | None, Quiet] = None
    """Name of the request: lower-case letters, digits and dashes."""
    image: Annotated[str | None, Quiet] = None
    """Container image."""
    command: Annotated[str | None, Quiet] = None
    """What the container runs, in one word as for a shell; or put it at the end behind two dashes."""
    env: Annotated[tuple[str, ...], Many] = ()
    """NAME=VALUE for the container; may be repeated."""
    cpu_milli: Annotated[int | None, Quiet] = None
    """CPU, thousandths of a core."""
    memory: Annotated[str | None, Quiet] = None
    """Host memory: 8000Mi, 8Gi, 8G."""
    gpus: Annotated[int | None, Quiet] = None
    """Number of cards, all on one node; 0 for none. Default 1."""
    gpu_share: Annotated[str | None, Quiet] = None
    """Compute of each card: 0.5, 500 (thousandths) or 50%. Default: whole."""
    gpu_memory: Annotated[str | None, Quiet] = None
    """Memory of each card: 8Gi, 8000Mi. Default: the same part of the card as its share."""
    gpu_memory_share: Annotated[str | None, Quiet] = None
    """Memory of each card as a part of it, where it differs from --gpu-share: 0.5, 500 or 50%."""
    min_card_memory: Annotated[str | None, Quiet] = None
    """Size that the card itself must have: 40Gi."""
    nvlink: Annotated[Literal["prefer", "require"] | None, Quiet] = None
    """Several cards that reach each other over NVLink, if possible or only so."""
    model: Annotated[tuple[str, ...], Many] = ()
    """Allowed card model; may be repeated."""
    priority: Annotated[int | None, Quiet] = None
    """Higher goes first."""
    policy: Annotated[str | None, Quiet] = None
    """Placement policy by name."""
    gang: Annotated[str | None, Quiet] = None
    """NAME:SIZE. All SIZE members of the gang are placed at once, or none."""
    same_node: Annotated[bool, Many] = False
    """All members of the gang on one node."""
    same_nvlink: Annotated[bool, Many] = False
    """All members of the gang on cards of one NVLink group."""
    same_domain: Annotated[str | None, Quiet] = None
    """All members of the gang in one zone, one region, or one domain of any label of nodes."""
    affinity: Annotated[str | None, Quiet] = None
    """Share a card with those of this tag, or open an empty one."""
    anti_affinity: Annotated[str | None, Quiet] = None
    """Never share a card with one of this tag."""
    exclusion: Annotated[str | None, Quiet] = None
    """Share a card only with those of this tag."""
    node_selector: Annotated[tuple[str, ...], Many] = ()
    """KEY=VALUE label that the node must have; may be repeated."""
    node_affinity: Annotated[tuple[str, ...], Many] = ()
    """Condition on the labels of the node: zone=a, "zone in (a, b)", !spot, generation>7; all must hold."""
    prefer_node: Annotated[tuple[str, ...], Many] = ()
    """CONDITION or CONDITION:WEIGHT that makes a node better, 1 to 100; may be repeated."""
    spread: Annotated[tuple[str, ...], Many] = ()
    """Spread pods with these labels evenly: zone, node, zone:2 for a skew of 2, zone:prefer; may be repeated."""
    near: Annotated[tuple[str, ...], Many] = ()
    """Only in a zone, a node, ... where a pod with these labels runs, if one does; may be repeated."""
    apart: Annotated[tuple[str, ...], Many] = ()
    """Never in the same zone, node, ... as a pod with these labels; may be repeated."""
    label: Annotated[tuple[str, ...], Many] = ()
    """KEY=VALUE label of the pod; may be repeated."""
    annotation: Annotated[tuple[str, ...], Many] = ()
    """KEY=VALUE annotation of the pod; may be repeated."""
    restart: Annotated[Literal["Never", "OnFailure", "Always"] | None, Quiet] = None
    """Restart policy of the container. Default Never."""

    def given(self) -> list[str]:
        """The flags that were used."""
        return [f"--{f.name.replace('_', '-')}" for f in fields(self) if getattr(self, f.name) not in (None, (), False)]

    def wanted(self) -> Wanted:
        """The request.

        Raises:
            UsageError: a needed flag is missing, or a value has not the form of its flag.
        """
        missing = [flag for flag, value in (("--name", self.name), ("--image", self.image)) if not value]
        if missing:
            raise UsageError(f"a request needs {' and '.join(missing)} (or a FILE)")
        if not re.fullmatch(NAME_PATTERN, str(self.name)):
            raise UsageError(f"--name {self.name!r}: lower-case letters, digits and dashes, at most 50")
        return Wanted(name=str(self.name), data=msgspec.json.encode(tree(self)))


def tree(flags: RequestFlags) -> dict[str, Any]:
    """The request as it goes on the wire; what was not given is left out."""
    return _present(
        {
            "type": TAG,
            "name": flags.name,
            "pod": _pod(flags),
            "gpu": _present(
                {
                    "cards": flags.gpus,
                    "share_milli": _quantity("--gpu-share", flags.gpu_share, share_milli),
                    "memory_mib": _quantity("--gpu-memory", flags.gpu_memory, memory_mib),
                    "memory_milli": _quantity("--gpu-memory-share", flags.gpu_memory_share, share_milli),
                    "models": list(flags.model) or None,
                    "min_card_memory_mib": _quantity("--min-card-memory", flags.min_card_memory, memory_mib),
                    "nvlink": flags.nvlink,
                }
            )
            or None,
            "priority": flags.priority,
            "policy": flags.policy,
            "gang": _gang(flags),
            "locality": _present(
                {"affinity": flags.affinity, "anti_affinity": flags.anti_affinity, "exclusion": flags.exclusion}
            )
            or None,
            "node_selector": _pairs("--node-selector", flags.node_selector) or None,
            "node_affinity": _node_affinity(flags),
            "topology_spread": _read("--spread", flags.spread, spread) or None,
            "pod_affinity": _pods(flags.near),
            "pod_anti_affinity": _pods(flags.apart),
        }
    )


def _pod(flags: RequestFlags) -> dict[str, Any]:
    env = _pairs("--env", flags.env)
    return _present(
        {
            "image": flags.image,
            "command": _command(flags.command),
            "env": [{"name": key, "value": value} for key, value in env.items()] or None,
            "cpu_milli": flags.cpu_milli,
            "memory_mib": _quantity("--memory", flags.memory, memory_mib),
            "labels": _pairs("--label", flags.label) or None,
            "annotations": _pairs("--annotation", flags.annotation) or None,
            "restart_policy": flags.restart,
        }
    )


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _quantity(flag: str, text: str | None, parse: Callable[[str], int]) -> int | None:
    try:
        return None if text is None else parse(text)
    except BadQuantity as error:
        raise UsageError(f"{flag} {error}") from error


def _command(text: str | None) -> list[str] | None:
    try:
        return None if text is None else shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--command {text!r}: {error}") from error


def _gang(flags: RequestFlags) -> dict[str, Any] | None:
    text, together = flags.gang, _together(flags)
    if text is None:
        if together:
            raise UsageError("--same-node, --same-nvlink and --same-domain are for the members of a --gang")
        return None
    name, colon, size = text.rpartition(":")
    if not colon or not name or not size.isascii() or not size.isdigit():
        raise UsageError(f"--gang {text!r}: write NAME:SIZE, as trainers:4")
    return {"name": name, "size": int(size), **together}


def _together(flags: RequestFlags) -> dict[str, Any]:
    asked = [
        *([{"within": "node"}] if flags.same_node else []),
        *([{"within": "nvlink"}] if flags.same_nvlink else []),
        *([{"within": "domain", "topology_key": topology(flags.same_domain)}] if flags.same_domain else []),
    ]
    if len(asked) > 1:
        raise UsageError("--same-node, --same-nvlink, --same-domain: give one of them")
    return asked[0] if asked else {}


def _node_affinity(flags: RequestFlags) -> dict[str, Any] | None:
    required = _read("--node-affinity", flags.node_affinity, expression)
    return (
        _present(
            {
                "required": [{"match_expressions": required}] if required else None,
                "preferred": _read("--prefer-node", flags.prefer_node, preferred) or None,
            }
        )
        or None
    )


def _pods(keys: tuple[str, ...]) -> dict[str, Any] | None:
    return {"required": [{"topology_key": topology(key)} for key in keys]} if keys else None


def _read(flag: str, words: Iterable[str], parse: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        return [parse(word) for word in words]
    except BadExpression as error:
        raise UsageError(f"{flag} {error}") from error


def _pairs(flag: str, words: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} {word!r}: write KEY=VALUE")
        if key in found:
            raise UsageError(f"{flag} {key} is given twice")
        found[key] = value
    return found
