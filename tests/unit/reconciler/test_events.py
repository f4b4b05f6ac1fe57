"""What `kubectl describe pod` shows: valid for the API server, made once, counted after that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from reconciler import errors, events
from reconciler.calls import Kube
from reconciler.events import News
from reconciler.events_desk import EVERY_S, EventsDesk
from reconciler.objects import Metadata, Pod, PodCondition, PodStatus
from reconciler.protocol import Answer

NEWS = News(namespace="ns", pod="web-0", pod_uid="u-1", reason="Unschedulable", note="500 needed, 100 free")


def test_an_event_has_what_the_api_server_demands() -> None:
    """Six decimals, a qualified controller, a note of at most 1,024 bytes that is no half character."""
    body = msgspec.json.decode(events.event(replace(NEWS, note="ü" * 1000), at_ms=1_500, instance="i"))

    assert body["eventTime"] == "1970-01-01T00:00:01.500000Z"
    assert body["reportingController"] == "gpubus.dev/reconciler"
    assert body["note"] == "ü" * 512
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "web-0", "uid": "u-1"}


def test_the_same_news_has_the_same_name() -> None:
    """Of the same life of a pod, with the same text; a name that any pod name leaves room for."""
    other = (replace(NEWS, note="x"), replace(NEWS, reason="Refused"), replace(NEWS, pod_uid="u-2"))

    assert len({NEWS.name, *(one.name for one in other)}) == 4
    assert len(replace(NEWS, pod="x" * 253).name) <= 253
    assert ".." not in replace(NEWS, pod="x" * 199 + "." + "y" * 50).name


def test_a_condition_that_stands_is_not_written_again() -> None:
    pod = Pod(metadata=Metadata(name="web-0"))
    one = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=NEWS.note)

    assert not events.stands(pod, NEWS)
    assert events.stands(replace(pod, status=PodStatus(conditions=(one,))), NEWS)
    assert not events.stands(replace(pod, status=PodStatus(conditions=(replace(one, message="x"),))), NEWS)


class Api:
    """Events by name, as the API server keeps them; anything else about them can never be changed."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.down = False

    async def call(self, method: str, path: str, *, body: bytes | None = None, **_: Any) -> Answer:
        if self.down:
            raise errors.OutcomeUnknown("down")
        sent = msgspec.json.decode(body or b"{}")
        name = path.rpartition("/")[2] if method == "PATCH" else sent["metadata"]["name"]
        if method == "POST" and name in self.events:
            text = b'{"kind":"Status","reason":"AlreadyExists","code":409}'
            return Answer(status=409, content_type="application/json", body=text)
        self.events[name] = {**self.events.get(name, {}), **sent}
        return Answer(status=200, content_type="application/json", body=b"{}")

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


class Clock:
    s = 0.0

    def __call__(self) -> float:
        return self.s


def desk(api: Api, clock: Clock) -> EventsDesk:
    return EventsDesk(Kube(api), now_s=clock, wall_ms=lambda: int(clock.s * 1000), instance="i")


async def test_the_same_news_is_counted_and_not_too_often() -> None:
    api, clock = Api(), Clock()
    one = desk(api, clock)
    for _ in range(5):
        await one.tell(NEWS)
    assert "series" not in api.events[NEWS.name]

    for _ in range(2):
        clock.s += EVERY_S
        await one.tell(NEWS)

    assert api.events[NEWS.name]["series"]["count"] == 3


async def test_after_a_restart_it_counts_on() -> None:
    """Nobody knows how far: at least twice, which is what a series must be."""
    api, clock = Api(), Clock()
    await desk(api, clock).tell(NEWS)
    await desk(api, clock).tell(NEWS)

    assert api.events[NEWS.name]["series"]["count"] == 2


async def test_numbers_that_change_do_not_flood() -> None:
    """Each text is another Event: of one reason at most one in six seconds."""
    api, clock = Api(), Clock()
    one = desk(api, clock)
    for free in range(60):
        await one.tell(replace(NEWS, note=f"{free} free"))
        clock.s += 1

    assert len(api.events) == 10


async def test_what_cannot_be_told_stops_nobody() -> None:
    """It is told at the next occasion."""
    api, clock = Api(), Clock()
    one = desk(api, clock)
    api.down = True
    await one.tell(NEWS)
    api.down = False
    clock.s += EVERY_S
    await one.tell(NEWS)

    assert list(api.events) == [NEWS.name]
    assert "series" not in api.events[NEWS.name]


@pytest.mark.parametrize("at_ms", [0, 1, 1_796_000_000_123])
def test_times_have_six_decimals(at_ms: int) -> None:
    assert len(events.micro_time(at_ms).partition(".")[2]) == len("123456Z")
