"""Hostile and malformed messages against a running scheduler: each has a clear answer, and the next request is served.

Rights for the streams are as wide as they can be: everybody may publish everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bus.client import connect
from bus.protocol import PayloadTooLarge
from contracts.subjects import DEAD_LETTERS, EVENTS, EXPLAIN, REQUESTS, STATE, SUBMIT, WHAT_IF
from tests.contract.hostile_door import (
    NAMESPACE,
    PLAIN,
    Attack,
    Door,
    buried,
    elsewhere,
    forged,
    framed,
    headed,
    nothing,
    over,
    payload,
    placed,
    refused,
    stopped,
    text,
)
from tests.contract.raw_nats import raw_client
from tests.contract.scheduler_rig import FakeCluster, request
from tests.servers.checker import judge
from tests.servers.history import gathered
from tests.servers.line import Line, log_lines
from tests.servers.natsd import NatsServer
from tests.servers.process import wait_until

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door() -> AsyncIterator[Door]:
    """One scheduler for all attacks."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer())
        bus = await stack.enter_async_context(connect(server.url, name="test"))
        await bus.ensure_streams()
        cluster = await stack.enter_async_context(FakeCluster(bus))
        await cluster.node("gpu-1", cards=8)
        line = await stack.enter_async_context(Line([server.url], reconciler=False))
        raw = await stack.enter_async_context(raw_client(server.port))
        found = Door(bus, raw, cluster, line.schedulers[0])
        ears = [
            asyncio.create_task(found.listen(stream), name=f"listen to {stream}")
            for stream in (EVENTS.stream, DEAD_LETTERS.stream)
        ]

        async def ready() -> bool:
            return "a new epoch" in line.schedulers[0].log_tail(20)

        await wait_until(ready, what="the scheduler is active", timeout_s=30.0)
        yield found
        for ear in ears:
            ear.cancel()
        await asyncio.gather(*ears, return_exceptions=True)


FACTS = "GPUBUS_FACTS"
OUTCOMES = "GPUBUS_OUTCOMES"
CARD = {"uuid": "GPU-x", "index": 0, "model": "A100", "memory_total_mib": 80_000}
INVENTORY = {"type": "node.inventory.v1", "boot_id": "b", "incarnation": "evil", "cards": [CARD]}
KUBE = {"type": "node.facts.v1", "uid": "u", "allocatable_cpu_milli": 1, "allocatable_memory_mib": 1}

FRAMES = [
    framed("a subject that is not UTF-8", b"", buried("subject"), subject=b"gpubus.v1.requests.\xff\xfe"),
    framed("a header block of eight bytes", b"NATS/1.0", buried("header")),
    framed("a status line that is not UTF-8: the server drops it", b"NATS/1.0 \xff\xfe\r\n\r\n", placed),
    framed("a header block of another protocol", b"HTTP/1.1 200 OK\r\n\r\n", buried("header")),
    *(
        framed(f"disguised as status {code}: the server drops it", b"NATS/1.0 %b\r\n\r\n" % code.encode(), placed)
        for code in ("404 No Messages", "408 Request Timeout", "409 Consumer Deleted", "100 Idle Heartbeat", "503")
    ),
    framed("disguised by a Status header", b"NATS/1.0\r\nStatus: 404\r\n\r\n", buried("status")),
    framed("header lines without a colon and with odd names", b"NATS/1.0\r\n\xff\r\n a b: c\r\n\r\n", placed),
]

HEADERS = [
    stopped("rollup of the whole stream", {"Nats-Rollup": "all"}),
    stopped("rollup of the subject", {"Nats-Rollup": "sub"}),
    stopped("a message that deletes itself", {"Nats-TTL": "1s"}),
    stopped("an expected sequence", {"Nats-Expected-Last-Sequence": "1"}),
    stopped("an expected sequence of the subject", {"Nats-Expected-Last-Subject-Sequence": "1"}),
    stopped("an expected stream", {"Nats-Expected-Stream": "GPUBUS_LEDGER"}),
    stopped("an expected last id", {"Nats-Expected-Last-Msg-Id": "x"}),
    stopped("a schedule", {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "gpubus.v1.requests.default"}),
    stopped("a counter", {"Nats-Incr": "+1"}),
    headed("our own mark for malformed frames", {"Gpubus-Malformed": "subject"}, placed),
    headed("a trace that is none", {"traceparent": "00-zzzz-1"}, placed),
    headed("a huge trace", {"traceparent": "1" * 8000, "tracestate": "a=" + "b" * 8000}, placed),
]

JSON = [
    payload("no bytes at all", b"", buried("not JSON")),
    payload("null", b"null", buried("object")),
    payload("a list", b"[]", buried("object")),
    payload("a number", b"1", buried("object")),
    payload("truncated", json.dumps(request("evil")).encode()[:-9], buried("not JSON")),
    payload("something behind the end", json.dumps(request("evil")).encode() + b"{}", buried("not JSON")),
    payload("a byte order mark", b"\xef\xbb\xbf" + json.dumps(request("evil")).encode(), buried("not JSON")),
    payload("UTF-16", json.dumps(request("evil")).encode("utf-16"), buried("not JSON")),
    payload(
        "bytes that are not UTF-8", text(PLAIN, pod='{{"image":"\xff"}}').replace(b"\xc3\xbf", b"\xff"), buried("")
    ),
    payload("half a surrogate pair", text(PLAIN, pod='{"image":"\\ud800"}'), buried("not JSON")),
    payload("a raw control character", text(PLAIN, pod='{"image":"b","args":["\x01"]}'), buried("not JSON")),
    payload("30,000 brackets deep", b"[" * 30_000 + b"]" * 30_000, buried("depth")),
    payload("deep inside a field", text(PLAIN, more=',"x":' + "[" * 20_000 + "]" * 20_000), buried("depth")),
    payload("NaN", text(PLAIN, share="NaN"), buried("not JSON")),
    payload("Infinity", text(PLAIN, share="-Infinity"), buried("not JSON")),
    payload("1e999", text(PLAIN, share="1e999"), buried("out of range")),
    payload("a number of 5,000 digits", text(PLAIN, share="9" * 5000), buried("out of range")),
    payload("2 to the 64th", text(PLAIN, share="18446744073709551616"), refused("gpu.share_milli", "1000")),
    payload("the same key twice: the last one counts", text(PLAIN, more=',"name":"twice"'), placed),
]

VALUES = [
    payload("share 0", {"gpu": {"share_milli": 0}}, refused("gpu.share_milli", ">= 1")),
    payload("share -1", {"gpu": {"share_milli": -1}}, refused("gpu.share_milli", ">= 1")),
    payload("share 1001", {"gpu": {"share_milli": 1001}}, refused("gpu.share_milli", "<= 1000")),
    payload("share 0.5", {"gpu": {"share_milli": 0.5}}, refused("gpu.share_milli", "int")),
    payload("share as text", {"gpu": {"share_milli": "500"}}, refused("gpu.share_milli", "int")),
    payload("share true", {"gpu": {"share_milli": True}}, refused("gpu.share_milli", "int")),
    payload("65 cards", {"gpu": {"cards": 65}}, refused("gpu.cards", "<= 64")),
    payload("memory of an exabyte", {"gpu": {"memory_mib": 10**12}}, refused("gpu.memory_mib", "<=")),
    payload("no card, but memory of one", {"gpu": {"cards": 0, "memory_mib": 5}}, refused("gpu.cards")),
    payload("gpu is a list", {"gpu": [1]}, refused("gpu", "object")),
    payload("pod is null", {"pod": None}, refused("pod", "object")),
    payload("priority of a billion", {"priority": 10**9}, refused("priority", "<= 1000000")),
    payload("a gang of none", {"gang": {"name": "g", "size": 0}}, refused("gang.size", ">= 1")),
    payload("a policy that is none", {"policy": "mine-first"}, refused("policy", "packing")),
    payload("no image", {"pod": {"image": ""}}, refused("pod.image")),
    payload("an image with a newline", {"pod": {"image": "busybox\nUSER root"}}, refused("pod.image")),
    payload("an argument of 2,000 characters", {"pod": {"args": ["x" * 2000]}}, refused("pod.args", "<= 1024")),
    payload("a NUL in an argument", {"pod": {"args": ["a\0b"]}}, refused("pod.args", "NUL")),
    payload("33 labels", {"pod": {"labels": {f"l{i}": "v" for i in range(33)}}}, refused("pod.labels", "<= 32")),
    payload("a misspelt limit", {"gpu": {"share_mili": 5}}, refused("gpu.share_mili", "share_milli")),
    payload("a thousand unknown fields", {f"k{i}": 1 for i in range(1000)}, refused("k", "gpu")),
    payload("an unknown field of 40,000 characters", {"k" * 40_000: 1}, refused("k", "gpu")),
]

POWERS = [
    payload("hostPath", {"pod": {"volumes": [{"hostPath": {"path": "/"}}]}}, refused("pod.volumes")),
    payload("privileged", {"pod": {"securityContext": {"privileged": True}}}, refused("pod.securityContext")),
    payload("hostNetwork", {"pod": {"hostNetwork": True}}, refused("pod.hostNetwork")),
    payload("a service account", {"pod": {"serviceAccountName": "admin"}}, refused("pod.serviceAccountName")),
    payload("a node by name", {"pod": {"nodeName": "gpu-1"}}, refused("pod.nodeName")),
    payload("a namespace in the payload", {"namespace": "kube-system"}, refused("namespace")),
    payload("our label", {"pod": {"labels": {"gpubus.dev/managed": "no"}}}, refused("pod.labels", "gpubus.dev")),
    payload("our annotation", {"pod": {"annotations": {"gpubus.dev/uid": "x"}}}, refused("pod.annotations")),
    payload("Kubernetes' annotation", {"pod": {"annotations": {"a.k8s.io/b": "x"}}}, refused("pod.annotations")),
    payload("tolerates every taint", {"tolerations": [{"operator": "Exists"}]}, refused("tolerations")),
    *(
        payload(f"sets {name}", {"pod": {"env": [{"name": name, "value": "all"}]}}, refused("pod.env", "begins with"))
        for name in ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "ld_preload", "GPUBUS_SHARES")
    ),
    payload("a variable with = in its name", {"pod": {"env": [{"name": "A=B"}]}}, refused("pod.env")),
]

NAMES = [
    *(
        payload(f"the name {name[:12]!r}", {"name": name}, buried("regex"))
        for name in ("a.b", "a*", ">", "A", "a_b", "-a", "a-", "../x", "a b", "é", "a\n")
    ),
    payload("a name of 51 characters", {"name": "a" * 51}, buried("length")),
    payload("no name", {"name": None}, buried("str")),
    payload("a name that is a list", {"name": ["a"]}, buried("str")),
    elsewhere("a namespace in capitals", "Team_A"),
    elsewhere("a namespace with a dollar", "te$m"),
    elsewhere("a namespace of 64 characters", "a" * 64),
    elsewhere("a namespace that ends with a dash", "team-"),
    framed("a namespace in Greek", b"", buried("namespace"), subject="gpubus.v1.requests.ομάδα".encode()),
]

TAGS = [
    payload("no type", {"type": None}, refused("type")),
    payload("the type of tomorrow", {"type": "pod.request.v2"}, refused("type", "pod.request.v2")),
    payload("the type of an outcome", {"type": "pod.outcome.v1"}, refused("type")),
    payload("a commit", {"type": "ledger.commit.v1"}, refused("type")),
    payload("a type that is a list", {"type": ["pod.request.v1"]}, refused("type", "str")),
    payload("a withdrawal of nobody", {"type": "pod.withdraw.v1", "name": "nobody"}, refused("pod")),
    Attack(
        "a bare withdrawal of nobody",
        lambda door: door.send({"type": "pod.withdraw.v1", "name": "nobody"}),
        refused("name", "living"),
    ),
    Attack(
        "a resize of nobody",
        lambda door: door.send({"type": "pod.resize.v1", "name": "nobody", "share_milli": 1, "memory_mib": 1}),
        refused("name", "placed"),
    ),
    Attack(
        "a withdrawal for a number of reasons",
        lambda door: door.send({"type": "pod.withdraw.v1", "name": "nobody", "reason": 5}),
        refused("reason", "str"),
    ),
]

FORGED = [
    forged("an inventory that is garbage", "gpubus.v1.nodes.evil.inventory", b"\xff", buried("", FACTS)),
    forged(
        "an inventory of another node",
        "gpubus.v1.nodes.evil.inventory",
        {**INVENTORY, "node": "gpu-1"},
        buried("gpu-1", FACTS),
    ),
    forged(
        "cards without number",
        "gpubus.v1.nodes.evil.inventory",
        {**INVENTORY, "node": "evil", "cards": [{**CARD, "memory_total_mib": -1}]},
        buried(">= 0", FACTS),
    ),
    forged("facts of another node", "gpubus.v1.nodes.evil.facts", {**KUBE, "node": "gpu-1"}, buried("gpu-1", FACTS)),
    forged("facts that are garbage", "gpubus.v1.nodes.evil.facts", b"{", buried("", FACTS)),
    forged("an outcome that is garbage", "gpubus.v1.outcomes.default.evil", b"[1]", buried("object", OUTCOMES)),
    forged(
        "an outcome of another request",
        "gpubus.v1.outcomes.default.evil",
        {"type": "pod.outcome.v1", "uid": "u", "namespace": "default", "name": "good-0", "phase": "gone", "pod": "p"},
        buried("good-0", OUTCOMES),
    ),
    forged(
        "an outcome of a request that nobody made",
        "gpubus.v1.outcomes.default.evil",
        {"type": "pod.outcome.v1", "uid": "u", "namespace": "default", "name": "evil", "phase": "gone", "pod": "p"},
        nothing,
    ),
]

ATTACKS = [*FRAMES, *HEADERS, *JSON, *VALUES, *POWERS, *NAMES, *TAGS, *FORGED]


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
async def test_it_is_answered_and_the_next_request_is_served(door: Door, attack: Attack) -> None:
    """Within five seconds: a refusal with field, value and bound, a dead letter with its reason, or no effect."""
    sequence = await attack.send(door)
    await attack.check(door, sequence)
    await door.serves()


async def test_there_are_enough_of_them() -> None:
    """At least forty kinds, each with a name of its own."""
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 40


# --- what needs more than one message --------------------------------------------------------------------------------


async def test_a_message_that_is_too_large_is_refused_by_the_server(door: Door) -> None:
    """64 KiB is the limit of the stream: the sender is told, nothing is stored."""
    with pytest.raises(PayloadTooLarge):
        await door.send(b"x" * 70_000)
    await door.serves()


async def test_a_burst_of_large_requests_is_more_than_one_commit(door: Door) -> None:
    """Sixty requests of nearly 60 KiB arrive at once: together they are larger than any message may be."""
    pod = {"env": [{"name": f"A{i}", "value": "v" * 7000} for i in range(8)]}
    large = [over(request(f"large-{i}", 1), {"pod": pod}) for i in range(60)]
    sequences = await asyncio.gather(*(door.send(one) for one in large))
    for sequence in sequences:
        await placed(door, sequence)
    await door.serves()


async def test_a_message_id_taken_by_somebody_else_says_so(door: Door) -> None:
    """An id on the requests subject is the sender's own risk: the acknowledgement says `duplicate`, never nothing."""
    squatter = await door.bus.store(REQUESTS.subject(namespace="evil"), b"squat", message_id="build-17")
    victim = json.dumps(request("victim", 1)).encode()
    taken = await door.bus.store(REQUESTS.subject(namespace=NAMESPACE), victim, message_id="build-17")

    await buried("not JSON")(door, squatter.sequence)
    assert taken.duplicate
    await placed(door, await door.send(request("victim", 1)))


async def test_a_heartbeat_for_another_node_keeps_nobody_alive(door: Door) -> None:
    """Heartbeats are core messages: garbage and lies are logged and change nothing."""
    beat = {"type": "node.heartbeat.v1", "boot_id": "b", "incarnation": "e", "sequence": 1, "uptime_ms": 1, "cards": 1}
    for data in (b"\xff\xfe", b"{}", json.dumps({**beat, "node": "ghost"}).encode()):
        await door.bus.publish("gpubus.v1.nodes.evil.heartbeat", data)
    await door.serves()

    nodes = json.loads((await door.bus.request(STATE.subject(), b'{"type":"ask.state.v1","what":"nodes"}')).data)
    assert [(node["node"], node["health"]) for node in nodes["nodes"]] == [("gpu-1", "fresh")]


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe", b"{", b"[" * 30_000, b"null", b'{"type":"pod.request.v9","name":"a"}']
)
async def test_whoever_asks_with_garbage_gets_an_answer(door: Door, data: bytes) -> None:
    """Submit, what-if, explain and the views."""
    submitted = json.loads((await door.bus.request(SUBMIT.subject(namespace=NAMESPACE), data)).data)
    assert not submitted.get("accepted")
    assert submitted["refusals"][0]["text"]
    for channel in (WHAT_IF, EXPLAIN):
        answer = json.loads((await door.bus.request(channel.subject(namespace=NAMESPACE), data)).data)
        assert not answer.get("known")
        assert "malformed" in answer["phase"]
    assert json.loads((await door.bus.request(STATE.subject(), data)).data)["type"] == "answer.state.v1"
    await door.serves()


async def test_a_submit_to_a_namespace_that_is_none_is_refused(door: Door) -> None:
    """What would have been a dead letter of the stream is an answer here."""
    data = json.dumps(request("evil")).encode()
    submitted = json.loads((await door.bus.request("gpubus.v1.ask.submit.Team_A", data)).data)

    assert not submitted.get("accepted")
    assert "namespace" in submitted["refusals"][0]["text"]
    await door.serves()


async def test_every_message_of_all_this_has_exactly_one_fate(door: Door) -> None:
    """The independent checker over everything the module has done; the last test of the door."""
    await door.serves()
    findings = judge(await gathered(door.bus))
    assert findings == []
    assert all(line.get("level") not in ("critical", "error") for line in log_lines(door.scheduler))
