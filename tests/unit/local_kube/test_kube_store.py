"""The store: versions, history, pages, deletion. Time and uids are the test's."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubus.local.kube.history import Change
from gpubus.local.kube.listing import Lister, ListQuery
from gpubus.local.kube.quantity import milli
from gpubus.local.kube.resources import NAMESPACES, PODS, parse_path
from gpubus.local.kube.status import StatusError
from gpubus.local.kube.store import DeleteOptions, Store


def new_store(history: int = 1000) -> Store:
    numbers = itertools.count()
    return Store(clock=lambda: 1_700_000_000.0, new_uid=lambda: f"uid-{next(numbers)}", history=history)


def pod(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def note(store: Store, name: str, value: int) -> None:
    def change(obj: dict[str, Any]) -> dict[str, Any]:
        return {**obj, "metadata": {**obj["metadata"], "annotations": {"n": str(value)}}}

    store.patch(PODS, "default", name, change)


@given(st.lists(st.tuples(st.sampled_from(["create", "note", "delete"]), st.integers(0, 3), st.integers(0, 2))))
def test_replaying_the_history_gives_the_store(commands: list[tuple[str, int, int]]) -> None:
    """Claim: versions rise by one without gaps, and the changes after any version lead from there to now."""
    store = new_store()
    began = store.version
    for command, number, value in commands:
        name = f"p{number}"
        with contextlib.suppress(StatusError):  # a second creation, a change of nothing
            if command == "create":
                store.create(PODS, "default", pod(name))
            elif command == "note":
                note(store, name, value)
            else:
                store.delete(PODS, "default", name)
    changes = store.history.since(began)
    assert [change.version for change in changes] == list(range(began + 1, store.version + 1))
    replayed: dict[str, dict[str, Any]] = {}
    for change in changes:
        name = change.entry.obj["metadata"]["name"]
        assert (change.kind == "ADDED") is (name not in replayed)
        replayed[name] = change.entry.obj
        if change.kind == "DELETED":
            del replayed[name]
    assert replayed == {e.obj["metadata"]["name"]: e.obj for e in store.entries(PODS)}


def test_the_window_of_history_is_limited() -> None:
    """Claim: what has fallen out is 410 and names both versions; what is inside is there; the future is empty."""
    store = new_store(history=10)
    store.create(PODS, "default", pod("a"))
    for value in range(40):
        note(store, "a", value)
    assert len(store.history.since(store.version - 10)) == 10
    assert list(store.history.since(store.version + 5)) == []
    with pytest.raises(StatusError) as caught:
        store.history.since(1)
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    assert caught.value.message.startswith("too old resource version: 1 (")


def test_stored_objects_never_change() -> None:
    """Claim: an entry read before a write is as it was after it."""
    store = new_store()
    entry = store.create(PODS, "default", pod("a"))
    before = entry.raw
    note(store, "a", 1)
    store.bind("default", "a", {"metadata": {"annotations": {"x": "1"}}, "target": {"name": "n"}})
    assert msgspec.json.encode(entry.obj) == before


def test_a_page_of_a_forgotten_moment_is_expired() -> None:
    """Claim: 410, so that the client begins again instead of mixing two moments."""
    store = new_store()
    for name in ("a", "b", "c"):
        store.create(PODS, "default", pod(name))
    lister = Lister(store)
    first = msgspec.json.decode(lister.page(ListQuery(resource=PODS, limit=1)))
    lister.forget()
    with pytest.raises(StatusError) as caught:
        lister.page(ListQuery(resource=PODS, limit=1, token=first["metadata"]["continue"]))
    assert caught.value.code == 410


def test_version_zero_ignores_the_limit() -> None:
    """Claim: resourceVersion=0 answers everything at once, as the real server does."""
    store = new_store()
    for name in ("a", "b", "c"):
        store.create(PODS, "default", pod(name))
    body = msgspec.json.decode(Lister(store).page(ListQuery(resource=PODS, limit=1, resource_version="0")))
    assert len(body["items"]) == 3
    assert "continue" not in body["metadata"]


def test_a_namespace_takes_its_content_with_it() -> None:
    """Claim: pods are DELETED before their namespace is."""
    store = new_store()
    store.create(NAMESPACES, "", {"metadata": {"name": "team"}})
    store.create(PODS, "team", pod("a"))
    seen: list[Change] = []
    store.on_change = seen.append
    store.delete(NAMESPACES, "", "team")
    assert [(change.kind, change.resource.plural) for change in seen] == [
        ("DELETED", "pods"),
        ("DELETED", "namespaces"),
    ]


def test_a_dry_run_changes_nothing() -> None:
    """Claim: no command with dry_run moves the version."""
    store = new_store()
    store.create(PODS, "default", pod("a"))
    before = store.version
    store.create(PODS, "default", pod("b"), dry_run=True)
    store.bind("default", "a", {"target": {"name": "n"}}, dry_run=True)
    store.delete(PODS, "default", "a", DeleteOptions(grace_s=0), dry_run=True)
    assert store.version == before
    assert [e.obj["metadata"]["name"] for e in store.entries(PODS)] == ["a"]


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("1", 1000), ("500m", 500), ("0.1", 100), ("0.1m", 1), ("1.5Gi", 1_610_612_736_000), ("2k", 2_000_000), (3, 3000)],
)
def test_quantities_are_exact(text: object, thousandths: int) -> None:
    """Claim: integers of thousandths, fractions of them rounded up."""
    assert milli(text) == thousandths


@pytest.mark.parametrize("text", ["", "1 Gi", "x", "1e", "--1", "1GiB"])
def test_what_is_no_quantity_is_an_error(text: str) -> None:
    """Claim: ValueError, never a guess."""
    with pytest.raises(ValueError, match="not a quantity"):
        milli(text)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/pods", ("pods", "", "", "")),
        ("/api/v1/namespaces/x/pods", ("pods", "x", "", "")),
        ("/api/v1/namespaces/x/pods/a/binding", ("pods", "x", "a", "binding")),
        ("/api/v1/namespaces/x", ("namespaces", "", "x", "")),
        ("/api/v1/nodes/n/status", ("nodes", "", "n", "status")),
        ("/apis/coordination.k8s.io/v1/namespaces/x/leases/l", ("leases", "x", "l", "")),
        ("/api/v1/pods/a", None),
        ("/api/v1/namespaces/x/nodes", None),
        ("/api/v1/namespaces/x/pods/a/exec", None),
        ("/api/v1/namespaces/x/pods/a/status/more", None),
        ("/apis/apps/v1/deployments", None),
        ("/api", None),
        ("/", None),
    ],
)
def test_paths(path: str, found: tuple[str, str, str, str] | None) -> None:
    """Claim: every served path is read, and nothing else is."""
    target = parse_path(path)
    read = target and (target.resource.plural, target.namespace, target.name, target.subresource)
    assert read == found
