"""The nats-server fixture itself: what a test may rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nats
import pytest
from nats.js.api import StreamConfig

if TYPE_CHECKING:
    from nats.aio.client import Client

    from tests.servers.natsd import NatsCluster, NatsServer

pytestmark = pytest.mark.nats


async def connect(*urls: str) -> Client:
    return await nats.connect(list(urls), connect_timeout=5, max_reconnect_attempts=20, reconnect_time_wait=0.1)


async def test_an_acknowledged_message_survives_kill_and_restart_on_the_same_port(
    nats_server: NatsServer,
) -> None:
    """Claim: after SIGKILL the server is back under the same URL with everything it acknowledged."""
    before = nats_server.url
    client = await connect(before)
    await client.jetstream().add_stream(StreamConfig(name="kept", subjects=["kept.>"]))
    ack = await client.jetstream().publish("kept.a", b"one")
    await nats_server.kill()
    assert not nats_server.running
    await nats_server.restart()
    assert nats_server.url == before
    again = await connect(nats_server.url)
    assert (await again.jetstream().get_msg("kept", ack.seq)).data == b"one"
    await again.close()
    await client.close()


async def test_a_wiped_server_comes_back_empty(nats_server: NatsServer) -> None:
    """Claim: `wipe` loses the disk, so that tests can show what is rebuilt from elsewhere."""
    client = await connect(nats_server.url)
    await client.jetstream().add_stream(StreamConfig(name="lost", subjects=["lost.>"]))
    await client.close()
    await nats_server.wipe()
    await nats_server.restart()
    assert (await nats_server.varz("/jsz"))["streams"] == 0


async def test_a_frozen_server_answers_nothing_and_then_everything(nats_server: NatsServer) -> None:
    """Claim: frozen means silent (not refused), thawed means as before."""
    nats_server.freeze()
    assert not await nats_server.healthy()
    assert nats_server.running
    nats_server.thaw()
    assert await nats_server.healthy()


async def test_three_servers_keep_a_replicated_stream_when_one_is_killed(nats_cluster: NatsCluster) -> None:
    """Claim: the cluster fixture gives real replication: two of three still acknowledge."""
    client = await connect(*nats_cluster.urls)
    await client.jetstream().add_stream(StreamConfig(name="r3", subjects=["r3.>"], num_replicas=3))
    await client.jetstream().publish("r3.a", b"one")
    info = await client.jetstream().stream_info("r3")
    assert info.cluster is not None
    follower = next(
        s for s in nats_cluster.servers if s.name != info.cluster.leader and s.url != client.connected_url.geturl()
    )
    await follower.kill()
    assert (await client.jetstream().publish("r3.b", b"two", timeout=5)).seq == 2
    await client.close()
