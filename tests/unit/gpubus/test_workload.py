"""The demo's workload: sizes as in the trace it is drawn from, the same on every machine, and all of it legal."""

from __future__ import annotations

import random

import msgspec

from contracts.messages import encode
from contracts.requests import PodRequest
from gpubus.local import nodes, workload
from gpubus.local.workload import SHAPES


def part(matching: list[workload.Shape]) -> float:
    """Per cent of all pods in the table."""
    return 100 * sum(s.count for s in matching) / sum(s.count for s in SHAPES)


def test_the_table_has_the_proportions_of_the_trace() -> None:
    """8,152 pods: 13.3 % without a card, 37.8 % with a share, 48.0 % with one card, 0.92 % with more.

    The table holds 94 % of them; what it leaves out are rare shapes, so each part may be off by three points.
    """
    found = {
        "none": part([s for s in SHAPES if s.cards == 0]),
        "share": part([s for s in SHAPES if s.cards == 1 and s.share_milli < 1000]),
        "one": part([s for s in SHAPES if s.cards == 1 and s.share_milli == 1000]),
        "more": part([s for s in SHAPES if s.cards > 1]),
    }
    trace = {"none": 13.35, "share": 37.76, "one": 47.98, "more": 0.92}

    assert sum(s.count for s in SHAPES) == 7691
    assert len(SHAPES) == len(set(SHAPES)) == 59
    assert {name: abs(found[name] - trace[name]) < 3 for name in trace} == dict.fromkeys(trace, True)
    assert {cards: sum(s.count for s in SHAPES if s.cards == cards) for cards in (2, 4, 8)} == {2: 16, 4: 15, 8: 44}


def test_draws_follow_the_table() -> None:
    """20,000 draws: the commonest shape comes as often as its count says, within a tenth."""
    drawn = workload.draw(20_000, random.Random(7))
    commonest = max(SHAPES, key=lambda s: s.count)
    wanted = 20_000 * commonest.count / 7691

    assert abs(drawn.count(commonest) - wanted) < wanted / 10


def test_the_same_seed_gives_the_same_bytes() -> None:
    """So that a demo can be repeated."""
    one, two = ([encode(r) for r in workload.requests(50, seed=3)] for _ in range(2))

    assert one == two
    assert one != [encode(r) for r in workload.requests(50, seed=4)]


def test_every_request_is_legal_and_named_once() -> None:
    """What the demo sends decodes as the scheduler decodes it; only the misspelt one does not."""
    everything = [
        *workload.requests(300, seed=1),
        *workload.halves(8, burst=1),
        *workload.gang(),
        *workload.tagged(),
        workload.impossible(),
        workload.undecided(),
        workload.explained(),
    ]
    decoded = [msgspec.json.decode(encode(request), type=PodRequest) for request in everything]

    assert decoded == everything
    assert len({request.name for request in everything}) == len(everything)


def test_the_impossible_request_fits_no_card_of_the_demo() -> None:
    """It must stay pending whatever ends."""
    asked = workload.impossible().gpu.memory_mib

    assert asked is not None
    assert asked > max(node.model.memory_mib for node in nodes.mixed())


def test_simulated_nodes_have_twelve_cores_a_card() -> None:
    """The commonest machine of the trace: 96 cores and 8 cards."""
    two = nodes.uniform(2, cards=8, model=nodes.T4)

    assert [(n.name, n.cards, n.cpu_milli, n.model.memory_mib) for n in two] == [
        ("node-01", 8, 96_000, 15_360),
        ("node-02", 8, 96_000, 15_360),
    ]
