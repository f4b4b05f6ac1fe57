"""Backends in pods: what is rendered, what is waited for, what is written again; and in-place resizes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.decisions import Resized
from contracts.inventory import IsolationMode
from contracts.isolation import CannotIsolate, HostPaths
from contracts.outcomes import NodeShares, ResizeRefused
from contracts.requests import EnvVar, PodTemplate
from contracts.shares import NodeEnforcement, PodEnforcement
from contracts.units import CardUuid, NodeName
from reconciler import marks, podspec
from reconciler.isolation import Isolation, isolation
from reconciler.objects import CONTAINER, ContainerStatus, PodCondition, PodStatus
from reconciler.plan import plan
from reconciler.ports import FIRST
from reconciler.seen import look
from reconciler.shares import keep_ports, node_shares
from reconciler.steps import Annotate, Bind, Blocked, Case, Publish, Resize, Wait
from tests.builders.ledger import Cluster, cluster, node, request
from tests.builders.pods import bound, created

PATHS = HostPaths()
ENDS = {"name": "NVIDIA_VISIBLE_DEVICES"}


def world(*modes: IsolationMode) -> Cluster:
    made = node("n1")
    for mode in modes:
        made = made.gpus(1, isolation=mode)
    return cluster(made)


def held(in_world: Cluster, *cards: int, name: str = "train") -> RequestState:
    return in_world.hold(request(name).share(250).gpu_memory(1000).cards(len(cards)), "n1", *cards)


def report(in_world: Cluster, one: RequestState, state: Any, reason: str = "", port: int = 0) -> NodeEnforcement:
    cards = [piece.card for piece in one.placement.slices] if one.placement else []
    pods = tuple(PodEnforcement(uid=one.uid, what=card, state=state, reason=reason, port=port) for card in cards)
    return NodeEnforcement(node=NodeName("n1"), incarnation="i", epoch=in_world.state.epoch, pods=pods)


def rendered(in_world: Cluster, one: RequestState, isolated: Isolation) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(
        podspec.manifest(one, epoch=in_world.state.epoch, changes=isolated.changes)
    )
    return found


def test_a_backend_sets_its_variables_after_the_users_and_reads_what_may_change_from_annotations() -> None:
    """The last of equal names wins: ours stand behind the user's, the cards last; folders must exist on the node."""
    one = world("hami-core")
    placed = held(one, 0)
    asked = replace(placed.request, pod=replace(placed.request.pod, env=(EnvVar(name="POD_NAME", value="mine"),)))
    placed = replace(placed, accepted=replace(placed.accepted, request=asked))
    isolated = isolation(one.state, placed, None, PATHS)
    spec = rendered(one, placed, isolated)["spec"]
    env = spec["containers"][0]["env"]

    assert [entry["name"] for entry in env] == [
        "POD_NAME", "CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT_0", "CUDA_DEVICE_MEMORY_SHARED_CACHE",
        "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    ]  # fmt: skip
    assert env[1]["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.annotations['gpubus.dev/env.CUDA_DEVICE_MEMORY_LIMIT_0']"
    )
    assert spec["volumes"] == [{"name": "vgpu", "hostPath": {"path": "/usr/local/vgpu", "type": "Directory"}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "vgpu", "mountPath": "/usr/local/vgpu", "readOnly": True}]
    assigned = podspec.assignment(placed, epoch=one.state.epoch, changes=isolated.changes)
    assert marks.isolation_of(assigned) == {"CUDA_DEVICE_MEMORY_LIMIT_0": "1000m", "CUDA_DEVICE_SM_LIMIT_0": "25"}
    marks.checked(assigned)


def test_without_isolation_a_pod_is_as_before() -> None:
    """No variable, no folder, no annotation more; nothing to wait for."""
    one = world("none", "mig")
    for card in (0, 1):
        placed = held(one, card, name=f"train-{card}")
        isolated = isolation(one.state, placed, None, PATHS)

        assert (isolated.waits_for, isolated.changes.env) == ("", ())
        assert "volumes" not in rendered(one, placed, isolated)["spec"]


@pytest.mark.parametrize("name", ["POD_MANAGER_PORT", "CUDA_DEVICE_MEMORY_LIMIT_0", "cuda_mps_pipe_directory"])
def test_a_user_cannot_set_what_a_backend_reads(name: str) -> None:
    """Claim S048: refused by name, whatever its case."""
    one = world("none")
    placed = held(one, 0)
    asked = replace(placed.request, pod=PodTemplate(image="a", env=(EnvVar(name=name, value="1"),)))

    with pytest.raises(podspec.NotRenderable, match=name):
        podspec.manifest(replace(placed, accepted=replace(placed.accepted, request=asked)), epoch="e")


@pytest.mark.parametrize(
    ("told", "waits_for"),
    [
        (None, "n1 has not prepared mps for it yet"),
        (("waiting", "the daemon starts"), "mps on n1 is waiting: the daemon starts"),
        (("failed", "no room"), "mps on n1 is failed: no room"),
        (("refused", "no card"), "mps on n1 is refused: no card"),
        (("applied", ""), ""),
    ],
)
def test_a_pod_is_bound_when_its_node_is_ready(told: tuple[str, str] | None, waits_for: str) -> None:
    """Claims S113 and S069: made, and not bound before the node says so; the wait carries the node's reason."""
    one = world("mps")
    placed = held(one, 0)
    isolated = isolation(one.state, placed, report(one, placed, *told) if told else None, PATHS)
    seen = look(created(placed, epoch=one.state.epoch))
    case = Case(
        epoch=one.state.epoch, sequence=one.state.sequence, request=placed, seen=seen,
        waits_for=isolated.waits_for, isolation=isolated.changes.marks,
    )  # fmt: skip
    step = plan(case)

    assert isolated.waits_for == waits_for
    assert step == Wait(reason=waits_for) if waits_for else isinstance(step, Bind)


def test_a_report_of_another_epoch_says_nothing() -> None:
    """A ledger that was begun anew: what was applied for the old one is not what this one asks for."""
    one = world("mps")
    placed = held(one, 0)
    old = replace(report(one, placed, "applied"), epoch="another")

    assert isolation(one.state, placed, old, PATHS).waits_for == "n1 has not prepared mps for it yet"


def test_modes_are_never_mixed_in_a_pod() -> None:
    """Claim S116: a placement over cards of two modes has no pod, with the reason."""
    one = world("mps", "none")

    with pytest.raises(CannotIsolate, match="are shared by mps and none"):
        isolation(one.state, held(one, 0, 1), None, PATHS)


def test_a_port_is_what_the_node_has_applied() -> None:
    """The binding carries the port of the node's own report, never one that might still change."""
    one = world("gemini")
    placed = held(one, 0)
    isolated = isolation(one.state, placed, report(one, placed, "applied", port=50_077), PATHS)

    assert isolated.changes.marks == {"POD_MANAGER_PORT": "50077"}
    assert isolation(one.state, placed, None, PATHS).changes.marks == {"POD_MANAGER_PORT": ""}


def test_a_resized_share_is_written_into_the_pod_for_its_next_start() -> None:
    """Claim S144: ledger and limit change together; the variables are read again when the container starts."""
    one = world("hami-core")
    placed = held(one, 0)
    before = isolation(one.state, placed, None, PATHS)
    pod = bound(placed, epoch=one.state.epoch, phase="Running")
    annotations = podspec.assignment(placed, epoch=one.state.epoch, changes=before.changes)
    pod = replace(pod, metadata=replace(pod.metadata, annotations={**(pod.metadata.annotations or {}), **annotations}))
    one.fold(Resized(uid=placed.uid, share_milli=500, memory_mib=3000))
    after = isolation(one.state, placed, None, PATHS)
    step = plan(
        Case(
            epoch=one.state.epoch, sequence=one.state.sequence, request=placed, seen=look(pod),
            isolation=after.changes.marks,
        )
    )  # fmt: skip

    assert step == Annotate(
        marks={
            marks.SHARES: "n1-gpu0=500:3000",
            "gpubus.dev/env.CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
            "gpubus.dev/env.CUDA_DEVICE_SM_LIMIT_0": "50",
        }
    )


# --- shares of a node ------------------------------------------------------------------------------------------------


def test_shares_carry_ports_that_stay_with_their_pods() -> None:
    """Only cards whose shares a token server deals out have them; kept from snapshot to snapshot, and over a loss."""
    one = world("gemini", "none")
    first, other = held(one, 0), held(one, 1, name="free")
    snapshot = node_shares(one.state, "n1")
    assert {a.uid: a.port for a in snapshot.assignments} == {first.uid: FIRST, other.uid: 0}
    second = held(one, 0, name="second")
    after = node_shares(one.state, "n1", before=snapshot)
    assert {a.uid: a.port for a in after.assignments} == {first.uid: FIRST, other.uid: 0, second.uid: FIRST + 1}
    pod = bound(second, epoch=one.state.epoch)
    own = {**(pod.metadata.annotations or {}), "gpubus.dev/env.POD_MANAGER_PORT": str(FIRST + 1)}
    seen = look(replace(pod, metadata=replace(pod.metadata, annotations=own)))
    lost = node_shares(one.state, "n1", lambda key: seen if "second" in key else None)

    # the stream lost its disk: the pod that runs keeps the port that its container was told
    assert {a.uid: a.port for a in lost.assignments}[second.uid] == FIRST + 1
    assert len({a.port for a in lost.assignments if a.port}) == 2


def test_two_writers_end_with_the_ports_of_the_first() -> None:
    """A snapshot that lost the race takes over what the winner gave out, because somebody may have been told."""
    one = world("gemini")
    first = held(one, 0)
    theirs = replace(node_shares(one.state, "n1"), last_port=FIRST + 9)
    theirs = replace(theirs, assignments=tuple(replace(a, port=FIRST + 9) for a in theirs.assignments))
    second = held(one, 0, name="second")
    ours = node_shares(one.state, "n1")
    kept: NodeShares = keep_ports(ours, theirs)

    assert {a.uid: a.port for a in ours.assignments} == {first.uid: FIRST, second.uid: FIRST + 1}
    assert {a.uid: a.port for a in kept.assignments} == {first.uid: FIRST + 9, second.uid: FIRST + 10}


def test_shares_tell_who_a_pod_is() -> None:
    """By its own uid and its present container, as Kubernetes says; of somebody else's pod of that name, nothing."""
    one = world("none")
    placed = held(one, 0)
    pod = bound(placed, epoch=one.state.epoch)
    status = PodStatus(
        phase="Running",
        container_statuses=(
            ContainerStatus(name="sidecar", container_id="containerd://other"),
            ContainerStatus(name=CONTAINER, container_id="containerd://abc123"),
        ),
    )
    seen = look(replace(pod, status=status))
    [told] = node_shares(one.state, "n1", lambda _: seen).pods
    assert (told.uid, told.pod_uid, told.container_id, told.cpu_limit_milli) == (
        placed.uid, pod.metadata.uid, "abc123", 0,
    )  # fmt: skip
    [unknown] = node_shares(one.state, "n1", lambda _: None).pods
    assert (unknown.uid, unknown.pod_uid) == (placed.uid, "")
    other = replace(seen, mark=None)
    assert node_shares(one.state, "n1", lambda _: other).pods == (unknown,)


# --- in-place resizes ------------------------------------------------------------------------------------------------


def resizing(cpu: int | None, *, blocked: Blocked | None = None, status: PodStatus | None = None) -> Any:
    one = world("none")
    placed = held(one, 0)
    one.fold(Resized(uid=placed.uid, share_milli=250, memory_mib=1000, cpu_milli=cpu))
    pod = bound(placed, epoch=one.state.epoch, phase="Running")
    pod = replace(pod, status=status) if status else pod
    case = Case(epoch=one.state.epoch, sequence=one.state.sequence, request=placed, seen=look(pod), blocked=blocked)
    return plan(case)


def test_a_cpu_request_that_the_ledger_changed_is_changed_in_place() -> None:
    """To what the ledger counts; unchanged, it is only told how far the pod is."""
    assert resizing(750) == Resize(cpu_milli=750)
    assert isinstance(resizing(None), Publish)


def test_a_resize_that_is_refused_is_told_with_the_servers_reason() -> None:
    """Claims S145, S148: the container keeps what it has; the outcome says why, and what the ledger has to count."""
    blocked = Blocked(code="forbidden", reason="node didn't have enough", final=False, cpu_milli=750)
    step = resizing(750, blocked=blocked)

    assert isinstance(step, Publish)
    assert (step.outcome.phase, step.outcome.reason) == (
        "running", "resize to 750m refused: forbidden: node didn't have enough",
    )  # fmt: skip
    assert step.outcome.resize_refused == ResizeRefused(wanted_milli=750, has_milli=100)


def test_a_refusal_of_one_size_is_no_answer_to_another() -> None:
    """A smaller wish is asked for at once, also while the pause after the refused one lasts."""
    blocked = Blocked(code="quota", reason="exceeded", final=False, cpu_milli=9000)

    assert resizing(750, blocked=blocked) == Resize(cpu_milli=750)


@pytest.mark.parametrize(
    ("kind", "why", "allocated", "refused"),
    [
        ("PodResizePending", "Infeasible", {"cpu": "40m"}, ResizeRefused(wanted_milli=100, has_milli=40)),
        ("PodResizePending", "Infeasible", None, ResizeRefused(wanted_milli=100)),
        ("PodResizePending", "Infeasible", {"cpu": "?"}, ResizeRefused(wanted_milli=100)),
        ("PodResizePending", "Deferred", {"cpu": "40m"}, None),
        ("PodResizeInProgress", "Error", {"cpu": "40m"}, None),
        ("PodResizeInProgress", "", {"cpu": "40m"}, None),
    ],
)
def test_only_what_never_comes_is_refused(
    kind: str, why: str, allocated: dict[str, str | int] | None, refused: ResizeRefused | None
) -> None:
    """The kubelet takes up by itself what it defers, and tries again what failed; infeasible is for good."""
    condition = PodCondition(type=kind, status="True", reason=why, message="no room")
    own = ContainerStatus(name=CONTAINER, allocated_resources=allocated)
    step = resizing(None, status=PodStatus(phase="Running", conditions=(condition,), container_statuses=(own,)))

    assert isinstance(step, Publish)
    assert step.outcome.resize_refused == refused


@pytest.mark.parametrize(
    ("kind", "reason", "status", "told"),
    [
        ("PodResizePending", "Deferred", "True", "resize deferred: no room now"),
        ("PodResizePending", "Infeasible", "True", "resize infeasible: no room now"),
        ("PodResizeInProgress", "Error", "True", "resize error: no room now"),
        ("PodResizeInProgress", "", "True", ""),
        ("PodResizePending", "Infeasible", "False", ""),
        ("Ready", "Deferred", "True", ""),
    ],
)
def test_what_the_kubelet_makes_of_a_resize_is_told(kind: str, reason: str, status: str, told: str) -> None:
    """Deferred, infeasible and failed ones with the kubelet's message; one that goes on is no news."""
    condition = PodCondition(type=kind, status=status, reason=reason, message="no room now")
    step = resizing(None, status=PodStatus(phase="Running", conditions=(condition,)))

    assert isinstance(step, Publish)
    assert step.outcome.reason == told


@pytest.mark.parametrize(("of", "refused"), [(0, True), (7, True), (6, False)])
def test_what_the_kubelet_said_of_an_earlier_size_is_no_answer(of: int, refused: bool) -> None:
    """A new size is a new generation of the pod; a kubelet that names none is believed."""
    one = world("none")
    placed = held(one, 0)
    pod = bound(placed, epoch=one.state.epoch, phase="Running")
    condition = PodCondition(
        type="PodResizePending", status="True", reason="Infeasible", message="no room", observed_generation=of
    )
    pod = replace(
        pod,
        metadata=replace(pod.metadata, generation=7),
        status=PodStatus(phase="Running", conditions=(condition,)),
    )
    step = plan(Case(epoch=one.state.epoch, sequence=one.state.sequence, request=placed, seen=look(pod)))

    assert isinstance(step, Publish)
    assert (step.outcome.resize_refused is not None, step.outcome.reason != "") == (refused, refused)


def test_a_pod_that_asks_for_no_cpu_is_never_given_some() -> None:
    """From or to none would be another class of service, which Kubernetes refuses."""
    one = world("none")
    placed = held(one, 0)
    pod = bound(placed, epoch=one.state.epoch, phase="Running")
    bare = replace(look(pod), cpu_milli=None)
    case = Case(epoch=one.state.epoch, sequence=one.state.sequence, request=placed, seen=bare)

    assert isinstance(plan(case), Publish)


def test_cards_are_named_by_uuid() -> None:
    """The builder's card, so that the tables above mean what they say."""
    one = world("none")

    assert list(one.state.nodes["n1"].cards) == [CardUuid("n1-gpu0")]
