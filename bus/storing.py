"""JetStream publishes over the connection: one at a time, or many in flight.

In: messages with their conditions. Out: `Stored` or the typed error. A publish is a request whose answer is the
acknowledgement, so its end is known: stored, refused, or unknown. Many are sent window by window, each window all
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bus.acks import read_ack
from bus.frames import parse_header, store_header
from bus.nats_client import Answer, SafeClient
from bus.protocol import BusError, BusUnavailable, Outgoing, PayloadTooLarge, Stored

WINDOW_MESSAGES = 512
WINDOW_BYTES = 4 * 1024 * 1024
"""How much `store_many` has in flight: far below the 10,000 messages that a server lets wait for its disk."""


async def store(client: SafeClient, m: Outgoing, timeout_s: float) -> Stored:
    """Store one message, one try. Raises the typed error."""
    header = store_header(m)
    check_size(client, header, m.data)
    answer = await client.ask(m.subject, m.data, header, timeout_s=timeout_s)
    result = read_answer(answer, m, len(header))
    if isinstance(result, BusError):
        raise result
    return result


async def store_many(client: SafeClient, messages: Sequence[Outgoing], timeout_s: float) -> list[Stored | BusError]:
    """Store many; one result each, in order, never raised."""
    results: list[Stored | BusError] = []
    await asyncio.sleep(0)  # repeating without a pause must not starve a reconnect
    for window in windows(messages):
        sent = [_begin(client, message) for message in window]
        waiting = [call for call in sent if isinstance(call, asyncio.Future)]
        try:
            if waiting:
                await asyncio.wait(waiting, timeout=timeout_s)
            results.extend(_outcome(call, m, timeout_s) for call, m in zip(sent, window, strict=True))
        finally:
            for call in waiting:
                call.cancel()
    return results


def check_size(client: SafeClient, header: bytes, data: bytes) -> None:
    """The server cuts the connection for what is too large, and counts headers, which the stock client does not."""
    size = len(header) + len(data)
    if size > client.max_payload:
        raise PayloadTooLarge(size, client.max_payload)


def read_answer(answer: Answer, m: Outgoing, header_bytes: int) -> Stored | BusError:
    """What became of a publish; a status line is the server's own (503: no stream takes the subject)."""
    _, data, block = answer
    if (status := no_stream(block)) is not None:
        return BusUnavailable(f"{m.subject}: status {status}, no stream takes it now")
    return read_ack(data, subject=m.subject, size=header_bytes + len(m.data), expected=m.expected_last)


def no_stream(block: bytes | None) -> int | None:
    """The server's own status in place of an acknowledgement, None when there is none."""
    return parse_header(block).status or None if block is not None else None


def windows(messages: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Cut into runs that are small enough to be in flight at once; a single message is always small enough."""
    runs: list[list[Outgoing]] = []
    size = 0
    for message in messages:
        size += len(message.data)
        if not runs or size > WINDOW_BYTES or len(runs[-1]) >= WINDOW_MESSAGES:
            runs.append([])
            size = len(message.data)
        runs[-1].append(message)
    return runs


def _begin(client: SafeClient, m: Outgoing) -> asyncio.Future[Answer] | BusError:
    try:
        header = store_header(m)
        check_size(client, header, m.data)
        return client.call(m.subject, header, m.data)
    except BusError as error:
        return error


def _outcome(call: asyncio.Future[Answer] | BusError, m: Outgoing, timeout_s: float) -> Stored | BusError:
    if isinstance(call, BusError):
        return call
    if not call.done():
        return BusUnavailable(f"{m.subject}: no acknowledgement within {timeout_s:g} s; outcome unknown")
    error = call.exception()
    if error is not None:
        return error if isinstance(error, BusError) else BusError(str(error))
    return read_answer(call.result(), m, len(store_header(m)))
