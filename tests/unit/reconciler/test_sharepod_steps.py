"""SharePods as pure steps: what is made, what is ended in which order, and what their status says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reconciler.annotations import words
from reconciler.foreign import ForeignPod, Refused, translate, wants_us
from reconciler.objects import Owner, Pod, Share, SharePod, SharePodCondition
from reconciler.sharepod import AT_ONCE, ENDED_KEPT, EndPod, MakePod, owned, pod_body, revision, steps
from reconciler.sharepod_status import status

NOW = "2026-01-01T00:00:00Z"


def shared(replicas: int = 2, **fields: Any) -> SharePod:
    raw = {
        "metadata": {"name": "web", "namespace": "ns", "uid": "sp-1", "generation": 3},
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": [{"name": "v", "emptyDir": {}}]},
            },
            **fields,
        },
    }
    return msgspec.convert(raw, SharePod)


def pod(name: str, **facts: Any) -> Pod:
    """A pod of it: `node`, `phase`, `ready`, `age` (younger is larger), `cost`, `going`."""
    ready = [{"type": "Ready", "status": "True" if facts.get("ready") else "False"}]
    cost = {"controller.kubernetes.io/pod-deletion-cost": str(facts.get("cost", 0))}
    raw = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "annotations": cost | facts.get("annotations", {}),
            "creationTimestamp": f"2026-01-01T00:00:{facts.get('age', 0):02}Z",
            "deletionTimestamp": "now" if facts.get("going") else None,
            "ownerReferences": [{"kind": "SharePod", "name": "web", "uid": "sp-1", "controller": True}],
        },
        "spec": {"nodeName": facts.get("node", "n1")},
        "status": {"phase": facts.get("phase", "Running"), "conditions": facts.get("conditions", ready)},
    }
    return msgspec.convert(raw, Pod)


def ended(shared_: SharePod, *pods: Pod) -> list[str]:
    return [step.name for step in steps(shared_, pods) if isinstance(step, EndPod)]


def made(shared_: SharePod, *pods: Pod) -> list[str]:
    return [step.name for step in steps(shared_, pods) if isinstance(step, MakePod)]


def test_what_is_missing_is_made_under_names_that_are_not_taken() -> None:
    """The lowest first, always the same: whoever makes a pod twice finds it there."""
    both = made(shared())

    assert len(set(both)) == 2
    assert made(shared(), pod(both[1])) == both[:1]
    assert made(shared(), pod(both[0])) == both[1:]
    assert made(shared(), *map(pod, both)) == []


def test_a_pod_that_is_going_is_replaced_under_another_name() -> None:
    both = made(shared())

    third = made(shared(), pod(both[0]), pod(both[1], going=True))
    assert len(third) == 1
    assert third[0] not in both


def test_not_all_are_made_at_once() -> None:
    assert len(made(shared(1000))) == AT_ONCE


def test_nothing_is_done_while_it_is_deleted() -> None:
    """Its pods are taken along by Kubernetes; making new ones would never end."""
    going = shared()
    going = replace(going, metadata=replace(going.metadata, deletion_timestamp="now"))

    assert steps(going, []) == []


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({"node": ""}, {"node": "n1", "phase": "Pending"}, "not bound before bound"),
        ({"phase": "Pending"}, {}, "pending before running"),
        ({"ready": False}, {"ready": True}, "not ready before ready"),
        ({"ready": False, "cost": 10}, {"ready": True, "cost": -5}, "also one that costs more"),
        ({"cost": -5, "age": 1}, {"cost": 10, "age": 9}, "the lower deletion cost"),
        ({"age": 9}, {"age": 1}, "the younger"),
    ],
)
def test_who_goes_first(first: dict[str, Any], second: dict[str, Any], why: str) -> None:
    """In either order of the list, and whatever their names are."""
    for names in ("ab", "ba"):
        one, two = pod(names[0], **first), pod(names[1], **second)

        assert ended(shared(1), one, two) == ended(shared(1), two, one) == [names[0]], why


def test_of_a_fuller_node_before_of_an_emptier_one() -> None:
    pods = [pod("a", node="n1"), pod("b", node="n2"), pod("c", node="n2")]

    assert ended(shared(2), *pods) == ["b"]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from(["", "n1", "n2"])), max_size=8))
def test_the_order_of_the_list_decides_nothing(facts: list[tuple[int, bool, str]]) -> None:
    """Ties end in the name."""
    pods = [pod(f"p{i}", age=age, ready=ready, node=node) for i, (age, ready, node) in enumerate(facts)]

    assert ended(shared(1), *pods) == ended(shared(1), *reversed(pods))
    assert len(ended(shared(1), *pods)) == max(0, len(pods) - 1)


def test_of_the_ended_the_youngest_are_kept() -> None:
    """For their logs; they do not count as replicas."""
    dead = [pod(f"d{age}", phase="Failed", age=age) for age in range(ENDED_KEPT + 2)]

    assert sorted(ended(shared(1), pod("a"), *dead)) == ["d0", "d1"]
    assert len(made(shared(1), *dead)) == 1


def test_a_pod_of_it_keeps_every_field_of_the_template_and_belongs_to_it() -> None:
    body = pod_body(shared(share={"shareMilli": 500, "models": ["A100", "H200"], "antiAffinity": "x"}), "web-1")

    assert body["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert body["spec"]["schedulerName"] == "gpubus"
    made_of = {"gpubus.dev/sharepod": "web", "gpubus.dev/revision": "83e33f65bd"}
    assert body["metadata"]["labels"] == {"app": "web", **made_of}
    assert owned(msgspec.convert(body, Pod)) == Owner(kind="SharePod", name="web", uid="sp-1", controller=True)
    said = words(body["metadata"]["annotations"], body["metadata"]["labels"])
    assert (said.gpu["share_milli"], said.gpu["models"]) == (500, ("A100", "H200"))
    assert (said.locality, said.faults) == ({"anti_affinity": "x"}, ())


@pytest.mark.parametrize(
    "share",
    [
        Share(cards=0),
        Share(),
        Share(share_milli=1),
        Share(cards=2, memory_mib=0),
        Share(memory_milli=10, exclusion="t", affinity="a", priority_class="low"),
    ],
)
def test_its_pods_are_pods_that_wait_for_us(share: Share) -> None:
    """Also those without a card: each is a request that somebody would accept."""
    found = shared()
    found = replace(found, spec=replace(found.spec, share=share))
    body = pod_body(found, "web-1")
    made_ = msgspec.convert({**body, "metadata": {**body["metadata"], "uid": "u"}}, ForeignPod)
    request = translate(made_)

    assert wants_us(made_)
    assert not isinstance(request, Refused), request
    assert (request.gpu.cards, request.gpu.share_milli) == (share.cards, share.share_milli)


def test_a_foreign_owner_is_not_a_sharepod() -> None:
    theirs = msgspec.convert(
        {"metadata": {"name": "x", "ownerReferences": [{"kind": "ReplicaSet", "uid": "r", "controller": True}]}}, Pod
    )

    assert owned(theirs) is None


# --- what its status says --------------------------------------------------------------------------------------------


def test_the_status_counts_what_is_ready_and_names_a_card() -> None:
    cards = {"gpubus.dev/cards": "GPU-1"}
    found = status(shared(), [pod("a", ready=True, annotations=cards), pod("b", phase="Failed")], now=NOW)

    assert (found.replicas, found.ready_replicas, found.ready, found.card) == (1, 1, "1/2", "GPU-1")
    assert (found.observed_generation, found.selector) == (3, "gpubus.dev/sharepod=web")
    condition = found.conditions[0]
    assert (condition.status, condition.reason, condition.observed_generation) == ("False", "Waiting", 3)


def test_why_it_waits_is_what_its_pods_say() -> None:
    waits = [{"type": "PodScheduled", "status": "False", "message": "500 needed"}]
    found = status(shared(), [pod("a", node="", phase="Pending", conditions=waits)], now=NOW)

    assert (found.reason, found.conditions[0].message) == ("500 needed", "500 needed")
    assert status(shared(0), [], now=NOW).reason == ""


def test_what_is_refused_is_no_success() -> None:
    found = status(shared(), [], refused="quota: exceeded", now=NOW)

    assert (found.reason, found.conditions[0].reason) == ("quota: exceeded", "Refused")


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    """So that a status that says the same is the same, and is not written again."""
    then = "2025-01-01T00:00:00Z"
    before = SharePodCondition(type="Ready", status="True", last_transition_time=then)
    known = shared(1)
    known = replace(known, status=replace(known.status, conditions=(before,)))

    assert status(known, [pod("a", ready=True)], now=NOW).conditions[0].last_transition_time == then
    assert status(known, [], now=NOW).conditions[0].last_transition_time == NOW
    written = status(known, [pod("a", ready=True)], now=NOW)
    assert msgspec.json.decode(msgspec.json.encode(written), type=type(written)) == written


# --- replacing them --------------------------------------------------------------------------------------------------


def of(shared_: SharePod, name: str, **facts: Any) -> Pod:
    """A pod of the revision that the SharePod has now."""
    made_ = pod(name, **facts)
    return replace(made_, metadata=replace(made_.metadata, labels={"gpubus.dev/revision": revision(shared_)}))


def updating(replicas: int, *, unavailable: int = 1, surge: int = 0) -> SharePod:
    return shared(replicas, update={"maxUnavailable": unavailable, "maxSurge": surge})


OLD = replace(shared(), spec=replace(shared().spec, share=Share(share_milli=7)))
"""Another share: pods of it are of another revision."""


@pytest.mark.parametrize(
    ("how", "new", "old", "goes", "comes"),
    [
        ({}, [], [True, True, True], 1, 0),
        ({}, [], [True, True], 0, 1),
        ({}, [False], [True, True], 0, 0),
        ({}, [True], [True, True], 1, 0),
        ({}, [True, True, True], [], 0, 0),
        ({}, [], [True, True, False], 1, 0),
        ({}, [False], [False, True], 0, 0),
        ({"unavailable": 2}, [], [True, True, True], 2, 0),
        ({"unavailable": 0, "surge": 1}, [], [True, True, True], 0, 1),
        ({"unavailable": 0, "surge": 1}, [False], [True, True, True], 0, 0),
        ({"unavailable": 0, "surge": 1}, [True], [True, True, True], 1, 0),
        ({"unavailable": 1, "surge": 2}, [], [True, True, True], 1, 2),
        ({"unavailable": 9}, [], [True, True, True], 3, 0),
    ],
)
def test_pods_of_another_revision_are_replaced(
    how: dict[str, int], new: list[bool], old: list[bool], goes: int, comes: int
) -> None:
    """Three replicas; each pod is ready or not. The successors come while their place is free."""
    want = updating(3, **how)
    pods = [of(want, f"n{i}", ready=ready) for i, ready in enumerate(new)]
    pods += [of(OLD, f"o{i}", ready=ready) for i, ready in enumerate(old)]

    assert (len(ended(want, *pods)), len(made(want, *pods))) == (goes, comes)
    assert all(name.startswith("o") for name in ended(want, *pods))


def test_of_the_old_the_broken_go_first() -> None:
    """A template that is mended takes its broken pods before any that serves."""
    want = updating(3)
    pods = [of(want, "n0", ready=True), of(OLD, "o0", ready=True), of(OLD, "o1", ready=False)]

    assert ended(want, *pods) == ["o1"]


def test_changed_back_what_was_old_is_right() -> None:
    want = updating(2)

    assert steps(want, [of(want, "a", ready=True), of(want, "b", ready=True)]) == []


def test_a_pod_from_before_revisions_is_let_be() -> None:
    """An upgrade of gpubus ends no pod."""
    assert steps(shared(2), [pod("a", ready=True), pod("b", ready=True)]) == []


def test_a_scale_is_no_update_and_what_counts_is_the_whole_template() -> None:
    """The digest is of everything that a pod is made from, in this very form: another would replace every pod."""
    base = shared()
    labelled = msgspec.json.decode(msgspec.json.encode(base), type=SharePod)

    assert revision(shared(9)) == revision(updating(2, surge=4)) == revision(labelled) == revision(base)
    others = [
        shared(share={"shareMilli": 999}),
        shared(template={"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}),
        shared(template={"metadata": {"labels": {"app": "x"}}, "spec": base.spec.template.spec}),
    ]
    assert len({revision(one) for one in (base, *others)}) == 4


@given(
    replicas=st.integers(0, 6),
    unavailable=st.integers(0, 3),
    surge=st.integers(0, 3),
    chance=st.randoms(use_true_random=False),
    broken=st.booleans(),
)
def test_an_update_keeps_its_bounds_and_ends(
    replicas: int, unavailable: int, surge: int, chance: Any, broken: bool
) -> None:
    """Step by step, pods turning ready in any order: never fewer ready, never more in all; a broken one stops there."""
    want = updating(replicas, unavailable=unavailable, surge=surge or int(not unavailable))
    pods = {f"o{i}": of(OLD, f"o{i}", ready=True) for i in range(replicas)}
    fewest, most = replicas - unavailable, replicas + want.spec.update.max_surge
    for _ in range(200):
        for step in steps(want, list(pods.values())):
            if isinstance(step, EndPod):
                del pods[step.name]
            else:
                pods[step.name] = of(want, step.name, ready=False)
        ready = [p for p in pods.values() if any(c.status == "True" for c in p.status.conditions or ())]
        assert fewest <= len(ready)
        assert len(pods) <= most
        waiting = [name for name, p in pods.items() if p not in ready]
        if waiting and not broken:
            name = chance.choice(waiting)
            pods[name] = of(want, name, ready=True)

    assert broken or sorted(pods) == sorted(name for name in pods if not name.startswith("o"))
    assert broken or len(pods) == replicas
    assert steps(want, list(pods.values())) == []


def test_the_status_says_how_far_an_update_is() -> None:
    want = updating(2)
    found = status(want, [of(want, "n0", ready=True), of(OLD, "o0", ready=True)], now=NOW)

    ready, updated = found.conditions
    assert (ready.status, updated.type, updated.status, found.updated_replicas) == ("True", "Updated", "False", 1)
    assert updated.message == "1 of 2 are of this template and share, 1 are of another"
    assert status(want, [of(want, name, ready=True) for name in "ab"], now=NOW).conditions[1].status == "True"
