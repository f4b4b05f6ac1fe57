"""What is seen of a pod: its phase in our words, its exit code, and why."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from reconciler import marks
from reconciler.objects import Pod
from reconciler.seen import look
from tests.builders.pods import bound, created, foreign, one_placed, terminated, terminating, waiting, with_status

WORLD, HELD = one_placed()
EPOCH = WORLD.state.epoch
CREATED = created(HELD, epoch=EPOCH)
BOUND = bound(HELD, epoch=EPOCH)

ROWS: list[tuple[str, Pod, tuple[Any, ...]]] = [
    ("created", CREATED, ("unbound", None, "")),
    ("bound", BOUND, ("bound", None, "")),
    ("starting is no reason", with_status(BOUND, "Pending", container_statuses=(waiting("ContainerCreating"),)),
     ("bound", None, "")),
    ("an image that cannot be pulled", with_status(BOUND, "Pending", container_statuses=(waiting("ErrImagePull"),)),
     ("bound", None, "ImagePullBackOff")),
    ("runs", with_status(BOUND, "Running"), ("running", None, "")),
    ("restarts", with_status(BOUND, "Running", container_statuses=(waiting("CrashLoopBackOff"),)),
     ("running", None, "")),
    ("succeeded", with_status(BOUND, "Succeeded", container_statuses=(terminated(0, "Completed"),)),
     ("ended", 0, "Completed")),
    ("failed", with_status(BOUND, "Failed", container_statuses=(terminated(3, "Error"),)), ("ended", 3, "Error")),
    ("the container that failed counts", with_status(BOUND, "Failed",
     container_statuses=(terminated(0, "Completed"), terminated(137, "OOMKilled"))), ("ended", 137, "OOMKilled")),
    ("evicted", with_status(BOUND, "Failed", reason="Evicted", message="low on memory"),
     ("ended", None, "Evicted: low on memory")),
    ("a resource that is not there", with_status(BOUND, "Failed", reason="OutOfnvidia.com/gpu", message="no"),
     ("rejected", None, "OutOfnvidia.com/gpu: no")),
    ("no device left", with_status(BOUND, "Failed", reason="UnexpectedAdmissionError", message="Allocate failed"),
     ("rejected", None, "UnexpectedAdmissionError: Allocate failed")),
    ("labels do not fit", with_status(BOUND, "Failed", reason="NodeAffinity"), ("rejected", None, "NodeAffinity")),
    ("it ran before the kubelet refused to take it back", with_status(BOUND, "Failed", reason="NodeAffinity",
     container_statuses=(terminated(137),)), ("ended", 137, "NodeAffinity")),
    ("nobody knows", with_status(BOUND, "Unknown"), ("bound", None, "")),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "pod", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_phase(claim: str, pod: Pod, expected: tuple[Any, ...]) -> None:
    """Phase, exit code and reason of each kind of pod."""
    seen = look(pod)

    assert (seen.phase, seen.exit_code, seen.reason) == expected, claim


def test_our_binding_is_recognised() -> None:
    """By the nonce that only the binder of that decision writes."""
    assert look(BOUND).bound_by_us
    assert not look(CREATED).bound_by_us


@pytest.mark.parametrize("key", [marks.CARDS, marks.NONCE, marks.EPOCH, marks.SEQUENCE, marks.UID])
def test_a_binding_with_anything_changed_is_not_ours(key: str) -> None:
    """Cards, decision and node are all under the nonce."""
    annotations = {**(BOUND.metadata.annotations or {}), key: "7"}
    forged = replace(BOUND, metadata=replace(BOUND.metadata, annotations=annotations))

    assert not look(forged).bound_by_us


def test_a_binding_to_another_node_is_not_ours() -> None:
    """The same annotations on another node prove nothing."""
    assert not look(replace(BOUND, spec=replace(BOUND.spec, node_name="n2"))).bound_by_us


def test_a_stranger_has_no_marks() -> None:
    """No label, no annotations, nothing assumed."""
    seen = look(foreign(HELD, on="n1"))

    assert (seen.managed, seen.mark, seen.bound_by_us, seen.cards) == (False, None, False, "")


def test_a_pod_on_its_way_out_is_seen_to_be() -> None:
    """By its deletion timestamp, whatever its phase."""
    assert look(terminating(BOUND)).terminating
