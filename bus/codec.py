"""Typed messages over the bus: what goes out is checked against its channel, what comes in is a message or `Malformed`.

In: a channel of `contracts.subjects`, a message, the subject's parameters. Out: bytes on the literal subject with
the trace context in the headers; and back. A message of a stranger that cannot be decoded is a value with the
reason and the path, never an exception in a loop over a stream.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TypeVar, Union

import msgspec

from bus import headers as trace
from bus.protocol import NO_HEADERS, Bus, BusError, Headers, Outgoing, Received, Stored
from contracts.messages import Message, encode
from contracts.subjects import Channel

_M = TypeVar("_M", bound=Message)
_PATH = re.compile(r" - at `([^`]*)`$")


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message could not be understood; `path` is where in the JSON (`$.cards`), empty for other faults."""

    reason: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.reason} (at {self.path})" if self.path else self.reason


class MalformedReply(BusError):  # noqa: N818 - named by what is the case, like the other bus errors
    """The answer to a request could not be understood."""

    def __init__(self, subject: str, malformed: Malformed) -> None:
        super().__init__(f"{subject}: the answer is malformed: {malformed}")
        self.malformed = malformed


async def publish(bus: Bus, channel: Channel, message: Message, /, **parameters: str) -> None:
    """Core publish: may be lost."""
    await bus.publish(channel.subject(**parameters), _encoded(channel, message), headers=trace.inject())


async def store(
    bus: Bus,
    channel: Channel,
    message: Message,
    /,
    *,
    message_id: str | None = None,
    expected_last: int | None = None,
    timeout_s: float = 2.0,
    headers: Headers = NO_HEADERS,
    **parameters: str,
) -> Stored:
    """Store in the channel's stream, in the current trace. Errors as `Bus.store`."""
    return await bus.store(
        channel.subject(**parameters),
        _encoded(channel, message),
        headers=trace.inject(headers),
        message_id=message_id,
        expected_last=expected_last,
        stream=channel.stream,
        timeout_s=timeout_s,
    )


def outgoing(
    channel: Channel,
    message: Message,
    /,
    *,
    message_id: str | None = None,
    expected_last: int | None = None,
    headers: Headers = NO_HEADERS,
    **parameters: str,
) -> Outgoing:
    """The same for `Bus.store_many`. Trace context is the caller's choice: one commit tells of many traces."""
    return Outgoing(
        subject=channel.subject(**parameters),
        data=_encoded(channel, message),
        headers=headers,
        message_id=message_id,
        expected_last=expected_last,
        stream=channel.stream,
    )


async def ask(
    bus: Bus,
    channel: Channel,
    message: Message,
    reply_type: type[_M],
    /,
    *,
    timeout_s: float = 2.0,
    **parameters: str,
) -> _M:
    """Ask and decode the answer. Raises BusUnavailable (also when the responder failed), MalformedReply."""
    subject = channel.subject(**parameters)
    reply = await bus.request(subject, _encoded(channel, message), headers=trace.inject(), timeout_s=timeout_s)
    answer = decode_as(reply_type, reply)
    if isinstance(answer, Malformed):
        raise MalformedReply(subject, answer)
    return answer


def decode(channel: Channel, received: Received) -> Message | Malformed:
    """The message, one of the channel's types."""
    return _decode(_channel_decoder(channel.messages), received)


def decode_as(message_type: type[_M], received: Received) -> _M | Malformed:
    """The message as one known type."""
    return _decode(_decoder(message_type), received)


def _decode(decoder: msgspec.json.Decoder[_M], received: Received) -> _M | Malformed:
    if received.malformed:
        return Malformed(reason=f"the {received.malformed} of the message cannot be read as sent")
    try:
        return decoder.decode(received.data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = str(error)
        found = _PATH.search(text)
        return Malformed(reason=_PATH.sub("", text), path=found[1] if found else "$")


def _encoded(channel: Channel, message: Message) -> bytes:
    if not isinstance(message, channel.messages):
        raise TypeError(f"{type(message).__name__} does not belong on channel {channel.name}")
    return encode(message)


@cache
def _channel_decoder(types: tuple[type[Message], ...]) -> msgspec.json.Decoder[Message]:
    return msgspec.json.Decoder(Union[types])  # noqa: UP007 - the members are known at run time only


@cache
def _decoder(message_type: type[_M]) -> msgspec.json.Decoder[_M]:
    return msgspec.json.Decoder(message_type)
