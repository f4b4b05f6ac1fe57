"""Traps of nats-server and its Python client that the bus must not fall into: hostile bytes, refusals, logins, TLS.

Each test is one trap, on a real server (or on one that misbehaves on purpose).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from bus.client import NatsBus, connect
from bus.protocol import BusUnavailable, NotPermitted, Received, StreamMismatch
from bus.streams import wire_config
from contracts.subjects import STREAMS
from contracts.subjects import stream as declared
from tests.contract.bus_worlds import HEAD, REQUESTS_STREAM, collect
from tests.contract.raw_nats import RawClient, fake_server, log_in, raw_client
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = pytest.mark.nats

TLS = Path(__file__).parent / "tls"
GOOD = b"good"


class Poison(NamedTuple):
    """A message of hostile bytes, and the mark that it must get (`stored`: when it comes out of a stream)."""

    malformed: str
    header: bytes
    payload: bytes = b"x"
    subject: bytes = b"gpubus.v1.requests.a"
    stored: str | None = None
    """The server drops status lines of what it stores."""


POISON = {
    "subject that is not UTF-8": Poison("subject", b"", subject=b"gpubus.v1.requests.\xff\xfe"),
    "header block of eight bytes": Poison("header", b"NATS/1.0"),
    "status line that is not UTF-8": Poison("status", b"NATS/1.0 \xff\xfe\r\n\r\n", stored=""),
    "status line with a number": Poison("status", b"NATS/1.0 404\r\n\r\n", b"", stored=""),
    "status line of a heartbeat": Poison("status", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"", stored=""),
    "status line of a deleted consumer": Poison("status", b"NATS/1.0 409 Consumer Deleted\r\n\r\n", b"", stored=""),
    "header Status 404": Poison("status", b"NATS/1.0\r\nStatus: 404\r\n\r\n", b""),
    "header Status 408": Poison("status", b"NATS/1.0\r\nStatus: 408\r\n\r\n", b""),
    "header Status 409": Poison("status", b"NATS/1.0\r\nStatus: 409\r\n\r\n", b""),
    "header Status 100": Poison("status", b"NATS/1.0\r\nStatus: 100\r\nDescription: Idle\r\n\r\n", b""),
    "value that is not UTF-8": Poison("", b"NATS/1.0\r\na: \xff\r\n\r\n"),
    "line without a colon": Poison("", b"NATS/1.0\r\nnothing\r\n\r\n"),
    "empty header": Poison("", b"NATS/1.0\r\n\r\n"),
    "claim to be malformed": Poison("", b"NATS/1.0\r\nGpubus-Malformed: no\r\n\r\n"),
}


@pytest_asyncio.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[NatsBus]:
    async with connect(nats_server.url, name="test") as one:
        await one.ensure_streams()
        yield one


@pytest_asyncio.fixture
async def raw(nats_server: NatsServer, bus: NatsBus) -> AsyncIterator[RawClient]:
    async with raw_client(nats_server.port) as client:
        yield client


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
async def test_poison_in_a_stream(bus: NatsBus, raw: RawClient, poison: Poison) -> None:
    """A stored message of any bytes is delivered, marked, and the next good one follows on the same connection."""
    await raw.publish(poison.subject, poison.payload, poison.header)
    await raw.publish(b"gpubus.v1.requests.a", GOOD)

    found = await collect(bus, REQUESTS_STREAM)

    mark = poison.malformed if poison.stored is None else poison.stored
    assert [(poison.payload, mark), (GOOD, "")] == [(m.data, m.malformed) for m in found]
    assert [m.sequence for m in found] == [1, 2]
    assert bus.connected
    assert bus.counts["connection-lost"] == 0


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
async def test_poison_for_a_subscription(bus: NatsBus, raw: RawClient, poison: Poison) -> None:
    """The same over core NATS: the handler gets it marked, then the next good one."""
    heard: asyncio.Queue[Received] = asyncio.Queue()

    async def handle(message: Received) -> None:
        heard.put_nowait(message)

    async with bus.subscribe("core.>", handle), asyncio.timeout(5):
        await raw.publish(poison.subject.replace(b"gpubus.v1.requests", b"core"), poison.payload, poison.header)
        await raw.publish(b"core.a", GOOD)
        found = [await heard.get(), await heard.get()]

    assert [(poison.payload, poison.malformed), (GOOD, "")] == [(m.data, m.malformed) for m in found]
    assert bus.counts["connection-lost"] == 0


@pytest.mark.parametrize(("header", "malformed"), [(b"NATS/1.0", "header"), (b"NATS/1.0 \xff\xfe\r\n\r\n", "status")])
async def test_poison_as_a_reply(bus: NatsBus, raw: RawClient, header: bytes, malformed: str) -> None:
    """A reply of any bytes ends its request, and the next request is answered."""
    await raw.send(b"SUB gpubus.v1.ask.x 1\r\n")
    asked = asyncio.create_task(bus.request("gpubus.v1.ask.x", b""))
    inbox = (await raw.until(b"MSG")).split()[3]
    await raw.publish(inbox, b"answer", header)

    assert (b"answer", malformed) == ((await asked).data, asked.result().malformed)
    assert await bus.last_sequence(REQUESTS_STREAM) == 0


async def test_the_second_form_of_ack_subjects() -> None:
    """With the server's switch for the new ack subjects on, reading works the same."""
    async with NatsServer(extra="feature_flags { js_ack_fc_v2: true }") as server, connect(server.url, name="t") as bus:
        await bus.ensure_streams()
        for number in range(5):
            await bus.store(HEAD, b"%d" % number)

        assert [m.sequence for m in await collect(bus, "GPUBUS_LEDGER")] == [1, 2, 3, 4, 5]


async def test_a_sink_that_raises_is_counted(bus: NatsBus) -> None:
    """What a receiver of raw frames raises never gets into the read loop."""

    def explode(*_: Any) -> None:
        raise RuntimeError("boom")

    bus._client.route("core.x", explode)
    await bus.publish("core.x", b"")
    assert await bus._client.echo(1.0)

    assert (bus.counts["sink-failed"], bus.connected) == (1, True)


async def test_a_late_pong_does_not_end_the_read_loop(bus: NatsBus) -> None:
    """A PONG whose waiter has given up is ignored (in the stock client it ends the read loop)."""
    given_up: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    given_up.cancel()
    bus._client._pongs.append(given_up)
    bus._client.send(b"PING\r\n")
    assert await bus._client.echo(1.0)

    assert bus._client.reading


# --- streams -----------------------------------------------------------------------------------------------------


DIFFERENT: list[tuple[str, Any]] = [
    ("discard", "old"),
    ("allow_rollup_hdrs", True),
    ("max_bytes", 1_000_000),
    ("max_age", 3_600_000_000_000),
    ("max_msg_size", 1024),
    ("max_msgs_per_subject", 5),
    ("retention", "workqueue"),
    ("storage", "memory"),
    ("deny_delete", False),
    ("deny_purge", False),
    ("no_ack", True),
    ("subjects", ["gpubus.v1.requests.>"]),
    ("persist_mode", "async"),
    ("allow_msg_ttl", True),
    ("max_msgs", 10),
    ("compression", "s2"),
]


@pytest.mark.parametrize(("field", "value"), DIFFERENT, ids=[field for field, _ in DIFFERENT])
async def test_a_stream_that_breaks_a_promise_is_refused(nats_server: NatsServer, field: str, value: Any) -> None:
    """An existing stream with one promised field different: the error names stream, field, wanted and found."""
    wanted = wire_config(declared(REQUESTS_STREAM), replicas=1)
    config = {**wanted, field: value}
    if field == "allow_rollup_hdrs":
        config["deny_purge"] = False  # the server insists; either is told
    async with connect(nats_server.url, name="t") as bus:
        answer = await bus.request(f"$JS.API.STREAM.CREATE.{REQUESTS_STREAM}", json.dumps(config).encode())
        assert b'"error"' not in answer.data, answer.data
        with pytest.raises(StreamMismatch) as caught:
            await bus.ensure_streams()

    error = caught.value
    assert error.stream == REQUESTS_STREAM
    assert error.field in (field, "deny_purge")
    assert error.wanted != error.found
    assert all(str(part) in str(error) for part in (REQUESTS_STREAM, error.field))


async def test_streams_of_the_wire_and_of_the_contract_agree(bus: NatsBus) -> None:
    """Each declared stream exists, and a second look finds nothing different."""
    await bus.ensure_streams(create=False)
    for stream in STREAMS:
        assert await bus.last_sequence(stream.name) == 0


# --- permissions and logins ----------------------------------------------------------------------------------------

LIMITED = """
authorization { users: [
  { user: all, password: all }
  { user: one, password: one, permissions: {
      publish: { allow: ["gpubus.v1.requests.mine", "$JS.API.STREAM.INFO.*"] },
      subscribe: { allow: ["_INBOX_one.>"] } } }
] }
"""


@pytest_asyncio.fixture
async def limited() -> AsyncIterator[NatsBus]:
    async with (
        NatsServer(extra=LIMITED) as server,
        connect(server.url, name="all", user="all", password="all") as operator,
        connect(server.url, name="one", user="one", password="one", inbox_prefix="_INBOX_one") as one,
    ):
        await operator.ensure_streams()
        yield one


async def test_a_forbidden_store_or_request_is_an_error_at_once(limited: NatsBus) -> None:
    """The server tells it aside, in lower case; the call that caused it fails with it long before its timeout."""
    assert (await limited.store("gpubus.v1.requests.mine", b"")).sequence == 1
    async with asyncio.timeout(2):
        with pytest.raises(NotPermitted):
            await limited.store("gpubus.v1.requests.Other", b"", timeout_s=60)
        with pytest.raises(NotPermitted):
            await limited.request("gpubus.v1.ask.Other", b"", timeout_s=60)

    assert (await limited.store("gpubus.v1.requests.mine", b"")).sequence == 2


async def test_a_forbidden_publish_becomes_an_error(limited: NatsBus) -> None:
    """Core publishes are not answered: the first is lost and counted, the next to that subject fails."""
    await limited.publish("gpubus.v1.requests.Other", b"")

    async def told() -> bool:
        return limited.counts["denied"] > 0

    await wait_until(told, what="the refusal", timeout_s=2.0)
    with pytest.raises(NotPermitted):
        await limited.publish("gpubus.v1.requests.Other", b"")
    await limited.publish("gpubus.v1.requests.mine", b"")

    assert limited.connected


async def test_a_forbidden_subscription_is_an_error(limited: NatsBus) -> None:
    """It must not look alive and hear nothing."""

    async def handle(_: Received) -> None:
        raise AssertionError

    with pytest.raises(NotPermitted):
        async with limited.subscribe("gpubus.v1.Secret.>", handle):
            pass


async def test_the_watchdog_lives_with_few_permissions(limited: NatsBus) -> None:
    """A refused echo is a round trip too."""
    assert await limited._client.echo(1.0)
    assert limited.connected


@pytest.mark.parametrize("login", [{"user": "one", "password": "wrong"}, {"token": "wrong"}, {}])
async def test_a_refused_login_ends_in_time(login: dict[str, str]) -> None:
    """Wrong or missing credentials: BusUnavailable that says so, within the deadline."""
    async with NatsServer(extra=LIMITED) as server:
        began = time.monotonic()
        with pytest.raises(BusUnavailable, match=r"(?i)authorization violation"):
            async with connect(server.url, name="t", connect_timeout_s=1.0, **login):
                pass

    assert time.monotonic() - began < 5.0


async def test_nobody_listens() -> None:
    """No server at all: BusUnavailable within the deadline, without burning the CPU on tries."""
    began, cpu = time.monotonic(), time.process_time()
    with pytest.raises(BusUnavailable, match="not connected within"):
        async with connect("nats://127.0.0.1:1", name="t", connect_timeout_s=1.0):
            pass

    assert time.monotonic() - began < 5.0
    assert time.process_time() - cpu < 0.5


async def _silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def _ping_instead_of_pong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b'INFO {"headers": true, "max_payload": 1048576}\r\n')
    await reader.readuntil(b"PING\r\n")
    writer.write(b"PING\r\n")
    await reader.read()


@pytest.mark.parametrize("talk", [_silent, _ping_instead_of_pong])
async def test_a_login_without_an_answer_is_no_connection(talk: Any) -> None:
    """A server that is silent, or that pings instead of confirming the login (connected, to the stock client)."""
    async with fake_server(talk) as url:
        began = time.monotonic()
        with pytest.raises(BusUnavailable):
            async with connect(url, name="t", connect_timeout_s=1.5):
                pass

    assert time.monotonic() - began < 4.0


async def test_a_reconnect_without_an_answer_is_no_connection() -> None:
    """The same when connecting again: the first login is confirmed, the later ones are not."""
    logins: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        logins.append(1)
        if len(logins) > 1:
            await _ping_instead_of_pong(reader, writer)
        else:
            await log_in(reader, writer)
            await reader.readuntil(b"SUB ")

    async with fake_server(talk) as url, connect(url, name="t") as bus:
        seen = set()
        with pytest.raises(BusUnavailable):
            await bus.store(HEAD, b"")
        while len(logins) < 4:
            seen.add(bus._client.is_connected)
            await asyncio.sleep(0.02)

    assert seen == {False}


async def test_a_connection_ended_for_good_is_told() -> None:
    """The client gives up for ever on some errors of the server: the process must hear of it to exit."""

    async def expire(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        await reader.readuntil(b"SUB ")
        writer.write(b"-ERR 'User Authentication Expired'\r\n")
        await reader.read()

    async with fake_server(expire) as url, connect(url, name="t") as bus:
        with pytest.raises(BusUnavailable):
            await bus.store(HEAD, b"")
        async with asyncio.timeout(1):
            await bus.closed.wait()
        assert not bus.connected
        with pytest.raises(BusUnavailable):
            await bus.store(HEAD, b"")


# --- TLS -----------------------------------------------------------------------------------------------------------


def _trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=TLS / "certificate.pem")


async def test_tls_is_not_dropped_silently(nats_server: NatsServer) -> None:
    """TLS asked for and a server without it: no plain connection, whatever the URL says."""
    for url in (nats_server.url, nats_server.url.replace("nats://", "tls://")):
        with pytest.raises(BusUnavailable):
            async with connect(url, name="t", tls=_trusting(), connect_timeout_s=1.0):
                pass

    assert (await nats_server.varz("/connz"))["total"] == 0


async def test_tls_works_with_the_handshake_first() -> None:
    """The server that we configure: handshake before anything else; a stranger's certificate is refused."""
    files = f'cert_file: "{TLS / "certificate.pem"}", key_file: "{TLS / "key-for-tests-only.pem"}"'
    async with NatsServer(extra=f"tls {{ {files}, handshake_first: true }}") as server:
        async with connect(server.url, name="t", tls=_trusting()) as bus:
            await bus.ensure_streams()
            assert (await bus.store(HEAD, b"x")).sequence == 1
        with pytest.raises(BusUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            async with connect(server.url, name="t", tls=ssl.create_default_context(), connect_timeout_s=1.0):
                pass
