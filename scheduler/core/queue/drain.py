"""A place for the first in the queue that fits nowhere, kept free as others end by themselves.

So that smaller requests cannot pass it for ever.

In: a state, the unit that is first. Out: a `Nominated` for each of it (`why` = drains), or None: it is not time yet.

When its holders have told how long they expect to run (`expected_s`), ends are known and the place is the one that is
free first; it is kept from now on, and the time stands in the record. Others may still use it if they say that they
will have ended by then: they do not delay the first (EASY backfilling, Lifka 1995).

When nobody knows, the rule is careful the other way round: smaller requests may pass for `DRAIN_AFTER_MS`, counted from
the submission of the first; from then on the place is kept where the fewest have to end, of equal ones where the least
is held. Nobody is made to leave for it, and whoever holds a part of it keeps it for as long as it runs.

One unit at a time has a place that drains: whoever drains two keeps twice as much idle, and two gangs that each wait
for a half of the cluster would wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from bus.ledger.state import LedgerState, RequestState
from contracts.decisions import Nominated
from contracts.units import RequestUid
from scheduler.core.queue.loads import CardLoad, NodeLoad, load_of
from scheduler.core.queue.nominate import VERSION, Search
from scheduler.core.queue.order import waited_ms
from scheduler.core.queue.proof import fits_after, placement_on
from scheduler.core.queue.trial import Trial
from scheduler.core.queue.victims import of_one_group
from scheduler.core.request import Shape, memory_on, shape_for

DRAIN_AFTER_MS = 300_000
UNKNOWN_MS = 1 << 62


class Site(msgspec.Struct, frozen=True, order=True):
    """A node that could be waited for; the least is the best."""

    at_ms: int
    """When it should be free; `UNKNOWN_MS` = nobody knows."""
    ends: int
    """So many have to end."""
    milli: int
    """What they hold of the chosen cards."""
    tie: str
    node: str
    cards: tuple[str, ...]
    uids: tuple[RequestUid, ...]


def due(unit: Iterable[RequestState], now_ms: int) -> bool:
    """Whether smaller requests have passed it for long enough."""
    return any(waited_ms(request, now_ms) >= DRAIN_AFTER_MS for request in unit)


def promised_nodes(requests: Iterable[RequestState]) -> dict[str, None]:
    """Where one of these has told how long it expects to run."""
    placed = (r for r in requests if r.placement is not None and r.request.expected_s is not None)
    return {r.placement.node: None for r in placed if r.placement is not None}


def ends_ms(request: RequestState, now_ms: int) -> int:
    """When it should end: what it promised, or now if that has passed; `UNKNOWN_MS` if it promised nothing."""
    expected = request.request.expected_s
    if expected is None or not request.started_ms:
        return UNKNOWN_MS
    return max(now_ms, request.started_ms + 1000 * expected)


def keep(search: Search, unit: Sequence[RequestState], nodes: Iterable[str] | None = None) -> list[Nominated] | None:
    """Places for all of the unit.

    Args:
        search: over the state.
        unit: requests that are nominated together.
        nodes: where the ends of some are known: only places whose time is known then; None = all nodes, any place.
    """
    names = list(search.state.nodes if nodes is None else nodes)
    trial = Trial(search.state)
    found: list[Nominated] = []
    search.loads.sync()
    for member in unit:
        record = _one(search, trial, trial.state.requests[member.uid], names, known_only=nodes is not None)
        if record is None:
            return None
        if len(unit) > 1:
            trial.fold(record)
        found.append(record)
    return found


def _one(
    search: Search, trial: Trial, request: RequestState, names: list[str], *, known_only: bool
) -> Nominated | None:
    shape, state = shape_for(request), trial.state
    sites = []
    for name in names:
        node = state.nodes.get(name)
        cards = search.possible(shape, node) if node is not None else None
        if node is not None and cards is not None:
            load = load_of(state, node) if name in trial.changed else next(iter(search.loads.of((name,))))
            site = _site(state, load, cards, shape)
            if site is not None and not (known_only and site.at_ms == UNKNOWN_MS):
                sites.append(site)
    for site in sorted(sites):
        record = _record(state, request, shape, site)
        if fits_after(state, shape, record, site.uids):
            return record
    return None


def _record(state: LedgerState, request: RequestState, shape: Shape, site: Site) -> Nominated:
    return Nominated(
        uid=request.uid,
        placement=placement_on(state.nodes[site.node], shape, site.cards),
        why="drains",
        expected_ms=None if site.at_ms == UNKNOWN_MS else site.at_ms,
        version=VERSION,
    )


def _site(state: LedgerState, load: NodeLoad, cards: Collection[str], shape: Shape) -> Site | None:
    """The cards of a node that are free first, and when that is."""
    options = []
    for position, card in enumerate(load.cards):
        found = _card_ends(state, card, shape) if card.uuid in cards else None
        if found is not None:
            options.append((*found, position, card.uuid))
    chosen = of_one_group(load, shape, sorted(options), lambda option: option[4])
    if chosen is None:
        return None
    at_ms = max((option[0] for option in chosen), default=state.clock_ms)
    for_node = _node_ends(state, load, shape)
    if for_node is None:
        return None
    uids = {uid for option in chosen for uid in option[3]} | for_node[1]
    uuids = tuple(option[5] for option in sorted(chosen, key=lambda option: option[4]))
    held = sum(option[2] for option in chosen)
    when = max(at_ms, for_node[0])
    return Site(when, len(uids), held, load.tie, load.name, uuids, tuple(sorted(uids)))


def _card_ends(state: LedgerState, card: CardLoad, shape: Shape) -> tuple[int, int, int, tuple[RequestUid, ...]] | None:
    """When a card has enough: the time, how many end, what they hold, who they are. None: never."""
    milli = shape.share_milli - card.milli
    mib = memory_on(card.capacity_mib, shape, known=card.known) - card.mib
    at_ms, held, ended = state.clock_ms, 0, list[RequestUid]()
    tenants = sorted((ends_ms(state.requests[s.uid], state.clock_ms), -s.milli, s.uid, s) for s in card.seats)
    for end_ms, _, uid, tenant in tenants:
        if milli <= 0 and mib <= 0:
            break
        milli, mib, held, at_ms = milli - tenant.milli, mib - tenant.mib, held + tenant.milli, end_ms
        ended.append(uid)
    return (at_ms, len(ended), held, tuple(ended)) if milli <= 0 and mib <= 0 else None


def _node_ends(state: LedgerState, load: NodeLoad, shape: Shape) -> tuple[int, set[RequestUid]] | None:
    """The same of CPU and host memory."""
    cpu = shape.cpu_milli - load.cpu_milli if shape.cpu_milli else 0
    memory = shape.host_memory_mib - load.memory_mib if shape.host_memory_mib else 0
    at_ms, ended = state.clock_ms, set[RequestUid]()
    tenants = sorted((ends_ms(state.requests[s.uid], state.clock_ms), s.uid, s) for s in load.seats)
    for end_ms, uid, tenant in tenants:
        if cpu <= 0 and memory <= 0:
            break
        cpu, memory, at_ms = cpu - tenant.cpu_milli, memory - tenant.memory_mib, end_ms
        ended.add(uid)
    return (at_ms, ended) if cpu <= 0 and memory <= 0 else None
