"""Keeps placeholders: looks at the nodes in mode `coexist`, does what their plans say, and tells people.

In: changes of pods and nodes, commits of the ledger. Out: calls to the API server, Events at the Node, and answers:
what stands against getting more cards of a node, whether a placed request may be bound, whether it must leave. The
decisions are `demand` and `plan`; all state but the pauses is in the placeholders, so that a restart begins where the
last process ended. Where no node is in that mode, nothing here ever runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from bus.ledger.state import RequestState
from bus.runtime.tracing import meter
from contracts.decisions import Commit, Placement
from contracts.units import RequestUid
from reconciler import errors
from reconciler.calls import Kube
from reconciler.events import News
from reconciler.events_desk import EventsDesk
from reconciler.facts import pod_request
from reconciler.informer import Informer
from reconciler.objects import Node, Pod
from reconciler.placeholders.demand import askers, demand
from reconciler.placeholders.look import is_placeholder
from reconciler.placeholders.memory import NOTHING, Memory, refused
from reconciler.placeholders.plan import Planned, plan
from reconciler.placeholders.render import deletion, manifest, patch
from reconciler.placeholders.rooms import room
from reconciler.placeholders.survey import placeholders, survey
from reconciler.placeholders.values import (
    HOLDS,
    PROOF,
    RELEASING,
    Acquire,
    End,
    NodeSeen,
    Prove,
    Release,
    Rules,
    Step,
    mode_of,
)
from reconciler.protocol import MERGE_PATCH
from reconciler.steps import AT_HOME, Standing
from reconciler.store import Change
from reconciler.view import View, pod_key

GATHER_S = 0.1
"""Changes gather this long before the nodes are looked at again."""
RESTS = 4
"""Times as long as a look took, it rests: a thousand shared nodes take a tenth of a second, and never all of a core."""
NODE_EVENTS = "default"
"""Namespace of the Events of things that have none."""

_log = logging.getLogger(__name__)


class PlaceholderDesk:
    """Works off all nodes that share their cards.

    Args:
        view: the ledger.
        pods: what Kubernetes has.
        nodes: likewise.
        kube: the calls.
        people: tells people.
        may_act: asked before each round and each step.
        now_s: a clock that does not jump.
        rules: of this installation.
        facts_news: told the names of nodes whose facts may have changed.
        pod_news: told the keys of pods that may go on, or must go.
    """

    def __init__(
        self,
        *,
        view: View,
        pods: Informer[Pod],
        nodes: Informer[Node],
        kube: Kube,
        people: EventsDesk,
        may_act: Callable[[], bool],
        now_s: Callable[[], float],
        rules: Rules,
        facts_news: Callable[[Iterable[str]], None],
        pod_news: Callable[[str], None],
    ) -> None:
        self._view, self._pods, self._nodes, self._kube = view, pods, nodes, kube
        self._people, self._may_act, self._now_s, self.rules = people, may_act, now_s, rules
        self._facts_news, self._pod_news = facts_news, pod_news
        self._members: set[str] = set()
        """Nodes that share their cards, and others where placeholders are left."""
        self._memory: dict[str, Memory] = {}
        self._plans: dict[str, Planned] = {}
        self._taken: dict[str, dict[str, str]] = {}
        self._against: dict[str, str] = {}
        self._waiting_since_s: dict[RequestUid, float] = {}
        self._some = asyncio.Event()
        self._done = meter().create_counter(
            "gpubus.reconciler.placeholders.steps", description="cards acquired, proven, withdrawn, given back; by kind"
        )

    # --- news --------------------------------------------------------------------------------------------------------

    def pods_changed(self, changes: Iterable[Change[Pod]]) -> None:
        """A pod on such a node may have taken a card, or be a placeholder."""
        for change in changes:
            name = change.object.spec.node_name
            if is_placeholder(change.object, self.rules):
                self._members.add(name)
                for key in self._view.pods_on(name):
                    self._pod_news(key)
            if name in self._members:
                self._some.set()

    def nodes_changed(self, changes: Iterable[Change[Node]]) -> None:
        """A node changed its mode, its devices, its boot."""
        for change in changes:
            self._enter(change.key)
            if change.key in self._members:
                self._some.set()

    def folded(self, _commit: Commit) -> None:
        """Requests came or went, cards were sold or came free."""
        if self._members:
            self._some.set()

    def everything(self) -> None:
        """Look at all nodes."""
        for name in self._nodes.store.objects:
            self._enter(name)
        self._members.update(
            pod.spec.node_name for pod in self._pods.store.objects.values() if is_placeholder(pod, self.rules)
        )
        self._some.set()

    def _enter(self, name: str) -> None:
        node = self._nodes.store.get(name)
        if node is not None and mode_of(node)[0] == "coexist":
            self._members.add(name)

    # --- answers -----------------------------------------------------------------------------------------------------

    def trouble(self, node: str) -> str:
        """Why no more cards of a node can be had now, for its facts; empty while nothing is known against it."""
        memory = self._memory.get(node)
        told = (memory.trouble if memory is not None else "", self._against.get(node, ""))
        return "; ".join(filter(None, told))

    def standing(self, request: RequestState) -> Standing:
        """Whether a placed request may be bound where it is placed, and stay there."""
        placement = request.placement
        held = self._held(placement.node) if placement is not None else None
        if placement is None or held is None:
            return AT_HOME
        missing = [piece.card for piece in placement.slices if piece.card not in held]
        waits_for = f"card {missing[0]} is not held by a placeholder of ours at the moment" if missing else ""
        return Standing(waits_for=waits_for, leaves=self._leaves(request, placement))

    def _leaves(self, request: RequestState, placement: Placement) -> str:
        """Why it cannot stay; empty when it can.

        Its card was given to somebody else; or it never began, and its card cannot be had any more; or its pod asks the
        device plugin for a card itself, which would be a second one.
        """
        pod = self._pods.store.get(pod_key(request))
        if pod is not None and pod_request(pod, self.rules.resource):
            return f"its pod asks for {self.rules.resource} as well: on a node in mode coexist that is another card"
        planned, taken = self._plans.get(placement.node), self._taken.get(placement.node, {})
        hopeless = planned.hopeless if planned is not None else frozenset()
        lost = next((piece.card for piece in placement.slices if piece.card in hopeless), "")
        if lost and lost in taken:
            return f"the device plugin gave card {lost} to {taken[lost]}"
        if lost and request.phase == "placed":
            return f"card {lost} is lost: every card of {placement.node} is given out, and none of ours is it"
        return ""

    def _held(self, name: str) -> set[str] | None:
        """The cards of a node that are ours; None where all of them are."""
        node = self._nodes.store.get(name) if name in self._members else None
        if node is None or mode_of(node)[0] == "dedicated":
            return None
        found = placeholders(node, self._pods.store.grouped(name), self.rules)
        return {each.card for each in found if each.state == "held" and not each.releasing}

    @property
    def lost(self) -> int:
        """Sold cards that no placeholder holds."""
        return sum(len(planned.lost) for planned in self._plans.values())

    @property
    def count(self) -> int:
        """Placeholders that there are."""
        return sum(len(memory.since) for memory in self._memory.values())

    # --- working -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled."""
        due_s: float | None = None
        took_s = 0.0
        while True:
            try:
                async with asyncio.timeout(None if due_s is None else max(0.0, due_s - self._now_s())):
                    await self._some.wait()
            except TimeoutError:
                pass  # something is due by time alone
            await asyncio.sleep(max(GATHER_S, RESTS * took_s))
            self._some.clear()
            began_s = self._now_s()
            due_s = await self._round() if self._members and self._may_act() else None
            took_s = self._now_s() - began_s

    async def _round(self) -> float | None:
        """Every node once; when something may be due next."""
        now_s = self._now_s()
        seen = {name: found for name in sorted(self._members) if (found := self._survey(name)) is not None}
        for name in self._members - seen.keys():
            self._forget(name)
        wanted, next_s = self._demand(seen, now_s)
        steps: list[tuple[str, Step]] = []
        for name, found in seen.items():
            planned = plan(found, wanted.get(name, 0), self._memory.get(name, NOTHING), self.rules, now_s)
            steps += [(name, step) for step in planned.steps]
            await self._take(found, planned)
        async with asyncio.TaskGroup() as group:
            for name, step in steps:
                group.create_task(self._do(name, step), name=f"placeholder {name}")
        times = [next_s, *(planned.again_s for planned in self._plans.values())]
        return min((at_s for at_s in times if at_s is not None and at_s > now_s), default=None)

    def _survey(self, name: str) -> NodeSeen | None:
        """None when there is nothing to look after any more."""
        node = self._nodes.store.get(name)
        if node is None:
            return None
        seen = survey(node, self._pods.store.grouped(name), self._view.state.nodes.get(name), self.rules)
        return seen if seen.mode == "coexist" or seen.placeholders else None

    def _forget(self, name: str) -> None:
        self._members.discard(name)
        self._memory.pop(name, None)
        self._plans.pop(name, None)
        self._taken.pop(name, None)
        self._against.pop(name, None)

    def _demand(self, seen: dict[str, NodeSeen], now_s: float) -> tuple[dict[str, int], float | None]:
        """Cards to get by node, and when the next request has waited long enough."""
        state = self._view.state
        since_s = self._waiting_since_s
        self._waiting_since_s = {uid: since_s.get(uid, now_s) for uid in state.pending}
        ripe_s = {uid: at_s + self.rules.acquire_after_s for uid, at_s in self._waiting_since_s.items()}
        waited = [request for uid, request in state.pending.items() if ripe_s[uid] <= now_s]
        asking = askers(state, waited)
        rooms = []
        for name, found in seen.items() if asking else ():
            paused = now_s < self._memory.get(name, NOTHING).until_s
            made = room(found, state.nodes.get(name), paused=paused) if found.mode == "coexist" else None
            rooms += [made] if made is not None else []
        next_s = min((at_s for at_s in ripe_s.values() if at_s > now_s), default=None)
        return demand(asking, rooms), next_s

    async def _take(self, seen: NodeSeen, planned: Planned) -> None:
        """What a plan found out, and who has to hear of it."""
        name, before = seen.name, self._plans.get(seen.name)
        told, known = self.trouble(name), self._memory.get(name, NOTHING).trouble
        self._memory[name], self._plans[name], self._taken[name] = planned.memory, planned, dict(seen.taken)
        self._against[name] = seen.against
        if self.trouble(name) != told:
            self._facts_news([name])
        if planned.memory.trouble not in ("", known):
            await self._tell(name, "CardNotAcquired", f"no card could be acquired: {planned.memory.trouble}")
        if planned.hopeless != (before.hopeless if before is not None else frozenset()):
            for key in self._view.pods_on(name):
                self._pod_news(key)
        for card in sorted(planned.lost - (before.lost if before is not None else frozenset())):
            owner = f"; {seen.taken[card]} has it" if card in seen.taken else ""
            await self._tell(name, "CardLost", f"card {card} is sold, and no placeholder holds it{owner}")

    async def _tell(self, name: str, reason: str, note: str) -> None:
        _log.warning("%s: %s", name, note)
        node = self._nodes.store.get(name)
        uid = node.metadata.uid if node is not None else ""
        news = News(
            namespace=NODE_EVENTS, pod=name, pod_uid=uid, reason=reason, note=note, action="Acquiring", of="Node"
        )
        await self._people.tell(news)

    # --- doing -------------------------------------------------------------------------------------------------------

    async def _do(self, name: str, step: Step) -> None:
        """One step. A failure is remembered, and what was not done is planned again."""
        if not self._may_act():
            return
        try:
            await self._call(name, step)
        except errors.KubeError as error:
            if isinstance(error, errors.Conflict | errors.NotFound):
                self._some.set()  # the watch tells what it is like now
                return
            why = f"{type(error).__name__}: {error}"
            _log.warning("%s: %s failed", name, type(step).__name__, extra={"reason": why})
            self._memory[name] = refused(self._memory.get(name, NOTHING), why, self.rules, self._now_s())
            self._facts_news([name])
            self._some.set()
        else:
            self._done.add(1, {"step": type(step).__name__.lower()})

    async def _call(self, name: str, step: Step) -> None:
        if isinstance(step, Acquire):
            self._pods.own(await self._kube.create(self.rules.namespace, manifest(name, step.slot, self.rules)))
            return
        what = step.what
        path = f"/api/v1/namespaces/{self.rules.namespace}/pods/{what.name}"
        if isinstance(step, End):
            _log.info("%s: placeholder %s goes", name, what.name, extra={"reason": step.reason, "card": what.card})
            await self._kube.write("DELETE", path, deletion(what.uid, what.version))
            return
        if isinstance(step, Prove):
            notes: dict[str, str | None] = {HOLDS: what.card, PROOF: what.proof}
        else:
            notes = {RELEASING: "true" if isinstance(step, Release) else None}
        await self._kube.write("PATCH", path, patch(what.uid, notes), content_type=MERGE_PATCH)
