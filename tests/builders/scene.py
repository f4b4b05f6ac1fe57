"""A scheduler's engine with its log, played scene by scene: `Scene(node("n1").gpus(1)).submit(request("a"))`.

Every call is one turn of the service: inputs, decisions, one commit that is folded from its bytes. `judge` proves the
whole log and decides every decision again.
"""

from __future__ import annotations

from typing import Any, Self

import msgspec

from bus.ledger.fold import seal
from bus.ledger.proof import Prover
from bus.ledger.snapshot import copy, digest
from bus.ledger.state import RequestState
from contracts.decisions import Commit, Nominated, Record, Reserved
from contracts.messages import encode
from contracts.outcomes import Outcome, OutcomePhase
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest, Resize, Withdraw
from contracts.units import NodeName
from scheduler.core.engine import Answer, Engine
from scheduler.core.queue.queue import QueueRules
from scheduler.core.replay import replay
from tests.builders.history import Log
from tests.builders.ledger import Node, Request

START_MS = 1_790_000_000_000
TURNS = 200
"""Commits until a scene has come to rest, at most."""


class Scene:
    """A small world in which time is told, not waited for."""

    def __init__(self, *nodes: Node, rules: QueueRules | None = None) -> None:
        self.log = Log(epoch="e")
        self.now_ms = START_MS
        self.rules = rules or QueueRules()
        self.log.write(*(record for each in nodes for record in each.records()), at_ms=self.now_ms)
        self.engine = Engine(copy(self.log.state), policy="packing", rules=self.rules)
        self.answers: list[Answer] = []

    def turn(self) -> Self:
        """Decide and commit, until there is nothing to decide."""
        for _ in range(TURNS):
            self.engine.schedule()
            records = self.engine.take()
            if not records:
                return self
            commit = self.log.write(*records, at_ms=self.now_ms)
            seal(self.engine.state, commit, self.log.state.sequence)
        raise AssertionError(f"decisions without end: {self.log.commits[-1][0].records}")

    def restart(self) -> Self:
        """Another scheduler takes over."""
        self.engine = Engine(copy(self.log.state), policy="packing", rules=self.rules)
        return self.turn()

    # --- what happens ----------------------------------------------------------------------------------------------

    def submit(self, *asked: Request | PodRequest, space: str = "ns") -> Self:
        """Requests of one namespace arrive together."""
        for each in asked:
            message = each.build() if isinstance(each, Request) else each
            self.answers.append(self.engine.submit(space, message, now_ms=self.now_ms))
        return self.turn()

    def seen(self, name: str, phase: OutcomePhase, *, space: str = "ns", **fields: Any) -> Self:
        """Kubernetes says something of the pod of a request."""
        request = self[name, space]
        fields = {"attempt": request.attempt, **fields}
        self.engine.outcome(
            Outcome(uid=request.uid, namespace=space, name=name, phase=phase, pod=f"{name}-{request.attempt}", **fields)
        )
        return self.turn()

    def withdraw(self, name: str, *, space: str = "ns") -> Self:
        """A user changes their mind."""
        self.answers.append(self.engine.withdraw(space, Withdraw(name=name)))
        return self.turn()

    def resize(self, name: str, share_milli: int, memory_mib: int, *, space: str = "ns") -> Self:
        """A user wants more or less."""
        message = Resize(name=name, share_milli=share_milli, memory_mib=memory_mib)
        self.answers.append(self.engine.resize(space, message))
        return self.turn()

    def quota(self, space: str = "ns", **fields: Any) -> Self:
        """An operator's word."""
        self.engine.quota(NamespaceQuota(namespace=space, **fields))
        return self.turn()

    def fold(self, *records: Record) -> Self:
        """Facts about nodes, as records."""
        commit = self.log.write(*records, at_ms=self.now_ms)
        self.engine = Engine(copy(self.log.state), policy="packing", rules=self.rules)
        assert commit.records == records
        return self.turn()

    def wait(self, seconds: int) -> Self:
        """Time passes and is told by an empty commit."""
        self.now_ms += 1000 * seconds
        commit = self.log.write(at_ms=self.now_ms)
        seal(self.engine.state, commit, self.log.state.sequence)
        return self.turn()

    # --- what is the case ------------------------------------------------------------------------------------------

    def __getitem__(self, key: str | tuple[str, str]) -> RequestState:
        """A request by name, or by name and namespace, live or finished."""
        name, space = key if isinstance(key, tuple) else (key, "ns")
        found = self.log.state.find(f"{space}/{name}")  # type: ignore[arg-type]  # a key is a str
        assert found is not None, f"no request {space}/{name}"
        return found

    def where(self, *names: str) -> list[NodeName | str]:
        """The nodes of placed requests; `-` for one that waits."""
        return [p.node if (p := self[name].placement) is not None else "-" for name in names]

    def kept(self, name: str) -> str:
        """The node on which a place is kept for it, or an empty string."""
        nomination = self[name].nomination
        return nomination.placement.node if nomination is not None else ""

    def leaving(self) -> list[str]:
        """Names of those who have been told to go."""
        return sorted(r.request.name for r in self.log.state.requests.values() if r.leaving)

    def codes(self, name: str) -> list[str]:
        """Why it waits."""
        return [reason.code for reason in self.engine.reasons(self.engine.state.requests[self[name].uid])]

    def records(self, kind: type[Record]) -> list[Any]:
        """All records of a kind, in the whole log."""
        return [record for commit, _ in self.log.commits for record in commit.records if isinstance(record, kind)]

    def order(self) -> list[str]:
        """Names in the order in which they were placed."""
        return [self.log.state.get(record.uid).request.name for record in self.records(Reserved)]  # type: ignore[union-attr]

    def victims(self) -> list[str]:
        """Names of all who ever had to leave, in the order in which they were told."""
        uids = [uid for record in self.records(Nominated) for uid in record.victims]
        return [self.log.state.get(uid).request.name for uid in uids]  # type: ignore[union-attr]

    def judge(self) -> Self:
        """The log proves itself, and every decision comes out again; a restart decides nothing more."""
        prover = Prover()
        assert all(map(prover.take, self.log.messages)), prover.broken
        assert prover.proof().digest == digest(self.log.state) == digest(self.engine.state)
        again = (msgspec.json.decode(encode(commit), type=Commit) for commit, _ in self.log.commits)
        assert replay((commit, at) for commit, (_, at) in zip(again, self.log.commits, strict=True)).differences == ()
        before = len(self.log.commits)
        assert len(self.restart().log.commits) == before
        return self
