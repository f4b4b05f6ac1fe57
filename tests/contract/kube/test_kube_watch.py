"""Lists and watches: what an informer builds on.

Each claim holds on the embedded API and on a real API server with a hollow kubelet.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.kube.rig import Rig, refusal, unique

# --- lists -----------------------------------------------------------------------------------------------


async def names(rig: Rig, **query: Any) -> list[str]:
    answer = await rig.call("GET", rig.pods, query=query)
    assert answer.status == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


async def test_lists_are_sorted_and_selected(rig: Rig) -> None:
    """Claim: by name; label and field selectors of every form the server knows."""
    await rig.create_pod("b", labels={"app": "x", "tier": "1"})
    await rig.create_pod("a", labels={"app": "y"})
    await rig.create_pod("c")
    await rig.bind("c", "nowhere")
    assert await names(rig) == ["a", "b", "c"]
    assert await names(rig, labelSelector="app=x") == ["b"]
    assert await names(rig, labelSelector="app!=x") == ["a", "c"]
    assert await names(rig, labelSelector="app in (x,y),tier") == ["b"]
    assert await names(rig, labelSelector="app notin (x)") == ["a", "c"]
    assert await names(rig, labelSelector="!app") == ["c"]
    assert await names(rig, fieldSelector="spec.nodeName=nowhere") == ["c"]
    assert await names(rig, fieldSelector="spec.nodeName=") == ["a", "b"]
    assert await names(rig, fieldSelector="metadata.name=a,status.phase!=Running") == ["a"]
    await rig.delete_pod("c", gracePeriodSeconds=0)


async def test_a_list_carries_a_version_and_bare_items(rig: Rig) -> None:
    """Claim: kind PodList; items have neither kind nor apiVersion; its version is at least that of every item."""
    made = await rig.create_pod("a")
    answer = await rig.call("GET", rig.pods)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("PodList", "v1")
    assert not {"kind", "apiVersion"} & set(answer.body["items"][0])
    assert int(answer.body["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_pages_show_one_moment(rig: Rig) -> None:
    """Claim: all pages carry the version of the first, and what is written between them does not show."""
    for name in ("a", "b", "c", "d", "e"):
        await rig.create_pod(name)
    first = (await rig.call("GET", rig.pods, query={"limit": 2})).body
    assert first["metadata"]["remainingItemCount"] == 3
    await rig.create_pod("cc")
    second = (await rig.call("GET", rig.pods, query={"limit": 2, "continue": first["metadata"]["continue"]})).body
    third = (await rig.call("GET", rig.pods, query={"limit": 2, "continue": second["metadata"]["continue"]})).body
    assert [i["metadata"]["name"] for page in (first, second, third) for i in page["items"]] == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [
        ({"continue": "zzz", "limit": 1}, 400, "BadRequest"),
        ({"fieldSelector": "spec.foo=1"}, 400, "BadRequest"),
        ({"labelSelector": "a=b=c"}, 400, "BadRequest"),
        ({"resourceVersion": "99999999"}, 504, "Timeout"),
        ({"sendInitialEvents": "true"}, 422, "Invalid"),
    ],
)
async def test_refused_lists(rig: Rig, query: dict[str, Any], code: int, reason: str) -> None:
    """Claim: bad parameters are 400, a version of the future is 504, watch parameters on a list 422."""
    assert refusal(await rig.call("GET", rig.pods, query=query))[:2] == (code, reason)


async def test_a_list_over_all_namespaces(rig: Rig) -> None:
    """Claim: /api/v1/pods holds this namespace's pods, too."""
    await rig.create_pod("a")
    answer = await rig.call("GET", "/api/v1/pods")
    assert (rig.namespace, "a") in {(i["metadata"]["namespace"], i["metadata"]["name"]) for i in answer.body["items"]}


# --- watches ---------------------------------------------------------------------------------------------


async def test_a_watch_tells_everything_after_its_version_in_order(rig: Rig) -> None:
    """Claim: a creation, a patch and a deletion after the list are four events under rising versions."""
    await rig.create_pod("before")
    version = await rig.version()
    await rig.create_pod("a")
    await rig.patch_pod("a", {"metadata": {"annotations": {"x": "1"}}})
    await rig.delete_pod("a")
    async with rig.watch(resourceVersion=version) as watch:
        events = [await watch.next() for _ in range(4)]
    assert {event.name for event in events if event} == {"a"}
    assert [event.kind for event in events if event] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    versions = [event.version for event in events if event]
    assert versions == sorted(set(versions))
    assert versions[0] > version


async def test_a_watch_without_a_version_begins_with_what_is_there(rig: Rig) -> None:
    """Claim: ADDED for each present object, then live."""
    await rig.create_pod("a")
    async with rig.watch() as watch:
        assert (await watch.until("ADDED", "a")).object["kind"] == "Pod"
        await rig.create_pod("b")
        await watch.until("ADDED", "b")


async def test_initial_events_end_with_a_marked_bookmark(rig: Rig) -> None:
    """Claim: streaming list: all objects, then a BOOKMARK that says so and carries the version to go on from."""
    await rig.create_pod("a")
    await rig.create_pod("b")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with rig.watch(**query) as watch:
        events = [await watch.next() for _ in range(3)]
    assert [event.kind for event in events if event] == ["ADDED", "ADDED", "BOOKMARK"]
    mark = events[-1]
    assert mark is not None
    assert mark.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark.version >= max(event.version for event in events[:2] if event)


async def test_initial_events_need_a_version_match(rig: Rig) -> None:
    """Claim: 422 of ListOptions without resourceVersionMatch."""
    async with rig.watch(sendInitialEvents="true") as watch:
        assert watch.status == 422


async def test_a_watch_ends_cleanly_after_its_time(rig: Rig) -> None:
    """Claim: EOF after timeoutSeconds, neither earlier nor much later."""
    clock = asyncio.get_running_loop().time
    began, version = clock(), await rig.version()
    async with rig.watch(resourceVersion=version, timeoutSeconds=1) as watch:
        assert await watch.rest() == []
    assert 0.9 < clock() - began < 5.0


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_bookmarks_carry_the_version_to_resume_from(rig: Rig) -> None:
    """Claim: a quiet watch gets BOOKMARKs before its end, without a name, at or after the last event.

    The real server sends none in its first minute when nothing else is written, and promises none: on a busy machine
    one watch may end without. So they are no sign of life, and it takes two watches to say that they do not come.
    """
    version = await rig.version()
    await rig.create_pod("a")
    query = {"resourceVersion": version, "timeoutSeconds": rig.backend.bookmark_watch_s}
    for _ in range(2):
        async with rig.watch(**query, allowWatchBookmarks="true") as watch:
            first, *marks = await watch.rest()
        if marks:
            break
    assert first.kind == "ADDED"
    assert marks
    assert {mark.kind for mark in marks} == {"BOOKMARK"}
    assert all(mark.version >= first.version for mark in marks)
    assert "name" not in marks[0].object["metadata"]


async def test_a_selector_makes_objects_appear_and_disappear(rig: Rig) -> None:
    """Claim: coming to match is ADDED, ceasing to match is DELETED under the version of that change."""
    made = await rig.create_pod("a")
    version = made["metadata"]["resourceVersion"]
    async with rig.watch(resourceVersion=version, labelSelector="on=1") as watch:
        await rig.patch_pod("a", {"metadata": {"labels": {"on": "1"}}})
        await rig.patch_pod("a", {"metadata": {"annotations": {"x": "1"}}})
        off = await rig.patch_pod("a", {"metadata": {"labels": {"on": None}}})
        await rig.patch_pod("a", {"metadata": {"annotations": {"x": "2"}}})
        await rig.create_pod("b", labels={"on": "1"})
        events = [await watch.next() for _ in range(4)]
    seen = [(event.kind, event.name) for event in events if event]
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    gone = events[2]
    assert gone is not None
    assert str(gone.version) == off.body["metadata"]["resourceVersion"]
    assert gone.object["metadata"]["labels"] == {"on": "1"}


async def test_a_field_selector_follows_a_node(rig: Rig) -> None:
    """Claim: a watch of one node's pods sees a pod when it is bound there."""
    node = unique("nowhere")
    made = await rig.create_pod("a")
    version = made["metadata"]["resourceVersion"]
    async with rig.watch(resourceVersion=version, fieldSelector=f"spec.nodeName={node}") as watch:
        await rig.bind("a", node)
        await watch.until("ADDED", "a")
    await rig.delete_pod("a", gracePeriodSeconds=0)


async def test_a_version_of_the_future_is_silence(rig: Rig) -> None:
    """Claim: 200 and nothing at all, even when things happen: a client must notice by itself."""
    async with rig.watch(resourceVersion=await rig.version() + 1000, timeoutSeconds=1) as watch:
        await rig.create_pod("a")
        assert watch.status == 200
        assert await watch.rest() == []


async def test_a_restart_breaks_watches_and_loses_their_history_but_no_object(rig: Rig) -> None:
    """Claim: the connection ends, an old version is answered by 200 and an ERROR 410, a list heals it."""
    await rig.create_pod("a")
    old = await rig.version()
    await rig.create_pod("b")
    async with rig.watch(resourceVersion=await rig.version()) as watch:
        await rig.backend.restart()
        assert await watch.rest() == []
    await rig.create_pod("c")
    async with rig.watch(resourceVersion=old) as watch:
        assert watch.status == 200
        event = await watch.next()
        assert await watch.next() is None
    assert event is not None
    assert event.kind == "ERROR"
    assert (event.object["code"], event.object["reason"]) == (410, "Expired")
    assert event.object["message"].startswith(f"too old resource version: {old} (")
    assert await names(rig) == ["a", "b", "c"]
    async with rig.watch(resourceVersion=await rig.version()) as watch:
        await rig.create_pod("d")
        await watch.until("ADDED", "d")


async def test_no_event_is_lost_or_doubled_over_many_writers(rig: Rig) -> None:
    """Claim: every acknowledged creation is seen exactly once, in the order of versions."""
    version = await rig.version()
    wanted = {f"p{i}" for i in range(40)}
    async with rig.watch(resourceVersion=version) as watch:
        async with asyncio.TaskGroup() as group:
            for name in wanted:
                group.create_task(rig.create_pod(name), name=name)
        events = [await watch.next() for _ in range(40)]
    seen = [event for event in events if event]
    assert {event.name for event in seen} == wanted
    assert [event.version for event in seen] == sorted({event.version for event in seen})
