"""What a reconciler says of nodes and pods: facts, shares, and the allocations that a lost ledger is rebuilt from."""

from __future__ import annotations

from bus.codec import ask
from bus.protocol import Bus
from contracts.decisions import Accepted, Adopted, Placement, Resized
from contracts.outcomes import AllocationsPage, AskAllocations
from contracts.subjects import ALLOCATIONS
from reconciler import marks
from reconciler.plan import pod_of
from tests.contract.reconciler.rig import Author, running
from tests.contract.reconciler.worlds import OVER, World, everywhere
from tests.servers.process import wait_until

# --- the straight line -----------------------------------------------------------------------------------------------


@everywhere
async def test_the_facts_of_a_node_count_what_is_not_ours(world: World) -> None:
    """Our pods are in the ledger; a stranger's are not, and appear within moments."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")

        async def told(foreign: int) -> bool:
            facts = await world.author.facts(world.node)
            return facts is not None and facts.ready and facts.foreign_pods == foreign

        async def known() -> bool:
            return await world.author.facts(world.node) is not None

        await wait_until(known, what="facts of the node")
        before = await world.author.facts(world.node)
        assert before is not None
        await world.rig.create_pod("stranger", nodeName=world.node)
        await wait_until(lambda: told(before.foreign_pods + 1), what="facts with one stranger more")
        with_stranger = await world.author.facts(world.node)
        assert with_stranger is not None
        assert with_stranger.foreign_cpu_milli == before.foreign_cpu_milli + 10
        await world.rig.delete_pod("stranger", gracePeriodSeconds=0)
        await wait_until(lambda: told(before.foreign_pods), what="facts without the stranger again")


@everywhere
async def test_the_shares_of_a_node_follow_the_ledger(world: World) -> None:
    """A full snapshot after each change; empty when nothing is left."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node, cards=(1,), share=250, memory=4000)

        async def says(expected: list[tuple[str, int, int]]) -> bool:
            shares = await world.author.shares(world.node)
            found = [(a.card, a.share_milli, a.memory_mib) for a in shares.assignments] if shares else None
            return found == expected

        await wait_until(lambda: says([(f"GPU-{world.node}-1", 250, 4000)]), what="the share of the pod")
        await world.author.write(Resized(uid=request.uid, share_milli=300, memory_mib=5000))
        await wait_until(lambda: says([(f"GPU-{world.node}-1", 300, 5000)]), what="the resized share")
        await world.author.outcome(request, "running")
        await world.author.withdraw(request)
        await world.author.outcome(request, *OVER)
        await world.author.release(request, "gone")
        await wait_until(lambda: says([]), what="no share")


@everywhere
async def test_allocations_come_from_the_pods_alone(world: World) -> None:
    """What a rebuild asks: every running pod with its slices and its request, and what cannot be read by name."""
    async with running(world.bus, world.transport):
        request = await world.author.place("train", on=world.node, cards=(0, 1), share=200, memory=3000)
        await world.author.outcome(request, "running")
        await world.rig.create_pod("odd", labels={marks.MANAGED: "true"}, nodeName=world.node)

        async def page() -> AllocationsPage:
            return await ask(world.other, ALLOCATIONS, AskAllocations(), AllocationsPage)

        async def complete() -> bool:
            found = await page()
            mine = [item for item in found.items if item.namespace == world.rig.namespace]
            return bool(mine and any(f"{world.rig.namespace}/odd" in text for text in found.unreadable))

        await wait_until(complete, what="both pods are told")
        [item] = [item for item in (await page()).items if item.namespace == world.rig.namespace]

    assert request.placement is not None
    assert (item.uid, item.node, item.slices) == (request.uid, world.node, request.placement.slices)
    assert (item.request, item.epoch, item.running) == (request.request, world.author.epoch, True)


@everywhere
async def test_a_ledger_that_is_lost_comes_back_from_the_pods_alone(world: World, fresh: tuple[Bus, Bus]) -> None:
    """Another bus with empty streams: what ran is told, adopted under a new epoch, and goes on; no pod is touched."""
    async with running(world.bus, world.transport):
        kept = await world.author.place("kept", on=world.node, cards=(0, 1), share=200, memory=3000)
        await world.author.outcome(kept, "running")
    before = await world.pod(pod_of(kept))

    bus, other = fresh
    async with running(bus, world.transport) as reconciler:
        page = await ask(other, ALLOCATIONS, AskAllocations(), AllocationsPage)
        [found] = [item for item in page.items if item.namespace == world.rig.namespace]
        author = await Author.open(other, namespace=world.rig.namespace)
        await author.node(world.node)
        where = Placement(node=found.node, slices=found.slices, cpu_milli=10, memory_mib=16)
        await author.write(
            Accepted(uid=found.uid, namespace=found.namespace, request=found.request),
            Adopted(uid=found.uid, placement=where, pod=found.pod, running=found.running),
        )
        adopted = author.ledger.state.requests[found.uid]
        await author.outcome(adopted, "running")

        async def shared() -> bool:
            shares = await author.shares(world.node)
            return shares is not None and [a.share_milli for a in shares.assignments] == [200, 200]

        await wait_until(shared, what="the shares of what was found")
        assert (await world.pod(pod_of(kept)))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert reconciler.strangers() >= 0

        await author.withdraw(adopted)
        await author.outcome(adopted, *OVER)
        await world.rig.wait_gone(pod_of(kept))
