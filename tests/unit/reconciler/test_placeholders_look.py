"""What is seen of a placeholder pod, in each state that a real kubelet was seen to show."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from reconciler.objects import Container, Pod
from reconciler.placeholders.look import NO_CARD, devices, is_placeholder, look
from reconciler.placeholders.render import deletion, manifest, patch, pod_name
from reconciler.placeholders.survey import kept, survey
from reconciler.placeholders.values import RELEASING, mode_of
from tests.builders.placeholders import BOOT, RULES, pod, proven
from tests.builders.pods import kube_node, stranger

WAITING = {"waiting": {"reason": "CreateContainerError", "message": "unresolvable CDI devices nvidia.com/gpu=all"}}
EVICTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]}

STATES = [
    (
        "admitted, its container not started: the card is known, and could still be given back",
        pod(phase="Pending"),
        "starting",
    ),
    ("runs on a card, and nobody has written it down", pod(), "new"),
    ("runs on the card that was written down", pod(notes=proven()), "held"),
    ("its container crashed and began again: same boot, same card", pod(notes=proven(), container="c2"), "held"),
    ("the node booted, and the API shows the container of before", pod(notes=proven(boot="boot-0")), "unproven"),
    (
        "the node booted, and its container is another one",
        pod(notes=proven(boot="boot-0", container="c0")),
        "new",
    ),
    ("the kubelet gave it another card", pod(card="GPU-1", notes=proven()), "new"),
    ("its card is ill: still held", pod(health="Unhealthy", notes=proven()), "held"),
    ("it ended well, as an evicted pause program does", pod(phase="Succeeded", card="", notes=proven()), "lost"),
    ("it ended well and its status still names the card", pod(phase="Succeeded", notes=proven()), "lost"),
    ("it failed", pod(phase="Failed", card="", reason="UnexpectedAdmissionError"), "lost"),
    ("it is being deleted", pod(notes=proven(), deleted=True), "leaving"),
    ("the kubelet is older and names no card", pod(card=""), "starting"),
    ("the plugin gives out replicas: one of them holds no card", pod(card="GPU-0::3"), "starting"),
]


@pytest.mark.parametrize(("why", "shown", "state"), STATES, ids=[each[0][:50] for each in STATES])
def test_each_state_is_told_from_the_pod_alone(why: str, shown: Pod, state: str) -> None:
    """Any end means that the card is lost, and only a card that was written down since the last boot is held."""
    assert look(shown, BOOT, RULES).state == state


@pytest.mark.parametrize(
    ("shown", "offers"),
    [
        (pod(notes=proven()), True),
        (pod(notes=proven(**{RELEASING: "true"})), False),
        (pod(notes=proven(), health="Unhealthy"), False),
        (pod(), False),
        (pod(notes=proven(boot="boot-0")), False),
        (pod(notes=proven(), deleted=True), False),
    ],
)
def test_a_card_is_offered_only_while_it_is_held_and_stays(shown: Pod, offers: bool) -> None:
    """Not one on its way, not one of an earlier boot, not one that goes."""
    assert look(shown, BOOT, RULES).offers is offers


WHY: list[tuple[dict[str, Any], str]] = [
    ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}, "no healthy devices"),
    ({"phase": "Succeeded", **EVICTED}, "TerminationByKubelet"),
    ({"phase": "Succeeded"}, "it ended (Succeeded)"),
    ({"phase": "Running"}, NO_CARD),
    ({"phase": "Pending", "containerStatuses": [{"name": "card", "state": WAITING}]}, "unresolvable CDI devices"),
    ({"phase": "Pending", "containerStatuses": []}, "the kubelet says nothing"),
]


@pytest.mark.parametrize(("status", "words"), WHY)
def test_what_is_missing_is_told_in_the_kubelets_words(status: dict[str, Any], words: str) -> None:
    """S052: the message names the missing piece."""
    assert words in look(pod(card="", **status), BOOT, RULES).why


def test_only_pods_of_our_namespace_are_placeholders() -> None:
    """A tenant who writes our label into his pod has no card to sell."""
    assert is_placeholder(pod(), RULES)
    assert not is_placeholder(pod(namespace="team"), RULES)
    assert not is_placeholder(stranger("x"), RULES)


def test_facts_name_the_cards_that_are_ours_and_what_stands_against_more() -> None:
    """Of a dedicated node nothing is said: all of it is ours."""
    node = kube_node("n1", status={"nodeInfo": {"bootID": BOOT}})
    shared = kube_node("n1", status={"nodeInfo": {"bootID": BOOT}})
    shared = mode(shared, "coexist")
    pods = [pod(card="GPU-1", notes=proven("GPU-1"), slot="1"), pod(notes=proven()), pod(card="GPU-2", slot="2")]

    assert kept(node, pods, RULES).mode == "dedicated"
    told = kept(shared, pods, RULES, lambda _: "no devices left")
    assert (told.mode, told.acquired, told.acquiring) == ("coexist", ("GPU-0", "GPU-1"), "no devices left")


def mode(node: Any, value: str) -> Any:
    """The same node with the label."""
    return kube_node(
        node.metadata.name,
        metadata={"name": node.metadata.name, "uid": "u", "labels": {"gpubus.dev/mode": value}},
        status={"nodeInfo": {"bootID": BOOT}},
    )


def test_a_mode_that_nobody_understands_sells_nothing_and_says_so() -> None:
    """`shared` could mean either: the safe reading, and the label named with its value."""
    node = mode(kube_node("n1"), "shared")

    assert mode_of(node)[0] == "coexist"
    told = kept(node, [], RULES)
    assert told.acquired == ()
    assert "gpubus.dev/mode='shared'" in told.acquiring


def test_devices_of_others_are_read_from_sidecars_too() -> None:
    """A card in an init container that stays is taken like any other."""
    given = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-9", "health": "Healthy"}]}]
    other = pod(card="GPU-1", initContainerStatuses=[{"name": "side", "allocatedResourcesStatus": given}])

    assert devices(other, "nvidia.com/gpu") == ["GPU-1", "GPU-9"]


def test_the_pod_that_is_made_survives_what_kubelets_and_autoscalers_do() -> None:
    """S053: every taint tolerated, the class that is never evicted, marked for autoscalers.

    The name follows from the node and the slot, so that two makers make one.
    """
    made = manifest("gpu-1", 3, replace(RULES, runtime_class="nvidia")).decode()

    assert '"tolerations":[{"operator":"Exists"}]' in made
    assert '"priorityClassName":"system-node-critical"' in made
    assert '"karpenter.sh/do-not-disrupt":"true"' in made
    assert '"nodeName":"gpu-1"' in made
    assert '"runtimeClassName":"nvidia"' in made
    assert '"nvidia.com/gpu":"1"' in made
    assert pod_name("gpu-1", 3) in made
    assert pod_name("gpu-1", 3) != pod_name("gpu-2", 3)


def test_nothing_is_ever_deleted_by_force() -> None:
    """A forced deletion gives the card away while the process lives; the version guards what was kept meanwhile."""
    assert deletion("u", "7") == b'{"preconditions":{"uid":"u","resourceVersion":"7"}}'
    assert b"null" in patch("u", {RELEASING: None})


def test_s057_a_pod_with_two_kinds_of_device_stands_in_nobodys_way() -> None:
    """S057: nothing is locked: other devices are not counted, and a placeholder asks for one kind only."""
    both = {"requests": {"nvidia.com/gpu": "2", "rdma/nic": "1"}}
    other = pod(card="GPU-1", slot="9", namespace="team")
    containers = msgspec.convert([{"name": "main", "resources": both}], tuple[Container, ...])
    other = replace(other, spec=replace(other.spec, containers=containers))
    node = kube_node(
        "n1",
        metadata={"name": "n1", "labels": {"gpubus.dev/mode": "coexist"}},
        status={"allocatable": {"nvidia.com/gpu": "4", "rdma/nic": "1"}},
    )
    found = survey(node, [other], None, RULES)

    assert (found.devices, found.free) == (4, 2)
    assert b"rdma/nic" not in manifest("n1", 0, RULES)
