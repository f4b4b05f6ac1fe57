"""The queue in memory: who gets a freed card among ten thousand, and who must leave five thousand full nodes.

Times are CPU times of this process, the median of several runs in one process; nothing here waits. Floors: the same
records folded without deciding; and one pass over the same nodes that only adds up who could be asked.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable

from bench.rows import Row, median
from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState
from contracts.decisions import CardSlice, Placement, Record, Released, Reserved
from contracts.outcomes import Outcome
from contracts.priorities import priority_of
from contracts.requests import PodRequest
from contracts.units import CardUuid, NodeName, RequestUid
from scheduler.core.engine import Engine
from scheduler.core.queue.loads import Loads
from scheduler.core.queue.nominate import Search
from scheduler.core.queue.teams import Teams
from scheduler.term import PREPARED_AT_ONCE
from tests.builders.history import rationale
from tests.builders.ledger import Cluster, Request, cluster, node, request

PENDING = 10_000
NODES = 1000
MANY_NODES = 5000
CARDS = 8
RUNS = 9


def run() -> list[Row]:
    """The table."""
    return [
        _freed(40, 5, "10,000 pending, 40 shapes x 5 namespaces, one card freed: decided"),
        _freed(100, 20, "10,000 pending, 100 shapes x 20 namespaces, one card freed: decided"),
        *_victims(),
    ]


def _full(nodes: int, shares: Iterable[int], asked: Callable[[str], Request]) -> Cluster:
    """Every card sold in these shares, whatever a policy would say."""
    drawn = cluster(node(f"node-{index:04d}").gpus(CARDS).cpu(200_000).pods(250) for index in range(nodes))
    for index in range(nodes):
        drawn.state.sequence += 1
        for card in range(CARDS):
            for part, share in enumerate(shares):
                held = drawn.accept(asked(f"r{index}-{card}-{part}").share(share).cpu(100))
                drawn.fold(_reserved(held.uid, index, card, share))
    return drawn


def _reserved(uid: RequestUid, node_index: int, card: int, share: int) -> Reserved:
    name = NodeName(f"node-{node_index:04d}")
    piece = CardSlice(card=CardUuid(f"{name}-gpu{card}"), share_milli=share, memory_mib=81_920 * share // 1000)
    return Reserved(
        uid=uid,
        placement=Placement(node=name, slices=(piece,), cpu_milli=100, memory_mib=64),
        rationale=rationale(name),
    )


def _freed(shapes: int, spaces: int, name: str) -> Row:
    """One whole card ends; everybody who waits asks for a part of it."""
    drawn = _full(NODES, (1000,), request)
    state = drawn.state
    state.number = 1_000_000  # uids of their own
    engine = Engine(state, policy="packing")
    for index in range(PENDING):
        engine.submit(f"team-{index // shapes % spaces}", _waiting(index, shapes), now_ms=1_000_000 + index)
    engine.schedule()
    engine.take()
    took, folded = [], []
    for index in range(RUNS):
        before, full = len(state.pending), f"node-{index:04d}"
        held = state.requests[next(iter(state.nodes[full].cards[f"{full}-gpu0"].residents))]
        gc.collect()
        began = time.process_time()
        engine.outcome(
            Outcome(uid=held.uid, namespace=held.accepted.namespace, name=held.request.name, phase="ended", pod="p")
        )
        engine.schedule()
        took.append((time.process_time() - began) * 1000)
        records = engine.take()
        if len(state.pending) >= before:
            raise RuntimeError("nobody got the freed card")
        folded.append(_folded(records))
    return Row(
        name=name,
        value=median(took),
        unit="ms",
        floor=median(folded),
        goal="<= 5 ms",
        note=f"{NODES:,} full nodes",
    )


def _waiting(index: int, shapes: int) -> PodRequest:
    shape = index % shapes
    return request(f"w{index}").share(600 + shape % 400).cpu(100 + shape // 400).build()


def _folded(records: Iterable[Record]) -> float:
    """Milliseconds to fold the same decisions and nothing else, on a node like that."""
    count = sum(isinstance(record, Reserved | Released) for record in records)
    drawn = _full(1, (1000,), request)
    held = [r.uid for r in drawn.state.requests.values()][:count]
    began = time.process_time()
    for uid in held:
        apply_record(drawn.state, Released(uid=uid, evidence="ended"), 2)
    return (time.process_time() - began) * 1000


def _victims() -> list[Row]:
    """A cluster full of lower priority; somebody important wants a half, a whole card, eight cards."""
    drawn = _full(MANY_NODES, (500, 500), lambda name: request(name).fields(priority_class="low"))
    state = drawn.state
    floor = median([_timed(lambda: _pass_over(state)) for _ in range(3)])
    rows = []
    loads = Loads(state)
    search = Search(state, loads, Teams(state))
    pieces = []
    more = True
    while more:
        began = time.process_time()
        more = loads.prepare(PREPARED_AT_ONCE)
        pieces.append((time.process_time() - began) * 1000)
    rows.append(
        Row(
            name=f"made ready after a start, in pieces of {PREPARED_AT_ONCE} nodes: one piece",
            value=median(pieces),
            unit="ms",
            floor=None,
            goal="<= 5 ms",
            note=f"{len(pieces)} pieces between decisions, {sum(pieces):.0f} ms together",
        )
    )
    for what, asked in (
        ("half a card: one leaves", request("half").share(500)),
        ("a whole card: two leave", request("whole")),
        ("eight cards: sixteen leave", request("eight").cards(8)),
    ):
        unit = (drawn.accept(asked.fields(priority_class="high").cpu(100)),)
        times = [_timed(lambda unit=unit: _found(search, state, unit)) for _ in range(RUNS)]  # type: ignore[misc]
        rows.append(
            Row(
                name=f"victims on {MANY_NODES:,} full nodes, {what}",
                value=median(times[1:]),
                unit="ms",
                floor=floor,
                goal="<= 50 ms",
                note=f"the first search, which looks at every node: {times[0]:.0f} ms",
            )
        )
    return rows


def _found(search: Search, state: LedgerState, unit: tuple[object, ...]) -> None:
    if search.nominate(unit, list(state.nodes)) is None:  # type: ignore[arg-type]  # requests of this state
        raise RuntimeError("nobody was found who could leave")


def _pass_over(state: LedgerState) -> int:
    """What any search must do that remembers nothing: look at everybody."""
    return sum(
        piece.share_milli
        for each in state.nodes.values()
        for uid, placement in each.residents.items()
        if priority_of(state.requests[uid].request) < 0
        for piece in placement.slices
    )


def _timed(work: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    gc.collect()
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000
