"""A turn that runs out of time: it ends between two units, and the next ones decide what it would have decided."""

from __future__ import annotations

from collections.abc import Callable

from contracts.decisions import Nominated, Record, Reserved
from contracts.outcomes import Outcome
from scheduler.batch import Author, Desk
from scheduler.core.engine import Engine
from scheduler.sampling import Sampler
from scheduler.term import TurnTime
from tests.builders.ledger import Cluster, Request, cluster, node, request

TURNS = 100


def _low(name: str) -> Request:
    return request(name).share(500).cpu(10).fields(priority_class="low")


def _high(name: str) -> Request:
    return request(name).cpu(10).fields(priority_class="high")


def _crowded() -> Engine:
    """Three of four nodes sold to low priority; pods and a gang that fit wait, and some for whom others must leave."""
    drawn: Cluster = cluster(*(node(f"n{index}").gpus(4).cpu(10**6) for index in range(4)))
    engine = Engine(drawn.state, policy="packing")
    for index in range(24):
        engine.submit("crowd", _low(f"r{index}").build())
    engine.schedule()
    engine.take()
    drawn.state.number += 1
    for index in range(3):
        engine.submit("a", request(f"s{index}").share(300 + index).cpu(10).build())
        engine.submit("b", request(f"g{index}").share(400).cpu(10).gang("g", 3).build())
    for index in range(6):
        engine.submit("c", _high(f"h{index}").cpu(10 + index).build())
    for index in range(6):
        engine.submit("d", _high(f"k{index}").gang("k", 6).build())
    engine.take()
    return engine


def _until_finished(engine: Engine, may_go_on: Callable[[], bool]) -> list[tuple[Record, ...]]:
    turns = []
    for _ in range(TURNS):
        engine.schedule(may_go_on)
        turns.append(engine.take())
        if not engine.unfinished:
            return turns
    raise AssertionError(f"not finished after {TURNS} turns, the last with {turns[-1]}")


def test_a_cut_decides_nothing_otherwise() -> None:
    """Claim: with time for one unit a turn the same is decided in the same order, gangs uncut, and it comes to rest."""
    [at_once] = _until_finished(_crowded(), lambda: True)
    assert {type(record) for record in at_once} >= {Reserved, Nominated}

    cut = _until_finished(_crowded(), lambda: False)

    assert [record for turn in cut for record in turn] == list(at_once)
    units = {r.uid: r.request.gang.name if r.request.gang else r.uid for r in _crowded().state.pending.values()}
    for kind in (Reserved, Nominated):
        assert max(len({units[record.uid] for record in turn if isinstance(record, kind)}) for turn in cut) == 1


def test_who_finds_nothing_does_not_take_all_the_time() -> None:
    """Claim: the first looks in vain, again whenever anything changes; with one search a turn others get theirs."""
    drawn: Cluster = cluster(*(node(f"n{index}").gpus(1).cpu(1000) for index in range(4)))
    engine = Engine(drawn.state, policy="packing")
    for index in range(40):
        engine.submit("crowd", request(f"r{index}").share(100).cpu(10).fields(priority_class="low").build())
    engine.schedule()
    engine.take()
    drawn.state.number += 1
    engine.submit("a", _high("hopeless").cpu(2000).build(), now_ms=1)
    engine.submit("b", _high("second").build(), now_ms=2)
    [second] = (r for r in drawn.state.pending.values() if r.request.name == "second")
    ending = [uid for uid in drawn.state.nodes["n0"].residents if drawn.state.requests[uid].live][:8]

    for uid in ending:
        engine.schedule(lambda: False)
        name = drawn.state.requests[uid].request.name
        engine.outcome(Outcome(uid=uid, namespace="crowd", name=name, phase="ended", pod="p"))

    assert second.nomination is not None


def test_a_turn_with_no_time_still_accepts_and_says_that_it_is_not_finished() -> None:
    """Claim: the service's desk passes the word on: one decision a commit, and the rest later without any input."""
    engine = _crowded()
    desk = Desk(
        engine,
        Author(incarnation="i", term=1, policy_version="p"),
        policies=frozenset(),
        sampler=Sampler(0.0, lambda: 0.0),
    )
    first = desk.prepare([], now_ms=1, may_go_on=lambda: False).commit
    assert first is not None
    assert engine.unfinished
    assert desk.prepare([], now_ms=2).commit is not None
    assert not engine.unfinished


def test_the_time_of_a_turn_begins_with_the_first_decision() -> None:
    """Claim: what came before it does not count; at the end it says no, and that it did."""
    clock = [100.0]
    time = TurnTime(0.25, lambda: clock[0])
    clock[0] = 200.0
    assert time()
    clock[0] = 200.2
    assert time()
    assert not time.over
    clock[0] = 200.25
    assert not time()
    assert time.over
