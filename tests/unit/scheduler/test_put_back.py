"""A resize that Kubernetes refuses after the ledger took it: ledger and node agree again, and people are told why."""

from __future__ import annotations

import msgspec
import pytest

from bus.ledger.state import RequestState
from contracts.decisions import Resized
from contracts.outcomes import ResizeRefused
from contracts.requests import Resize
from scheduler import events
from scheduler.core.explain import explain
from tests.builders.ledger import node, request
from tests.builders.scene import Scene

WHY = "resize to 3000m refused: quota: exceeded quota: cpu"


def running(*, cpu: int = 4000, quota_milli: int | None = None) -> Scene:
    """`a` runs on 250 thousandths, 4000 MiB and 1000 milli-cores of a node with one card."""
    scene = Scene(node("n1").gpus(1).cpu(cpu))
    if quota_milli is not None:
        scene.quota(share_milli=quota_milli)
    scene.submit(request("a").share(250).gpu_memory(4000).cpu(1000)).seen("a", "running")
    return scene


def resize(scene: Scene, share_milli: int, memory_mib: int, cpu_milli: int | None) -> Scene:
    message = Resize(name="a", share_milli=share_milli, memory_mib=memory_mib, cpu_milli=cpu_milli)
    answer = scene.engine.resize("ns", message)
    assert not answer.refusals
    return scene.turn()


def refuse(scene: Scene, wanted: int, has: int | None) -> Scene:
    refused = ResizeRefused(wanted_milli=wanted, has_milli=has)
    return scene.seen("a", "running", reason=WHY, resize_refused=refused)


def holds(one: RequestState) -> tuple[int, int, int]:
    assert one.placement is not None
    [piece] = one.placement.slices
    return (piece.share_milli, piece.memory_mib, one.placement.cpu_milli)


def resizes(scene: Scene) -> int:
    return sum(isinstance(r, Resized) for commit, _ in scene.log.commits for r in commit.records)


@pytest.mark.parametrize("has", [1000, None])
def test_all_of_a_refused_resize_goes_back(has: int | None) -> None:
    """S148: share, memory and CPU return to what they were, whether the kubelet tells what the container has or not."""
    scene = refuse(resize(running(), 600, 9000, 3000), 3000, has)

    assert holds(scene["a"]) == (250, 4000, 1000)
    assert scene.log.state.nodes["n1"].used_cpu_milli == 1000
    scene.judge()


def test_what_goes_back_is_sold_to_who_waits() -> None:
    """The room that the refused resize held is free for others in the same turn."""
    scene = resize(running(), 900, 9000, 1000)
    scene = resize(scene, 900, 9000, 3000).submit(request("b").share(100).cpu(2500))
    assert scene.where("b") == ["-"]
    refuse(scene, 3000, 1000)

    assert (holds(scene["a"]), scene.where("b")) == ((900, 9000, 1000), ["n1"])
    scene.judge()


def test_people_are_told_why() -> None:
    """`explain` and an event name the reason, also after the reconciler has nothing more to complain of."""
    scene = refuse(resize(running(), 250, 4000, 3000), 3000, 1000).seen("a", "running")
    told = explain(scene.log.state, scene["a"])
    found = [e for commit, at in scene.log.commits for _, e in events.of_commit(scene.log.state, commit, at)]
    event = [e for e in found if e.phase == "resized"][-1]

    assert [(reason.code, reason.text) for reason in told.reasons] == [
        ("resize", f"its last resize was put back: {WHY}")
    ]
    assert event.text == f"put back to 250 thousandths and 4000 MiB of each card, 1000 milli-cores: {WHY}"
    resize(scene, 300, 4000, None)
    assert explain(scene.log.state, scene["a"]).reasons == ()


@pytest.mark.parametrize("wanted", [2000, 1000])
def test_a_refusal_of_another_resize_changes_nothing(wanted: int) -> None:
    """Late words, such as those that a scheduler reads again when it takes over, are of a size that is not the last."""
    scene = resize(resize(running(), 250, 4000, wanted), 300, 5000, 3000)
    before = resizes(scene)
    refuse(scene, wanted, 1000)

    assert (holds(scene["a"]), resizes(scene)) == ((300, 5000, 3000), before)


def test_a_refusal_that_is_told_twice_is_taken_back_once() -> None:
    """The second finds the size that it speaks of no more."""
    scene = refuse(resize(running(), 250, 4000, 3000), 3000, 1000)
    before = resizes(scene)
    refuse(scene, 3000, 1000).restart()
    refuse(scene, 3000, 1000)

    assert resizes(scene) == before == 2


def test_a_share_that_was_sold_meanwhile_stays_small() -> None:
    """The wish gave back 150 thousandths and another has them: only the CPU goes back, nothing is sold twice."""
    scene = running()
    resize(scene, 100, 1000, 3000).submit(request("b").share(900).gpu_memory(9000).cpu(100))
    assert scene.where("b") == ["n1"]
    refuse(scene, 3000, 1000)

    assert holds(scene["a"]) == (100, 1000, 1000)
    scene.judge()


def test_a_share_that_the_quota_has_no_room_for_stays_small() -> None:
    """As above, when the room of the namespace is gone."""
    scene = running(quota_milli=400)
    resize(scene, 100, 4000, 3000).submit(request("b").share(300).gpu_memory(100).cpu(100))
    assert scene.where("b") == ["n1"]
    refuse(scene, 3000, 1000)

    assert holds(scene["a"]) == (100, 4000, 1000)
    scene.judge()


def test_cpu_that_was_given_back_and_sold_cannot_come_back() -> None:
    """A shrink that Kubernetes refuses: the node has no room for the old size, so the refusal stands and is told."""
    scene = running(cpu=2000)
    resize(scene, 250, 4000, 200).submit(request("b").share(100).cpu(1700))
    assert scene.where("b") == ["n1"]
    before = resizes(scene)
    refuse(scene, 200, 1000)

    assert (holds(scene["a"]), resizes(scene), scene["a"].detail) == ((250, 4000, 200), before, WHY)
    scene.judge()


def test_one_word_too_few_to_go_back_by() -> None:
    """A second refusal in a row, when nobody says what the container has: it is told, and stays as it is."""
    scene = refuse(resize(running(), 250, 4000, 3000), 3000, None)
    before = resizes(scene)
    refuse(scene, 1000, None)

    assert (holds(scene["a"]), resizes(scene)) == ((250, 4000, 1000), before)


def test_what_came_before_survives_a_checkpoint() -> None:
    """A scheduler that takes over from bytes puts back the same."""
    scene = resize(running(), 600, 9000, 3000).restart()
    one = scene["a"]
    again = msgspec.json.decode(msgspec.json.encode(one), type=RequestState)
    assert again.before_resize == one.before_resize is not None
    refuse(scene, 3000, None)

    assert holds(scene["a"]) == (250, 4000, 1000)
