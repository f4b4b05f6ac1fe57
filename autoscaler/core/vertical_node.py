"""One node: what its pods may use from now on, so that no card and no CPU is promised twice. Pure.

In: the pods of a node as they stand (`NodeView`), what is remembered of each (`PodMemory`), the settings, the time.
Out: a `NodePlan`: for each pod what it wants, what it is granted and which limits hold for it, and the new memory.

    wish (`vertical_pod`) ──▶ CPU of the node shared out ──▶ each card shared out ──▶ grant ──▶ limit

Only pods whose owner asked for it get limits. The others are counted too: what they leave idle is lent, what they were
sold is theirs. A grant is what a pod pays for; its limit is the grant, and never less than what it was sold unless the
settings say otherwise, so who wakes is not held back by what he has lent: his request decides until the borrower's
limit is down again, in the next answer.

A pod whose limits a node could not write (`vertical_settle`) has those that last held, and is left alone for a while. A
use that is not known, or not fresh, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from autoscaler.core.vertical_pod import awake, wish
from autoscaler.core.vertical_rooms import Claim, share_out
from autoscaler.core.vertical_values import WHOLE, Economy, Limits, PodMemory, PodView, Purse, Wish
from contracts.messages import Value

LEFT_ALONE = "left-alone"
_LEAST_CPU_MILLI = 10
"""The kernel takes no less."""
_SPARE_MILLI = 100
"""What is kept for everybody above its use before the rest of what it was sold is lent."""


class NodeView(Value, frozen=True, kw_only=True):
    """One node now."""

    node: str
    pods: tuple[PodView, ...] = ()
    """By uid."""
    cpu_capacity_milli: int | None = None
    """For all of our pods; None = not known, and nothing is changed."""


class PodPlan(Value, frozen=True, kw_only=True):
    """One pod's part of a plan."""

    pod: PodView
    wish: Wish
    granted: Limits
    limits: Limits
    """Empty for pods that are not managed."""
    reason: str = ""


class NodePlan(Value, frozen=True, kw_only=True):
    """What is to hold on a node from now on."""

    pods: tuple[PodPlan, ...] = ()
    memory: dict[str, PodMemory] = {}
    """By uid; of pods that are here, and no others."""


def plan(view: NodeView, memory: Mapping[str, PodMemory], economy: Economy, *, now_ms: int) -> NodePlan:
    """The next limits of all pods of a node."""
    capacity = view.cpu_capacity_milli
    old = {pod.uid: memory.get(pod.uid, PodMemory()) for pod in view.pods}
    wishes = {pod.uid: _wish(pod, old[pod.uid], economy, capacity, now_ms) for pod in view.pods}
    cpu = share_out(capacity or 0, [_cpu_claim(pod, wishes[pod.uid], old[pod.uid].told) for pod in view.pods])
    gpu = _on_cards(view.pods, wishes, old)
    plans = tuple(
        _plan(pod, wishes[pod.uid], old[pod.uid], Limits(cpu_milli=cpu[pod.uid], gpu_milli=gpu.get(pod.uid)), economy)
        for pod in view.pods
    )
    return NodePlan(pods=plans, memory={p.pod.uid: _remembered(p, old[p.pod.uid], now_ms) for p in plans})


# --- claims ----------------------------------------------------------------------------------------------------------


def _wish(pod: PodView, old: PodMemory, economy: Economy, capacity: int | None, now_ms: int) -> Wish:
    found = wish(pod, old.purse, old.told, economy, cpu_capacity_milli=capacity, now_ms=now_ms)
    if old.leave_until_ms is not None and now_ms < old.leave_until_ms:
        cpu, gpu = old.held.cpu_milli, old.held.gpu_milli
        cpu_milli = pod.cpu_sold_milli if cpu is None else cpu
        return replace(found, cpu_milli=cpu_milli, gpu_milli=pod.share_milli if gpu is None else gpu, rule=LEFT_ALONE)
    return found


def _cpu_claim(pod: PodView, wanted: Wish, stands: Limits) -> Claim:
    owed = _owed(pod.cpu_sold_milli, pod.cpu_used_milli, stands.cpu_milli)
    return Claim(uid=pod.uid, owed=owed, wanted=wanted.cpu_milli if pod.managed else owed)


def _owed(sold: int, used: int | None, stands: int | None) -> int:
    """Of what it was sold: what it uses and some; all of it when its use is not known, or is at its limit."""
    return sold if used is None or awake(used, stands) else min(sold, used + _SPARE_MILLI)


def _on_cards(pods: Iterable[PodView], wishes: Mapping[str, Wish], old: Mapping[str, PodMemory]) -> dict[str, int]:
    """A pod gets on all of its cards what it gets on the fullest of them."""
    claims: dict[str, list[Claim]] = {}
    for pod in pods:
        for part in pod.cards:
            owed = _owed(part.sold_milli, part.used_milli, old[pod.uid].told.gpu_milli)
            want = wishes[pod.uid].gpu_milli if pod.managed else owed
            claims.setdefault(part.card, []).append(Claim(uid=pod.uid, owed=owed, wanted=want))
    grants: dict[str, int] = {}
    for card in sorted(claims):
        for uid, granted in share_out(WHOLE, claims[card]).items():
            grants[uid] = min(granted, grants.get(uid, granted))
    return grants


# --- limits ----------------------------------------------------------------------------------------------------------


def _plan(pod: PodView, wanted: Wish, old: PodMemory, granted: Limits, economy: Economy) -> PodPlan:
    return PodPlan(
        pod=pod,
        wish=wanted,
        granted=granted,
        limits=_chosen(pod, wanted, old, granted, economy),
        reason=old.reason if wanted.rule == LEFT_ALONE else "",
    )


def _chosen(pod: PodView, wanted: Wish, old: PodMemory, granted: Limits, economy: Economy) -> Limits:
    if not pod.managed:
        return Limits()
    if wanted.rule == LEFT_ALONE:
        return old.held
    if not wanted.known:
        return old.told
    limits = _limits(pod, granted, economy)
    return replace(limits, cpu_milli=old.told.cpu_milli) if pod.cpu_used_milli is None else limits


def _limits(pod: PodView, granted: Limits, economy: Economy) -> Limits:
    keeps = not economy.below_sold
    cpu = max(granted.cpu_milli or 0, _LEAST_CPU_MILLI, pod.cpu_sold_milli if keeps else 0)
    gpu = max(granted.gpu_milli or 0, 1, pod.share_milli if keeps else 0)
    return Limits(cpu_milli=cpu, gpu_milli=gpu if pod.elastic else None)


def _remembered(plan: PodPlan, old: PodMemory, now_ms: int) -> PodMemory:
    left = old.leave_until_ms is not None and now_ms < old.leave_until_ms
    return replace(
        old,
        purse=Purse(savings_milli=plan.wish.savings_milli, at_ms=now_ms, granted=plan.granted),
        told=plan.limits,
        leave_until_ms=old.leave_until_ms if left else None,
        reason=old.reason if left else "",
    )
