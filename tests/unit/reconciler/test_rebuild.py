"""Allocations from pods alone: whatever a pod says of itself comes back, and what cannot be read is named."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from contracts.outcomes import Allocation, AskAllocations
from reconciler import marks
from reconciler.objects import Pod
from reconciler.rebuild import allocation, page
from tests.builders.ledger import cluster, node, request
from tests.builders.pods import bound, created, foreign, one_placed, terminating, with_status

WORLD, HELD = one_placed()
EPOCH = WORLD.state.epoch
RUNNING = bound(HELD, epoch=EPOCH, phase="Running")


def with_annotations(pod: Pod, **changes: str | None) -> Pod:
    """The pod with annotations of ours changed or (None) taken away."""
    wanted = {**(pod.metadata.annotations or {}), **{f"{marks.DOMAIN}{k}": v for k, v in changes.items()}}
    kept = {key: value for key, value in wanted.items() if value is not None}
    return replace(pod, metadata=replace(pod.metadata, annotations=kept))


def test_a_running_pod_tells_its_whole_allocation() -> None:
    """Request, decision, node and slices are what the ledger had."""
    placement = HELD.placement
    assert placement is not None

    assert allocation(RUNNING) == Allocation(
        uid=HELD.uid,
        namespace="default",
        epoch=EPOCH,
        ledger_sequence=HELD.decided_at,
        request=HELD.request,
        node=placement.node,
        slices=placement.slices,
        pod=RUNNING.metadata.name,
        running=True,
    )


def test_a_pod_on_its_way_out_still_holds_its_slice() -> None:
    """Until the object is gone."""
    assert isinstance(allocation(terminating(RUNNING)), Allocation)


def test_ended_pods_and_strangers_are_no_allocations() -> None:
    """Nor are they errors; nor is a pod that was made and not bound yet: it holds nothing."""
    pods = [with_status(RUNNING, "Succeeded"), foreign(HELD, on="n1"), created(HELD, epoch=EPOCH)]

    assert page(pods, AskAllocations()).items == page(pods, AskAllocations()).unreadable == ()


BROKEN = [
    ("no uid", with_annotations(RUNNING, uid=None), "does not say which request"),
    ("bound elsewhere", replace(RUNNING, spec=replace(RUNNING.spec, node_name="n2")), "by somebody else"),
    ("other cards", with_annotations(RUNNING, cards="n1-gpu1"), "by somebody else"),
    ("no shares", with_annotations(RUNNING, shares=None), "missing"),
    ("odd shares", with_annotations(RUNNING, shares="n1-gpu0=lots"), "is not"),
    ("no request", with_annotations(RUNNING, spec="{}"), "gpubus.dev/spec"),
]


@pytest.mark.parametrize(("claim", "pod", "why"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_pod_that_cannot_be_read_is_named(claim: str, pod: Pod, why: str) -> None:
    """It may hold a card: an operator must look, and is told which pod and why."""
    answer = page([pod], AskAllocations())

    assert answer.items == ()
    assert len(answer.unreadable) == 1, claim
    assert "default/train-" in answer.unreadable[0]
    assert why in answer.unreadable[0]


def many(count: int) -> list[Pod]:
    world = cluster(node("n1").gpus(1))
    holds = [world.hold(request(f"r{i:03}").share(1).gpu_memory(1), "n1", 0) for i in range(count)]
    return [bound(held, epoch=EPOCH) for held in holds]


def test_pages_give_everything_once_in_order() -> None:
    """In order of namespace/pod, whatever order they are kept in."""
    pods = many(7)
    found: list[str] = []
    after, more = "", True
    while more:
        answer = page(reversed(pods), AskAllocations(after=after, limit=3))
        found += [item.pod for item in answer.items]
        after, more = answer.last, answer.more

    assert found == [pod.metadata.name for pod in pods]


def test_a_page_is_bounded_in_bytes_but_never_empty() -> None:
    """A page of large requests is cut; one that is too large alone still comes."""
    pods = many(3)

    answer = page(pods, AskAllocations(), max_bytes=10)

    assert (len(answer.items), answer.more) == (1, True)
    assert page(pods, AskAllocations(after=pods[1].metadata.name and "default/" + pods[1].metadata.name)).more is False


def test_a_pod_whose_label_was_taken_off_is_still_found() -> None:
    """The binding's nonce tells: a card must not be sold twice because somebody edited a label."""
    bare = replace(RUNNING, metadata=replace(RUNNING.metadata, labels={}))

    assert len(page([bare], AskAllocations()).items) == 1
