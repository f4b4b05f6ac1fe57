"""What a node says of the limits that it was told: what holds is remembered, what failed is taken back. Pure.

In: the memory of its pods, its report on our newest word. Out: the memory. A limit that could not be written is taken
back, with all others of the pod: it has those that last held, in the model and in the next message, and is left alone
for a while. So what is believed and what stands are never two things for longer than a report takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from autoscaler.core.vertical_values import Limits, PodMemory
from contracts.shares import CPU, NodeEnforcement, PodEnforcement


def settle(
    memory: Mapping[str, PodMemory], said: Iterable[PodEnforcement], *, now_ms: int, hold_ms: int
) -> dict[str, PodMemory]:
    """Fold in what a node says of the limits that it was told: what holds is kept, what failed is taken back.

    `waiting` is neither: it comes by itself. The words are those of a report on the newest message.
    """
    after = dict(memory)
    words: dict[str, list[PodEnforcement]] = {}
    for one in sorted(said, key=lambda one: (one.uid, one.what)):
        words.setdefault(one.uid, []).append(one)
    for uid in sorted(words.keys() & after.keys()):
        failed = next((one for one in words[uid] if one.state in ("failed", "refused")), None)
        if failed is not None:  # also what was written of it goes back: half of a decision is none
            after[uid] = _failed(after[uid], failed, now_ms, hold_ms)
        else:
            after[uid] = _confirmed(after[uid], {one.what for one in words[uid] if one.state == "applied"})
    return after


def newest(report: NodeEnforcement, epoch: str, sequence: int) -> bool:
    """Whether a report speaks of this message or a later one."""
    return report.epoch == epoch and report.cpu_sequence >= sequence and not report.refused


def _confirmed(pod: PodMemory, applied: set[str]) -> PodMemory:
    cpu = pod.told.cpu_milli if CPU in applied else pod.held.cpu_milli
    gpu = pod.told.gpu_milli if applied - {CPU} else pod.held.gpu_milli
    return replace(pod, held=Limits(cpu_milli=cpu, gpu_milli=gpu))


def _failed(pod: PodMemory, said: PodEnforcement, now_ms: int, hold_ms: int) -> PodMemory:
    if pod.leave_until_ms is not None or pod.told == pod.held:
        return pod
    reason = f"{said.what}: {said.reason}"[:200]
    return replace(pod, told=pod.held, leave_until_ms=now_ms + hold_ms, reason=reason)
