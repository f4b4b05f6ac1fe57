"""The informer's memory: no event is lost, doubled or taken back, in whatever order lists, watches and answers come."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reconciler.objects import Pod
from reconciler.store import Store, key_of, version_of
from tests.builders.pods import bound, created, one_placed, stranger

WORLD, HELD = one_placed()
EPOCH = WORLD.state.epoch


def kinds(changes: list[Any]) -> list[tuple[str, str]]:
    return [(change.kind, change.object.metadata.uid) for change in changes]


def a(version: int, *, uid: str = "u1", on: str = "n1") -> Pod:
    return stranger("a", version=version, uid=uid, on=on)


def test_a_list_begins_and_a_watch_goes_on() -> None:
    """Added, changed, gone; the version is that of the last event."""
    store: Store[Pod] = Store()

    assert kinds(store.relist([a(3)], 5)) == [("added", "u1")]
    assert kinds(store.event("MODIFIED", a(6))) == [("changed", "u1")]
    assert kinds(store.event("DELETED", a(7))) == [("gone", "u1")]
    assert (store.version, store.objects) == (7, {})


def test_a_repeated_event_changes_nothing() -> None:
    """A resumed watch may tell again what was seen."""
    store: Store[Pod] = Store()
    store.relist([], 5)
    store.event("ADDED", a(6))

    assert store.event("ADDED", a(6)) == []
    assert store.event("DELETED", a(5)) == []
    assert key_of(a(6)) in store.objects


def test_deletions_in_a_gap_are_made_up_by_the_next_list() -> None:
    """410, list again: what is missing is gone, what is new is added, what differs is changed."""
    store: Store[Pod] = Store()
    store.relist([a(1), stranger("b", version=2), stranger("c", version=3)], 5)

    changes = store.relist([stranger("b", version=2), stranger("c", version=9), stranger("d", version=8)], 10)

    assert sorted(kinds(changes)) == [("added", "uid-d"), ("changed", "uid-c"), ("gone", "u1")]


def test_another_life_of_a_name_is_another_object() -> None:
    """Deleted and made again in a gap: both are told, in that order."""
    store: Store[Pod] = Store()
    store.relist([a(1)], 5)

    assert kinds(store.relist([a(8, uid="u2")], 10)) == [("gone", "u1"), ("added", "u2")]
    assert kinds(store.event("ADDED", a(12, uid="u3"))) == [("gone", "u2"), ("added", "u3")]


def test_a_version_that_goes_back_means_begin_again() -> None:
    """A backup of etcd was restored: nothing that was known is worth anything, also what looks newer."""
    store: Store[Pod] = Store()
    store.relist([a(90), stranger("b", version=95)], 100)

    changes = store.relist([a(50)], 60)

    assert sorted(kinds(changes)) == [("added", "u1"), ("gone", "u1"), ("gone", "uid-b")]
    assert store.version == 60
    assert version_of(store.objects[key_of(a(50))]) == 50


def test_the_answer_of_a_create_may_come_after_its_event() -> None:
    """One in three events arrives first: the late answer changes nothing."""
    store: Store[Pod] = Store()
    store.relist([], 5)
    store.event("ADDED", a(6))
    store.event("MODIFIED", a(8))

    assert store.own(a(6)) == []
    assert version_of(store.objects[key_of(a(6))]) == 8


def test_the_answer_of_a_create_may_come_after_the_pod_is_gone_again() -> None:
    """The watch is past it and the pod is not there: it was deleted, and does not rise."""
    store: Store[Pod] = Store()
    store.relist([], 5)
    store.event("ADDED", a(6))
    store.event("DELETED", a(7))

    assert store.own(a(6)) == []
    assert store.objects == {}


def test_what_we_made_is_there_before_its_event_and_survives_an_older_list() -> None:
    """A pod of ours is younger than the list that lacks it."""
    store: Store[Pod] = Store()
    store.relist([], 5)

    assert kinds(store.own(a(9))) == [("added", "u1")]
    assert store.relist([], 8) == []
    assert store.event("ADDED", a(9)) == []
    assert kinds(store.relist([], 12)) == [("gone", "u1")]


def test_a_binding_of_ours_stands_until_something_newer_comes() -> None:
    """The bound pod has the version it was bound at: neither its ADDED event nor an equal list take the node away."""
    store: Store[Pod] = Store()
    store.relist([], 5)
    made = created(HELD, epoch=EPOCH, version=9)
    ours = replace(bound(HELD, epoch=EPOCH), metadata=replace(bound(HELD, epoch=EPOCH).metadata, resource_version="9"))
    store.own(made)

    assert kinds(store.own(ours)) == [("changed", made.metadata.uid)]
    assert store.event("ADDED", made) == []
    assert store.relist([made], 10) == []
    assert store.objects[key_of(made)].spec.node_name == "n1"
    assert kinds(store.event("MODIFIED", bound(HELD, epoch=EPOCH, version=11))) == [("changed", made.metadata.uid)]


def test_deleting_an_earlier_life_leaves_the_present_one() -> None:
    """Our create of the second life may be known before the event that ends the first."""
    store: Store[Pod] = Store()
    store.relist([a(3)], 5)
    store.own(a(9, uid="u2"))

    assert store.event("DELETED", a(7)) == []
    assert store.objects[key_of(a(9))].metadata.uid == "u2"


def test_bookmarks_move_the_version_forward_only() -> None:
    """They carry nothing else."""
    store: Store[Pod] = Store()
    store.relist([a(3)], 5)

    store.bookmark(20)
    store.bookmark(10)

    assert store.version == 20


def test_pods_are_grouped_by_node() -> None:
    """A pod that moves groups leaves the old one; an empty name is no group."""
    store: Store[Pod] = Store(lambda pod: pod.spec.node_name)
    store.relist([a(1, on=""), stranger("b", version=2)], 5)
    assert [p.metadata.name for p in store.grouped("n1")] == ["b"]

    store.event("MODIFIED", a(6, on="n1"))
    assert sorted(p.metadata.name for p in store.grouped("n1")) == ["a", "b"]

    store.event("DELETED", stranger("b", version=7))
    store.event("DELETED", a(8))
    assert list(store.grouped("n1")) == []
    assert list(store.grouped("")) == []


# --- any history, any gaps ---------------------------------------------------------------------------------------

operations = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "see", "gap", "answer"]), st.sampled_from("ab")), max_size=40
)


class Server:
    """What is there, the events that have not been seen, and the answers of our own calls that have not come back."""

    def __init__(self) -> None:
        self.version = 1
        self.truth: dict[str, Pod] = {}
        self.events: list[tuple[Any, Pod]] = []
        self.answers: list[Pod] = []

    def put(self, name: str) -> None:
        old = self.truth.get(name)
        pod = stranger(name, version=self.version, uid=old.metadata.uid if old else f"{name}-{self.version}")
        self.truth[name] = pod
        self.events.append(("MODIFIED" if old else "ADDED", pod))
        self.answers.append(pod)

    def delete(self, name: str) -> None:
        if old := self.truth.pop(name, None):
            self.events.append(("DELETED", stranger(name, version=self.version, uid=old.metadata.uid)))


class Client:
    """A store, and what its changes say when they are applied one after the other."""

    def __init__(self) -> None:
        self.store: Store[Pod] = Store(lambda pod: pod.spec.node_name)
        self.told: dict[str, Pod] = {}

    def tell(self, changes: list[Any]) -> None:
        for change in changes:
            if change.kind == "gone":
                assert self.told.pop(change.key).metadata.uid == change.object.metadata.uid
            else:
                assert (change.key in self.told) == (change.kind == "changed")
                self.told[change.key] = change.object


@given(operations)
def test_whatever_happens_the_store_comes_to_what_is_there(history: list[tuple[str, str]]) -> None:
    """A server changes, its events come late or are lost in a gap, our own answers come at any time after.

    After the last list or event the store holds what the server holds, and the changes it told, applied one after the
    other, come to the same.
    """
    server, client = Server(), Client()
    client.tell(client.store.relist([], server.version))
    for what, name in [*history, *[("see", "")] * 40, *[("answer", "")] * 40]:
        server.version += 1
        if what in ("put", "delete"):
            getattr(server, what)(name)
        elif what == "see" and server.events:
            client.tell(client.store.event(*server.events.pop(0)))
        elif what == "gap":
            server.events.clear()
            client.tell(client.store.relist(list(server.truth.values()), server.version))
        elif what == "answer" and server.answers:
            client.tell(client.store.own(server.answers.pop(0)))

    assert client.store.objects == client.told == {key_of(pod): pod for pod in server.truth.values()}
    assert sorted(p.metadata.name for p in client.store.grouped("n1")) == sorted(server.truth)
