"""Units, names and identities: the vocabulary that every message is spelt in.

A value that exists is legal: bounds live in the types, so decoding is validation and an error names the field, the
bound and the value. Shares are thousandths of a card, GPU and host memory MiB, CPU milli-cores; all integers, because
no float takes part in a sum that decides capacity.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, NewType

from msgspec import Meta

WHOLE_CARD = 1000
"""A whole card, in thousandths."""

MAX_CARDS_PER_REQUEST = 64
MAX_MEMORY_MIB = 16 * 1024 * 1024
"""16 TiB: far above any card or host, far below where sums could surprise."""

ShareMilli = Annotated[int, Meta(ge=1, le=WHOLE_CARD, description="thousandths of one card")]
UsedMilli = Annotated[int, Meta(ge=0, le=WHOLE_CARD, description="thousandths of one card, 0 = none")]
CardCount = Annotated[int, Meta(ge=0, le=MAX_CARDS_PER_REQUEST, description="number of cards")]
MemoryMib = Annotated[int, Meta(ge=0, le=MAX_MEMORY_MIB, description="MiB")]
CpuMilli = Annotated[int, Meta(ge=0, le=10_000_000, description="thousandths of a CPU core")]
Port = Annotated[int, Meta(ge=0, le=65_535, description="TCP port, 0 = none")]
Percent = Annotated[int, Meta(ge=0, le=100, description="percent")]
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000, description="higher goes first")]
MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""
Integer = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Sequence = Annotated[int, Meta(ge=0, le=MAX_INTEGER, description="sequence in a stream; 0 = before the first")]

# Python's `$` also matches before a last newline; with the look-ahead a pattern means the same in every language.
END = r"$(?!\n)"
NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?" + END
LABEL_KEY_PATTERN = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?" + END
_LABEL_VALUE = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"

RequestName = Annotated[
    str,
    Meta(pattern=NAME_PATTERN, max_length=50, description="lower-case letters, digits and dashes, at most 50"),
]
NamespaceName = Annotated[
    str,
    Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?" + END, max_length=63, description="a Kubernetes namespace"),
]
LabelKey = Annotated[str, Meta(pattern=LABEL_KEY_PATTERN, max_length=317)]
LabelValue = Annotated[str, Meta(pattern=f"^({_LABEL_VALUE})?{END}", max_length=63)]
LocalityTag = Annotated[str, Meta(pattern=f"^{_LABEL_VALUE}{END}", max_length=63)]
ModelName = Annotated[str, Meta(min_length=1, max_length=80, description="card model as the driver names it")]
ShortText = Annotated[str, Meta(max_length=1024)]

_NODE = Meta(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?" + END, max_length=253, description="a Kubernetes node")
_CARD = Meta(
    pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*" + END, max_length=128, description="UUID of a card as the driver names it"
)
_UID = Meta(pattern=r"^[A-Za-z0-9-]*" + END, max_length=64, description="one accepted request, for ever")

NodeName = NewType("NodeName", Annotated[str, _NODE])
CardUuid = NewType("CardUuid", Annotated[str, _CARD])
RequestUid = NewType("RequestUid", Annotated[str, _UID])
"""`<epoch>-<commit number>-<index>`: names one accepted request for ever."""
RequestKey = NewType("RequestKey", str)
"""`<namespace>/<name>`: how people address a request; one live request per key."""


def request_key(namespace: str, name: str) -> RequestKey:
    """The address of a request."""
    return RequestKey(f"{namespace}/{name}")


def node_token(node: str) -> str:
    """A node name as one subject token: dots become underscores, which node names never hold."""
    return node.replace(".", "_")


def card_token(card: str) -> str:
    """A card's UUID as one subject token; the separators of MIG UUIDs become underscores."""
    return re.sub(r"[./:]", "_", card)


def pod_name(request_name: str, uid: str) -> str:
    """The name of a request's pod: the request's name and five characters of its uid's digest, at most 56 characters.

    Deterministic, so that whoever creates it twice finds it there; the uid is in it, so that a name that is used again
    for a new request gets a new pod. Five characters of base32 are 25 bits: two lives meet once in 33 million.
    """
    bits = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4], "big") >> 7
    return f"{request_name}-{''.join(_BASE32[bits >> shift & 31] for shift in (20, 15, 10, 5, 0))}"


_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
