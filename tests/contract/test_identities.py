"""The table of identities against a real server: every cell of it, and what no permission on subjects can keep out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from bus.auth import keys, serverconfig
from bus.auth.callout import Gatekeeper, NotAdmitted
from bus.client import NatsBus, connect
from bus.protocol import BusUnavailable, NotPermitted, Received
from contracts import subjects
from contracts.identities import Identity, api_prefix, identity, inbox_prefix, role_of, values_of
from contracts.messages import encode
from contracts.outcomes import RequestEvent
from contracts.subjects import CHANNELS, STREAMS, Channel
from contracts.workloads import JobStatus, TrainerSpan
from gpubus.client import Client
from gpubus.trainer import trainer
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = pytest.mark.nats

EVERYBODY = tuple(
    identity(text)
    for text in (
        "scheduler",
        "reconciler",
        "autoscaler",
        "monitor/gpu-1",
        "tenant/team-a",
        "worker/team-a.resize",
        "trainer/team-a.bert",
        "operator",
        "viewer",
    )
)
KEYS = {who: keys.user_key() for who in EVERYBODY}
OTHER = "somebody-else"


@contextlib.asynccontextmanager
async def guarded_server() -> AsyncIterator[NatsServer]:
    config = serverconfig.blocks({who: key.public for who, key in KEYS.items()})
    async with NatsServer(extra=config) as server:
        async with logged_in(server, identity("scheduler")) as bus:
            await bus.ensure_streams()
        yield server


def logged_in(server: NatsServer, who: Identity) -> contextlib.AbstractAsyncContextManager[NatsBus]:
    return connect(server.url, name=str(who), nkey_seed=KEYS[who].seed, identity=str(who))


def literals(channel: Channel, who: Identity) -> dict[str, bool]:
    """Subjects of a channel to try, each with whether it is the identity's own."""
    role = role_of(who)
    names = {"namespace": "team-b", "node": "gpu-2", "pool": "default", "stream": "core", "name": "x", "card": "GPU-1"}
    names |= {"function": "other", "caller": "c", "worker": "w", "replica": "r", "job": "j", "trainer": "t"}
    subject = channel.subject(**names)
    if not any(f"{{{name}}}" in channel.pattern for name in role.names):
        return {subject: True}
    return {subject: False, channel.subject(**{**names, **values_of(who)}): True}


async def denied(bus: NatsBus, kind: str, wanted: dict[str, bool]) -> dict[str, bool]:
    """Try each subject; by subject whether the server refused it."""
    client = bus._client
    for subject in wanted:
        if kind == "publish":
            client.send(b"PUB %b 0\r\n\r\n" % subject.encode())
        else:
            client.route(subject, lambda *_: None)
    assert await client.echo(2.0)
    return {subject: (kind, subject.lower()) in client.denials for subject in wanted}


@pytest.fixture(scope="module")
def cells() -> list[tuple[Identity, Channel]]:
    return list(itertools.product(EVERYBODY, CHANNELS))


async def test_every_cell_of_the_table_holds_on_a_real_server(cells: list[tuple[Identity, Channel]]) -> None:
    """Identity x subject x verb: what the table grants passes, and nothing else does."""
    async with guarded_server() as server:
        for who in EVERYBODY:
            role, sent, heard = role_of(who), {}, {}
            for _, channel in (cell for cell in cells if cell[0] == who):
                for subject, own in literals(channel, who).items():
                    sent[subject] = not (own and channel in role.sends)
                    heard[subject] = not (own and channel in (*role.hears, *role.answers))
            async with logged_in(server, who) as bus:
                assert await denied(bus, "publish", sent) == sent, who
                assert await denied(bus, "subscription", heard) == heard, who


async def test_every_cell_of_the_stream_api_holds() -> None:
    """Looking at a stream, following it, creating one: by the table; changing or deleting one: nobody."""
    async with guarded_server() as server:
        for who in EVERYBODY:
            role, wanted = role_of(who), {}
            for stream in (stream.name for stream in STREAMS):
                api = api_prefix(who)
                wanted[f"{api}.STREAM.INFO.{stream}"] = stream not in role.looks
                wanted[f"{api}.STREAM.MSG.GET.{stream}"] = stream not in role.looks
                any_consumer = stream in role.takes and not role.value
                wanted[f"{api}.CONSUMER.CREATE.{stream}.c"] = stream not in (*role.follows, *role.queues)
                wanted[f"{api}.CONSUMER.INFO.{stream}.c"] = stream not in role.queues
                wanted[f"{api}.CONSUMER.MSG.NEXT.{stream}.c"] = stream not in role.follows and not any_consumer
                wanted[f"$JS.ACK.{stream}.c.1.1.1.1.0"] = not any_consumer
                if role.takes and role.value:
                    wanted[f"{api}.CONSUMER.MSG.NEXT.{stream}.{who.value}"] = stream not in role.takes
                    wanted[f"$JS.ACK.{stream}.{who.value}.1.1.1.1.0"] = stream not in role.takes
                wanted[f"{api}.STREAM.CREATE.{stream}"] = not role.manages
                for verb in ("UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE"):
                    wanted[f"$JS.API.STREAM.{verb}.{stream}"] = True
            async with logged_in(server, who) as bus:
                assert await denied(bus, "publish", wanted) == wanted, who


async def test_nobody_hears_the_answers_of_another() -> None:
    """An inbox belongs to one identity."""
    async with guarded_server() as server:
        for who, other in itertools.permutations(EVERYBODY, 2):
            async with logged_in(server, who) as bus:
                spied = {f"{inbox_prefix(other)}.>": True, "_INBOX.>": True, ">": True}
                assert await denied(bus, "subscription", spied) == spied, who


async def test_services_and_people_reach_the_streams_that_are_theirs() -> None:
    """A tenant stores, the scheduler reads and writes, a tenant hears its event, an operator reads it afterwards."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(guarded_server())
        enter = stack.enter_async_context
        tenant, scheduler = identity("tenant/team-a"), identity("scheduler")
        alice, decides = await enter(logged_in(server, tenant)), await enter(logged_in(server, scheduler))
        operator = await enter(logged_in(server, identity("operator")))
        monitor = await enter(logged_in(server, identity("monitor/gpu-1")))

        assert (await alice.store("gpubus.v1.requests.team-a", b"mine")).sequence == 1
        async with contextlib.aclosing(decides.read(subjects.REQUESTS.stream)) as batches:
            assert [m.data for m in (await anext(batches)).messages] == [b"mine"]

        heard: asyncio.Queue[bytes] = asyncio.Queue()
        beats: asyncio.Queue[bytes] = asyncio.Queue()
        async with (
            alice.subscribe("gpubus.v1.events.team-a.*", lambda m: heard.put(m.data)),
            decides.subscribe(subjects.HEARTBEATS.wildcard, lambda m: beats.put(m.data)),
        ):
            await decides.store("gpubus.v1.events.team-a.x", b"placed")
            assert await asyncio.wait_for(heard.get(), 5) == b"placed"
            await monitor.publish("gpubus.v1.nodes.gpu-1.heartbeat", b"alive")
            assert await asyncio.wait_for(beats.get(), 5) == b"alive"
        async with contextlib.aclosing(operator.read(subjects.EVENTS.stream)) as batches:
            assert [m.data for m in (await anext(batches)).messages] == [b"placed"]

        await monitor.store("gpubus.v1.nodes.gpu-1.inventory", b"cards")
        last = await monitor.last(subjects.INVENTORY.stream, "gpubus.v1.nodes.gpu-1.inventory")
        assert last is not None
        assert last.data == b"cards"
        with pytest.raises(NotPermitted):
            await monitor.store("gpubus.v1.nodes.gpu-2.inventory", b"forged")


async def test_a_question_is_answered_across_accounts() -> None:
    """The scheduler's answer reaches a tenant, and only the tenant who asked."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(guarded_server())
        alice = await stack.enter_async_context(logged_in(server, identity("tenant/team-a")))
        decides = await stack.enter_async_context(logged_in(server, identity("scheduler")))

        async def answer(_: object) -> bytes:
            return b"because"

        async with decides.respond(subjects.EXPLAIN.wildcard, answer, queue="scheduler"):
            assert (await alice.request("gpubus.v1.ask.explain.team-a", b"why?")).data == b"because"


async def test_a_tenant_watches_its_own_events_without_reading_a_stream() -> None:
    """What it may not read it hears live, by the same call."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(guarded_server())
        decides = await stack.enter_async_context(logged_in(server, identity("scheduler")))
        alice = Client(await stack.enter_async_context(logged_in(server, identity("tenant/team-a"))))
        event = RequestEvent(namespace="team-a", name="x", phase="placed", uid="e-1-0")
        async with contextlib.aclosing(alice.events("team-a", from_sequence=await alice.event_head())) as events:
            heard = asyncio.create_task(anext(events))

            async def told() -> bool:
                await decides.store("gpubus.v1.events.team-a.x", encode(event))
                return heard.done()

            await wait_until(told, what="the event is heard", timeout_s=10.0, every_s=0.05)
            assert await heard == event


async def test_a_worker_takes_the_calls_of_its_own_function_without_making_a_consumer() -> None:
    """A call crosses to the core, from there to the worker, its receipt back, and the answer to who called."""
    calls, queue = subjects.CALLS.stream, "team-a_resize"
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(guarded_server())
        enter = stack.enter_async_context
        autoscaler = await enter(logged_in(server, identity("autoscaler")))
        alice = await enter(logged_in(server, identity("tenant/team-a")))
        worker = await enter(logged_in(server, identity("worker/team-a.resize")))
        await alice.store("gpubus.v1.calls.team-a.resize", b"one")
        await alice.store("gpubus.v1.calls.team-a.other", b"not mine")
        taking = await enter(worker.take(calls, queue))
        waiting = asyncio.create_task(taking.next())
        await autoscaler.ensure_queue(calls, queue, subject="gpubus.v1.calls.team-a.resize", ack_wait_s=5.0)
        delivery = await asyncio.wait_for(waiting, 10)
        assert (delivery.message.data, delivery.attempt) == (b"one", 1)

        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await enter(alice.subscribe("gpubus.v1.replies.team-a.*.me", lambda m: heard.put(m.data)))
        await worker.publish("gpubus.v1.replies.team-a.resize.me", b"answer")
        assert await asyncio.wait_for(heard.get(), 5) == b"answer"
        worker.settle(delivery, "done")

        async def settled() -> bool:
            state = await autoscaler.queue_state(calls, queue)
            return state is not None and (state.waiting, state.outstanding) == (0, 0)

        await wait_until(settled, what="the receipt has come back", timeout_s=10.0)
        with pytest.raises(NotPermitted):
            await worker.ensure_queue(calls, "mine", subject="gpubus.v1.calls.team-b.x", ack_wait_s=5.0)
        with pytest.raises(NotPermitted):
            await worker.store("gpubus.v1.deadcalls.team-b.resize", b"forged")


def trick(target: str, asked: str) -> bytes:
    """A publish whose acknowledgement or answer goes where its author may not publish."""
    return b"PUB %b %b 1\r\nx\r\n" % (asked.encode(), target.encode())


async def test_a_trainer_asks_hears_and_says_what_is_of_its_own_job() -> None:
    """Its question crosses to the core and the answer back; of another job it hears nothing, and may not ask."""
    status = JobStatus(
        namespace="team-a", name="bert", phase="running", generation=3,
        trainers=(TrainerSpan(first=0, last=1, state="known"),),
    )  # fmt: skip
    said: asyncio.Queue[Received] = asyncio.Queue()

    async def answer(_: Received) -> bytes:
        return encode(status)

    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        server = await enter(guarded_server())
        core = await enter(logged_in(server, identity("autoscaler")))
        await enter(core.respond(subjects.JOB_NOW.wildcard, answer))
        await enter(core.subscribe(subjects.CHECKPOINTED.wildcard, said.put))
        bus = await enter(logged_in(server, identity("trainer/team-a.bert")))
        me = await enter(trainer("bert", 1, namespace="team-a", bus=bus))
        assert me.world is not None
        assert (me.world.size, me.world.rank) == (2, 1)
        gone = msgspec.structs.replace(status, generation=4, trainers=(TrainerSpan(first=1, last=1, state="leaving"),))
        for job in ("other", "bert"):
            subject = subjects.JOB_STATUS.subject(namespace="team-a", name=job)
            await core.store(subject, encode(msgspec.structs.replace(gone, name=job)))
        assert (await asyncio.wait_for(me.told(), 30)).generation == 4
        me.checkpointed(7)
        assert (await asyncio.wait_for(said.get(), 30)).subject == "gpubus.v1.checkpointed.team-a"
        with pytest.raises(NotPermitted):
            await bus.request(subjects.JOB_NOW.subject(namespace="team-a", name="other"), b"", timeout_s=2.0)


async def test_an_answer_addressed_to_the_ledger_does_not_get_there() -> None:
    """The server acknowledges a publish wherever it is told to, with its own rights: accounts keep that outside."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(guarded_server())
        decides = await stack.enter_async_context(logged_in(server, identity("scheduler")))
        for who in ("tenant/team-a", "monitor/gpu-1", "operator"):
            bus = await stack.enter_async_context(logged_in(server, identity(who)))
            role = role_of(identity(who))
            for channel in role.sends:
                for asked, own in literals(channel, identity(who)).items():
                    if own:
                        bus._client.send(trick("gpubus.v1.ledger.default", asked))
            assert await bus._client.echo(2.0)
        for stream in (subjects.REQUESTS, subjects.INVENTORY, subjects.WORKLOADS):
            assert await decides.last_sequence(stream.stream) > 0
        assert (await decides.store("gpubus.v1.ledger.default", b"first")).sequence == 1


async def test_permissions_on_subjects_alone_do_not_keep_it_outside() -> None:
    """Why there are accounts: in one account the same publish does write into the ledger's stream."""
    permissions = '{ publish: ["gpubus.v1.requests.team-a", "gpubus.v1.echo"], subscribe: ["_INBOX.>"] }'
    users = "{ user: ours, password: pw }, { user: alice, password: pw, permissions: " + permissions + " }"
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer(extra=f"authorization {{ users: [ {users} ] }}"))
        ours = await stack.enter_async_context(connect(server.url, name="ours", user="ours", password="pw"))
        await ours.ensure_streams()
        alice = await stack.enter_async_context(connect(server.url, name="alice", user="alice", password="pw"))
        alice._client.send(trick("gpubus.v1.ledger.default", "gpubus.v1.requests.team-a"))

        async def written() -> bool:
            return await ours.last_sequence(subjects.LEDGER.stream) == 1

        await wait_until(written, what="the acknowledgement is in the ledger's stream", timeout_s=10.0)


async def test_a_responder_does_not_answer_to_a_subject_that_means_something(nats_server: NatsServer) -> None:
    """Whoever asks cannot borrow the rights of the one who answers."""
    async with connect(nats_server.url, name="ours") as ours, connect(nats_server.url, name="asks") as asks:
        await ours.ensure_streams()

        async def answer(_: object) -> bytes:
            return b"an answer"

        async with ours.respond(subjects.STATE.pattern, answer):
            asks._client.send(trick("gpubus.v1.ledger.default", subjects.STATE.pattern))
            assert (await asks.request(subjects.STATE.pattern, b"")).data == b"an answer"
        assert ours.counts["reply-refused"] == 1
        assert await ours.last_sequence(subjects.LEDGER.stream) == 0


# --- tokens -----------------------------------------------------------------------------------------------------------

ISSUER, SERVICE = keys.account_key(), keys.user_key()
TOKENS = {"token-of-gpu-1": identity("monitor/gpu-1"), "token-of-team-a": identity("tenant/team-a")}


async def judge(token: str) -> Identity:
    if token == "slow":
        await asyncio.sleep(60)
    if token not in TOKENS:
        raise NotAdmitted("nobody's token")
    return TOKENS[token]


@contextlib.asynccontextmanager
async def callout_server(*, life_s: int = 3600) -> AsyncIterator[tuple[NatsServer, Gatekeeper]]:
    callout = serverconfig.Callout(issuer=ISSUER.public, user=SERVICE.public)
    config = serverconfig.blocks({who: key.public for who, key in KEYS.items()}, callout=callout)
    keeper = Gatekeeper(judge, ISSUER, lambda: int(time.time()), life_s=life_s)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer(extra=config))
        bus = await stack.enter_async_context(connect(server.url, name="gatekeeper", nkey_seed=SERVICE.seed))
        await stack.enter_async_context(keeper.answering(bus))
        async with logged_in(server, identity("scheduler")) as scheduler:
            await scheduler.ensure_streams()
        yield server, keeper


async def test_a_token_lets_its_owner_in_with_the_rights_of_the_table() -> None:
    """A node's token publishes as that node and as no other; a made-up one stays outside."""
    async with callout_server() as (server, keeper):
        async with connect(server.url, name="m", token="token-of-gpu-1", identity="monitor/gpu-1") as bus:
            await bus.store("gpubus.v1.nodes.gpu-1.inventory", b"cards")
            with pytest.raises(NotPermitted):
                await bus.store("gpubus.v1.nodes.gpu-2.inventory", b"forged")
        for token in ("made-up", "slow"):
            with pytest.raises(BusUnavailable, match=r"(?i)authorization"):
                async with connect(server.url, name="x", token=token, identity="tenant/team-a", connect_timeout_s=3):
                    pass
        assert keeper.counts["admitted"] == 1
        assert keeper.counts["refused"] >= 1
        assert keeper.counts["failed"] >= 1


async def test_a_login_is_renewed_before_the_server_ends_it() -> None:
    """What was granted for 2 s goes on for 4 with a fresh token, and the old one is not asked for again."""
    async with callout_server(life_s=2) as (server, keeper):
        given = itertools.cycle(["token-of-team-a"])
        async with connect(server.url, name="t", token=lambda: next(given), identity="tenant/team-a") as bus:
            for _ in range(3):
                await asyncio.sleep(1.3)
                await bus.log_in_again()

                async def back() -> bool:
                    return bus.connected

                await wait_until(back, what="the connection is back", timeout_s=5.0)
                await bus.store("gpubus.v1.requests.team-a", b"still here", timeout_s=5.0)
            assert not bus.closed.is_set()
        assert keeper.counts["admitted"] == 4
