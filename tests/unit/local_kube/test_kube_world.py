"""The simulated machines on a clock that the test moves: hours in milliseconds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gpubus.local.kube import Machine, ManualClock, Store, Timings, World
from gpubus.local.kube.resources import NODES, PODS
from gpubus.local.kube.status import StatusError
from gpubus.local.kube.store import DeleteOptions

TIMINGS = Timings(start_s=1.0, stop_s=2.0, node_grace_s=40.0, orphan_s=60.0)


class Rig:
    """A world of two machines with 4 cpus each, and short words for what happens in it."""

    def __init__(self) -> None:
        numbers = itertools.count()
        self.clock = ManualClock()
        self.store = Store(clock=self.clock.now, new_uid=lambda: f"uid-{next(numbers)}")
        self.world = World(self.store, TIMINGS)
        self.store.on_change = self.world.notice
        for name in ("n1", "n2"):
            self.world.add_node(Machine(name=name, cpu_milli=4000, extended={"nvidia.com/gpu": 2}), self.clock.now())
        self.world.advance(self.clock.now())

    def pod(self, name: str, node: str = "n1", *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        resources = {"requests": {"cpu": spec.pop("cpu", "100m")}}
        container = {"name": "c", "image": "i", "resources": resources, "command": spec.pop("command", [])}
        body = {"restartPolicy": "Never", "containers": [container], **spec}
        self.store.create(PODS, "default", {"metadata": {"name": name, "annotations": annotations or {}}, "spec": body})
        self.store.bind("default", name, {"target": {"name": node}})
        self.world.advance(self.clock.now())

    def after(self, seconds: float) -> None:
        """Let time pass, waking when the world wants to be woken."""
        end = self.clock.now() + seconds
        while (at := self.world.advance(self.clock.now())) is not None and at <= end:
            self.clock.advance(at - self.clock.now())
        self.clock.advance(end - self.clock.now())
        self.world.advance(self.clock.now())

    def get(self, name: str) -> dict[str, Any]:
        return self.store.get(PODS, "default", name).obj

    def phase(self, name: str) -> str:
        found = self.store.find(PODS, "default", name)
        if found is None:
            return "gone"
        leaving = "deletionTimestamp" in found.obj["metadata"]
        return found.obj["status"]["phase"] + (" leaving" if leaving else "")

    def taint(self, name: str, taints: list[dict[str, Any]]) -> None:
        self.store.patch(NODES, "", name, lambda node: {**node, "spec": {"taints": taints}})
        self.world.advance(self.clock.now())

    def node(self, name: str) -> dict[str, Any]:
        return self.store.get(NODES, "", name).obj

    def ready(self, name: str) -> str:
        return str(self.node(name)["status"]["conditions"][-1]["status"])

    def delete(self, name: str, **options: Any) -> None:
        self.store.delete(PODS, "default", name, DeleteOptions(**options))
        self.world.advance(self.clock.now())


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_pod_runs_for_as_long_as_it_says(rig: Rig) -> None:
    """Claim: Running after the start time, Succeeded exactly its run time later."""
    rig.pod("a", command=["sleep", "3600"])
    assert rig.phase("a") == "Pending"
    rig.after(1.0)
    assert rig.phase("a") == "Running"
    rig.after(3599.0)
    assert rig.phase("a") == "Running"
    rig.after(1.0)
    assert rig.phase("a") == "Succeeded"


def test_the_annotation_beats_the_command_and_the_exit_code_decides(rig: Rig) -> None:
    """Claim: Failed with the code that was asked for."""
    marks = {"gpubus.dev/simulated-run-s": "5", "gpubus.dev/simulated-exit-code": "3"}
    rig.pod("a", command=["sleep", "3600"], annotations=marks)
    rig.after(6.0)
    assert rig.phase("a") == "Failed"
    assert rig.get("a")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [
        ("Always", "0", "Running", 3),
        ("OnFailure", "1", "Running", 3),
        ("OnFailure", "0", "Succeeded", 0),
        ("Never", "1", "Failed", 0),
    ],
)
def test_restart_policies(rig: Rig, policy: str, code: str, phase: str, restarts: int) -> None:
    """Claim: containers are started again where the policy says so; the phase stays Running meanwhile."""
    marks = {"gpubus.dev/simulated-run-s": "9", "gpubus.dev/simulated-exit-code": code}
    rig.pod("a", annotations=marks, restartPolicy=policy)
    rig.after(35.0)
    assert rig.phase("a") == phase
    assert rig.get("a")["status"]["containerStatuses"][0]["restartCount"] == restarts


def test_deletion_takes_its_time_and_reports_the_end(rig: Rig) -> None:
    """Claim: leaving until the containers have stopped, then terminated with 137 and gone."""
    rig.pod("a")
    rig.after(1.0)
    before = rig.store.version
    rig.delete("a")
    assert rig.phase("a") == "Running leaving"
    rig.after(1.9)
    assert rig.phase("a") == "Running leaving"
    rig.after(0.2)
    assert rig.phase("a") == "gone"
    last = rig.store.history.since(before)[-1].entry.obj
    assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_a_short_grace_time_shortens_the_stop(rig: Rig) -> None:
    """Claim: the smaller of the two times counts."""
    rig.pod("a")
    rig.after(1.0)
    rig.delete("a", grace_s=1)
    rig.after(1.0)
    assert rig.phase("a") == "gone"


def test_a_node_takes_what_fits_and_fails_the_rest(rig: Rig) -> None:
    """Claim: 4000m take three of 1300m; ended pods count no more; other nodes are not concerned."""
    for name in ("a", "b", "c"):
        rig.pod(name, cpu="1300m", command=["sleep", "10"])
    rig.pod("d", cpu="1300m")
    rig.pod("e", "n2", cpu="1300m")
    rig.after(1.0)
    assert [rig.phase(n) for n in "abcde"] == ["Running", "Running", "Running", "Failed", "Running"]
    assert rig.get("d")["status"]["reason"] == "OutOfcpu"
    assert "requested: 1300, used: 3900, capacity: 4000" in rig.get("d")["status"]["message"]
    rig.after(10.0)
    rig.pod("f", cpu="4")
    rig.after(1.0)
    assert rig.phase("f") == "Running"


def test_a_killed_node_freezes_its_pods_until_it_is_back(rig: Rig) -> None:
    """Claim: nothing on it moves while it is silent, however long; what came due happens at its return."""
    rig.pod("short", command=["sleep", "10"], tolerations=[{"operator": "Exists"}])
    rig.pod("told", tolerations=[{"operator": "Exists"}])
    rig.after(1.0)
    rig.world.kill_node("n1", rig.clock.now())
    rig.delete("told")
    rig.after(39.0)
    assert rig.ready("n1") == "True"
    rig.after(100_000.0)
    assert rig.ready("n1") == "Unknown"
    assert (rig.phase("short"), rig.phase("told")) == ("Running", "Running leaving")
    assert {t["effect"] for t in rig.node("n1")["spec"]["taints"]} == {"NoSchedule", "NoExecute"}
    rig.world.revive_node("n1", rig.clock.now())
    rig.after(3.0)
    assert (rig.phase("short"), rig.phase("told")) == ("Succeeded", "gone")
    assert rig.ready("n1") == "True"
    assert "taints" not in rig.node("n1")["spec"]


def test_a_short_silence_is_not_noticed(rig: Rig) -> None:
    """Claim: a kubelet back within the grace time leaves no trace on its node."""
    rig.world.kill_node("n1", rig.clock.now())
    rig.after(39.0)
    rig.world.revive_node("n1", rig.clock.now())
    before = rig.node("n1")["metadata"]["resourceVersion"]
    rig.after(100.0)
    assert rig.node("n1")["metadata"]["resourceVersion"] == before


def test_pods_of_a_lost_node_are_told_to_go_after_their_toleration(rig: Rig) -> None:
    """Claim: marked 300 s after the taint unless they tolerate it for ever; a returning node calls it off."""
    rig.pod("usual")
    rig.pod("rooted", tolerations=[{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}])
    rig.after(1.0)
    rig.world.kill_node("n1", rig.clock.now())
    rig.after(339.0)
    assert rig.phase("usual") == "Running"
    rig.after(2.0)
    assert (rig.phase("usual"), rig.phase("rooted")) == ("Running leaving", "Running")
    other = Rig()
    other.pod("usual")
    other.after(1.0)
    other.world.kill_node("n1", other.clock.now())
    other.after(200.0)
    other.world.revive_node("n1", other.clock.now())
    other.after(1000.0)
    assert other.phase("usual") == "Running"


def test_the_least_tolerated_taint_decides(rig: Rig) -> None:
    """Claim: of two taints the shorter toleration counts, also when its taint comes later."""
    tolerations = [{"key": "slow", "operator": "Exists", "tolerationSeconds": 100}]
    tolerations += [{"key": "fast", "value": "1", "tolerationSeconds": 10}]
    rig.pod("a", tolerations=tolerations)
    rig.after(1.0)
    rig.taint("n1", [{"key": "slow", "effect": "NoExecute"}])
    rig.after(50.0)
    rig.taint("n1", [{"key": "slow", "effect": "NoExecute"}, {"key": "fast", "value": "1", "effect": "NoExecute"}])
    rig.after(9.0)
    assert rig.phase("a") == "Running"
    rig.after(1.0)
    assert rig.phase("a") == "Running leaving"


def test_a_toleration_of_another_value_does_not_count(rig: Rig) -> None:
    """Claim: key, value and effect must match; what is not tolerated evicts at once."""
    rig.pod("a", tolerations=[{"key": "k", "value": "other"}, {"key": "k", "value": "1", "effect": "NoSchedule"}])
    rig.after(1.0)
    rig.taint("n1", [{"key": "k", "value": "1", "effect": "NoExecute"}])
    assert rig.phase("a") == "Running leaving"


def test_pods_of_a_deleted_node_are_collected(rig: Rig) -> None:
    """Claim: deleting the node object of a dead machine is the way its pods go, after the orphan time."""
    rig.pod("a")
    rig.after(1.0)
    rig.world.kill_node("n1", rig.clock.now())
    rig.store.delete(NODES, "", "n1")
    rig.after(59.0)
    assert rig.phase("a") == "Running"
    rig.after(2.0)
    assert rig.phase("a") == "gone"


def test_a_pod_bound_to_nothing_is_collected(rig: Rig) -> None:
    """Claim: Pending on a node that does not exist ends with its deletion."""
    rig.pod("a", "nowhere")
    rig.after(59.0)
    assert rig.phase("a") == "Pending"
    rig.after(2.0)
    assert rig.phase("a") == "gone"


def test_a_reused_name_is_another_pod(rig: Rig) -> None:
    """Claim: what was planned for the old pod does not happen to the new one."""
    rig.pod("a", command=["sleep", "10"])
    rig.after(5.0)
    rig.delete("a", grace_s=0)
    rig.pod("a", command=["sleep", "1000"])
    rig.after(500.0)
    assert rig.phase("a") == "Running"


def test_the_same_commands_give_the_same_world() -> None:
    """Claim: two runs are equal, byte for byte."""

    def run() -> list[bytes]:
        rig = Rig()
        for index in range(20):
            rig.pod(f"p{index}", ("n1", "n2")[index % 2], command=["sleep", str(index)])
            rig.after(0.7)
        rig.world.kill_node("n2", rig.clock.now())
        rig.after(1000.0)
        return [change.entry.raw for change in rig.store.history.since(0)]

    assert run() == run()


def test_nothing_is_planned_in_a_quiet_world(rig: Rig) -> None:
    """Claim: the shell may sleep until somebody writes."""
    assert rig.world.advance(rig.clock.now()) is None


def test_an_unknown_machine_cannot_be_killed(rig: Rig) -> None:
    """Claim: a typing mistake is an error, and a machine cannot join twice."""
    with pytest.raises(KeyError):
        rig.world.kill_node("n9", rig.clock.now())
    with pytest.raises(StatusError):
        rig.world.add_node(Machine(name="n1"), rig.clock.now())
