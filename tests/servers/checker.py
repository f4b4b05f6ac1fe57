"""An independent judge of what happened: it knows the rules and the raw messages, and nothing of our code. Pure.

    findings = judge(History(ledger=…, requests=…, events=…, dead_letters=…, pods=…, published=…, summary=…))

In: the stored messages of the streams, every change of every pod as the API server told it, and what clients sent.
Out: findings, each with the rule that it breaks. An empty list means that all of this holds:

    chain            commits follow each other: number, predecessor, one epoch, a position that never goes back
    over-commit      no card beyond 1000 thousandths or its sellable memory, no node beyond what Kubernetes allots
    bad-placement    decisions name fresh nodes, cards that are there, and what the request asked for
    double-accept    one acceptance per uid, one living request per name
    double-decision  one decision per uid, of a request that lives; another one after each time that it waits again
    eviction         who has to leave holds something, is less important, is told once; only those wait again
    release          what is released was held, and its pod was seen to end
    gang             all members or none
    unaccounted      every message of the requests stream is handled; accepted = placed + pending + withdrawn + ended
    two-fates        ... in exactly one way
    lost-publish     what was acknowledged to a client is in the stream, byte for byte
    event            every step of the ledger was told, once and in order, and nothing else
    pods             at most one pod per decision for ever, where and as the ledger says, and no card sold twice by pods

JSON is read with the standard library; sums are made again from single records.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.servers.checker_pods import PodChange, PodsJudge
from tests.servers.checker_records import Book, Finding, Stored

__all__ = ["Finding", "History", "PodChange", "Published", "Stored", "judge"]

NO_PART = ("pending",)
"""Phases of events that no record of the ledger stands behind."""


class Published(NamedTuple):
    """What a client sent, and the sequence it was told; 0 = it was told nothing."""

    namespace: str
    data: bytes
    sequence: int = 0


class History(NamedTuple):
    """Everything that was seen, in the order in which it was stored or told."""

    ledger: Sequence[Stored]
    requests: Sequence[Stored] = ()
    events: Sequence[Stored] = ()
    dead_letters: Sequence[Stored] = ()
    pods: Sequence[PodChange] | None = None
    """None: nobody watched Kubernetes."""
    published: Sequence[Published] | None = None
    """None: nobody wrote down what clients sent."""
    summary: dict[str, int] | None = None
    """What the scheduler says of itself at the end."""


def judge(history: History) -> list[Finding]:
    """All findings; call it when everything has settled."""
    book = Book()
    for message in history.ledger:
        book.commit(message)
    findings = list(book.findings)
    findings += _accounted(history, book)
    findings += _published(history)
    findings += _events(history.events, book)
    findings += _summary(history.summary, book)
    if history.pods is not None:
        findings += PodsJudge(book.lives).judge(history.pods)
    return findings


# --- every message has one fate --------------------------------------------------------------------------------------


def _accounted(history: History, book: Book) -> Iterable[Finding]:
    fates = _fates(history, book)
    for message in history.requests:
        found = fates.pop(message.sequence, [])
        handled_at = book.covering(message.sequence)
        if handled_at is None:
            yield Finding("unaccounted", f"request {message.sequence} is behind the last position {book.through}")
        elif len(found) > 1:
            yield Finding("two-fates", f"request {message.sequence} was {' and '.join(found)}")
        elif not found and not _explained(message, book, handled_at):
            yield Finding("unaccounted", f"request {message.sequence} has no fate: {message.data[:120]!r}")
    for sequence, found in fates.items():
        yield Finding("two-fates", f"{found} of request {sequence}, which is not in the stream")


def _fates(history: History, book: Book) -> dict[int, list[str]]:
    """Answers by the message of the requests stream that they answer."""
    fates: dict[int, list[str]] = defaultdict(list)
    for life in book.lives.values():
        if life.request_sequence:
            fates[life.request_sequence].append("accepted")
    for sequence in book.refused:
        fates[sequence].append("refused")
    for letter in map(_json, history.dead_letters):
        if letter.get("origin_stream") == "GPUBUS_REQUESTS":
            fates[letter["origin_sequence"]].append("dead letter")
    return fates


def _explained(message: Stored, book: Book, at: int) -> bool:
    """A repetition of a living request, or a word about one, handled by the commit at `at`."""
    payload = _json(message)
    key = f"{message.subject.rpartition('.')[2]}/{payload.get('name')}"
    living = [life for life in book.lives.values() if life.key == key and life.lived_during(at)]
    match payload.get("type"):
        case "pod.request.v1":
            return any(same_request(life.request, payload) for life in living)
        case "pod.withdraw.v1":
            return any(life.withdrawn_at is not None and life.withdrawn_at <= at for life in living)
        case "pod.resize.v1":
            return any(at in life.resized_at for life in living)
        case _:
            return False


DEFAULTS = {
    "cards": 1,
    "share_milli": 1000,
    "cpu_milli": 100,
    "restart_policy": "Never",
    "grace_s": 30,
}
"""What a request means that says nothing; beside these the defaults are empty: 0, "", [], {}, null."""


def same_request(one: Any, other: Any) -> bool:
    """Whether two requests as JSON ask for the same: a field with its default is a field left out."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = (one.keys() | other.keys()) - {"cause"}
        return all(same_request(*(part.get(key, DEFAULTS.get(key)) for part in (one, other))) for key in keys)
    return bool(one == other or not (one or other))


def _published(history: History) -> Iterable[Finding]:
    if history.published is None:
        return
    stored = {message.sequence: message for message in history.requests}
    for sent in history.published:
        there = stored.get(sent.sequence)
        if sent.sequence and (there is None or there.data != sent.data or not there.subject.endswith(sent.namespace)):
            yield Finding("lost-publish", f"{sent.data[:80]!r} was acknowledged as {sent.sequence}, found {there}")
    known = {(sent.namespace, sent.data) for sent in history.published}
    for message in history.requests:
        if (message.subject.rpartition(".")[2], message.data) not in known:
            yield Finding("lost-publish", f"request {message.sequence} was sent by nobody: {message.data[:80]!r}")


def _summary(summary: dict[str, int] | None, book: Book) -> Iterable[Finding]:
    if summary is None:
        return
    ours = book.summary()
    theirs = {name: summary.get(name, 0) for name in ours}
    if ours != theirs:
        yield Finding("unaccounted", f"the log says {ours}, the scheduler {theirs}")
    if ours["accepted"] != sum(ours[name] for name in ("pending", "placed", "withdrawn", "ended")):
        yield Finding("unaccounted", f"accepted requests do not add up: {ours}")


# --- what users were told --------------------------------------------------------------------------------------------


def _events(events: Sequence[Stored], book: Book) -> Iterable[Finding]:
    """The steps that the events tell of are the steps of the ledger."""
    told: Counter[tuple[str, str, int]] = Counter()
    last: dict[str, int] = {}
    for event in map(_json, events):
        if event.get("phase") in NO_PART:
            continue
        uid, at = event.get("uid") or f"message {event.get('request_sequence')}", event.get("ledger_sequence", 0)
        told[uid, event.get("phase", ""), at] += 1
        if at < last.get(uid, 0):
            yield Finding("event", f"{event.get('phase')} of {uid} at {at} was told after one at {last[uid]}")
        last[uid] = max(at, last.get(uid, 0))
    for step, count in sorted((book.steps - told).items()):
        yield Finding("event", f"{step} was not told ({count} times)")
    for step, count in sorted((told - book.steps).items()):
        yield Finding("event", f"{step} was told and is not in the ledger, or {count} times too often")


def _json(message: Stored) -> dict[str, Any]:
    """The object in a message; an empty one where there is none."""
    try:
        found = json.loads(message.data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
