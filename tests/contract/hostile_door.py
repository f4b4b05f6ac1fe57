"""What the tests with hostile messages are made of: a door with ears, ways to send, and ways in which it may end.

    Attack("share 0", send, check)     `send` returns the sequence it was stored at, `check` waits for the answer

Rights for the streams are as wide as they can be: whoever stands at the door may publish everything.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import pytest

from bus.protocol import NO_HEADERS, Bus, BusError, Headers
from contracts.subjects import EVENTS, REQUESTS
from tests.contract.raw_nats import RawClient
from tests.contract.scheduler_rig import FakeCluster, request
from tests.servers.process import ServerProcess, wait_until

ANSWER_S = 5.0
NAMESPACE = "default"
SUBJECT = b"gpubus.v1.requests.default"


class Door:
    """Everything an attacker has, and ears for the answers."""

    def __init__(self, bus: Bus, raw: RawClient, cluster: FakeCluster, scheduler: ServerProcess) -> None:
        self.bus, self.raw, self.cluster, self.scheduler = bus, raw, cluster, scheduler
        self.events: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        self._good = itertools.count()

    async def listen(self, stream: str) -> None:
        """Hear what is *stored*: a stream may refuse what goes by on its subject."""
        kind = self.events if stream == EVENTS.stream else self.letters
        async with contextlib.aclosing(self.bus.read(stream)) as batches:
            async for batch in batches:
                kind.extend(json.loads(message.data) for message in batch.messages)

    async def send(self, payload: object, *, namespace: str = NAMESPACE, headers: Headers = NO_HEADERS) -> int:
        """Publish to the requests stream; the sequence."""
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return (await self.bus.store(f"gpubus.v1.requests.{namespace}", data, headers=headers)).sequence

    async def frame(self, header: bytes, subject: bytes = SUBJECT) -> int:
        """A good request in bytes that no client library would send; the sequence it was stored at."""
        data = json.dumps(request(f"framed-{next(self._good)}", 1)).encode()
        before = await self.bus.last_sequence(REQUESTS.stream)
        await self.raw.publish(subject, data, header)

        async def stored() -> bool:
            return await self.bus.last_sequence(REQUESTS.stream) > before

        await wait_until(stored, what="the server stored it: it does so after it has answered the ping")
        last = await self.bus.last_sequence(REQUESTS.stream)
        assert last == before + 1
        return last

    async def serves(self) -> None:
        """The next good request is placed."""
        name = f"good-{next(self._good)}"
        await self.send(request(name, 1))
        await self.heard(lambda e: e["name"] == name and e["phase"] == "placed", self.events, f"{name} is placed")

    async def heard(self, wanted: Callable[[dict[str, Any]], bool], among: list[dict[str, Any]], what: str) -> Any:
        """The first that fits, within five seconds."""
        found: list[dict[str, Any]] = []

        async def some() -> bool:
            found[:] = [one for one in among if wanted(one)]
            return bool(found) or not self.scheduler.running

        try:
            await wait_until(some, what=what, timeout_s=ANSWER_S)
            assert found, f"the scheduler has ended: {what}"
        except AssertionError as error:
            error.add_note(self.scheduler.log_tail(5))
            raise
        return found[0]


# --- what is expected ------------------------------------------------------------------------------------------------

Send = Callable[[Door], Awaitable[int]]
Check = Callable[[Door, int], Awaitable[None]]


class Attack(NamedTuple):
    """What is sent, and how it must end."""

    name: str
    send: Send
    check: Check


def refused(field: str, bound: str = "") -> Check:
    """A `refused` event that names the field, the value found and the bound."""

    async def check(door: Door, sequence: int) -> None:
        def answers(event: dict[str, Any]) -> bool:
            return event["phase"] == "refused" and event.get("request_sequence") == sequence

        event = await door.heard(answers, door.events, f"request {sequence} is refused")
        found = [r for r in event["refusals"] if r["field"].startswith(field)]
        assert found, event
        assert all(found[0][part] for part in ("value", "bound", "text"))
        assert bound in found[0]["bound"]

    return check


def buried(reason: str, stream: str = REQUESTS.stream) -> Check:
    """A dead letter with its reason."""

    async def check(door: Door, sequence: int) -> None:
        def answers(letter: dict[str, Any]) -> bool:
            return letter["origin_stream"] == stream and letter["origin_sequence"] == sequence

        letter = await door.heard(answers, door.letters, f"message {sequence} of {stream} is a dead letter")
        assert reason.lower() in letter["reason"].lower(), letter["reason"]

    return check


async def placed(door: Door, sequence: int) -> None:
    """Disarmed: what was dangerous about it has no effect, the request is served."""
    await door.heard(
        lambda e: e["phase"] == "placed" and e.get("request_sequence") == sequence, door.events, "it is placed"
    )


async def nothing(door: Door, sequence: int) -> None:
    """No answer is due; that the next request is served is checked for all."""


def payload(name: str, changes: object, check: Check) -> Attack:
    """A request with parts changed: a mapping is laid over it, bytes are sent as they are."""

    async def send(door: Door) -> int:
        if isinstance(changes, Mapping):
            return await door.send(over(request("evil"), changes))
        return await door.send(changes if isinstance(changes, bytes) else json.dumps(changes).encode())

    return Attack(name, send, check)


def over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` laid over `base`, mapping by mapping."""
    both = {**base}
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = over(both[key], value) if nested else value
    return both


def text(template: str, **parts: str) -> bytes:
    """A request as text, for what no JSON encoder would write: NaN, long numbers, repeated keys."""
    base = {"pod": '{"image":"busybox"}', "share": "1", "name": '"evil"', "more": ""}
    return template.format(**{**base, **parts}).encode()


PLAIN = '{{"type":"pod.request.v1","name":{name},"pod":{pod},"gpu":{{"share_milli":{share}}}{more}}}'


def framed(name: str, header: bytes, check: Check, *, subject: bytes = SUBJECT) -> Attack:
    return Attack(name, lambda door: door.frame(header, subject=subject), check)


def headed(name: str, headers: Mapping[str, str], check: Check) -> Attack:
    """A good request with a header that means something to a server or to us."""

    async def send(door: Door) -> int:
        return await door.send(request(f"headed-{abs(hash(name)) % 10**8}", 1), headers=headers)

    return Attack(name, send, check)


def stopped(name: str, headers: Mapping[str, str], error: type[BusError] = BusError) -> Attack:
    """The server itself refuses to store it, and says so to the sender."""

    async def send(door: Door) -> int:
        with pytest.raises(error):
            await door.send(request("evil"), headers=headers)
        return 0

    return Attack(name, send, nothing)


def elsewhere(name: str, namespace: str) -> Attack:
    async def send(door: Door) -> int:
        return await door.send(request("evil"), namespace=namespace)

    return Attack(name, send, buried("namespace"))


def forged(name: str, subject: str, message: object, check: Check) -> Attack:
    """Something a monitor or the reconciler might say, on their subject, by somebody else."""

    async def send(door: Door) -> int:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        return (await door.bus.store(subject, data)).sequence

    return Attack(name, send, check)
