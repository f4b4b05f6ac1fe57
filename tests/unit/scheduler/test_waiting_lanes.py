"""Lanes: what is kept from one round to the next is what a queue that begins anew would work out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Accepted
from contracts.units import RequestUid
from scheduler.core.queue import waiting as module
from scheduler.core.queue.fair import Capacity, Fairness
from scheduler.core.queue.order import HOUR_MS
from scheduler.core.queue.rounds import Round
from scheduler.core.queue.teams import Teams
from scheduler.core.queue.waiting import Waiting, kind_of
from tests.builders.ledger import request

NOW_MS = 10 * HOUR_MS
CLASSES = ("low", None, "high")


def asked(number: int, share: int, important: int, submitted_ms: int) -> RequestState:
    """One that waits."""
    built = request(f"r{number}").share(share).fields(priority_class=CLASSES[important]).build()
    uid = RequestUid(f"e-1-{number}")
    accepted = Accepted(uid=uid, namespace=f"team{number % 3}", request=built, submitted_ms=submitted_ms)
    return RequestState(uid=uid, accepted=accepted)


def order(waiting: Waiting, now_ms: int) -> list[RequestUid]:
    """The first of each lane, in queue order."""
    state = LedgerState(clock_ms=now_ms)
    found = Round(state, Fairness(state, Capacity()), Teams(state))
    found.fill(waiting.lanes(), ())
    return [uid for unit in iter(found.next, None) for uid in unit.uids]


STEP = st.tuples(
    st.sampled_from(["add", "add", "add", "remove", "block", "block all", "improve", "hold", "quota"]),
    st.integers(0, 40),
    st.sampled_from([100, 200]),
    st.integers(0, 2),
    st.one_of(st.just(0), st.integers(1, NOW_MS)),
    st.sampled_from([NOW_MS, NOW_MS, NOW_MS + HOUR_MS, NOW_MS - 3 * HOUR_MS, NOW_MS + HOUR_MS // 2, 0]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=40))
def test_what_is_kept_with_lanes_is_what_would_be_made_anew(
    steps: list[tuple[str, int, int, int, int, int]],
) -> None:
    """Claim: the order of those who are awake, the oldest submission and those who may ask others, after any history.

    The clock goes on, and back.
    """
    waiting, there = Waiting(), dict[int, RequestState]()
    for what, number, share, important, submitted_ms, now_ms in steps:
        _take(waiting, there, what, asked(number, share, important, submitted_ms))
        again = Waiting()
        for each in there.values():
            again.add(each)
        everybody = sorted(order(again, now_ms))
        for kind in dict.fromkeys(map(kind_of, there.values())):
            if any(kind in kinds for kinds in waiting.blocked.values()):
                again.block(kind)
            elif kind in waiting._by_quota.get(kind.namespace, {}):
                again.hold(kind)
        assert order(waiting, now_ms) == order(again, now_ms)
        assert waiting.awake == bool(order(again, now_ms))
        submitted = [each.accepted.submitted_ms for each in there.values() if each.accepted.submitted_ms]
        lanes = [lane for of_kind in waiting._lanes.values() for lane in of_kind.values()]
        firsts = [lane.ages[0][0] for lane in lanes if lane.ages[0][0]]
        assert waiting.oldest_ms == min(firsts, default=None)
        assert set(firsts) <= set(submitted)
        assert {lane.uids[0] for lane in lanes} == set(everybody)
        asking = [lane for lane in waiting.blocked_lanes() if lane.asks]
        assert sorted(lane.uids[0] for lane in waiting.blocked_lanes(asking=True)) == sorted(x.uids[0] for x in asking)


def _take(waiting: Waiting, there: dict[int, RequestState], what: str, one: RequestState) -> None:
    number = int(one.uid.rsplit("-", 1)[1])
    if what == "add" and number not in there:
        there[number] = one
        waiting.add(one)
    elif what == "remove" and number in there:
        waiting.remove(there.pop(number))
    elif what == "block" and any(lane.kind == kind_of(one) for lane in waiting.lanes()):
        waiting.block(kind_of(one))
    elif what == "block all":
        waiting.block_all()
    elif what == "improve":
        waiting.improved(lambda shape: shape == kind_of(one).shape)
    elif what == "hold" and any(lane.kind == kind_of(one) for lane in waiting.lanes()):
        waiting.hold(kind_of(one))
    elif what == "quota":
        waiting.namespace_changed(one.accepted.namespace)


def test_firsts_that_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: a lane through which thousands pass is remembered a few times, not thousands of times."""
    monkeypatch.setattr(module, "FEW", 10)
    waiting = Waiting()
    waiting._most_firsts = 10
    everybody = [asked(number, 100, 1, 1 + number) for number in range(0, 900, 3)]
    for one in everybody:
        waiting.add(one)
    for one in everybody[:-1]:
        waiting.remove(one)
    assert len(waiting._firsts) <= 24
    assert waiting.oldest_ms == everybody[-1].accepted.submitted_ms
