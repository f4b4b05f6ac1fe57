"""Facts of a node: what Kubernetes would still admit there, and who else is there."""

from __future__ import annotations

from msgspec.structs import replace

from contracts.inventory import NodeFacts, Taint
from reconciler import marks
from reconciler.facts import gone, node_facts, pod_request
from reconciler.objects import ContainerStatus, Metadata, Pod, PodSpec, PodStatus, Resources
from reconciler.quantity import parse
from tests.builders.pods import bound, container, kube_node, one_placed, stranger

READY = [{"type": "Ready", "status": "True"}]


def nobody(uid: str, node: str) -> bool:
    return False


def test_a_node_is_told_in_our_units() -> None:
    """Cores in thousandths and memory in MiB, both rounded down; labels, taints and conditions as they are."""
    node = kube_node(
        "n1",
        spec={"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule", "value": "a"}]},
        status={
            "allocatable": {"cpu": "7910m", "memory": "16345678Ki", "pods": "42", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, *READY],
        },
    )
    node = replace(node, metadata=replace(node.metadata, labels={"zone": "b", "arch": "amd64"}))

    assert node_facts(node, [], nobody) == NodeFacts(
        node="n1",
        uid="uid-n1",
        ready=True,
        unschedulable=True,
        labels={"arch": "amd64", "zone": "b"},
        taints=(Taint(key="gpu", effect="NoSchedule", value="a"),),
        allocatable_cpu_milli=7910,
        allocatable_memory_mib=15962,
        allocatable_pods=42,
    )


def test_a_node_that_says_nothing_can_take_nothing() -> None:
    """No allocatable and no condition: not ready, no room; pod slots are the kubelet's default."""
    facts = node_facts(kube_node("n1"), [], nobody)

    assert (facts.ready, facts.allocatable_cpu_milli, facts.allocatable_memory_mib) == (False, 0, 0)
    assert facts.allocatable_pods == 110


def test_an_unknown_condition_is_not_ready() -> None:
    """A kubelet that fell silent is Unknown: nothing new goes there, and nothing is said about its pods."""
    node = kube_node("n1", status={"conditions": [{"type": "Ready", "status": "Unknown"}]})

    assert not node_facts(node, [], nobody).ready


def test_pods_of_others_are_counted_and_ended_ones_are_not() -> None:
    """What a kubelet counts: bound and not ended; use rounds up."""
    node = kube_node("n1", status={"conditions": READY})
    pods = [
        stranger("a", cpu="250m", memory="100Mi"),
        stranger("b", cpu="1500u", memory="1"),
        stranger("c", cpu="1", phase="Succeeded"),
        stranger("d", cpu="1", phase="Failed"),
        stranger("e", cpu="1", on=""),
        stranger("f", phase="Pending", cpu="1", memory="1Gi"),
    ]

    facts = node_facts(node, pods, nobody)

    assert (facts.foreign_cpu_milli, facts.foreign_memory_mib, facts.foreign_pods) == (1252, 1125, 3)


def test_our_pods_count_as_foreign_unless_the_ledger_counts_them() -> None:
    """A pod that runs on after its release is not in the ledger: sold twice if it were not counted here."""
    world, held = one_placed()
    pod = bound(held, epoch=world.state.epoch, phase="Running")
    node = kube_node("n1", status={"conditions": READY})

    counted = node_facts(node, [pod], lambda uid, on: (uid, on) == (held.uid, "n1"))
    leaked = node_facts(node, [pod], nobody)

    assert (counted.foreign_pods, counted.foreign_cpu_milli) == (0, 0)
    assert (leaked.foreign_pods, leaked.foreign_cpu_milli, leaked.foreign_memory_mib) == (1, 100, 64)


def test_a_forged_uid_hides_nothing_on_another_node() -> None:
    """A stranger's pod that carries the uid of a request placed elsewhere is foreign where it runs."""
    thief = stranger("thief", on="n2", cpu="4")
    thief = replace(thief, metadata=replace(thief.metadata, annotations={marks.UID: "e0000000-1-0"}))

    facts = node_facts(kube_node("n2"), [thief], lambda uid, on: (uid, on) == ("e0000000-1-0", "n1"))

    assert facts.foreign_cpu_milli == 4000


def pod(**spec: object) -> Pod:
    return Pod(metadata=Metadata(name="p"), spec=PodSpec(node_name="n1", **spec), status=PodStatus(phase="Running"))


def test_init_containers_count_by_their_largest_moment() -> None:
    """max(sum of containers, largest init container)."""
    both = (container(cpu="1"), container(cpu="500m"))

    assert pod_request(pod(containers=both, init_containers=(container(cpu="1"),)), "cpu") == parse("1500m")
    assert pod_request(pod(containers=both, init_containers=(container(cpu="3"),)), "cpu") == parse("3")


def test_sidecars_run_beside_everything_after_them() -> None:
    """A sidecar adds to the containers, and to the init containers that come after it."""
    sidecar = replace(container(cpu="1"), restart_policy="Always")

    assert pod_request(pod(containers=(container(cpu="1"),), init_containers=(sidecar,)), "cpu") == parse("2")
    after = (sidecar, container(cpu="2"))
    before = (container(cpu="2"), sidecar)
    assert pod_request(pod(containers=(container(cpu="1"),), init_containers=after), "cpu") == parse("3")
    assert pod_request(pod(containers=(container(cpu="500m"),), init_containers=before), "cpu") == parse("2")


def test_a_request_of_the_whole_pod_replaces_those_of_its_containers() -> None:
    """Pod-level resources win where they are stated; the overhead comes on top of all."""
    whole = Resources(requests={"cpu": "2"})
    found = pod(containers=(container(cpu="1", memory="1Gi"),), resources=whole, overhead={"cpu": "100m"})

    assert pod_request(found, "cpu") == parse("2100m")
    assert pod_request(found, "memory") == parse("1Gi")


def test_a_shrinking_container_counts_with_what_it_still_has() -> None:
    """While a resize is under way the kubelet keeps the larger one."""
    shrinking = pod(containers=(container(cpu="1"),))
    status = ContainerStatus(name="c", allocated_resources={"cpu": "2"})

    assert pod_request(replace(shrinking, status=PodStatus(container_statuses=(status,))), "cpu") == parse("2")


def test_an_unreadable_quantity_of_a_stranger_does_not_stop_anything() -> None:
    """It counts as nothing: the API server would not have admitted such a pod."""
    facts = node_facts(kube_node("n1"), [stranger("odd", cpu="lots", memory="1Mi")], nobody)

    assert (facts.foreign_cpu_milli, facts.foreign_memory_mib) == (0, 1)


def test_sums_stay_within_what_a_message_may_hold() -> None:
    """An absurd node or pod must not make a message that nobody can read."""
    huge = kube_node("n1", status={"allocatable": {"cpu": "1E", "memory": "1Ei"}})

    facts = node_facts(huge, [stranger("a", cpu="1E", memory="1Ei")], nobody)

    assert facts.allocatable_cpu_milli == facts.foreign_cpu_milli == 10_000_000
    assert facts.allocatable_memory_mib == facts.foreign_memory_mib == 16 * 1024 * 1024


def test_a_deleted_node_is_said_to_be_gone() -> None:
    """With the uid that it had: a new node of that name is another one."""
    assert gone("n1", "uid-n1") == NodeFacts(node="n1", uid="uid-n1", gone=True, ready=False)
