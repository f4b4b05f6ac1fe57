"""Which pods carry our allocations, from Kubernetes alone: what a ledger is rebuilt from when its disk is lost. Pure.

What flows in: pods as the informer has them, and the question for a page. What flows out: a page of allocations in
order of `namespace/pod`. A pod that carries our label and cannot be read is named, never left out: it may hold a card.
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.messages import encode
from contracts.outcomes import Allocation, AllocationsPage, AskAllocations
from contracts.units import NodeName
from reconciler import marks
from reconciler.objects import Pod

PAGE_BYTES = 256 * 1024
"""A page stays well below the least `max_payload` of a server that takes ledger commits (1 MiB)."""


def page(pods: Iterable[Pod], ask: AskAllocations, *, max_bytes: int = PAGE_BYTES) -> AllocationsPage:
    """The next page: at most `ask.limit` pods and about `max_bytes`, at least one pod."""
    rest = sorted((pod for pod in pods if _carries(pod) and _key(pod) > ask.after), key=_key)
    items: list[Allocation] = []
    unreadable: list[str] = []
    size, last, taken = 0, ask.after, 0
    for pod in rest[: ask.limit]:
        read = allocation(pod)
        size += len(encode(read)) if isinstance(read, Allocation) else len(read)
        if taken and size > max_bytes:
            break
        if isinstance(read, Allocation):
            items.append(read)
        else:
            unreadable.append(read)
        taken, last = taken + 1, _key(pod)
    return AllocationsPage(items=tuple(items), unreadable=tuple(unreadable), last=last, more=taken < len(rest))


def _carries(pod: Pod) -> bool:
    """Ours, bound and not ended: what it holds is held. A pod that was never bound holds nothing."""
    ours = (pod.metadata.labels or {}).get(marks.MANAGED) == "true" or marks.NONCE in (pod.metadata.annotations or {})
    return ours and pod.spec.node_name != "" and pod.status.phase not in ("Succeeded", "Failed")


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def allocation(pod: Pod) -> Allocation | str:
    """What a pod holds, or why that cannot be told."""
    annotations = pod.metadata.annotations or {}
    try:
        return _read(pod, annotations)
    except marks.BadMark as error:
        return f"{_key(pod)}: {error}"[:1024]


def _read(pod: Pod, annotations: dict[str, str]) -> Allocation:
    mark = marks.mark_of(annotations)
    if mark is None:
        raise marks.BadMark("it does not say which request and decision it carries")
    if not marks.bound_by_us(annotations, pod.spec.node_name):
        raise marks.BadMark(f"it was bound to {pod.spec.node_name} by somebody else")
    return Allocation(
        uid=mark.uid,
        namespace=pod.metadata.namespace,
        epoch=mark.epoch,
        ledger_sequence=mark.sequence,
        request=marks.request_of(annotations),
        node=NodeName(pod.spec.node_name),
        slices=marks.slices_of(annotations),
        pod=pod.metadata.name,
        running=pod.status.phase == "Running",
    )
