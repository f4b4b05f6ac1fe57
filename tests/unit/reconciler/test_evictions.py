"""A pod that must leave for another one: deleted like a withdrawn one, made anew under another name."""

from __future__ import annotations

from bus.ledger.fold import apply
from contracts.decisions import Nominated, Released, Reserved
from contracts.units import RequestUid
from reconciler.marks import Mark
from reconciler.plan import plan, pod_of
from reconciler.seen import Seen
from reconciler.steps import Case, Create, Delete, Publish, Wait
from reconciler.view import View, pod_key
from tests.builders.ledger import node, request
from tests.builders.scene import Scene


def evicted() -> Scene:
    """`a` holds the only card and has been told to leave for `h`."""
    scene = Scene(node("n1").gpus(1)).submit(request("a").fields(priority_class="low"))
    return scene.submit(request("h").fields(priority_class="high"))


def test_a_victim_that_has_no_pod_is_gone_and_one_that_has_is_deleted_with_its_grace() -> None:
    """Whatever there is of it leaves, and the outcome says for whom."""
    scene = evicted()
    a = scene["a"]
    case = Case(epoch="e", sequence=scene.log.state.sequence, request=a)
    step = plan(case)
    assert isinstance(step, Publish)
    assert (step.outcome.phase, step.outcome.attempt) == ("gone", 0)
    assert step.outcome.reason == f"evicted for {scene['h'].uid}"

    unbound = Case(epoch="e", sequence=scene.log.state.sequence, request=a, seen=_seen(a.uid))
    assert plan(unbound) == Delete(pod_uid="p", grace_s=30, reason=f"evicted for {scene['h'].uid}")


def test_the_second_pod_has_another_name_and_the_first_belongs_to_nobody() -> None:
    """After the requeue the old pod is cleaned away and a new one is made; old words do not count."""
    scene = evicted()
    first = pod_key(scene["a"])
    scene.seen("a", "gone").seen("h", "ended", exit_code=0)
    a = scene["a"]
    assert (a.attempt, a.placement is not None) == (1, True)
    assert pod_of(a) != first.partition("/")[2]

    view = View(scene.log.state)
    assert view.request(first, a.uid) is None
    assert view.request(pod_key(a), None) is a
    case = Case(epoch="e", sequence=scene.log.state.sequence, request=a)
    assert isinstance(plan(case), Create)
    over = Case(epoch="e", sequence=scene.log.state.sequence, request=None, seen=_seen(a.uid))
    assert isinstance(plan(over), Delete | Wait)


def test_a_commit_that_nominates_concerns_the_pods_of_its_victims() -> None:
    """The view names the keys to look at: at the eviction, and at the release of what waits again."""
    scene = evicted()
    victim = pod_key(scene["a"])
    scene.seen("a", "gone")
    state, keys = type(scene.log.state)(), dict[str, set[str]]()
    view = View(state)
    for commit, sequence in scene.log.commits:
        apply(state, commit, sequence)
        named = view.folded(commit)
        for record in commit.records:
            keys.setdefault(type(record).__name__, set()).update(named)
    assert victim in keys[Nominated.__name__]
    assert victim in keys[Released.__name__]
    assert victim not in view
    assert view.nodes_of(scene.log.commits[-1][0], (Released, Reserved)) == {"n1"}


def _seen(uid: RequestUid) -> Seen:
    return Seen(pod_uid="p", mark=Mark(uid=uid, epoch="e", sequence=1))
