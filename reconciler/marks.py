"""Our marks on a pod: labels and annotations, written in one form and read back in the same.

What flows in: a request, its placement, the ledger's epoch and sequence. What flows out: annotations; and from a pod's
annotations, a `Mark` (which decision it carries) and the slices it holds. A pod carries all that is needed to rebuild
the ledger from Kubernetes alone.

Two parts are written at two times: the request's at creation, the assignment's in the Binding, in the same breath as
the node. The API server does not validate a Binding's metadata and a bad key there makes a pod unmanageable for ever,
so sizes and keys are checked here, before anything is sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from contracts.decisions import CardSlice
from contracts.requests import PodRequest
from contracts.units import LABEL_KEY_PATTERN, WHOLE_CARD, CardUuid, RequestUid

DOMAIN = "gpubus.dev/"
MANAGED = f"{DOMAIN}managed"
REQUEST = f"{DOMAIN}request"
UID = f"{DOMAIN}uid"
EPOCH = f"{DOMAIN}epoch"
SEQUENCE = f"{DOMAIN}sequence"
CARDS = f"{DOMAIN}cards"
SHARES = f"{DOMAIN}shares"
SPEC = f"{DOMAIN}spec"
TRACEPARENT = f"{DOMAIN}traceparent"
NONCE = f"{DOMAIN}nonce"
SHAREPOD = f"{DOMAIN}sharepod"
"""Label of the pods of a SharePod: its name, which is what its scale subresource selects by."""
REVISION = f"{DOMAIN}revision"
"""Label of the pods of a SharePod: a digest of the template and the share that they were made from."""
FOREIGN = f"{DOMAIN}external"
"""On a pod that somebody else made and we bound: it is never made again by us, and its end is kept by its owner."""
ISOLATION = f"{DOMAIN}env."
"""Before a variable's name: the annotation that an isolation backend's variable is read from, at each start."""
GATE = f"{DOMAIN}admission"
"""Scheduling gate that an installation's admission policy puts on pods of our scheduler; we lift it."""

ANNOTATIONS_LIMIT = 256 * 1024 - 16 * 1024
"""Kubernetes allows 262,144 bytes of annotations on a pod; 16 KiB are left for those of others."""

_KEY = re.compile(LABEL_KEY_PATTERN)
_PIECE = re.compile(r"([^=,:]+)=([0-9]{1,5}):([0-9]{1,9})")


class BadMark(ValueError):  # noqa: N818 - named by what is the case
    """Annotations in our domain that we would not have written."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Which decision a pod carries."""

    uid: RequestUid
    epoch: str
    sequence: int
    """Ledger sequence of the decision, in that epoch."""


def request_marks(uid: str, request_json: bytes, *, epoch: str, sequence: int, traceparent: str = "") -> dict[str, str]:
    """The annotations that a pod is created with: who it is, and the request word for word."""
    marks = {UID: uid, EPOCH: epoch, SEQUENCE: str(sequence), SPEC: request_json.decode()}
    return marks | ({TRACEPARENT: traceparent} if traceparent else {})


def binding_marks(uid: str, slices: Iterable[CardSlice], *, node: str, epoch: str, sequence: int) -> dict[str, str]:
    """The annotations of the Binding: the cards, what is sold of them, and the decision that says so."""
    pieces = tuple(slices)
    cards = cards_text(pieces)
    return {
        CARDS: cards,
        SHARES: shares_text(pieces),
        EPOCH: epoch,
        SEQUENCE: str(sequence),
        NONCE: nonce(Mark(uid=RequestUid(uid), epoch=epoch, sequence=sequence), node=node, cards=cards),
    }


def nonce(mark: Mark, *, node: str, cards: str) -> str:
    """What only the binder of this decision writes: the same after a restart, so that it knows its own work again."""
    text = "|".join((mark.uid, mark.epoch, str(mark.sequence), node, cards))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cards_text(slices: Iterable[CardSlice]) -> str:
    """`<uuid>,…`"""  # noqa: D415 - the form ends as it ends
    return ",".join(piece.card for piece in slices)


def shares_text(slices: Iterable[CardSlice]) -> str:
    """`<uuid>=<thousandths>:<MiB>,…`"""  # noqa: D415 - the form ends as it ends
    return ",".join(f"{piece.card}={piece.share_milli}:{piece.memory_mib}" for piece in slices)


def isolation_marks(values: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a backend's variables, by their names."""
    return {f"{ISOLATION}{name}": value for name, value in values.items()}


def isolation_of(annotations: Mapping[str, str]) -> dict[str, str]:
    """The variables that a pod's annotations give values to."""
    return {key.removeprefix(ISOLATION): value for key, value in annotations.items() if key.startswith(ISOLATION)}


def checked(*parts: Mapping[str, str]) -> None:
    """All annotations of one pod together are legal and small enough.

    Raises:
        BadMark: an illegal key, or too many bytes.
    """
    merged: dict[str, str] = {}
    for part in parts:
        merged |= part
    for key in merged:
        if not _legal(key):
            raise BadMark(f"annotation key {key!r} is not a Kubernetes name")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in merged.items())
    if size > ANNOTATIONS_LIMIT:
        raise BadMark(f"the annotations take {size} bytes, the limit is {ANNOTATIONS_LIMIT}")


@lru_cache(maxsize=1024)
def _legal(key: str) -> bool:
    return _KEY.fullmatch(key) is not None


# --- reading back ----------------------------------------------------------------------------------------------------


def mark_of(annotations: Mapping[str, str]) -> Mark | None:
    """Which decision the annotations speak of; None when they speak of none that we could have made."""
    uid, epoch, sequence = (annotations.get(key, "") for key in (UID, EPOCH, SEQUENCE))
    if not uid or not epoch or not re.fullmatch(r"[0-9]{1,18}", sequence):
        return None
    return Mark(uid=RequestUid(uid), epoch=epoch, sequence=int(sequence))


def bound_by_us(annotations: Mapping[str, str], node: str) -> bool:
    """Whether the binding of a pod to `node` with its cards was ours, judged by its own annotations alone."""
    mark = mark_of(annotations)
    if mark is None or NONCE not in annotations:
        return False
    return annotations[NONCE] == nonce(mark, node=node, cards=annotations.get(CARDS, ""))


def slices_of(annotations: Mapping[str, str]) -> tuple[CardSlice, ...]:
    """The slices that a bound pod holds.

    Raises:
        BadMark: absent, not in our form, out of bounds, or cards and shares disagree.
    """
    if SHARES not in annotations or CARDS not in annotations:
        raise BadMark(f"{SHARES} or {CARDS} is missing")
    text = annotations[SHARES]
    pieces = tuple(_piece(part) for part in text.split(",")) if text else ()
    if cards_text(pieces) != annotations[CARDS]:
        raise BadMark(f"{CARDS} and {SHARES} name different cards")
    return pieces


def _piece(text: str) -> CardSlice:
    match = _PIECE.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= WHOLE_CARD:
        raise BadMark(f"{text[:100]!r} in {SHARES} is not <uuid>=<thousandths>:<MiB>")
    return CardSlice(card=CardUuid(match[1]), share_milli=int(match[2]), memory_mib=int(match[3]))


def request_of(annotations: Mapping[str, str]) -> PodRequest:
    """The request as it was accepted.

    Raises:
        BadMark: absent or not a request.
    """
    try:
        return _decode_request(annotations.get(SPEC, ""))
    except msgspec.MsgspecError as error:
        raise BadMark(f"{SPEC}: {error}") from error


_decode_request = msgspec.json.Decoder(PodRequest).decode
