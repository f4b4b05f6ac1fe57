"""What people see, as golden text from fixed values."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType

from contracts.answers import CardView, Explanation, Nearest, NodeVerdict, NodeView, QueueView, RequestView, Summary
from contracts.decisions import Candidate, CardSlice, Placement, Rationale
from contracts.inventory import Card
from contracts.outcomes import DeadLetter, Reason, Refusal, RequestEvent
from contracts.requests import GpuAsk
from contracts.units import CardUuid, NodeName, RequestUid
from gpubus.jaeger import Log, Process, Reference, Span, Tag, Trace
from gpubus.render import plot, tables, words
from gpubus.render.explain import explanation
from gpubus.render.spans import tree
from gpubus.render.top import Rates, View, frame, percent


def text(*parts: RenderableType) -> str:
    """As printed on a terminal of 120 columns without colours; trailing blanks do not count."""
    out = io.StringIO()
    console = Console(file=out, width=120, color_system=None, highlight=False, legacy_windows=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def golden(block: str) -> str:
    """The text of an indented block."""
    lines = block.strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:].rstrip() for line in lines).rstrip()


UID = RequestUid("1f2e3d4c-12-0")
SLICE = CardSlice(card=CardUuid("GPU-a"), share_milli=500, memory_mib=8000)
PLACED = Explanation(
    known=True,
    namespace="team",
    name="train",
    uid=UID,
    phase="running",
    ask=GpuAsk(cards=1, share_milli=500, memory_mib=8000),
    placement=Placement(node=NodeName("node-03"), slices=(SLICE,)),
    rationale=Rationale(
        policy="packing",
        chosen=Candidate(node=NodeName("node-03"), score=812),
        runner_up=Candidate(node=NodeName("node-07"), score=790),
        feasible_nodes=12,
        rejected_nodes=4,
    ),
    nodes=(
        NodeVerdict(node="node-03", score=812, scores={"packing": 600, "leftover": 212}),
        NodeVerdict(node="node-07", score=790, scores={"packing": 580, "leftover": 210}),
        NodeVerdict(
            node="node-01", reason=Reason(code="card-share", text="needs 500 thousandths, the best card has 300 free")
        ),
    ),
    ledger_sequence=345,
)
PENDING = Explanation(
    known=True,
    namespace="team",
    name="big",
    uid=UID,
    phase="pending",
    ask=GpuAsk(cards=2, share_milli=1000, memory_mib=200_000, models=("A100-80G", "T4")),
    reasons=(
        Reason(
            code="card-memory",
            text="needs 200000 MiB, the best card has 81408 MiB free",
            needed=200_000,
            free=81_408,
            unit="MiB",
            nodes=13,
            node="a80-01",
            card="GPU-b",
        ),
        Reason(code="stale", text="no heartbeat for 5 s", nodes=3),
    ),
    nearest=Nearest(text="118592 MiB more on one card of a80-01", node="a80-01", missing=118_592, unit="MiB"),
)


def test_explain_of_a_placed_request_shows_where_and_why() -> None:
    """Node, card, policy, both scores and what each rule gave."""
    shown = text(*explanation(PLACED))

    assert shown == golden("""
        team/train  running  uid 1f2e3d4c-12-0
        asks      1 card, 500/1000 of the compute and 8000 MiB
        where     node-03: GPU-a 500/1000 8000 MiB
        decided   by policy packing at ledger sequence 345
        chosen    node-03, score 812
        runner-up node-07, score 790 (22 less)
        of        12 nodes that fit, 4 nodes did not fit

        NODE THAT FITS  SCORE  packing  leftover
        node-03           812      600       212
        node-07           790      580       210

        NODE THAT DOES NOT  RULE        WHY
        node-01             card-share  needs 500 thousandths, the best card has 300 free
    """)


def test_explain_of_a_placed_request_says_what_keeps_its_pod_and_what_became_of_a_resize() -> None:
    """A line for each, below the decision; without any there is none."""
    reasons = (
        Reason(code="kubernetes", text="ImagePullBackOff"),
        Reason(code="resize", text="its last resize was put back: no room"),
    )
    shown = [line for line in text(*explanation(replace(PLACED, reasons=reasons))).splitlines() if "note" in line]

    assert shown == ["note      ImagePullBackOff", "note      its last resize was put back: no room"]
    assert "note" not in text(*explanation(PLACED))


def test_explain_of_a_pending_request_shows_needed_free_and_the_nearest_change() -> None:
    """A number that is not known is a question mark, never zero."""
    shown = text(*explanation(PENDING))

    assert shown == golden("""
        team/big  pending  uid 1f2e3d4c-12-0
        asks      2 cards, each whole and 200000 MiB, model A100-80G or T4
        because   on 13 nodes: needs 200000 MiB, the best card has 81408 MiB free
                  on 3 nodes: no heartbeat for 5 s
        RULE         NODES  NEEDED   FREE  UNIT  CLOSEST
        card-memory     13  200000  81408  MiB   a80-01 GPU-b
        nearest   118592 MiB more on one card of a80-01
    """)


def test_explain_of_a_pending_request_shows_its_place_in_the_queue() -> None:
    """Where it stands, what its namespace holds, which place is kept and who is still there."""
    queue = QueueView(
        position=3,
        pending=40,
        priority=100,
        aged=200,
        waited_s=7300,
        share_ppm=125_000,
        weight=2,
        nominated="n1",
        waits_for=("team/a", "team/b"),
    )
    shown = text(*explanation(replace(PENDING, queue=queue)))
    for part in ("3 of 40, priority 100 and 200 for its wait, waited 7300 s", "12.5 % of the cards, weight 2"):
        assert part in shown
    for part in ("kept for it on n1", "team/a, team/b"):
        assert part in shown


def test_what_if_says_what_would_be() -> None:
    """The same text, in the conditional."""
    shown = text(*explanation(PENDING, what_if=True)).splitlines()[0]

    assert shown == "team/big  would be pending"


def request(**fields: object) -> RequestView:
    """One row."""
    base: dict[str, object] = {
        "namespace": "team",
        "name": "train",
        "uid": UID,
        "phase": "running",
        "cards": 1,
        "share_milli": 500,
        "memory_mib": 8000,
        "node": "node-03",
        "submitted_ms": 1_000_000,
    }
    return RequestView(**(base | fields))  # type: ignore[arg-type]


def test_requests_are_plain_columns() -> None:
    """A memory that was not asked for is `by share`; a request without cards has neither."""
    rows = [
        request(),
        request(name="whole", share_milli=1000, memory_mib=None, phase="pending", node="", reason="waits for a card"),
        request(name="cpu", cards=0, share_milli=0, memory_mib=None, submitted_ms=0),
    ]

    assert text(tables.requests(rows, now_ms=1_075_000)) == golden("""
        NAMESPACE  NAME   PHASE    CARDS  SHARE     MEMORY    NODE     AGE    REASON
        team       train  running  1      500/1000  8000 MiB  node-03  1m15s
        team       whole  pending  1      whole     by share  -        1m15s  waits for a card
        team       cpu    running  0      -         -         node-03  ?
    """)


def card(node: str, index: int, sold: int, *, health: str = "healthy") -> CardView:
    """A card of 40 GiB."""
    return CardView(
        node=node,
        card=Card(uuid=CardUuid(f"GPU-{node}-{index}"), index=index, model="A100-40G", memory_total_mib=40_960),
        used_milli=sold,
        used_mib=sold * 40,
        sellable_mib=40_448,
        residents=("team/a", "team/b") if sold else (),
        health=health,
    )


def test_cards_show_what_is_sold() -> None:
    """In thousandths and MiB."""
    assert text(tables.cards([card("n1", 0, 500), card("n1", 1, 0, health="failed")], wide=True)) == golden("""
        NODE  CARD  MODEL     SOLD      MEMORY           RESIDENTS  HEALTH   SINCE  UUID      ISOLATION  WHO             REASON
        n1    0     A100-40G  500/1000  20000/40448 MiB  2          healthy  -      GPU-n1-0  none       team/a, team/b
        n1    1     A100-40G  0/1000    0/40448 MiB      0          failed   -      GPU-n1-1  none       -
    """)  # noqa: E501 - as wide as it is printed


def test_a_card_that_is_not_offered_says_why_and_since_when() -> None:
    """The operator's words and the monitor's, and the state that each of them stands for."""
    failed = card("n1", 0, 0, health="cordoned, failed")
    failed = replace(failed, cordoned=True, reason="fan is loud; Xid 79", since_ms=1_000_000)

    assert text(tables.cards([failed], now_ms=1_075_000)) == golden("""
        NODE  CARD  MODEL     SOLD    MEMORY       RESIDENTS  HEALTH            SINCE  REASON
        n1    0     A100-40G  0/1000  0/40448 MiB  0          cordoned, failed  1m15s  fan is loud; Xid 79
    """)


def test_nodes_say_why_they_take_nothing() -> None:
    """Ready and fresh are different things: Kubernetes says one, heartbeats the other."""
    node = NodeView(
        node="n1",
        health="suspect",
        ready=True,
        cards=8,
        used_cpu_milli=12_000,
        allocatable_cpu_milli=96_000,
        used_memory_mib=1024,
        allocatable_memory_mib=65_536,
        used_card_milli=2500,
        reason="no heartbeat for 5 s",
    )

    assert text(tables.nodes([node])) == golden("""
        NODE  READY  HEALTH   CARDS  CPU           MEMORY          REASON
        n1    yes    suspect  2.5/8  12000/96000m  1024/65536 MiB  no heartbeat for 5 s
    """)


def test_refusals_and_dead_letters_are_tables() -> None:
    """Field, value, bound; stream, sequence, reason."""
    refusal = Refusal(field="gpu.share_milli", value="1500", bound="<= 1000", text="gpu.share_milli: 1500 is too much")
    letter = DeadLetter(
        origin_stream="GPUBUS_REQUESTS", origin_subject="gpubus.v1.requests.t", origin_sequence=7, reason="not JSON"
    )

    assert text(tables.refusals([refusal]), tables.dead_letters([letter])) == golden("""
        FIELD            VALUE  BOUND    REASON
        gpu.share_milli  1500   <= 1000  gpu.share_milli: 1500 is too much
        STREAM           SEQUENCE  SUBJECT               REASON
        GPUBUS_REQUESTS  7         gpubus.v1.requests.t  not JSON
    """)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"phase": "placed", "node": "n1", "slices": (SLICE,)}, "ns/a  placed     on n1: GPU-a 500/1000 8000 MiB"),
        ({"phase": "running", "text": "pod a-x7k2p on n1"}, "ns/a  running    pod a-x7k2p on n1"),
        ({"phase": "pending", "reasons": PENDING.reasons[1:]}, "ns/a  pending    no heartbeat for 5 s"),
        ({"phase": "bound", "pod": "a-x7k2p"}, "ns/a  bound      a-x7k2p"),
    ],
)
def test_an_event_is_one_line(fields: dict[str, object], line: str) -> None:
    """The text of the event, else what it carries."""
    event = RequestEvent(namespace="ns", name="a", **fields)  # type: ignore[arg-type]

    assert text(tables.event_line(event)) == line


# --- spans -----------------------------------------------------------------------------------------------------------

T = "0af7651916cd43dd8448eb211c80319c"


def span(name: str, parent: str | None, *, at: int, took: int = 1000, process: str = "p1", **fields: object) -> Span:
    """A span whose id is its name."""
    references = (Reference(trace_id=T, span_id=parent),) if parent else ()
    given: dict[str, object] = {"references": references, "tags": ()} | fields
    return Span(
        trace_id=T,
        span_id=name,
        operation_name=name,
        start_time=5_000_000 + at,
        duration=took,
        process_id=process,
        **given,  # type: ignore[arg-type]
    )


def test_a_trace_is_a_tree_with_offsets_durations_links_and_failures() -> None:
    """A span whose parent never arrived stands at the top and says so."""
    decide = span(
        "decide",
        "submit",
        at=2000,
        process="p2",
        tags=(Tag(key="gpubus.node", value="n1"), Tag(key="span.kind", value="internal")),
        references=(
            Reference(trace_id=T, span_id="submit"),
            Reference(ref_type="FOLLOWS_FROM", trace_id="b" * 32, span_id="inv"),
        ),
        logs=(Log(timestamp=5_002_500, fields=(Tag(key="event", value="scored"),)),),
    )
    spans = (
        span("running", "nowhere", at=90_000),
        decide,
        span("bind", "decide", at=4000, tags=(Tag(key="error", type="bool", value=True),)),
        span("submit", None, at=0, took=7500),
    )
    trace = Trace(
        trace_id=T,
        spans=spans,
        processes={"p1": Process(service_name="client"), "p2": Process(service_name="scheduler")},
    )

    assert text(tree(trace)) == golden(f"""
        trace {T}  4 spans, 2 services
        ├── submit  client  +0.0 ms  took 7.5 ms
        │   └── decide  scheduler  +2.0 ms  took 1.0 ms
        │         gpubus.node=n1
        │         link → trace {"b" * 32} span inv
        │         event +0.5 ms  event=scored
        │       └── bind  client  +4.0 ms  took 1.0 ms
        │             error=true
        └── running  client  +90.0 ms  took 1.0 ms  (its parent never arrived)
    """)


def test_parents_in_a_circle_do_not_hang_the_tree() -> None:
    """What strangers export is not trusted."""
    trace = Trace(trace_id=T, spans=(span("a", "b", at=0), span("b", "a", at=1), span("c", "c", at=2)))
    shown = text(tree(trace, attributes=False))

    assert [shown.count(f"{name}  ?") for name in "abc"] == [1, 1, 1]


# --- top and plots ---------------------------------------------------------------------------------------------------


def test_top_is_a_row_a_node_and_a_bar_a_card() -> None:
    """A node of which no monitor spoke has a question mark, not 0 %."""
    cards = [card("n1", 0, 1000), card("n1", 1, 500), card("n2", 0, 25)]
    view = View(
        cards=cards,
        summary=Summary(accepted=9, placed=3, running=2, pending=1),
        used={"GPU-n1-0": 80, "GPU-n1-1": 41},
        pending=[request(phase="pending", name="big")],
        rates=Rates(accepted=3.0, placed=2.6),
    )

    assert text(frame(view)) == golden("""
        placed 3   running 2   pending 1   ended 0   withdrawn 0   over-commits 0
        sold 1.5 of 3 cards (51 %)   3/s in, 3/s placed, 0/s ended

        NODE 0     1      SOLD USED MODEL
        n1   █████ ██▌   1.5/2 60 % A100-40G
        n2   ▏           0.0/1    ? A100-40G

        waiting: team/big
    """)


def test_top_with_more_nodes_than_lines_shows_the_fullest() -> None:
    """By name, with a word about the others."""
    view = View(cards=[card(f"n{n}", 0, n * 100) for n in range(1, 6)], summary=Summary())
    shown = text(frame(view, rows=2)).splitlines()

    assert [line.split()[0] for line in shown[4:6]] == ["n4", "n5"]
    assert shown[6] == "… and 3 nodes with less sold"


def test_percent_of_nothing_is_unknown() -> None:
    """Not zero."""
    assert (percent(1, 2), percent(0, 0)) == ("50 %", "?")


def test_a_plot_holds_a_value_until_the_next_point() -> None:
    """A step function: an allocation stays until something changes it."""
    lines = plot.plot([(0, 0), (5, 50), (10, 100)], width=10, height=2)

    assert lines == [
        "  100 ┤",
        "   50 ┤     █████",
        "      └──────────",
        "       0 s   10 s",
    ]


def test_a_plot_of_nothing_says_so() -> None:
    """No division by zero."""
    assert plot.plot([]) == ["(nothing to draw)"]
    assert plot.plot([(3, 100)], width=4, height=1)[0] == "  100 ┤████"


@pytest.mark.parametrize(
    ("part", "whole", "drawn"),
    [
        (0, 1000, "     "),
        (25, 1000, "▏    "),
        (500, 1000, "██▌  "),
        (999, 1000, "████▉"),
        (1000, 1000, "█████"),
        (5, 0, "     "),
    ],
)
def test_a_bar_is_full_only_when_everything_is_sold(part: int, whole: int, drawn: str) -> None:
    """Rounded down to eighths."""
    assert words.bar(part, whole, 5) == drawn


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59, "59s"),
        (60, "1m0s"),
        (599, "9m59s"),
        (600, "10m"),
        (7199, "119m"),
        (7200, "2h"),
        (172_799, "47h"),
        (172_800, "2d"),
    ],
)
def test_ages_have_one_unit(seconds: int, shown: str) -> None:
    """Two under ten minutes; a clock that ran backwards shows 0."""
    assert words.span(seconds) == shown


@pytest.mark.parametrize(
    ("gpu", "shown"),
    [
        (GpuAsk(cards=0), "no card"),
        (GpuAsk(), "1 card, whole and the same part of its memory"),
        (GpuAsk(cards=4, share_milli=250, memory_mib=10), "4 cards, each 250/1000 of the compute and 10 MiB"),
    ],
)
def test_an_ask_is_one_phrase(gpu: GpuAsk, shown: str) -> None:
    """The number of cards, the slice and the memory of each are told apart."""
    assert words.ask(gpu) == shown
