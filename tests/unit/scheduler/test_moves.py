"""Which one pod, moved to another node, would make room; and when there is none."""

from __future__ import annotations

import pytest

from gpubus.whatif import Changes, Moved, what_if
from tests.builders.ledger import Request, node, request
from tests.builders.scene import Scene


def part(name: str, share: int, on: str = "") -> Request:
    """A part of a card; `on`: of that node."""
    asked = request(name).share(share).gpu_memory(1).cpu(0)
    return asked.select(on=on) if on else asked


def two_nodes() -> Scene:
    """One card each."""
    return Scene(*(node(name).gpus(1).labels(on=name) for name in ("n1", "n2")))


def moves(scene: Scene) -> list[tuple[str, str, str, str, str]]:
    """Who moves from where to where, and who starts where then."""
    found: tuple[Moved, ...] = what_if(scene.log.state, Changes(moves=True)).moves
    return [(each.name, each.before, each.node, each.starts, each.starts_on) for each in found]


def filled() -> Scene:
    """Half of n1 and half of n2 are taken by pods that can only be there; a whole card waits."""
    scene = two_nodes().submit(part("fixed", 500, "n1")).submit(part("bound", 500, "n2")).submit(request("big").cpu(0))
    assert scene.where("big") == ["-"]
    return scene


def test_a_pod_that_can_only_be_where_it_is_does_not_move() -> None:
    """Claim: both are bound to their nodes: there is no move."""
    assert moves(filled()) == []


def test_one_move_makes_room() -> None:
    """Claim: the one that may be elsewhere goes beside the other one; nothing is changed by asking."""
    scene = two_nodes().submit(part("fixed", 500, "n1")).submit(part("guard", 600, "n2")).submit(part("loose", 400))
    assert scene.where("loose") == ["n2"]
    scene.seen("guard", "ended").submit(request("big").cpu(0)).judge()
    before = scene.log.state.sequence

    assert moves(scene) == [("loose", "n2", "n1", "ns/big", "n2")]
    assert (scene.where("big", "loose"), scene.log.state.sequence) == (["-", "n2"], before)


def test_of_two_moves_the_younger_pods_is_told() -> None:
    """Claim: both would do; the one that has run for the shorter time is named."""
    scene = Scene(*(node(name).gpus(1).labels(on=name) for name in ("n1", "n2", "n3")))
    for name, on in (("old", "n1"), ("young", "n2")):
        scene.submit(part(f"guard-{name}", 600, on)).submit(part(name, 400))
    scene.submit(part("fixed", 500, "n3"))
    assert scene.where("old", "young") == ["n1", "n2"]
    scene.seen("guard-old", "ended").seen("guard-young", "ended").submit(request("big").cpu(0))
    assert moves(scene) == [("young", "n2", "n3", "ns/big", "n2")]


@pytest.mark.parametrize("kept", ["gang", "leaving"])
def test_gangs_and_those_who_leave_are_not_moved(kept: str) -> None:
    """Claim: members of gangs stay together; whoever goes anyway makes its room itself."""
    loose = part("loose", 400)
    if kept == "gang":
        loose.gang("g", 1)
    scene = two_nodes().submit(part("fixed", 500, "n1")).submit(part("guard", 600, "n2")).submit(loose)
    scene.seen("guard", "ended").submit(request("big").cpu(0).select(on="n2"))
    if kept == "leaving":
        scene.withdraw("loose")
    assert moves(scene) == []


def test_who_is_held_by_a_quota_gets_no_advice() -> None:
    """Claim: room would not help it."""
    scene = two_nodes().submit(part("fixed", 500, "n1")).submit(part("guard", 600, "n2")).submit(part("loose", 400))
    scene.seen("guard", "ended").quota("ns").quota("poor", share_milli=999)
    scene.submit(request("big").cpu(0), space="poor")
    assert moves(scene) == []


def test_equal_requests_get_one_advice() -> None:
    """Claim: of many that ask for the same, the first one is told."""
    scene = two_nodes().submit(part("fixed", 500, "n1")).submit(part("guard", 600, "n2")).submit(part("loose", 400))
    scene.seen("guard", "ended").submit(request("big").cpu(0), request("big2").cpu(0))
    assert [each[3] for each in moves(scene)] == ["ns/big"]


def test_without_the_flag_nothing_is_looked_for() -> None:
    """Claim: off unless asked for."""
    assert what_if(filled().log.state, Changes()).moves == ()
