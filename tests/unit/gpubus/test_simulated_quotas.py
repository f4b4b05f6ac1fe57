"""Quotas in simulated runs: who is refused by them, what the file may say, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts.quotas import NamespaceQuota
from gpubus.cli import main
from gpubus.cli.exits import Exit
from gpubus.errors import UsageError
from gpubus.local.nodes import Model, NodeSpec
from gpubus.simulate import quotas
from gpubus.simulate.departures import Departures, Steady
from gpubus.simulate.offers import Fault, Offer
from gpubus.simulate.openb import NAMESPACE, PodRow
from gpubus.simulate.protocol import Run
from gpubus.simulate.tenants import Tenant
from gpubus.simulate.world import World as Cluster
from gpubus.simulate.world import cluster_of

CARD = Model(name="T4", memory_mib=16_000, reserved_mib=0)


def pod(space: str = "a", share: int = 1000) -> PodRow:
    """A part of a card for 100 s."""
    return PodRow(name="p", cpu_milli=100, memory_mib=1, cards=1, share_milli=share, life_s=100.0, namespace=space)


def limit(space: str, **fields: int) -> NamespaceQuota:
    """What a namespace may hold."""
    return NamespaceQuota(namespace=space, **fields)


def steady(coming: list[Offer], *given: NamespaceQuota, faults: tuple[Fault, ...] = ()) -> Steady:
    """Two nodes with two cards each, for a second."""
    specs = [NodeSpec(name=f"n{i}", cards=2, model=CARD) for i in range(2)]
    world = Cluster(cluster_of(specs, 1), "first-fit", given)
    return Departures(world, until_ms=1000, discard_ms=0, away_ms=300).play(coming, faults)


def offers(*spaces: str, life_ms: int = 500) -> list[Offer]:
    """Whole cards, one every 10 ms."""
    return [Offer(10 * at, life_ms, pod(space)) for at, space in enumerate(spaces)]


def counts(found: tuple[Tenant, ...]) -> dict[str, tuple[int, int, int]]:
    """Arrived, refused, of these by quota."""
    return {each.namespace: (each.arrived, each.refused, each.over_quota) for each in found}


def test_a_pod_beyond_its_quota_is_refused_though_there_is_room() -> None:
    """Claim: a holds one card of four and may not have a second; b, without a limit, has all others."""
    found = steady(offers("a", "a", "b", "b", "b", "b"), limit("a", share_milli=1000), limit("b"))

    assert counts(found.tenants) == {"a": (2, 1, 1), "b": (4, 1, 0)}
    assert found.refused == 2


def test_what_ended_is_no_longer_counted() -> None:
    """Claim: the second comes when the first has gone, and is within the quota."""
    found = steady([Offer(0, 100, pod()), Offer(100, 100, pod())], limit("a", share_milli=1000))
    assert counts(found.tenants) == {"a": (2, 0, 0)}


def test_a_pod_beyond_its_quota_is_refused_by_it_though_there_is_no_room_either() -> None:
    """Claim: the quota is asked first, as the queue does."""
    found = steady(offers("a", "b", "b", "b", "a"), limit("a", share_milli=1000), limit("b"))
    assert counts(found.tenants)["a"] == (2, 1, 1)


def test_without_quotas_nobody_is_held_back() -> None:
    """Claim: namespaces alone limit nothing."""
    assert counts(steady(offers("a", "a", "b")).tenants) == {"a": (2, 0, 0), "b": (1, 0, 0)}


def test_memory_is_compared_on_the_card_that_was_chosen() -> None:
    """Claim: half of a card of 16,000 MiB is 8,000: once within 12,000, not twice."""
    coming = [Offer(at, 500, pod(share=500)) for at in (0, 10)]
    assert counts(steady(coming, limit("a", memory_mib=12_000)).tenants) == {"a": (2, 1, 1)}


def test_the_rest_of_a_killed_pod_is_lost_by_its_namespace() -> None:
    """Claim: both nodes fail at 100 of 500 ms: 400 of 500 are lost, for each."""
    found = steady(offers("a", life_ms=500), faults=(Fault(100, 0, kills=True), Fault(100, 1, kills=True)))
    (tenant,) = found.tenants
    assert (tenant.asked, tenant.lost, found.killed) == (500_000, 400_000, 1)


def test_quotas_hold_without_departures_too() -> None:
    """Claim: one card of four for a, the fifth pod of b finds none."""
    state = cluster_of([NodeSpec(name="n", cards=4, model=CARD)], 1)
    run = Run(state, "first-fit", {}, "live", (limit("a", share_milli=1000), limit("b")))
    curve = run.play([pod(space) for space in "aabbbb"])

    assert counts(curve.tenants) == {"a": (2, 1, 1), "b": (4, 1, 0)}
    assert [(each.asked, each.lost) for each in curve.tenants] == [(2000, 1000), (4000, 1000)]


# --- the file ---------------------------------------------------------------------------------------------------------


def test_limits_are_written_as_set_quota_takes_them() -> None:
    """Claim: cards to the thousandth, memory with units, what is not named has no limit, 0 is nothing."""
    text = '[a]\ncards = 12.5\nmemory = "1Gi"\n[b]\n[c]\ncards = 0\n[d]\ncards = "none"\nmemory = 8000\n'
    read = [(q.namespace, q.share_milli, q.memory_mib) for q in quotas.read(text, "f")]
    assert read == [("a", 12_500, 1024), ("b", None, None), ("c", 0, None), ("d", None, 8000)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no namespace"),
        ("[a", "no TOML"),
        ("a = 4", "a quota is a table"),
        ("[A]", "a namespace has lower-case letters"),
        ("[a]\nweight = 2", "a: weight is 2; there are cards and memory"),
        ("[a]\ncards = -1", "a: cards is -1; allowed: cards from 0"),
        ("[a]\ncards = 0.0005", "a: cards is 0.0005; allowed"),
        ("[a]\ncards = true", "a: cards is True; allowed"),
        ("[a]\ncards = 1e400", "a: cards is 1e400; allowed"),
        ('[a]\nmemory = "2000mb"', "a: memory is '2000mb'"),
    ],
)
def test_a_bad_file_is_told_by_namespace_field_value_and_bound(text: str, words: str) -> None:
    """Claim: never a default, never silence."""
    with pytest.raises(UsageError, match="f") as caught:
        quotas.read(text, "f")
    assert words in str(caught.value)


def test_a_namespace_without_a_quota_is_told_before_anything_runs() -> None:
    """Claim: it could hold nothing, which nobody means who leaves it out."""
    with pytest.raises(UsageError, match="no quota for namespace b"):
        quotas.check([limit("a")], [pod("a"), pod("b")], "f")


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Four cards; two teams with three whole pods each."""
    nodes, pods, limits = tmp_path / "nodes.csv", tmp_path / "pods.csv", tmp_path / "quotas.toml"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn-1,64000,100000,4,T4\n")
    rows = "".join(f"{team}-{i},100,1,1,1000,{team}\n" for team in ("red", "blue") for i in range(3))
    pods.write_text(f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,namespace\n{rows}")
    limits.write_text("[red]\ncards = 1\n[blue]\n")
    return ["--nodes", str(nodes), "--trace", str(pods), "--seeds", "1", "--quotas", str(limits)]


def test_simulate_tells_each_namespace(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Claim: a table for people, fields for programs; with the number of those that a quota refused."""
    assert main(["simulate", *files, "--policy", "first-fit", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["tenants"]
    assert [line["namespace"] for line in told] == ["blue", "red"]
    red = told[1]
    assert red["refused"] == red["over_quota"] == red["arrived"] - 1

    assert main(["simulate", *files, "--policy", "first-fit"]) == 0
    shown = capsys.readouterr()
    assert "BY QUOTA" in shown.out
    assert main(["simulate", *files, "--policy", "first-fit", "-o", "markdown"]) == 0
    assert "| pods | - | `first-fit` | red |" in capsys.readouterr().out
    assert "were beyond a quota" in shown.err


def test_compare_takes_quotas(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Claim: the same flag, the same runs."""
    assert main(["compare", *files, "--policy", "first-fit", "--policy", "packing"]) == 0
    assert "were beyond a quota" in capsys.readouterr().err


def test_a_trace_without_namespaces_is_of_one(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Claim: its pods are of a namespace whose name the complaint tells, in one line."""
    bare = tmp_path / "bare.csv"
    bare.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,100,1,1,1000\n")
    files[3] = str(bare)
    assert main(["simulate", *files]) == Exit.USAGE
    err = capsys.readouterr().err
    assert f"no quota for namespace {NAMESPACE}" in err
    assert err.count("\n") == 1
