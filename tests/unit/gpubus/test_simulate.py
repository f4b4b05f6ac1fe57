"""Policies compared on a trace: what arrives, what is measured, what is reported, and the command around it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gpubus.cli import main
from gpubus.errors import UsageError
from gpubus.local.nodes import Model, NodeSpec
from gpubus.render import chart
from gpubus.simulate.arrivals import arrivals
from gpubus.simulate.openb import PodRow
from gpubus.simulate.protocol import Curve, Measure, Point, Run
from gpubus.simulate.report import RunOutcome, as_csv, lines, published_of
from gpubus.simulate.world import cluster_of, mix_of

A10 = Model(name="A10", memory_mib=24_576, reserved_mib=0)
T4 = Model(name="T4", memory_mib=15_360, reserved_mib=0)
FIXED = ("random", "dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd-published", "fgd", "packing")


def pod(name: str, share: int, *, cards: int = 1, cpu: int = 100, models: tuple[str, ...] = ()) -> PodRow:
    """One pod of a trace."""
    return PodRow(name=name, cpu_milli=cpu, memory_mib=1, cards=cards, share_milli=share, models=models)


def spec(name: str, cards: int, model: Model = A10) -> NodeSpec:
    """One node."""
    return NodeSpec(name=name, cards=cards, model=model)


def drawn_trace(count: int = 60) -> list[PodRow]:
    """Shares, whole cards, pairs and pods without cards."""
    kinds = [(460, 1), (1000, 1), (0, 0), (1000, 2), (300, 1)]
    return [pod(f"p{i:03d}", kinds[i % 5][0], cards=kinds[i % 5][1], cpu=1000 * (1 + i % 7)) for i in range(count)]


# --- arrivals ---------------------------------------------------------------------------------------------------------


def demand(rows: list[PodRow]) -> int:
    """Thousandths of cards."""
    return sum(row.demand_milli for row in rows)


def test_drawing_ends_before_the_demand_would_pass_the_limit() -> None:
    """1,500 asked for, 4,000 there: five more of 500 fill it to the brim, and not one more."""
    rows = [pod(f"p{i}", 500) for i in range(3)]

    assert demand(arrivals(rows, capacity_milli=4000, ratio=1.0, seed=1)) == 4000
    assert demand(arrivals(rows, capacity_milli=4000, ratio=1.1, seed=1)) == 4000
    assert demand(arrivals(rows, capacity_milli=4000, ratio=1.125, seed=1)) == 4500


def test_the_stop_test_counts_one_card_of_the_pod() -> None:
    """A pair at 2,000 of 3,000: one card would fit, so both come, and the mark is passed by one."""
    assert demand(arrivals([pod("p", 1000, cards=2)], capacity_milli=3000, ratio=1.0, seed=1)) == 4000
    assert demand(arrivals([pod("p", 1000, cards=2)], capacity_milli=2900, ratio=1.0, seed=1)) == 2000


def test_a_trace_that_asks_for_more_loses_pods() -> None:
    """Four whole cards for two: two are left, and over the seeds not always the same."""
    rows = [pod(f"p{i}", 1000) for i in range(4)]
    kept = [arrivals(rows, capacity_milli=4000, ratio=0.5, seed=seed) for seed in range(8)]

    assert {len(each) for each in kept} == {2}
    assert len({frozenset(row.name for row in each) for each in kept}) > 1


def test_every_pod_of_the_trace_comes_before_those_that_are_drawn() -> None:
    """The first part is the trace in another order."""
    rows = drawn_trace()
    order = arrivals(rows, capacity_milli=60_000, ratio=1.3, seed=42)

    assert Counter(row.name for row in order[: len(rows)]) == Counter(row.name for row in rows)
    assert order[: len(rows)] != rows
    assert len(order) > len(rows)


def test_the_seed_alone_decides_the_order() -> None:
    """Not the order of the file."""
    rows = drawn_trace()
    one, same, other = (
        arrivals(given, capacity_milli=60_000, ratio=1.3, seed=seed)
        for given, seed in ((rows, 42), (rows[::-1], 42), (rows, 43))
    )

    assert one == same
    assert one != other


def test_a_trace_without_cards_ends() -> None:
    """Nothing that is drawn could ever reach the mark."""
    assert len(arrivals([pod("p", 0, cards=0)], capacity_milli=1000, ratio=1.3, seed=1)) == 1


# --- the measure ------------------------------------------------------------------------------------------------------


def play(rows: list[PodRow], specs: list[NodeSpec], policy: str = "best-fit", **options: object) -> Curve:
    """One run, seed 1."""
    return Run(cluster_of(specs, 1), policy, mix_of(rows), **options).play(rows)  # type: ignore[arg-type]  # knows=


def test_allocation_at_each_arrival() -> None:
    """Two cards. 500, 1000, then 1000 that does not fit, a pod without cards, and 500 that does.

    Arrived 25, 75, 125, 125, 150 %; placed 25, 75, 75, 75, 100 %.
    """
    rows = [pod("a", 500), pod("b", 1000), pod("c", 1000), pod("d", 0, cards=0), pod("e", 500)]
    curve = play(rows, [spec("n1", 2)])

    assert {p.arrived_percent: p.allocated_percent for p in curve.points} == {25: 25.0, 75: 75.0, 125: 75.0, 150: 100.0}
    assert (curve.arrived, curve.refused, curve.allocated(125), curve.allocated(100)) == (5, 1, 75.0, 75.0)
    assert (curve.allocated(155), curve.allocated(156)) == (100.0, None)


def test_the_value_at_a_percent_is_the_mean_over_its_arrivals() -> None:
    """Of 10,000: 40 and 40 arrive and are placed, 40 and 30 are not. 0.4 is at 0 %; 0.8, 1.2 and 1.5 are at 1, 1, 2."""
    measure = Measure(10_000)
    first = [measure.take(milli, placed=placed) for milli, placed in ((40, True), (40, True), (40, False), (30, False))]

    assert first == [True, True, False, True]
    assert {p.arrived_percent: round(p.allocated_percent, 9) for p in measure.points()} == {0: 0.4, 1: 0.8, 2: 0.8}


def test_what_does_not_fit_never_comes_again() -> None:
    """It is withdrawn: nothing waits at the end, and what holds cards is what was counted."""
    rows = [pod("a", 1000), pod("b", 1000), pod("c", 600), pod("d", 400)]
    state = cluster_of([spec("n1", 2)], 1)
    curve = Run(state, "best-fit", mix_of(rows)).play(rows)

    assert (state.pending, curve.refused, state.totals.withdrawn) == ({}, 2, 2)
    assert sum(card.used_milli for card in state.cards()) == 2000


def test_fragments_are_measured_by_the_mix_of_the_trace() -> None:
    """500 of one card is sold; of two pods one asks for 500, the other for 600: half of the rest is of use.

    After the first arrival: idle 500, fragment 250.
    """
    rows = [pod("a", 500), pod("b", 600)]
    (first, second) = play(rows, [spec("n1", 1)]).points

    assert (first.arrived_percent, first.idle_milli, first.fragment_milli) == (50, 500, 250)
    assert (second.arrived_percent, second.idle_milli, second.fragment_milli) == (110, 500, 250)
    assert first.fragment_percent == 50.0


def test_the_mix_of_the_trace_is_known_from_the_first_arrival_on() -> None:
    """All others ask for whole T4 cards: half a card goes to the A10, whichever is first among equals.

    With nothing known yet the order decides, and over some seeds it is the T4 at times.
    """
    rows = [pod("half", 500), *(pod(f"w{i}", 1000, models=("T4",)) for i in range(20))]
    models: dict[str, set[str]] = {"trace": set(), "live": set()}
    for seed in range(12):
        for knows, found in models.items():
            state = cluster_of([spec("a", 1, A10), spec("b", 1, T4)], seed)
            Run(state, "fgd", mix_of(rows), knows).play(rows[:1])  # type: ignore[arg-type]  # keys of the dict
            found.add(next(card.card.model for card in state.cards() if card.used_milli))

    assert models == {"trace": {"A10"}, "live": {"A10", "T4"}}


def test_the_mix_stays_that_of_the_trace_over_learning_points() -> None:
    """After 70 arrivals of one shape, the 64th a learning point, the state still knows the whole trace."""
    rows = [pod(f"p{i:02d}", 10) for i in range(70)]
    state = cluster_of([spec("n1", 2)], 1)
    Run(state, "fgd", {"100|1|999|": 5}).play(rows)

    assert state.learned == {"100|1|999|": 5}


@pytest.mark.parametrize("policy", FIXED)
def test_a_run_is_the_same_again(policy: str) -> None:
    """Same seed, same curve; with another seed nodes change their order."""
    rows = drawn_trace(300)
    specs = [spec(f"n{i}", 1 + i % 8, A10 if i % 3 else T4) for i in range(20)]
    one, two = (play(rows, specs, policy) for _ in range(2))

    assert one == two
    assert one.points[-1].arrived_percent > 100
    assert [n.split("-")[1] for n in cluster_of(specs, 1).nodes] == [
        n.split("-")[1] for n in cluster_of(specs, 2).nodes
    ]
    assert set(cluster_of(specs, 1).nodes) != set(cluster_of(specs, 2).nodes)


# --- the report -------------------------------------------------------------------------------------------------------


def outcome(policy: str, seed: int, at_100: float) -> RunOutcome:
    """A run with two points."""
    points = tuple(
        Point(arrived_percent=percent, allocated_percent=value, idle_milli=100, fragment_milli=40)
        for percent, value in ((100, at_100), (130, at_100 + 1))
    )
    return RunOutcome(trace="t", policy=policy, seed=seed, curve=Curve(arrived=10, refused=seed, points=points))


PUBLISHED = """workload,sc_policy,tune,seed,total_gpus,100,130
t,06-FGD,1.3,42,6212,95.0,96.0
t,06-FGD,1.3,43,6212,96.0,97.0
t,06-FGD,1.2,42,6212,1.0,1.0
t,07-Other,1.3,42,6212,2.0,2.0
u,05-BestFit,1.3,42,6212,93.0,
"""


def test_means_stand_beside_the_published_ones() -> None:
    """Seeds 1 and 2 with 95 and 95.4; published 95 and 96; the other ratio and unknown policies do not count."""
    published = published_of(PUBLISHED, "p.csv", 1.3)
    fgd, packing = lines(
        [outcome("fgd", 1, 95.0), outcome("fgd", 2, 95.4), outcome("packing", 1, 94.0)], 1.3, published
    )
    full, end = fgd.marks

    assert (fgd.seeds, fgd.refused, [mark.arrived_percent for mark in fgd.marks]) == ((1, 2), 1.5, [100, 130])
    assert (full.mean, full.published, end.mean, end.published) == (95.2, 95.5, 96.2, 96.5)
    assert (round(full.difference or 0, 9), round(full.spread or 0, 4)) == (-0.3, 0.2828)
    assert [(mark.published, mark.difference, mark.spread) for mark in packing.marks] == [(None, None, None)] * 2
    assert published_of(PUBLISHED, "p.csv", 1.3, seeds=(43,))[("t", "fgd", 100)] == 96.0
    assert published[("u", "best-fit", 100)] == 93.0
    assert ("u", "best-fit", 130) not in published


@pytest.mark.parametrize(
    ("text", "words"),
    [("workload,seed\n", "sc_policy, tune"), (PUBLISHED.replace("95.0", "much"), "line 2: 'much'")],
)
def test_a_wrong_file_of_published_results_is_told(text: str, words: str) -> None:
    """With its name and line."""
    with pytest.raises(UsageError, match=words):
        published_of(text, "p.csv", 1.3)


def test_every_point_is_a_line_of_csv() -> None:
    """Trace, policy, seed, percent arrived, percent allocated, thousandths."""
    text = as_csv([outcome("fgd", 7, 95.0)])

    assert text.splitlines()[1:] == ["t,fgd,7,100,95.0000,100,40", "t,fgd,7,130,96.0000,100,40"]


def test_a_picture_is_drawn_of_means(tmp_path: Path) -> None:
    """One line a policy; a file that can be opened as a picture."""
    runs = [outcome("fgd", 1, 95.0), outcome("fgd", 2, 96.0)]
    assert chart.means(runs, lambda point: point.allocated_percent) == {100: 95.5, 130: 96.5}

    pytest.importorskip("matplotlib")
    chart.draw([*runs, outcome("packing", 1, 94.0)], [], 10, str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A small cluster and a small trace as flags."""
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", *(f"n{i},96000,393216,{1 + i % 8},T4" for i in range(12)), "c,9,9,0,"]
    pods = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli"]
    pods += [f"{row.name},{row.cpu_milli},{row.memory_mib},{row.cards},{row.share_milli}" for row in drawn_trace()]
    (tmp_path / "nodes.csv").write_text("\n".join(nodes) + "\n")
    (tmp_path / "t.csv").write_text("\n".join(pods) + "\n")
    (tmp_path / "published.csv").write_text(PUBLISHED)
    return ["simulate", "--nodes", str(tmp_path / "nodes.csv"), "--trace", str(tmp_path / "t.csv")]


def test_the_table_has_a_row_for_each_policy(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With published means where there are some; progress goes to stderr."""
    extra = ["--policy", "fgd", "--policy", "packing", "--seeds", "1,2", "--published", str(tmp_path / "published.csv")]
    code = main([*files, *extra, "--csv", str(tmp_path / "points.csv")])
    out, err = capsys.readouterr()
    head, fgd, packing = out.splitlines()[1:4]

    assert code == 0
    assert head.split()[:5] == ["TRACE", "POLICY", "SEEDS", "@100", "SD"]
    assert (fgd.split()[:3], fgd.split()[5]) == (["t", "fgd", "2"], "95.50")
    assert (packing.split()[:3], packing.split()[5]) == (["t", "packing", "2"], "-")
    assert err.count("did not fit") == 4
    assert len((tmp_path / "points.csv").read_text().splitlines()) > 100


def test_all_policies_as_json(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every policy of the table can be run, and what stands in the document is what was asked for."""
    code = main([*files, "--policy", "all", "--seeds", "11", "--ratio", "1.1", "--mix", "live", "-o", "json"])
    found = json.loads(capsys.readouterr().out)

    assert code == 0
    assert (found["nodes"], found["cards"], found["ratio"], found["mix"]) == (12, 46, 1.1, "live")
    assert {line["policy"] for line in found["lines"]} >= set(FIXED)
    assert {mark["arrived_percent"] for line in found["lines"] for mark in line["marks"]} == {100, 110}
    assert all(70 < mark["mean"] <= 100 for line in found["lines"] for mark in line["marks"])


def test_ctrl_c_keeps_the_runs_that_are_through(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run is interrupted: a table of one seed, exit 130."""
    begun: list[int] = []
    whole = Run.play

    def interrupted(self: Run, *given: object) -> Curve:
        begun.append(1)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return whole(self, *given)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(Run, "play", interrupted)
    code = main([*files, "--policy", "best-fit"])
    out, err = capsys.readouterr()

    assert (code, out.splitlines()[2].split()[:3]) == (130, ["t", "best-fit", "1"])
    assert "interrupted after 1 of 3 runs" in err


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--policy", "fdg"], "--policy fdg: there are menu-value,"),
        (["--seeds", "1,b"], "--seeds 1,b"),
        (["--seeds", "4294967296"], "--seeds 4294967296: at most 4294967295"),
        (["--ratio", "0"], "--ratio 0"),
        (["--ratio", "nan"], "--ratio nan"),
        (["--plot", "curves.gif"], "--plot curves.gif: the name ends in .png"),
        (["--published", "no-such-file"], "no-such-file"),
        (["--csv", "no/such/folder.csv"], "--csv no/such/folder.csv: there is no folder no/such"),
        (["--mix", "oracle"], "--mix"),
        (["--draws", "published", "--load", "1.0"], "--draws published goes with --trace and without --load"),
    ],
)
def test_wrong_flags_end_in_one_line(
    extra: list[str], words: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2."""
    code = main([*files, *extra])
    last = capsys.readouterr().err.splitlines()[-1]

    assert (code, last.startswith("gpubus: "), words in last) == (2, True, True), last


def test_a_missing_matplotlib_is_told_before_anything_is_run(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the extra that brings it."""
    monkeypatch.setattr(chart, "find_spec", lambda _: None)

    assert main([*files, "--plot", "curves.png"]) == 2
    assert capsys.readouterr().err == (
        "gpubus: --plot needs matplotlib, which is not installed: pip install 'gpubus[plot]'\n"
    )
