"""The flags of everything that simulates: files, policies, seeds, protocol; they make a `Plan`.

What can be wrong is told before the first run: unknown policies, bad rows, pods that no node could hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from contracts.quotas import NamespaceQuota
from gpubus.cli.common import console
from gpubus.cli.simulating import need_solver
from gpubus.cli.submit import read_text
from gpubus.errors import UsageError
from gpubus.local.nodes import NodeSpec
from gpubus.simulate import checks, generated, offers, openb, quotas
from gpubus.simulate.arrivals import Draws
from gpubus.simulate.offers import Faults
from gpubus.simulate.openb import PodRow
from gpubus.simulate.plan import Horizon, Plan
from gpubus.simulate.protocol import Knowledge
from scheduler import policyfile
from scheduler.core.policies import POLICIES

Quiet = Parameter(show_default=False)
MOST_RATIO = 10.0
LARGEST_SEED = 2**32 - 1
MOST_JOBS = 64
BAD_SHOWN = 5

PODS = "openb_pod_list_"
NODES = "openb_node_list_gpu_node.csv"
PUBLISHED_TRACES = (
    *("default", "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50", "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
)
"""The 17 variants that the publishers of the trace have results for."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SimulationFlags:
    """What is simulated."""

    trace: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """Pod list (CSV); several: give the flag again. A folder: the 17 published traces in it, with its node list."""
    nodes: Annotated[str | None, Quiet] = None
    """Node list (CSV)."""
    workload: Annotated[str | None, Quiet] = None
    """Nodes and pods drawn from a description (TOML) instead of a trace."""
    policy: Annotated[tuple[str, ...], Parameter(negative="")] = ("fgd",)
    """Placement policy by name, or a Python file of your own; several: give the flag again. "all" is all there are."""
    seeds: str = "42,43,44"
    """Numbers with commas between them; each is one run, with its own order of arrival and of nodes."""
    ratio: float = 1.3
    """Demand that arrives, in parts of all cards (without --load)."""
    mix: Knowledge = "trace"
    """What policies that learn know: "trace", the mix of the whole trace, as published; "live", what has arrived so
    far, as in production. With --load it is always live."""
    draws: Draws = "own"
    """Whose random numbers: "own", or "published", those of the program of the trace's publishers, so that a seed is
    theirs, pod by pod; pods that no node could hold stay in then (without --load)."""
    load: Annotated[str | None, Quiet] = None
    """With departures: offered loads, as 0.9,1.0,1.1; or "recorded", arrivals at the times of the trace."""
    hours: float = 14.0
    """With --load: virtual hours."""
    discard: float = 4.0
    """With --load: hours that are played and not counted."""
    lifetimes: Annotated[str | None, Quiet] = None
    """With --load: pod list whose lifetimes are taken by name, or by number of cards, for traces without times."""
    fail_nodes: float = 0.0
    """With --load: failures a node and day; pods on it are lost."""
    drain_nodes: float = 0.0
    """With --load: drains a node and day; nothing new goes there for a while."""
    away: int = 1800
    """With --load: seconds after which such a node is back."""
    quotas: Annotated[str | None, Quiet] = None
    """What namespaces may hold (TOML): [team-a] and below it cards = 12.5, memory = "400Gi". A column `namespace` of
    the pod list tells whose a pod is; one that is beyond its quota is refused."""
    skip_bad: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Leave out rows that cannot be read and pods that no node could hold, instead of stopping at the first."""
    jobs: int = 1
    """Processes."""

    def plan(self, *, bounds: tuple[str, ...] = ()) -> Plan:
        """Everything read and checked.

        Raises:
            UsageError: a flag, a file, a row.
        """
        self._check()
        loads = self._loads()
        nodes, traces = self._generated() if self.workload is not None else self._recorded()
        if loads != (None,) or self.load is not None:
            traces = self._with_lives(traces)
        policies, files = chosen(self.policy)
        given = self._quotas(traces)
        return Plan(
            nodes=tuple(nodes),
            traces={name: tuple(rows) for name, rows in traces.items()},
            policies=policies,
            seeds=seeds_of(self.seeds),
            ratio=self.ratio,
            mix=self.mix,
            draws=self.draws,
            loads=loads,
            horizon=None if self.load is None else self._horizon(),
            files=files,
            bounds=bounds,
            quotas=given,
        )

    def _check(self) -> None:
        if not 0 < self.ratio <= MOST_RATIO:
            raise UsageError(f"--ratio {self.ratio:g}: more than 0, at most {MOST_RATIO:g}")
        if not 1 <= self.jobs <= MOST_JOBS:
            raise UsageError(f"--jobs {self.jobs}: between 1 and {MOST_JOBS}")
        if not 0 <= self.discard < self.hours:
            raise UsageError(f"--discard {self.discard:g}: from 0, less than --hours {self.hours:g}")
        for flag, rate in (("--fail-nodes", self.fail_nodes), ("--drain-nodes", self.drain_nodes)):
            if not 0 <= rate <= 1000:  # noqa: PLR2004 - more than 40 an hour is no fault, it is a mistake
                raise UsageError(f"{flag} {rate:g}: failures a node and day, from 0 to 1000")
        if (self.workload is None) == (not self.trace):
            raise UsageError("give --trace FILE, or --workload FILE")
        if self.load is None and (self.fail_nodes or self.drain_nodes or self.lifetimes):
            raise UsageError("--fail-nodes, --drain-nodes and --lifetimes go with --load: without it no time passes")

        if self.draws == "published" and (self.load is not None or self.workload is not None):
            raise UsageError("--draws published goes with --trace and without --load: the publishers had no departures")

    def _horizon(self) -> Horizon:
        faults = Faults(fail_per_day=self.fail_nodes, drain_per_day=self.drain_nodes, away_s=self.away)
        return Horizon(hours=self.hours, discard=self.discard, faults=faults)

    def _loads(self) -> tuple[float | None, ...]:
        if self.load is None or self.load == "recorded":
            return (None,)
        try:
            loads = tuple(dict.fromkeys(float(word) for word in self.load.split(",")))
        except ValueError:
            raise UsageError(f"--load {self.load}: numbers with commas between them, or recorded") from None
        if not all(0 < load <= MOST_RATIO for load in loads):
            raise UsageError(f"--load {self.load}: each more than 0, at most {MOST_RATIO:g}")
        return loads

    def _generated(self) -> tuple[list[NodeSpec], dict[str, list[PodRow]]]:
        file = self.workload or ""
        workload = generated.read(read_text(file), file)
        rows = generated.pods(workload, seeds_of(self.seeds)[0])
        return generated.nodes(workload), {Path(file).stem: rows}

    def _recorded(self) -> tuple[list[NodeSpec], dict[str, list[PodRow]]]:
        files, beside = pod_files(self.trace)
        place = self.nodes or beside
        if place is None:
            raise UsageError("give --nodes FILE: the node list")
        bad: openb.Bad = []
        kept = bad if self.skip_bad else None
        specs = openb.nodes(read_text(place), place, bad=kept)
        if not specs:
            raise UsageError(f"{place}: holds no node with cards")
        traces = {}
        for name, file in files.items():
            rows = openb.pods(read_text(file), file, bad=kept)
            if self.draws == "own":
                rows, none = checks.split(rows, specs, file)
                bad += none
            traces[name] = rows
            if not any(row.demand_milli for row in rows):
                why = f", of those that can be used: {bad[0]}{_more(bad)}" if bad else ""
                raise UsageError(f"{file}: holds no pod that asks for a card{why}")
        _tell(bad, skipped=self.skip_bad)
        return specs, traces

    def _quotas(self, traces: dict[str, list[PodRow]]) -> tuple[NamespaceQuota, ...]:
        if self.quotas is None:
            return ()
        found = quotas.read(read_text(self.quotas), self.quotas)
        for rows in traces.values():
            quotas.check(found, rows, self.quotas)
        return found

    def _with_lives(self, traces: dict[str, list[PodRow]]) -> dict[str, list[PodRow]]:
        others = [] if self.lifetimes is None else openb.pods(read_text(self.lifetimes), self.lifetimes)
        return {name: offers.lives(rows, name, others) for name, rows in traces.items()}


def _tell(bad: Sequence[str], *, skipped: bool) -> None:
    """What is wrong with the files: it ends the command, or stands on stderr."""
    if not bad:
        return
    if not skipped:
        raise UsageError(f"{bad[0]}{_more(bad)}; --skip-bad leaves such rows out")
    screen = console(stderr=True)
    for line in bad[:BAD_SHOWN]:
        screen.print(f"left out: {line}", style="yellow", markup=False)
    if len(bad) > BAD_SHOWN:
        screen.print(f"left out: {len(bad) - BAD_SHOWN} more rows", style="yellow")


def _more(bad: Sequence[str]) -> str:
    return f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""


def pod_files(given: Sequence[str]) -> tuple[dict[str, str], str | None]:
    """Files by the name of their trace; and the node list of the first folder among them."""
    found: dict[str, str] = {}
    beside: str | None = None
    for place in given:
        folder = Path(place)
        files: Iterable[str] = [place]
        if folder.is_dir():
            files = [str(f) for f in (folder / f"{PODS}{name}.csv" for name in PUBLISHED_TRACES) if f.is_file()]
            beside = beside or str(folder / NODES)
            if not files:
                raise UsageError(f"--trace {place}: no {PODS}default.csv nor another published trace in this folder")
        for file in files:
            name = Path(file).stem
            if name in found:
                raise UsageError(f"--trace {file}: there are two called {name}")
            found[name] = file
    return found, beside


def chosen(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of policies, and the files among them, which are loaded."""
    files = tuple(name for name in names if policyfile.is_file(name))
    picked = list(POLICIES) if "all" in names else []
    picked += [loaded(name) if name in files else name for name in names if name != "all"]
    if unknown := [name for name in picked if name not in POLICIES]:
        raise UsageError(f"--policy {', '.join(unknown)}: there are {', '.join(POLICIES)}, all, or a file")
    for priced in (name for name in picked if POLICIES[name].priced):
        need_solver(f"--policy {priced}")
    return tuple(dict.fromkeys(picked)), files


def loaded(file: str) -> str:
    """The name of the policy in that file.

    Raises:
        UsageError: it is none.
    """
    try:
        return policyfile.load(file).name
    except policyfile.BadPolicyFile as error:
        raise UsageError(f"--policy {error}") from error


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds, each once."""
    words = text.split(",")
    if not all(re.fullmatch("[0-9]{1,10}", word.strip()) for word in words):
        raise UsageError(f"--seeds {text}: whole numbers with commas between them, as 42,43,44")
    found = list(dict.fromkeys(int(word) for word in words))
    if max(found) > LARGEST_SEED:
        raise UsageError(f"--seeds {text}: at most {LARGEST_SEED}")
    return tuple(found)
