"""Replicas by hand, their names, batches of creations, and who is deleted first."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.names import free_names, replica_index, replica_name
from autoscaler.core.order import deletion_order, log2_age
from autoscaler.core.replicas import Counts, Replica, counts, next_batch, wanted_replicas

NOW_MS = 10_000_000


def up(name: str, **fields: Any) -> Replica:
    """A replica that runs and is ready since 100 s, on a node of its own."""
    plain: dict[str, Any] = {
        "uid": name,
        "node": f"node-{name}",
        "phase": "Running",
        "ready": True,
        "ready_ms": NOW_MS - 100_000,
        "created_ms": NOW_MS - 100_000,
        "in_flight": 0,
    }
    return Replica(name=name, **{**plain, **fields})


@pytest.mark.parametrize(
    ("minimum", "replicas", "wanted"),
    [
        (None, None, None),
        (3, None, 3),
        (None, 0, 0),
        (3, 0, 0),
        (None, 5, 5),
        (3, 5, 5),
        (3, 3, 3),
        (3, 1, 3),
        (0, None, None),
        (0, 2, 2),
    ],
)
def test_the_wanted_number_by_hand(minimum: int | None, replicas: int | None, wanted: int | None) -> None:
    """Each row of the table; off wins over the minimum, and a minimum of zero is none."""
    assert wanted_replicas(minimum, replicas) == wanted


def test_batches_double_until_all_are_made() -> None:
    """Ten creations go as 1, 2, 4, 3."""
    sizes, left, last = [], 10, 0
    while size := next_batch(left, last, failed=False):
        sizes.append(size)
        left, last = left - size, size

    assert sizes == [1, 2, 4, 3]


def test_the_first_error_ends_the_batches() -> None:
    """A quota that refuses costs one refused creation, not a thousand."""
    assert next_batch(999, 1, failed=True) == 0
    assert next_batch(0, 4, failed=False) == 0
    assert next_batch(-3, 0, failed=False) == 0


def test_a_retry_takes_reserved_names_before_new_ones() -> None:
    """The last reserved first; then the smallest free index; nothing that lives."""
    names = free_names("web", {"web-0", "web-2"}, 4, reserved=["web-5", "web-1"])

    assert names == ("web-1", "web-5", "web-3", "web-4")


def test_a_reserved_name_that_lives_by_now_is_not_taken_again() -> None:
    """The answer was lost, the creation was not."""
    assert free_names("web", {"web-0"}, 1, reserved=["web-0"]) == ("web-1",)


@given(st.text("az09-", min_size=1, max_size=50).map(lambda name: name.strip("-") or "a"), st.integers(0, 19_999))
def test_names_of_replicas_are_legal_and_tell_their_index(function: str, index: int) -> None:
    """For every legal function name, also those that leave no room for an index."""
    name = replica_name(function, index)

    assert len(name) <= 50
    assert replica_index(function, name) == index
    assert free_names(function, {name}, 1) != (name,)


@pytest.mark.parametrize("name", ["web-1-2", "web", "web-", "web-01", "web-x", "other-1", "web-²", "web-123456"])
def test_names_of_others_are_none_of_ours(name: str) -> None:
    """Two functions of which one's name begins the other's do not take each other's replicas."""
    assert replica_index("web", name) is None


def test_long_names_that_share_a_beginning_stay_apart() -> None:
    """Cut names carry a digest."""
    one, other = "a" * 49 + "b", "a" * 49 + "c"

    assert replica_name(one, 0) != replica_name(other, 0)


def test_each_replica_is_counted_once() -> None:
    """Hot, coming, warm, draining; ended and deleted ones nowhere; busy is who tells of calls."""
    replicas = [
        up("a", in_flight=2),
        up("b"),
        up("c", in_flight=None),
        up("d", ready=False, ready_ms=None, in_flight=None),
        up("e", warm=True),
        up("f", warm=True, ready=False),
        up("g", draining_since_ms=1, in_flight=1),
        up("h", phase="Succeeded"),
        up("i", phase="Failed"),
        up("j", deleting=True),
    ]

    found = counts(replicas)

    assert found == Counts(hot_ready=3, coming=1, warm_ready=1, warm_coming=1, draining=1, busy=2)
    assert (found.planned, found.warm) == (4, 2)


RULES = [
    ("not placed goes before placed", up("a"), up("b", node=""), "b"),
    ("pending before running", up("a"), up("b", phase="Pending"), "b"),
    ("pending before unknown", up("a", phase="Unknown"), up("b", phase="Pending"), "b"),
    ("unknown before running", up("a"), up("b", phase="Unknown"), "b"),
    ("not ready before ready", up("a"), up("b", ready=False), "b"),
    ("lower deletion cost", up("a", deletion_cost=5), up("b", deletion_cost=4), "b"),
    ("negative cost before none", up("a"), up("b", deletion_cost=-1), "b"),
    ("unknown ready time first", up("a"), up("b", ready_ms=None), "b"),
    ("ready for a shorter time", up("a"), up("b", ready_ms=NOW_MS - 60_000), "b"),
    ("same age on the scale: smaller uid", up("a"), up("b", ready_ms=NOW_MS - 70_000), "a"),
    ("more restarts", up("a"), up("b", restarts=1), "b"),
    ("unknown creation first", up("a"), up("b", created_ms=None), "b"),
    ("created later", up("a"), up("b", created_ms=NOW_MS - 60_000), "b"),
    ("created at the same age: smaller uid", up("a"), up("b", created_ms=NOW_MS - 70_000), "a"),
    ("created in the future", up("a"), up("b", created_ms=NOW_MS + 5), "b"),
    ("nothing differs: smaller uid", up("a"), up("b"), "a"),
]


@pytest.mark.parametrize(("rule", "one", "other", "first"), RULES, ids=[row[0] for row in RULES])
def test_each_rule_decides_alone(rule: str, one: Replica, other: Replica, first: str) -> None:
    """One difference, in both input orders."""
    assert deletion_order([one, other], NOW_MS)[0].name == first
    assert deletion_order([other, one], NOW_MS)[0].name == first


def test_a_rule_beats_all_below_it() -> None:
    """Each row is the winner by its rule and the loser by the next one, so their order is the order of the rules."""
    loser = {"deletion_cost": 9, "restarts": 0, "ready_ms": NOW_MS - 10**6, "created_ms": NOW_MS - 10**6}
    rows = [
        (up("a", node="", phase="Running"), up("b", phase="Pending")),
        (up("a", phase="Pending"), up("b", ready=False)),
        (up("a", ready=False, deletion_cost=9), up("b", deletion_cost=-9)),
        (up("a", deletion_cost=1), up("b", deletion_cost=2, ready_ms=NOW_MS)),
        (up("a", ready_ms=NOW_MS - 1000), up("b", ready_ms=NOW_MS - 10**6, restarts=9)),
        (up("a", restarts=1, created_ms=1), up("b", created_ms=NOW_MS)),
    ]

    assert [deletion_order([b, a], NOW_MS)[0].name for a, b in rows] == ["a"] * len(rows)
    assert deletion_order([up("c", **loser), up("d", node="n")], NOW_MS)[0].name == "d"


def test_the_fuller_node_gives_first() -> None:
    """Two on one node, one on another; one that has ended does not count."""
    replicas = [up("a", node="x"), up("b", node="y"), up("c", node="y"), up("d", node="x", phase="Failed")]

    assert [replica.name for replica in deletion_order(replicas, NOW_MS)] == ["b", "c", "a"]


def test_a_rank_counts_only_below_cost() -> None:
    """A dear replica on a full node stays."""
    replicas = [up("a", node="y", deletion_cost=1), up("b", node="y", deletion_cost=1), up("c")]

    assert deletion_order(replicas, NOW_MS)[0].name == "c"


def test_ages_are_compared_as_powers_of_two_of_nanoseconds() -> None:
    """The worked numbers of the module."""
    assert [log2_age(ms) for ms in (70_000, 100_000, 60_000, 1, 0, -5)] == [36, 36, 35, 19, -1, -1]


def test_without_the_scale_times_are_compared_as_they_are() -> None:
    """70 s and 100 s ago fall into one age on the scale, and apart without it."""
    replicas = [up("a"), up("b", ready_ms=NOW_MS - 70_000)]

    assert deletion_order(replicas, NOW_MS, log_scale=False)[0].name == "b"


RING = [
    up("a", uid="1", restarts=0),
    up("b", uid="3", restarts=2),
    up("c", uid="2", ready_ms=NOW_MS - 90_000),
]


def test_three_that_form_a_ring_have_one_order() -> None:
    """By restarts b before a, by uid a before c and c before b: the order is the same from every input order."""
    orders = {tuple(r.name for r in deletion_order(p, NOW_MS)) for p in permutations(RING)}

    assert orders == {("b", "a", "c")}


@st.composite
def some_replicas(draw: st.DrawFn) -> list[Replica]:
    """Few values each, so that ties are common."""
    few = st.sampled_from
    fields = st.fixed_dictionaries(
        {
            "node": few(["", "x", "y"]),
            "phase": few(["Pending", "Unknown", "Running", "Failed"]),
            "ready": st.booleans(),
            "ready_ms": few([None, NOW_MS - 100_000, NOW_MS - 90_000, NOW_MS - 5]),
            "created_ms": few([None, NOW_MS - 100_000, NOW_MS - 90_000, NOW_MS - 5]),
            "deletion_cost": few([-1, 0, 1]),
            "restarts": few([0, 1]),
        }
    )
    return [up(f"r{i}", uid=f"u{i}", **draw(fields)) for i in range(draw(st.integers(0, 6)))]


@given(some_replicas(), st.randoms(use_true_random=False))
def test_the_order_is_one_order(replicas: list[Replica], chance: Any) -> None:
    """Whatever order they come in: all active ones, each once, and any two alone stand as in a list of two."""
    shuffled = list(replicas)
    chance.shuffle(shuffled)

    assert deletion_order(shuffled, NOW_MS) == deletion_order(replicas, NOW_MS)
    assert sorted(r.name for r in deletion_order(replicas, NOW_MS)) == sorted(
        r.name for r in replicas if r.phase != "Failed"
    )
