"""Waiting: told once and with numbers, tried again when something that could help has changed, in order, and only then.

A scheduler in this process over both buses; nodes and outcomes are played.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from bus.protocol import BusUnavailable
from contracts.inventory import CordonCard, Taint
from contracts.messages import encode
from contracts.subjects import CORDONS, SUBMIT
from contracts.units import CardUuid, NodeName
from tests.contract.bus_worlds import World
from tests.contract.scheduler_rig import NAMESPACE, FakeCluster, Place, deciding, request
from tests.servers.process import wait_until

QUIET_S = 0.7
"""Pending requests are looked at five times a second here: three rounds with nothing to tell."""


@pytest_asyncio.fixture
async def place(world: World) -> AsyncIterator[Place]:
    """One node with one card, and a scheduler that knows it."""
    theirs, ours = await world.client("scheduler"), await world.client("test")
    await ours.ensure_streams()
    async with FakeCluster(ours) as cluster, deciding(theirs, explain_every_s=0.2):
        await cluster.node("gpu-1", cards=1)
        here = Place(ours, cluster)
        await here.submits("holder", 700)
        await here.until("holder", "placed", timeout_s=20.0)
        yield here
        await here.proved()


async def test_three_halves_wait_for_a_card_with_less_than_one_and_are_told_so_once(place: Place) -> None:
    """A card with 300 free: bounded effort, no storm of events or commits; they are placed when space appears."""
    names = ["half-0", "half-1", "half-2"]
    for name in names:
        await place.submits(name, 500)
    told = [await place.until(name, "pending") for name in names]
    commits = await place.commits()
    await asyncio.sleep(QUIET_S)

    assert await place.commits() == commits
    assert [await place.phases(name) for name in names] == [["accepted", "pending"]] * 3
    assert {(event["reasons"][0]["needed"], event["reasons"][0]["free"]) for event in told} == {(500, 300)}
    await place.ends("holder")
    for name in names[:2]:
        await place.until(name, "placed")
    assert "placed" not in await place.phases("half-2")
    await place.ends("half-0")
    await place.until("half-2", "placed")


async def test_a_small_one_passes_by_a_large_one_that_does_not_fit(place: Place) -> None:
    """The head of the queue holds up its own kind only."""
    await place.submits("large", 1000)
    await place.until("large", "pending")
    await place.submits("small", 300)

    assert (await place.until("small", "placed"))["node"] == "gpu-1"
    assert "placed" not in await place.phases("large")


async def test_higher_priority_goes_first_and_the_older_among_equals(place: Place) -> None:
    """Four wait for one card, one after the other."""
    await place.ends("holder")
    await place.submits("first", 1000)
    for name, priority in (("old", 0), ("young", 0), ("urgent", 10), ("late", -5)):
        await place.submits(name, 1000, priority=priority)
        await place.until(name, "pending")
    order = ["first", "urgent", "old", "young", "late"]
    for name, following in zip(order, [*order[1:], ""], strict=True):
        await place.ends(name)
        if following:
            await place.until(following, "placed")

    at = [(await place.until(name, "placed"))["ledger_sequence"] for name in order]
    assert at == sorted(at)


# --- what could help -------------------------------------------------------------------------------------------------

Change = Callable[[Place], Awaitable[object]]


class Help(NamedTuple):
    """A request that waits, and the change after which it is placed."""

    name: str
    asks: dict[str, Any]
    before: Change
    change: Change


async def no_change(place: Place) -> None:
    """The cluster is as it is."""


async def cordon(place: Place, *, cordoned: bool) -> None:
    order = CordonCard(node=NodeName("gpu-1"), card=CardUuid("GPU-gpu-1-0"), cordoned=cordoned)
    await place.bus.store(CORDONS.subject(node="gpu-1", card="GPU-gpu-1-0"), encode(order))


async def withdrawn_and_gone(place: Place) -> None:
    """A withdrawal alone frees nothing: the pod has to be seen to be gone."""
    await place.withdraws("holder")
    await place.until("holder", "withdrawn")
    await asyncio.sleep(0.3)
    assert "placed" not in await place.phases("waits")
    uid = (await place.until("holder", "placed"))["uid"]
    await place.cluster.outcome(uid, NAMESPACE, "holder", "gone")


TAINTED = {"taints": (Taint(key="repair", effect="NoSchedule"),)}

HELP = [
    Help("a pod ends", {"share_milli": 500}, no_change, lambda p: p.ends("holder")),
    Help("a withdrawn pod is gone", {"share_milli": 500}, no_change, withdrawn_and_gone),
    Help("a node comes", {"share_milli": 500}, no_change, lambda p: p.cluster.node("gpu-2")),
    Help("a node gets a second card", {"share_milli": 500}, no_change, lambda p: p.cluster.node("gpu-1", cards=2)),
    Help(
        "a card is given back",
        {"share_milli": 100},
        lambda p: cordon(p, cordoned=True),
        lambda p: cordon(p, cordoned=False),
    ),
    Help(
        "Kubernetes calls the node ready again",
        {"share_milli": 100},
        lambda p: p.cluster.facts("gpu-1", ready=False),
        lambda p: p.cluster.facts("gpu-1"),
    ),
    Help(
        "a taint is lifted",
        {"share_milli": 100},
        lambda p: p.cluster.facts("gpu-1", **TAINTED),
        lambda p: p.cluster.facts("gpu-1"),
    ),
    Help(
        "a foreign pod leaves the CPU free",
        {"share_milli": 100},
        lambda p: p.cluster.facts("gpu-1", foreign_cpu_milli=64_000),
        lambda p: p.cluster.facts("gpu-1", foreign_cpu_milli=1_000),
    ),
]


@pytest.mark.parametrize("case", HELP, ids=[case.name for case in HELP])
async def test_it_is_tried_again_when_something_that_could_help_has_changed(place: Place, case: Help) -> None:
    """At once, without a timer that tries all the time."""
    before = await place.commits()
    await case.before(place)
    if case.before is not no_change:
        await wait_until(lambda: _more(place, before), what="the change is in the ledger")
    await place.submits("waits", **case.asks)
    await place.until("waits", "pending")
    began = time.monotonic()
    await case.change(place)
    await place.until("waits", "placed", timeout_s=5.0)

    assert time.monotonic() - began < 5.0  # the ledger's clock ticks every ten


async def _more(place: Place, commits: int) -> bool:
    return await place.commits() > commits


# --- life signs ------------------------------------------------------------------------------------------------------


async def test_a_silent_node_takes_nothing_and_frees_nothing_and_is_back_with_one_heartbeat(place: Place) -> None:
    """Five seconds of silence; what runs there stays counted; the first heartbeat places what waits."""
    silent = time.monotonic()
    place.cluster.silence("gpu-1")
    await asyncio.sleep(1.5)
    await place.submits("early", 10)
    await place.until("early", "placed", timeout_s=3.0)
    assert time.monotonic() - silent < 5.0
    await asyncio.sleep(silent + 5.8 - time.monotonic())
    await place.submits("waits", 10)
    told = await place.until("waits", "pending")

    assert told["reasons"][0]["code"] == "stale"
    assert await place.summary() == {"accepted": 3, "placed": 2, "pending": 1}
    await asyncio.sleep(QUIET_S)
    assert await place.summary() == {"accepted": 3, "placed": 2, "pending": 1}
    await place.cluster.speak("gpu-1")
    await place.until("waits", "placed", timeout_s=10.0)


# --- names -----------------------------------------------------------------------------------------------------------


async def test_a_waiting_request_that_is_withdrawn_leaves_and_its_name_is_free(place: Place) -> None:
    """The same name with another content is a new request, with a uid of its own."""
    await place.submits("waits", 500)
    first = await place.until("waits", "pending")
    await place.withdraws("waits")
    await place.until("waits", "withdrawn")
    assert await place.summary() == {"accepted": 2, "placed": 1, "withdrawn": 1}
    await place.submits("waits", 300)

    assert (await place.until("waits", "placed"))["uid"] != first["uid"]
    await place.ends("holder")
    assert (await place.phases("waits")).count("placed") == 1


async def test_a_request_that_is_submitted_again_is_the_same_request(place: Place) -> None:
    """Through the stream or by asking, with its keys in another order or its defaults spelt out."""
    asked = request("again", 200)
    await place.submit(asked)
    uid = (await place.until("again", "placed"))["uid"]
    spelt = {**asked, "priority": 0, "gpu": {"cards": 1, **asked["gpu"]}, "pod": {"labels": {}, **asked["pod"]}}
    for same in (asked, dict(reversed(asked.items())), spelt, {**asked, "cause": "a retry"}):
        await place.submit(same)
        answer = await place.bus.request(SUBMIT.subject(namespace=NAMESPACE), json.dumps(same).encode())
        told = json.loads(answer.data)
        assert (told["uid"], told["duplicate"], told["accepted"]) == (uid, True, True)

    assert await place.phases("again") == ["placed"]
    assert (await place.summary())["accepted"] == 2


@pytest.mark.parametrize("share_milli", [200, 500], ids=["placed", "waiting"])
async def test_another_content_under_a_living_name_is_refused(place: Place, share_milli: int) -> None:
    """With the uid that has the name; in another namespace the name is another name."""
    await place.submits("taken", share_milli)
    living = await place.until("taken", "placed" if share_milli == 200 else "pending")
    sequence = await place.submit(request("taken", 100))
    refused = await place.until("taken", "refused")
    await place.submit(request("taken", 100), namespace="other")

    assert refused["request_sequence"] == sequence
    assert [r["field"] for r in refused["refusals"]] == ["name"]
    assert living["uid"] in refused["refusals"][0]["text"]
    await wait_until(lambda: _accepted(place, 3), what="the same name in another namespace is accepted")


async def _accepted(place: Place, count: int) -> bool:
    return await _counted(place, "accepted", count)


async def _counted(place: Place, what: str, count: int) -> bool:
    """Whether there are so many; not while the scheduler, in one event loop with all of this, is too busy to say."""
    with contextlib.suppress(BusUnavailable):
        return (await place.summary()).get(what) == count
    return False


# --- many ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_thousand_that_wait_are_placed_when_a_large_node_comes(place: Place) -> None:
    """Their decisions are larger than one message may be: they come in several commits, none of them lost."""
    count = 1000
    sixteen = {"cards": 16, "share_milli": 1, "memory_mib": 1}
    for start in range(0, count, 250):
        batch = [request(f"wide-{i}", 1, gpu=sixteen) for i in range(start, start + 250)]
        await asyncio.gather(*(place.submit(one) for one in batch))
    await wait_until(lambda: _accepted(place, count + 1), what="all are accepted", timeout_s=30.0)
    before = await place.commits()
    await place.cluster.node("gpu-16", cards=16)
    await wait_until(lambda: _counted(place, "placed", count + 1), what="all are placed", timeout_s=30.0)
    assert await place.commits() - before >= 3
