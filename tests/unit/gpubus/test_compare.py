"""Policies side by side: pairs, what they come to, bounds, processes, bad rows, and the commands around them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from contracts.messages import encode
from gpubus.cli import main
from gpubus.local.nodes import Model, NodeSpec
from gpubus.render import compared
from gpubus.simulate import bounds, checks, plan
from gpubus.simulate.openb import PodRow
from gpubus.simulate.paired import Paired, paired
from gpubus.simulate.plan import Done, Horizon, Job, Plan
from gpubus.simulate.protocol import Curve, Point
from gpubus.simulate.results import Result, results
from scheduler import policyfile
from scheduler.core.policies import POLICIES

T4 = Model(name="T4", memory_mib=15_360, reserved_mib=0)


def pod(name: str, share: int = 1000, *, cards: int = 1, cpu: int = 100, models: tuple[str, ...] = ()) -> PodRow:
    """One pod of a trace."""
    return PodRow(
        name=name, cpu_milli=cpu, memory_mib=1, cards=cards, share_milli=share, models=models, life_s=500.0, line=2
    )


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_a_difference_is_taken_seed_by_seed() -> None:
    """Differences 1, 2, 3 and a seed that one of them lacks: mean 2, error 1/sqrt(3), above in all three."""
    found = paired({1: 11.0, 2: 12.0, 3: 13.0, 9: 0.0}, {1: 10.0, 2: 10.0, 3: 10.0, 8: 0.0})

    assert found is not None
    assert (found.mean, found.wins, found.pairs) == (2.0, 3, 3)
    assert found.error == pytest.approx(1 / math.sqrt(3))


def test_one_pair_has_no_error_and_none_has_no_difference() -> None:
    """Unknown is not zero."""
    one = paired({1: 2.0}, {1: 3.0})

    assert one is not None
    assert (one.mean, one.error, one.wins) == (-1.0, None, 0)
    assert paired({1: 2.0}, {2: 3.0}) is None


def curve(at_100: float) -> Curve:
    """A run that comes to that."""
    points = tuple(
        Point(arrived_percent=percent, allocated_percent=value, idle_milli=0, fragment_milli=0)
        for percent, value in ((100, at_100), (130, at_100 + 1))
    )
    return Curve(arrived=1, refused=0, points=points)


def small(**fields: object) -> Plan:
    """Two nodes, forty pods."""
    rows = tuple(pod(f"p{i:02d}", 300 + 100 * (i % 8), cpu=1000) for i in range(40))
    nodes = tuple(NodeSpec(name=f"n{i}", cards=4, model=T4) for i in range(2))
    return Plan(nodes=nodes, traces={"t": rows}, **{"policies": ("a", "b"), "seeds": (1, 2), **fields})  # type: ignore[arg-type]  # handed through


def test_results_compare_with_the_first_policy() -> None:
    """The second is one point above the first in both seeds; the first is compared with nothing."""
    done = [
        Done(job=Job(trace="t", policy=policy, seed=seed), curve=curve(90.0 + seed + more))
        for policy, more in (("a", 0.0), ("b", 1.0))
        for seed in (1, 2)
    ]
    found = {(r.policy, r.measure): r for r in results(small(), done)}

    assert found["a", "@100"].against is None
    assert found["a", "@100"].mean == 91.5
    b = found["b", "@130"].against
    assert b is not None
    assert (b.mean, b.error, b.wins) == (1.0, 0.0, 2)


def result(measure: str, mean: float, error: float | None) -> Result:
    """A difference."""
    against = Paired(mean=mean, error=error, wins=1, pairs=2)
    fields = {"trace": "t", "load": None, "policy": "b", "mean": 1.0, "spread": None, "seeds": (1,)}
    return Result(measure=measure, against=against, **fields)  # type: ignore[arg-type]  # handed through


def test_a_bar_is_as_long_as_the_difference() -> None:
    """To the right what is more; half as much is half as long; less goes to the left."""
    assert compared.picture(result("@100", 2.0, None), 2.0) == " " * 12 + "│" + "█" * 12
    assert compared.picture(result("@100", -1.0, None), 2.0) == " " * 6 + "█" * 6 + "│"
    assert compared.picture(result("@100", 0.0, None), 0.0) == " " * 12 + "│"


@pytest.mark.parametrize(
    ("measure", "mean", "error", "style"),
    [
        ("@100", 1.0, 0.4, "green"),
        ("@100", -1.0, 0.4, "red"),
        ("lost", 1.0, 0.4, "red"),
        ("lost", -1.0, 0.4, "green"),
        ("@100", 1.0, 0.6, ""),
        ("@100", 1.0, None, ""),
    ],
)
def test_only_what_chance_does_not_explain_has_a_colour(
    measure: str, mean: float, error: float | None, style: str
) -> None:
    """More than two standard errors; of lost time less is better."""
    assert compared._style(result(measure, mean, error)) == style


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_no_policy_passes_the_bound_of_its_own_arrivals() -> None:
    """On a small cluster, at every percent that both have; and the stricter bound is not above the other one."""
    pytest.importorskip("highspy")
    full = small(policies=("packing", "best-fit"), bounds=bounds.BOUNDS, ratio=1.5)
    by = {(d.job.policy, d.job.seed): d.curve for d in map(full.run, full.jobs())}
    for seed in (1, 2):
        top, strict = by[bounds.ANY, seed], by[bounds.PLACED_FIRST, seed]
        assert top is not None
        assert strict is not None
        for policy in full.policies:
            run = by[policy, seed]
            assert run is not None
            assert (run.allocated(150) or 0) <= (top.allocated(150) or 0) + 1e-6
        assert (strict.allocated(150) or 0) <= (top.allocated(150) or 0) + 1e-6


def test_what_must_be_placed_first_is_counted_by_demand() -> None:
    """Of four pods of 500 the first two are within 1000; pods without cards are left out."""
    order = [pod("a", 500), pod("x", 0, cards=0), pod("b", 500), pod("c", 500), pod("d", 500)]
    (found,) = bounds.asks_of(order, 1500, 1000)

    assert (found.count, found.must, found.share_milli) == (3, 2, 500)


# --- bad rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (pod("a", cards=9), "num_gpu is 9, and no node that is left has more than 4"),
        (pod("a", cpu=100_000), "cpu_milli is 100000, and no node that is left has more than 96000"),
        (pod("a", models=("H200",)), "gpu_spec is 'H200', and the nodes have P100, T4"),
        (pod("a", cards=4, models=("P100",)), "num_gpu is 4, and no node that is left has more than 1"),
        (pod("a", cards=0, cpu=1), ""),
        (pod("a", cards=4, models=("P100", "T4")), ""),
    ],
)
def test_a_pod_that_no_node_could_hold_is_told_with_line_and_column(row: PodRow, words: str) -> None:
    """Together: a node with the model, with the cards, with the cores."""
    specs = [
        NodeSpec(name="n", cards=4, model=T4),
        NodeSpec(name="m", cards=1, model=Model(name="P100", memory_mib=16_384)),
    ]
    good, bad = checks.split([row], specs, "f.csv")

    assert (len(good), bad) == ((0, [f"f.csv line 2: a: {words}"]) if words else (1, []))


# --- processes --------------------------------------------------------------------------------------------------------


def quiet(_job: Job) -> plan.Progress:
    """Tells nothing."""
    return lambda _done, _whole: None


def test_two_processes_come_to_the_same_as_one() -> None:
    """Same outcomes in the same order, byte for byte."""
    asked = small(policies=("packing",), loads=(1.1,), horizon=Horizon(hours=2, discard=0.5))
    one, two = (list(plan.each(asked, workers, quiet)) for workers in (1, 2))

    assert list(map(encode, one)) == list(map(encode, two))
    assert [each.job for each in one] == asked.jobs()


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A small cluster and a small trace as flags."""
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", *(f"n{i},96000,393216,4,T4" for i in range(4))]
    pods = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time"]
    pods += [f"p{i:03d},1000,1024,1,{300 + 100 * (i % 8)},{i},{600 + 7 * i}" for i in range(60)]
    (tmp_path / "nodes.csv").write_text("\n".join(nodes) + "\n")
    (tmp_path / "t.csv").write_text("\n".join(pods) + "\n")
    return ["--nodes", str(tmp_path / "nodes.csv"), "--trace", str(tmp_path / "t.csv")]


def test_compare_tells_differences(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A row each, the first policy without a difference; as JSON and as Markdown too."""
    flags = ["compare", *files, "--policy", "packing", "--policy", "spreading", "--seeds", "1,2"]
    codes = [main([*flags, "-o", form]) for form in ("table", "json", "markdown")]
    out = capsys.readouterr().out
    document = json.loads(out[out.index("\n{") : out.rindex("\n| trace")])

    assert codes == [0, 0, 0]
    assert document["against"] == "packing"
    assert [each["policy"] for each in document["results"]] == ["packing", "packing", "spreading", "spreading"]
    assert document["results"][2]["against"]["pairs"] == 2
    assert "| t | - | @100 | `spreading` |" in out


def test_departures_by_flags(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two loads, faults, samples as CSV; the same call prints the same."""
    flags = ["simulate", *files, "--policy", "packing", "--seeds", "1", "--load", "0.5,1.0", "--hours", "2"]
    flags += ["--discard", "0.5", "--fail-nodes", "10", "--away", "600", "--csv", str(tmp_path / "s.csv")]
    codes = [main(flags), main(flags)]
    lines = capsys.readouterr().out.splitlines()

    assert codes == [0, 0]
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert [line.split()[1] for line in lines[2:4]] == ["0.5", "1"]
    assert (tmp_path / "s.csv").read_text().startswith("trace,load,policy,seed,at_s,sold_milli\nt,0.5,packing,1,0,0\n")


def test_a_picture_of_each_command(files: list[str], tmp_path: Path) -> None:
    """Equal results make equal bytes."""
    pytest.importorskip("matplotlib")
    both = ["--policy", "packing", "--policy", "random", "--seeds", "1,2"]
    steady = ["--load", "1.0", "--hours", "1", "--discard", "0"]
    pictures = [tmp_path / f"{name}.svg" for name in ("a", "b", "c")]
    for picture, command in zip(pictures, ("compare", "compare", "simulate"), strict=True):
        assert main([command, *files, *both, *(steady if command == "simulate" else []), "--plot", str(picture)]) == 0

    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    assert b"<svg" in pictures[2].read_bytes()[:1000]


def test_a_bad_row_stops_or_is_left_out(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line naming file, line and column; with --skip-bad the rest runs and the line stands on stderr."""
    with (tmp_path / "t.csv").open("a") as out:
        out.write("neg,1000,-5,1,500,0,9\nhuge,1000,1,16,1000,0,9\n")
    stopped = main(["simulate", *files])
    told = capsys.readouterr().err
    went_on = main(["simulate", *files, "--policy", "first-fit", "--seeds", "1", "--skip-bad"])
    left_out = capsys.readouterr().err

    assert (stopped, went_on) == (2, 0)
    assert told.startswith(f"gpubus: {tmp_path}/t.csv line 62: memory_mib is '-5'")
    assert "t.csv line 62: memory_mib is '-5'" in left_out
    assert "t.csv line 63: huge: num_gpu is 16, and no node that is left has more than 4" in left_out


def test_an_unknown_column_is_told(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt one would be read as empty."""
    text = (tmp_path / "t.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace("creation_time", "created"))

    assert main(["simulate", *files]) == 2
    assert "t.csv line 1: no such column created; there are name," in capsys.readouterr().err


def test_a_folder_stands_for_the_published_traces_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its node list; other files are left alone."""
    (tmp_path / "openb_node_list_gpu_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,96000,9999,4,T4\n")
    for name in ("default", "cpu050", "cpu0"):
        text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,100,1,1,500\n"
        (tmp_path / f"openb_pod_list_{name}.csv").write_text(text)
    flags = ["simulate", "--trace", str(tmp_path), "--policy", "first-fit", "--seeds", "1", "-o", "markdown"]

    assert main(flags) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:4]] == ["default", "cpu050"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["compare", "--policy", "packing"], "give --policy twice"),
        (["simulate", "--load", "0.9,much"], "--load 0.9,much"),
        (["simulate", "--load", "0"], "--load 0: each more than 0"),
        (["simulate", "--load", "1", "--hours", "2", "--discard", "2"], "--discard 2: from 0, less than --hours 2"),
        (["simulate", "--fail-nodes", "1"], "go with --load"),
        (["simulate", "--load", "1", "--bound"], "--bound goes without --load"),
        (["simulate", "--jobs", "0"], "--jobs 0"),
        (["simulate", "--workload", "w.toml"], "give --trace FILE, or --workload FILE"),
        (["simulate", "--policy", "./none.py"], "none.py: No such file"),
    ],
)
def test_wrong_flags_end_in_one_line(
    flags: list[str], words: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, before anything is run."""
    code = main([flags[0], *files, *flags[1:]])
    last = capsys.readouterr().err.splitlines()[-1]

    assert (code, words in last) == (2, True), last


def test_decisions_that_a_policy_could_not_make_are_counted_and_named(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claim: beside the numbers, whatever the form, and once a policy; also when it wanted to end the program."""
    (tmp_path / "quitter.py").write_text(
        "def score(request, node, taken):\n"
        "    if node.name not in ('empty', 'half', 'full', 'bare'):\n"
        "        raise SystemExit(3)\n"
        "    return 1\n"
    )

    def run(command: str, form: str) -> str:
        try:
            assert main([command, *files, *others[command], "--policy", str(tmp_path / "quitter.py"), "-o", form]) == 0
        finally:
            POLICIES.pop("quitter", None)
            policyfile._loaded.pop("quitter", None)
        return capsys.readouterr().out.replace("\n", " ")

    others = {"compare": ["--policy", "first-fit"], "simulate": []}
    told = "made by the default policy in place of quitter: quitter: raised SystemExit: 3"
    assert [told in run(command, form) for command in others for form in ("table", "markdown")] == [True] * 4
    (found,) = json.loads(run("simulate", "json"))["instead"]
    assert (found["policy"], found["decisions"] > 0) == ("quitter", True)


def test_when_no_pod_is_left_the_reason_is_told(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claim: with and without --skip-bad, by line, column and bound."""
    (tmp_path / "t.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,99,1000\n")
    for extra in ([], ["--skip-bad"]):
        assert main(["simulate", *files, *extra]) == 2
        assert "t.csv line 2: p: num_gpu is 99, and no node" in capsys.readouterr().err.replace("\n", " ")
