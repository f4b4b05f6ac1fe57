"""Cards of shared nodes, with the whole reconciler on the embedded API: who may be bound, who must leave, what is told.

The test plays the kubelet's device manager: it writes into pod statuses what a real one writes there. That a real one
does so is shown by tests/cluster/bed/test_coexist.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from contracts.decisions import FactsSet
from contracts.inventory import NodeFacts
from contracts.requests import ExternalPod
from reconciler.foreign import name_for
from reconciler.placeholders.values import LABEL
from reconciler.plan import pod_of
from reconciler.settings import PlaceholderSettings
from tests.contract.kube.rig import MERGE, STRATEGIC
from tests.contract.reconciler.rig import QUICK, running
from tests.contract.reconciler.worlds import World, fakes
from tests.servers.process import wait_until

RESOURCE = "nvidia.com/gpu"


def settings(world: World, **fields: Any) -> Any:
    """Placeholders live in the namespace of the test."""
    kept = PlaceholderSettings(namespace=world.rig.namespace, image="pause", acquire_after_s=0.0, **fields)
    return replace(QUICK, placeholders=kept)


async def shared(world: World, *acquired: int) -> list[str]:
    """The node shares its cards, and the ledger believes these to be ours; all cards."""
    label = {"metadata": {"labels": {"gpubus.dev/mode": "coexist"}}}
    await world.rig.call("PATCH", f"/api/v1/nodes/{world.node}", label, content_type=MERGE)
    known = world.author.ledger.state.nodes[world.node]
    assert known.facts is not None
    cards = list(known.cards)
    facts = replace(known.facts, mode="coexist", acquired=tuple(cards[index] for index in acquired))
    await world.author.write(FactsSet(facts=facts))
    return cards


async def placeholders(world: World) -> list[dict[str, Any]]:
    return [pod for pod in await world.pods() if LABEL in pod["metadata"].get("labels", {})]


async def one(world: World) -> dict[str, Any]:
    """The one placeholder, once it runs."""
    found: list[dict[str, Any]] = []

    async def runs() -> bool:
        found[:] = await placeholders(world)
        return len(found) == 1 and found[0]["status"].get("phase") == "Running"

    await wait_until(runs, what="one placeholder that runs", timeout_s=20)
    return found[0]


async def give(world: World, pod: dict[str, Any], card: str) -> None:
    """The device manager gives a card to a pod, which runs."""

    async def runs() -> bool:
        return bool((await world.pod(pod["metadata"]["name"]))["status"].get("phase") == "Running")

    await wait_until(runs, what="the pod runs", timeout_s=20)
    [container] = pod["spec"]["containers"]
    given = [{"name": RESOURCE, "resources": [{"resourceID": card, "health": "Healthy"}]}]
    patch = {"status": {"containerStatuses": [{"name": container["name"], "allocatedResourcesStatus": given}]}}
    path = f"{world.rig.pods}/{pod['metadata']['name']}/status"
    answer = await world.rig.call("PATCH", path, patch, content_type=STRATEGIC)
    assert answer.status == 200, answer.body


async def facts(world: World, *cards: str) -> NodeFacts:
    """What is said of the node, once it names these cards."""

    async def said() -> bool:
        found = await world.author.facts(world.node)
        return found is not None and found.mode == "coexist" and found.acquired == cards

    await wait_until(said, what=f"facts with the cards {cards}", timeout_s=20)
    found = await world.author.facts(world.node)
    assert found is not None
    return found


async def events(world: World, reason: str) -> list[str]:
    """What `kubectl describe node` shows."""
    found: list[str] = []

    async def told() -> bool:
        answer = await world.rig.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
        mine = [each for each in answer.body["items"] if each["regarding"]["name"] == world.node]
        found[:] = [each["note"] for each in mine if each["reason"] == reason]
        return bool(found)

    await wait_until(told, what=f"an Event {reason}", timeout_s=20)
    return found


@fakes
async def test_a_placed_pod_is_bound_once_a_placeholder_holds_its_card(world: World) -> None:
    """S050, S053: sold on what the ledger had heard; until the card is really ours the pod waits, counted."""
    cards = await shared(world, 0)
    async with running(world.bus, world.transport, settings(world)) as reconciler:
        request = await world.author.place(on=world.node)
        holder = await one(world)
        await world.settled(reconciler)
        assert "nodeName" not in (await world.pod(pod_of(request)))["spec"]
        assert (await facts(world)).acquired == ()
        await give(world, holder, cards[0])
        await facts(world, cards[0])
        await world.author.outcome(request, "bound", "running")


@fakes
async def test_two_reconcilers_make_one_placeholder_for_one_card(world: World) -> None:
    """S049: they see the same, make the same name, and the second one's create is as good as done."""
    cards = await shared(world, 0)
    async with (
        running(world.bus, world.transport, settings(world), active=False) as one_of_them,
        running(world.bus, world.transport, settings(world), active=False) as other,
    ):
        for each in (one_of_them, other):
            each.placeholders._may_act = lambda: True  # both believe that they are the active one
        request = await world.author.place(on=world.node)
        holder = await one(world)
        await give(world, holder, cards[0])
        await world.author.outcome(request, "bound", "running")
        await asyncio.sleep(0.5)
        assert len(await placeholders(world)) == 1


@fakes
async def test_who_waits_for_a_card_that_went_to_somebody_else_is_told_with_whom(world: World) -> None:
    """S053: it cannot be had: rejected with the pod that has it, an Event at the node, the slice is free again."""
    cards = await shared(world, 0)
    async with running(world.bus, world.transport, settings(world)) as reconciler:
        limits = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}
        spec = {"nodeName": world.node, "containers": [{"name": "main", "image": "x", "resources": limits}]}
        theirs = {"metadata": {"name": "theirs", "namespace": world.rig.namespace}, "spec": spec}
        made = await world.rig.call("POST", world.rig.pods, theirs)
        await give(world, made.body, cards[0])

        async def seen() -> bool:
            pod = reconciler.pods.store.get(f"{world.rig.namespace}/theirs")
            statuses = (pod.status.container_statuses or ()) if pod is not None else ()
            return any(each.allocated_resources_status for each in statuses)

        await wait_until(seen, what="the card of the other seen", timeout_s=20)
        request = await world.author.place(on=world.node)
        outcome = await world.author.outcome(request, "rejected")
        assert f"gave card {cards[0]} to {world.rig.namespace}/theirs" in outcome.reason
        assert any(cards[0] in note for note in await events(world, "CardLost"))


@fakes
async def test_a_running_tenant_whose_card_goes_to_somebody_else_has_to_go(world: World) -> None:
    """Fenced by UUID: two programs on one card, and ours is the guest."""
    cards = await shared(world, 0)
    async with running(world.bus, world.transport, settings(world)):
        request = await world.author.place(on=world.node)
        holder = await one(world)
        await give(world, holder, cards[0])
        await world.author.outcome(request, "running")
        await give(world, holder, cards[1])  # as after a boot: its placeholder holds another card by now
        limits = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}
        spec = {"nodeName": world.node, "containers": [{"name": "main", "image": "x", "resources": limits}]}
        theirs = {"metadata": {"name": "theirs", "namespace": world.rig.namespace}, "spec": spec}
        await give(world, (await world.rig.call("POST", world.rig.pods, theirs)).body, cards[0])
        outcome = await world.author.outcome(request, "ended", "gone")
        assert f"gave card {cards[0]}" in outcome.reason


@fakes
async def test_a_placeholder_that_is_refused_is_told_once_and_cleared_away(world: World) -> None:
    """S052: the kubelet's words in the facts, where explanations of waiting requests find them, and in one Event."""
    await shared(world, 0)
    why = "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
    async with running(world.bus, world.transport, settings(world)):
        await world.author.place(on=world.node)
        holder = await one(world)
        failed = {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": why}}
        path = f"{world.rig.pods}/{holder['metadata']['name']}/status"
        await world.rig.call("PATCH", path, failed, content_type=MERGE)
        [note] = await events(world, "CardNotAcquired")
        assert note == f"no card could be acquired: UnexpectedAdmissionError: {why}"

        async def said() -> bool:
            found = await world.author.facts(world.node)
            return found is not None and why in found.acquiring

        await wait_until(said, what="facts that say what stands against it", timeout_s=20)
        second = await one(world)
        assert second["metadata"]["uid"] != holder["metadata"]["uid"]


@fakes
async def test_a_pod_that_asks_the_plugin_as_well_is_not_bound_to_a_shared_node(world: World) -> None:
    """It would take a second card, or fail at the kubelet because the placeholder has the only one."""
    await shared(world, 0)
    async with running(world.bus, world.transport, settings(world)):
        limits = {"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}}
        spec = {"schedulerName": "gpubus", "containers": [{"name": "main", "image": "x", "resources": limits}]}
        made = (await world.rig.call("POST", world.rig.pods, {"metadata": {"name": "twice"}, "spec": spec})).body
        pod = ExternalPod(name="twice", uid=made["metadata"]["uid"])
        held = await world.author.place(name_for(pod.name, pod.uid), on=world.node, external=pod)
        outcome = await world.author.outcome(held, "rejected")
        assert "asks for nvidia.com/gpu as well" in outcome.reason


@fakes
async def test_cards_that_nobody_uses_go_back_and_the_node_is_left_alone(world: World) -> None:
    """Withdrawn, ended, idle for the time that was set: the card is offered no more, and then the placeholder goes."""
    cards = await shared(world, 0)
    async with running(world.bus, world.transport, settings(world, release_idle_after_s=0.2)):
        request = await world.author.place(on=world.node)
        holder = await one(world)
        await give(world, holder, cards[0])
        await world.author.outcome(request, "running")
        await world.author.withdraw(request)
        await world.author.outcome(request, "ended", "gone")
        await world.author.release(request)
        said = await facts(world)
        assert len(await placeholders(world)) == 1, "the ledger has not heard of it yet"
        await world.author.write(FactsSet(facts=said))

        async def none() -> bool:
            return await placeholders(world) == []

        await wait_until(none, what="no placeholder left", timeout_s=20)
