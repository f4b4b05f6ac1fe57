"""What `kubectl describe pod` shows of a pod that waits: a condition, and an Event that is counted, not repeated. Pure.

In: a pod's name and life, a reason, a text. Out: JSON for the API server. An Event has a fixed name, made of the pod's
life, the reason and the text, so that the same news meets itself: it is created once, and after that only its series
grows. Everything else of an Event can never be changed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any, Literal

import msgspec

from reconciler.objects import Pod, PodCondition

CONTROLLER = "gpubus.dev/reconciler"
NOTE_LIMIT = 1024
UNSCHEDULABLE, REFUSED = "Unschedulable", "Refused"
"""Reasons of the condition. The first is the word that cluster autoscalers look for."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to tell of one life of a pod."""

    namespace: str
    pod: str
    pod_uid: str
    kind: Literal["Normal", "Warning"] = "Warning"
    reason: str
    note: str
    action: str = "Scheduling"
    of: str = "Pod"
    """Kind of the object."""
    api_version: str = "v1"

    @property
    def name(self) -> str:
        """`<pod>.<16 hex digits>`: the same news has the same name."""
        digest = hashlib.sha256(f"{self.pod_uid}\0{self.reason}\0{self.note}".encode()).hexdigest()[:16]
        return f"{self.pod[:200].rstrip('.-')}.{digest}"


def micro_time(at_ms: int) -> str:
    """RFC 3339 with six decimals: with fewer an Event is refused."""
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def event(news: News, *, at_ms: int, instance: str) -> bytes:
    """The Event, for a create."""
    about = {
        "apiVersion": news.api_version,
        "kind": news.of,
        "namespace": news.namespace,
        "name": news.pod,
        "uid": news.pod_uid,
    }
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": news.name, "namespace": news.namespace},
        "eventTime": micro_time(at_ms),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128] or "reconciler",
        "action": news.action,
        "reason": news.reason,
        "type": news.kind,
        "regarding": about,
        "note": _cut(news.note),
    }
    return msgspec.json.encode(body)


def again(count: int, *, at_ms: int) -> bytes:
    """That the same happened for the `count`th time, for a merge patch."""
    return msgspec.json.encode({"series": {"count": max(2, count), "lastObservedTime": micro_time(at_ms)}})


def condition(news: News) -> bytes:
    """`PodScheduled` is false, and why: a strategic patch of the status of this life of the pod."""
    one = {"type": "PodScheduled", "status": "False", "reason": news.reason, "message": _cut(news.note)}
    patch: dict[str, Any] = {"metadata": {"uid": news.pod_uid}, "status": {"conditions": [one]}}
    return msgspec.json.encode(patch)


def stands(pod: Pod, news: News) -> bool:
    """Whether the pod's condition says this already."""
    said = next((c for c in pod.status.conditions or () if c.type == "PodScheduled"), PodCondition())
    return (said.status, said.reason, said.message) == ("False", news.reason, _cut(news.note))


def _cut(note: str) -> str:
    """At most 1,024 bytes: the API server counts those, and never half a character."""
    return note.encode()[:NOTE_LIMIT].decode("utf-8", "ignore")
