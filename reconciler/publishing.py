"""Node facts and node shares: which nodes have news, and saying them on the board after a short gathering.

What flows in: changes of pods and nodes, commits of the ledger. What flows out: full messages per node; the board sends
only what differs from what stands. While this process may not act, news gathers; when it may again, every node is news.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from contracts.decisions import Adopted, Commit, EpochStarted, Released, Reserved, Resized
from contracts.inventory import NodeFacts
from contracts.outcomes import NodeShares
from contracts.subjects import NODE_FACTS, SHARES
from contracts.units import node_token
from reconciler import marks
from reconciler.board import Board
from reconciler.facts import gone, node_facts
from reconciler.informer import Informer
from reconciler.objects import Node, Pod
from reconciler.placeholders.survey import Kept
from reconciler.seen import Seen, look
from reconciler.shares import node_shares
from reconciler.store import Change
from reconciler.view import View

TOLD_AT_ONCE = 20
"""Nodes that are told of in one go, a few milliseconds: five thousand in one would cost us the lease, and with it the
right to say anything; then everything would begin anew."""


class Gathered:
    """Names that have news. `run` hands them over, at most every `every_s`, while `may_act` says so."""

    def __init__(self, every_s: float, may_act: Callable[[], bool]) -> None:
        self.every_s = every_s
        self.may_act = may_act
        self._names: set[str] = set()
        self._some = asyncio.Event()

    def add(self, names: Iterable[str]) -> None:
        """They have news."""
        self._names.update(name for name in names if name)
        if self._names:
            self._some.set()

    async def run(self, tell: Callable[[str], None]) -> None:
        """For ever."""
        while True:
            await self._some.wait()
            await asyncio.sleep(self.every_s)
            self._some.clear()
            if not self.may_act():
                continue
            names, self._names = deque(sorted(self._names)), set()
            while names and self.may_act():
                for _ in range(min(TOLD_AT_ONCE, len(names))):
                    tell(names.popleft())
                await asyncio.sleep(0)
            self.add(names)


KeptOf = Callable[[Node, list[Pod]], Kept]
"""How the cards of a node are shared out, from its object and the pods bound to it."""


class FactsDesk:
    """Facts of nodes."""

    def __init__(
        self,
        view: View,
        pods: Informer[Pod],
        nodes: Informer[Node],
        board: Board,
        gathered: Gathered,
        *,
        kept: KeptOf = lambda *_: Kept(),
    ) -> None:
        self._view, self._pods, self._nodes, self._board = view, pods, nodes, board
        self.gathered, self._kept = gathered, kept

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        """A pod that the ledger counts says nothing about foreign use; every other one may."""
        self.gathered.add(
            pod.spec.node_name
            for change in changes
            for pod in (change.object, change.before)
            if pod is not None and not self._counted(pod)
        )

    def nodes_changed(self, changes: Iterable[Change[Node]]) -> None:
        """A node came, changed or went."""
        self.gathered.add(change.key for change in changes)

    def folded(self, commit: Commit) -> None:
        """What the ledger gives up or takes up counts elsewhere from now on."""
        if _starts(commit):
            self.everything()
        self.gathered.add(self._view.nodes_of(commit, (Released, Adopted)))

    def everything(self) -> None:
        """All nodes, also those that were spoken of before and are no more."""
        spoken = (word.node for _, word in self._board.words() if isinstance(word, NodeFacts))
        self.gathered.add([*self._nodes.store.objects, *spoken])

    def tell(self, name: str) -> None:
        """Say the facts of one node."""
        node = self._nodes.store.get(name)
        subject = NODE_FACTS.subject(node=node_token(name))
        if node is not None:
            pods = list(self._pods.store.grouped(name))
            kept = self._kept(node, pods)
            facts = node_facts(node, pods, self._view.counted)
            shared = replace(facts, mode=kept.mode, acquired=kept.acquired, acquiring=kept.acquiring)
            self._board.say(subject, facts if kept.mode == "dedicated" else shared)
            return
        word = self._board.last(subject)
        if isinstance(word, NodeFacts) and not word.gone:
            self._board.say(subject, gone(name, word.uid))

    def _counted(self, pod: Pod) -> bool:
        return self._view.counted((pod.metadata.annotations or {}).get(marks.UID, ""), pod.spec.node_name)


PODS_EVERY_S = 1.0
"""Pause in which news of our own pods gathers before their nodes are told: each pod has several on its way to running,
and only who measures or limits its CPU asks for them."""


class SharesDesk:
    """Shares of the pods on nodes."""

    def __init__(self, view: View, pods: Informer[Pod], board: Board, gathered: Gathered) -> None:
        self._view, self._pods, self._board = view, pods, board
        self.gathered = gathered
        self._looks: dict[str, tuple[Pod, Seen]] = {}
        self.pods_gathered = Gathered(max(PODS_EVERY_S, gathered.every_s), gathered.may_act)

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        """A pod of ours got its node, its container, or another one."""
        pods = (change.object for change in changes if marks.UID in (change.object.metadata.annotations or {}))
        self.pods_gathered.add(pod.spec.node_name for pod in pods)

    def folded(self, commit: Commit) -> None:
        """A commit was folded: the nodes where it gave, took or changed something."""
        if _starts(commit):
            self.everything()
        self.gathered.add(self._view.nodes_of(commit, (Reserved, Adopted, Resized, Released)))

    def everything(self) -> None:
        """All nodes that hold something, or were last said to."""
        self._looks.clear()  # pods that are gone are not asked for any more, and would stay here
        held = [name for name, node in self._view.state.nodes.items() if node.residents]
        spoken = [word.node for _, word in self._board.words() if isinstance(word, NodeShares)]
        self.gathered.add([*held, *spoken])

    def tell(self, name: str) -> None:
        """Say the shares of one node; of a node that never held anything, nothing."""
        subject = SHARES.subject(node=node_token(name))
        before = self._board.last(subject)
        known = before if isinstance(before, NodeShares) else None
        shares = node_shares(self._view.state, name, self._seen, known)
        if shares.assignments or shares.pods or before is not None:
            self._board.say(subject, shares)

    def _seen(self, key: str) -> Seen | None:
        """The pod as seen; looked at once for each version of it."""
        pod = self._pods.store.get(key)
        if pod is None:
            return None
        before = self._looks.get(key)
        if before is None or before[0] is not pod:
            before = self._looks[key] = (pod, look(pod))
        return before[1]


def _starts(commit: Commit) -> bool:
    return any(isinstance(record, EpochStarted) for record in commit.records)
