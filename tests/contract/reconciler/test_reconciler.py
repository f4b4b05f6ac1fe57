"""The reconciler between a ledger and an API server: once on fakes in this process, once on real servers.

The test is the scheduler: it writes commits and reads outcomes. What a user sees of a pod is read from the API server
by a client of the test's own.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from bus.runtime.telemetry import start_in_memory
from contracts.decisions import Resized
from contracts.subjects import NODE_FACTS, OUTCOMES
from contracts.units import pod_name
from reconciler import marks, podspec
from reconciler.plan import pod_of
from tests.contract.reconciler.rig import QUICK, running
from tests.contract.reconciler.worlds import OVER, World, everywhere, fakes
from tests.servers.process import wait_until

# --- the straight line -----------------------------------------------------------------------------------------------


@everywhere
async def test_a_decision_becomes_a_running_pod_with_its_cards(world: World) -> None:
    """Created, bound and running; node, cards, decision and request stand in the pod's annotations."""
    async with running(world.bus, world.transport):
        request = await world.author.place("train", on=world.node, cards=(0, 1))
        outcome = await world.author.outcome(request, "running")

    pod = await world.pod(pod_of(request))
    annotations = pod["metadata"]["annotations"]
    assert (outcome.pod, outcome.pod_uid, outcome.node) == (pod_of(request), pod["metadata"]["uid"], world.node)
    assert pod["spec"]["nodeName"] == world.node
    assert annotations[marks.CARDS] == f"GPU-{world.node}-0,GPU-{world.node}-1"
    assert annotations[marks.SEQUENCE] == str(request.decided_at)
    assert annotations[marks.EPOCH] == world.author.epoch
    assert pod["metadata"]["labels"][marks.REQUEST] == "train"
    assert pod["spec"]["schedulerName"] == "gpubus"


@everywhere
async def test_a_pod_that_ends_is_said_to_have_ended_and_keeps_its_object(world: World) -> None:
    """Exit code and reason; the object stays for its logs, also after the release."""
    async with running(world.bus, world.transport) as reconciler:
        pod = {"command": ("sleep", "0")}
        request = await world.author.place(on=world.node, pod=pod)
        outcome = await world.author.outcome(request, "ended")
        await world.author.release(request)
        await world.settled(reconciler)

        assert outcome.exit_code == 0
        assert (await world.pod(pod_of(request)))["status"]["phase"] == "Succeeded"


@everywhere
async def test_a_withdrawn_request_ends_gracefully_and_then_it_is_gone(world: World) -> None:
    """Deleted with its grace, said to be gone when the object is gone, never before."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.author.withdraw(request)
        outcome = await world.author.outcome(request, *OVER)
        await world.rig.wait_gone(pod_of(request))

    assert outcome.reason.startswith("withdrawn")


@everywhere
async def test_a_pod_that_somebody_deletes_is_gone_and_not_made_again(world: World) -> None:
    """One decision, one pod: a deleted one does not rise."""
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.rig.delete_pod(pod_of(request), gracePeriodSeconds=1)
        outcome = await world.author.outcome(request, *OVER)
        await world.rig.wait_gone(pod_of(request))
        reconciler.everything()
        await world.settled(reconciler)

        assert "deleted" in outcome.reason
        assert await world.pods() == []


@everywhere
async def test_a_request_that_is_withdrawn_before_its_pod_is_made_is_gone(world: World) -> None:
    """Nothing was created, and that is what is said."""
    request = await world.author.place(on=world.node)
    await world.author.withdraw(request)
    async with running(world.bus, world.transport):
        await world.author.outcome(request, "gone")

    assert await world.pods() == []


# --- names that are taken, and pods that are not what they should be -------------------------------------------------


@everywhere
async def test_a_strangers_pod_of_our_name_is_a_conflict_and_is_left_alone(world: World) -> None:
    """Rejected with the reason; the stranger's pod is untouched."""
    request = world.author.placing("train", on=world.node)
    uid = request[0].uid
    name = pod_name("train", uid)
    stranger = await world.rig.create_pod(name)
    async with running(world.bus, world.transport) as reconciler:
        await world.author.write(*request)
        outcome = await world.author.outcome(world.author.ledger.state.requests[uid], "rejected")
        await world.settled(reconciler)

    assert outcome.reason.startswith("name-taken")
    assert (await world.pod(name))["metadata"]["resourceVersion"] == stranger["metadata"]["resourceVersion"]


@everywhere
async def test_a_pod_bound_by_somebody_else_is_taken_back_and_made_again(world: World) -> None:
    """It would run without its cards. The same decision then gets a pod that has them."""
    request = await world.author.place(on=world.node)
    name = pod_of(request)
    body = podspec.manifest(request, epoch=world.author.epoch)
    made = await world.transport.call("POST", world.rig.pods, body=body)
    assert made.status == 201, made.body
    assert (await world.rig.bind(name)).status == 201
    before = (await world.pod(name))["metadata"]["uid"]

    async with running(world.bus, world.transport):
        outcome = await world.author.outcome(request, "running", timeout_s=30.0)

    assert outcome.pod_uid != before
    assert marks.CARDS in (await world.pod(name))["metadata"]["annotations"]


@everywhere
async def test_annotations_that_somebody_takes_off_come_back(world: World) -> None:
    """The pod is known by its uid; it is not deleted, nothing is freed, and what was written is written again."""
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        name = pod_of(request)
        await world.author.outcome(request, "running")
        before = await world.pod(name)
        off = {key: None for key in before["metadata"]["annotations"] if key.startswith(marks.DOMAIN)}
        await world.rig.patch_pod(name, {"metadata": {"annotations": off, "labels": {marks.MANAGED: None}}})

        async def back() -> bool:
            found = (await world.pod(name))["metadata"].get("annotations") or {}
            return bool(found.get(marks.CARDS))

        await wait_until(back, what="the annotations are back")
        await world.settled(reconciler)

        after = await world.pod(name)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        for key in (marks.CARDS, marks.SHARES, marks.NONCE, marks.UID):
            assert after["metadata"]["annotations"][key] == before["metadata"]["annotations"][key]
        last = await world.author.last_outcome(request)
        assert last is not None
        assert last.phase == "running"


@everywhere
async def test_a_pod_that_runs_on_after_its_release_is_ended(world: World) -> None:
    """The ledger has sold its card again: a leak, and it is counted as one."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.author.release(request, "node-gone")
        await world.rig.wait_gone(pod_of(request))


@everywhere
async def test_pods_of_another_epoch_are_left_alone(world: World) -> None:
    """Nobody but a rebuild may touch what an earlier ledger placed."""
    request = await world.author.place("old", on=world.node)
    async with running(world.bus, world.transport):
        await world.author.outcome(request, "running")
    name = pod_of(request)
    forged = {"metadata": {"annotations": {marks.EPOCH: "another0", marks.UID: "another0-1-0"}}}
    await world.rig.patch_pod(name, forged)
    await world.author.release(request, "gone")

    async with running(world.bus, world.transport) as reconciler:
        await world.settled(reconciler)

        assert (await world.pod(name))["metadata"].get("deletionTimestamp") is None


@everywhere
async def test_a_resize_is_written_into_the_pod(world: World) -> None:
    """So that Kubernetes alone remembers what is sold; the cards stay."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.author.write(Resized(uid=request.uid, share_milli=500, memory_mib=2000))

        async def written() -> bool:
            annotations = (await world.pod(pod_of(request)))["metadata"]["annotations"]
            return bool(annotations[marks.SHARES] == f"GPU-{world.node}-0=500:2000")

        await wait_until(written, what="the new shares stand in the pod")


@everywhere
async def test_our_gate_is_lifted_and_others_are_waited_for(world: World) -> None:
    """An admission policy may hold pods of our scheduler until we have decided."""
    request = await world.author.place(on=world.node)
    name = pod_of(request)
    rules = podspec.PodRules(run_as_user=65_532)
    body = msgspec.json.decode(podspec.manifest(request, epoch=world.author.epoch, rules=rules))
    body["spec"]["schedulingGates"] = [{"name": "example.com/mine"}, {"name": marks.GATE}]
    assert (await world.rig.call("POST", world.rig.pods, body)).status == 201

    async with running(world.bus, world.transport) as reconciler:
        await world.settled(reconciler)
        left = (await world.pod(name))["spec"]["schedulingGates"]
        assert left == [{"name": "example.com/mine"}]

        gone = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        await world.rig.patch_pod(name, gone, kind="application/json-patch+json")
        await world.author.outcome(request, "running")


# --- what Kubernetes refuses -----------------------------------------------------------------------------------------


@everywhere
async def test_a_missing_namespace_is_a_rejection_with_its_reason(world: World) -> None:
    """The request ends with a clear answer instead of waiting for ever."""
    async with running(world.bus, world.transport):
        request = await world.author.place(on=world.node, namespace="nowhere-to-be-found")
        outcome = await world.author.outcome(request, "rejected")

    assert outcome.reason.startswith("namespaces-missing")
    assert "nowhere-to-be-found" in outcome.reason


@everywhere
async def test_what_the_api_server_calls_invalid_is_rejected_and_others_go_on(world: World) -> None:
    """A bad spec is the user's to mend; the next request is not held up."""
    async with running(world.bus, world.transport):
        bad = await world.author.place(on=world.node, pod={"working_dir": "x" * 10, "labels": {"a..b/c": "1"}})
        good = await world.author.place(on=world.node)
        outcome = await world.author.outcome(bad, "rejected")
        await world.author.outcome(good, "running")

    assert outcome.reason.startswith("invalid")


# --- starting anew, two at once, duplicates --------------------------------------------------------------------------


@everywhere
async def test_a_new_process_says_nothing_that_was_said(world: World) -> None:
    """It reads the ledger, the pods and its last words, and has nothing to do."""
    async with running(world.bus, world.transport) as reconciler:
        request = await world.author.place(on=world.node)
        await world.author.outcome(request, "running")
        await world.settled(reconciler)
    said = [await world.other.last_sequence(stream) for stream in (OUTCOMES.stream, NODE_FACTS.stream)]
    before = await world.pod(pod_of(request))
    async with running(world.bus, world.transport) as reconciler:
        await world.settled(reconciler)

    assert [await world.other.last_sequence(stream) for stream in (OUTCOMES.stream, NODE_FACTS.stream)] == said
    assert (await world.pod(pod_of(request)))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@everywhere
async def test_of_two_reconcilers_one_acts_and_the_other_takes_over(world: World) -> None:
    """Leadership saves the API server work; a placement after the first has stopped is the other's."""
    async with running(world.other, world.transport, incarnation="second", active=False) as second:
        async with running(world.bus, world.transport, incarnation="first", active=False) as first:

            async def one_acts() -> bool:
                return first.may_act() != second.may_act()

            await wait_until(one_acts, what="one of the two acts")
            request = await world.author.place(on=world.node)
            await world.author.outcome(request, "running")
        follow_up = await world.author.place(on=world.node)
        await world.author.outcome(follow_up, "running")

    assert len(await world.pods()) == 2


@everywhere
async def test_two_that_both_act_come_to_the_same_end(world: World) -> None:
    """Correctness does not need the lease: with it out of the way there is still one pod for each decision."""
    async with (
        running(world.other, world.transport, incarnation="second", active=False) as second,
        running(world.bus, world.transport, incarnation="first", active=False) as first,
    ):
        for one in (first, second):
            fresh, pods = one.freshness, one.pods
            one.worker._may_act = lambda fresh=fresh, pods=pods: fresh.fresh and pods.synced.is_set()
            one.may_act = one.worker._may_act  # type: ignore[method-assign]  # the lease is taken out on purpose
        records = [record for index in range(12) for record in world.author.placing(on=world.node, index=index)]
        await world.author.write(*records)
        requests = list(world.author.ledger.state.requests.values())
        for request in requests:
            await world.author.outcome(request, "running", timeout_s=60.0)

    pods = await world.pods()
    assert sorted(pod["metadata"]["name"] for pod in pods) == sorted(pod_of(r) for r in requests)


@everywhere
async def test_the_trace_of_the_submit_goes_on_to_the_running_pod(world: World) -> None:
    """Create, bind and running are children of the one that the request was accepted in."""
    telemetry, spans = start_in_memory("reconciler")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    try:
        async with running(world.bus, world.transport):
            request = await world.author.place(on=world.node, trace=trace)
            await world.author.outcome(request, "running")
    finally:
        telemetry.shutdown()
    found = {span.name: span for span in spans.get_finished_spans()}

    assert found.keys() >= {"create", "bind", "running"}
    for name in ("create", "bind", "running"):
        span = found[name]
        assert span.context is not None
        assert span.parent is not None
        assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
        assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert (await world.pod(pod_of(request)))["metadata"]["annotations"][marks.TRACEPARENT] == trace


@fakes
async def test_ended_pods_are_kept_as_long_as_was_said(world: World) -> None:
    """Then their objects go; those of other namespaces and strangers stay."""
    settings = replace(QUICK, pods=replace(QUICK.pods, keep_ended_s=0.2))
    async with running(world.bus, world.transport, settings):
        request = await world.author.place(on=world.node, pod={"command": ("sleep", "0")})
        await world.author.outcome(request, "ended")
        await asyncio.sleep(0.3)
        assert await world.pod(pod_of(request)), "until it is released the object stays"
        await world.author.release(request)
        await world.rig.wait_gone(pod_of(request))
