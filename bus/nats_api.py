"""The JetStream API calls that we use, typed: stream information, one message, a consumer for reading.

In: an asker (subject, JSON) -> bytes. Out: small structs, or the typed error. Needs permission to publish to
`$JS.API.STREAM.INFO.*`, `$JS.API.STREAM.CREATE.*`, `$JS.API.STREAM.MSG.GET.*`, `$JS.API.CONSUMER.CREATE.*.>` and
`$JS.API.CONSUMER.MSG.NEXT.*.*`; a service gets the rows of the streams that it reads.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeVar

import msgspec

from bus.acks import NO_CONSUMER, NO_MESSAGE, STREAM_NOT_FOUND, ApiError, refusal
from bus.frames import parse_header, received
from bus.nats_client import SafeClient
from bus.protocol import BusUnavailable, Received

TIMEOUT_S = 2.0


class StreamMissing(BusUnavailable):
    """There is no stream of that name, or not yet."""


class StreamState(msgspec.Struct, frozen=True):
    """Where a stream stands."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream as the server has it; `created` identifies it: a stream made again is another one."""

    created: str = ""
    config: dict[str, Any] = {}
    state: StreamState = StreamState()
    error: ApiError | None = None


class Position(msgspec.Struct, frozen=True):
    """How far a consumer is; `consumer_seq` counts deliveries, repeats included."""

    consumer_seq: int = 0


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer as the server has it."""

    name: str = ""
    num_pending: int = 0
    num_ack_pending: int = 0
    delivered: Position = Position()
    error: ApiError | None = None


class _StoredMessage(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    time: str
    data: bytes = b""
    hdrs: bytes = b""


class _MessageReply(msgspec.Struct, frozen=True):
    message: _StoredMessage | None = None
    error: ApiError | None = None


_R = TypeVar("_R", StreamInfo, ConsumerInfo, _MessageReply)


async def _call(client: SafeClient, subject: str, body: object, reply: type[_R], *, timeout_s: float = TIMEOUT_S) -> _R:
    data = msgspec.json.encode(body) if body is not None else b""
    _, answer, header = await client.ask(subject, data, timeout_s=timeout_s)
    status = parse_header(header).status
    if status:
        raise BusUnavailable(f"{subject}: status {status}, nobody serves it now")
    try:
        return msgspec.json.decode(answer, type=reply)
    except msgspec.MsgspecError as error:
        raise BusUnavailable(f"{subject}: unreadable answer: {error}") from None


async def stream_info(client: SafeClient, stream: str) -> StreamInfo:
    """Configuration and state, from the leader. Raises StreamMissing, BusUnavailable."""
    subject = f"{client.api_prefix}.STREAM.INFO.{stream}"
    info = await _call(client, subject, None, StreamInfo)
    if info.error is not None:
        raise _failure(info.error, subject)
    return info


async def create_stream(client: SafeClient, config: dict[str, Any]) -> ApiError | None:
    """Create a stream, or find it there with the same configuration. The error is returned: reading back tells more."""
    subject = f"{client.api_prefix}.STREAM.CREATE.{config['name']}"
    return (await _call(client, subject, config, StreamInfo, timeout_s=10.0)).error


async def create_consumer(client: SafeClient, stream: str, config: dict[str, Any]) -> ConsumerInfo:
    """Create a pull consumer, or find it there. Raises StreamMissing, BusUnavailable."""
    subject = f"{client.api_prefix}.CONSUMER.CREATE.{stream}.{config['name']}"
    if "filter_subject" in config:
        subject += f".{config['filter_subject']}"
    info = await _call(client, subject, {"stream_name": stream, "config": config}, ConsumerInfo)
    if info.error is not None:
        raise _failure(info.error, subject)
    return info


async def consumer_info(client: SafeClient, stream: str, name: str) -> ConsumerInfo | None:
    """How a consumer stands; None when there is none of that name. Raises StreamMissing, BusUnavailable."""
    subject = f"{client.api_prefix}.CONSUMER.INFO.{stream}.{name}"
    info = await _call(client, subject, None, ConsumerInfo)
    if info.error is not None and info.error.err_code == NO_CONSUMER:
        return None
    if info.error is not None:
        raise _failure(info.error, subject)
    return info


async def last_message(client: SafeClient, stream: str, subject: str) -> Received | None:
    """The newest message of a subject, from the leader (direct gets may be stale on replicas)."""
    return await _get(client, stream, {"last_by_subj": subject})


async def next_message(client: SafeClient, stream: str, subject: str, sequence: int) -> Received | None:
    """The oldest message from a sequence on whose subject matches."""
    return await _get(client, stream, {"seq": max(1, sequence), "next_by_subj": subject})


async def _get(client: SafeClient, stream: str, which: dict[str, Any]) -> Received | None:
    api = f"{client.api_prefix}.STREAM.MSG.GET.{stream}"
    reply = await _call(client, api, which, _MessageReply)
    if reply.error is not None and reply.error.err_code == NO_MESSAGE:
        return None
    if reply.error is not None or reply.message is None:
        raise _failure(reply.error or ApiError(), api)
    m = reply.message
    at = dt.datetime.fromisoformat(m.time)
    header = parse_header(m.hdrs)
    return received(m.subject.encode(), m.data, header, sequence=m.seq, stored_ns=int(at.timestamp() * 1e9))


def _failure(error: ApiError, subject: str) -> Exception:
    if error.err_code == STREAM_NOT_FOUND:
        return StreamMissing(f"{subject}: there is no such stream")
    return refusal(error, subject=subject)
