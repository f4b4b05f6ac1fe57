"""What to do on one node. Pure, and level-triggered: what is seen and remembered decides, not how it came about.

In: the node as it is seen, how many more cards are wanted there, the memory, the time. Out: steps, the memory after
them, when to look again, and the tenants' cards that nobody of ours holds.

    a placeholder that ended, or does not start          deleted, gracefully; the next try waits
    one that runs on a card and is not written down      written down; only then is the card offered
    one that is idle for long enough                     its card is withdrawn, then it goes; not before the ledger has
                                                         heard of it, and never while the card is sold or kept
    a sold card without a placeholder                    looked for: as many as are lost, until each is found or all of
                                                         the node's free cards are ours, and none of them is it
    wanted, or fewer idle than the node should keep      made, as many as the device plugin has left

An idle card that was never sold counts as a failure, so that a request that will not come there after all does not take
and give back cards for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from reconciler.placeholders.memory import Memory, fail, overdue, remember
from reconciler.placeholders.values import (
    Acquire,
    End,
    Keep,
    NodeSeen,
    Placeholder,
    Prove,
    Release,
    Rules,
    Step,
)

SEARCH_AGAIN_S = 60.0
"""After a search that went over every free card of the node."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    steps: tuple[Step, ...]
    memory: Memory
    again_s: float | None = None
    """At this time something may be due."""
    lost: frozenset[str] = frozenset()
    """Cards of tenants that no placeholder holds."""
    hopeless: frozenset[str] = frozenset()
    """Of these, the ones that cannot be had: somebody else has them."""


def plan(node: NodeSeen, wanted: int, before: Memory, rules: Rules, now_s: float) -> Planned:
    """Of one node; `wanted`: cards beside those that are idle or on their way."""
    memory = remember(node, before, rules, now_s)
    cleared = list(_cleared(node, memory, rules, now_s))
    if node.mode == "dedicated":
        return Planned(steps=(*cleared, *_given_up(node)), memory=memory)
    lost = node.tenants - {each.card for each in node.placeholders if each.state in ("held", "new", "unproven")}
    memory = _search_over(node, lost, memory, now_s)
    hopeless = frozenset(lost & (node.taken.keys() | memory.searched))
    missing = len(lost - hopeless)
    searching = missing > 0 and (node.free > 0 or _coming(node) > 0)
    kept = [Prove(what=each) for each in node.placeholders if each.state == "new"]
    released, memory = ([], memory) if searching else _released(node, memory, rules, now_s)
    made = () if node.against or now_s < memory.until_s else _acquired(node, wanted, missing, memory, rules)
    return Planned(
        steps=(*cleared, *kept, *_withdrawn(node), *released, *made),
        memory=memory,
        again_s=_again(node, memory, rules, now_s),
        lost=frozenset(lost),
        hopeless=hopeless,
    )


def _cleared(node: NodeSeen, memory: Memory, rules: Rules, now_s: float) -> Iterator[Step]:
    """An ended pod's object stays for ever, and its name with it."""
    for each in node.placeholders:
        if each.state == "lost":
            yield End(what=each, reason=f"it ended: {each.why}")
        elif overdue(each, memory, rules, now_s):
            yield End(what=each, reason=f"it does not start: {each.why}")


def _given_up(node: NodeSeen) -> Iterator[Step]:
    for each in node.placeholders:
        if each.state not in ("leaving", "lost"):
            yield End(what=each, reason="its node is dedicated to us")


def _search_over(node: NodeSeen, lost: frozenset[str], memory: Memory, now_s: float) -> Memory:
    """All cards of the node are given out and none is on its way: what is lost yet is not to be had, for a while.

    A plugin that is away proves nothing.
    """
    if lost and node.devices > 0 and node.free <= 0 and not _coming(node):
        return replace(memory, searched=lost, search_after_s=now_s + SEARCH_AGAIN_S)
    over = now_s >= memory.search_after_s
    return replace(memory, searched=frozenset() if over else memory.searched & lost)


def _coming(node: NodeSeen) -> int:
    """Those that may yet turn out to hold anything."""
    return sum(each.state in ("starting", "new", "unproven", "lost") for each in node.placeholders)


def _withdrawn(node: NodeSeen) -> Iterator[Step]:
    """Second half of giving back. A card that was sold before the ledger heard of it is kept."""
    for each in node.placeholders:
        if each.state != "held" or not each.releasing:
            continue
        if each.card in node.tenants:
            yield Keep(what=each)
        elif each.card not in node.offered:
            yield End(what=each, reason="idle")


def _released(node: NodeSeen, memory: Memory, rules: Rules, now_s: float) -> tuple[list[Step], Memory]:
    """First half: the longest idle first, the node's own reserve stays."""
    if rules.release_idle_after_s is None:
        return [], memory
    spare = _idle(node, memory)[: max(0, len(_idle(node, memory)) - rules.min_idle)]
    due = [each for each in spare if now_s - memory.since[each.uid][1] >= rules.release_idle_after_s]
    if any(each.uid not in memory.served for each in due):
        memory = fail(memory, rules, now_s)
    return [Release(what=each) for each in due], memory


def _idle(node: NodeSeen, memory: Memory) -> list[Placeholder]:
    """Longest idle first."""
    idle = [each for each in node.placeholders if memory.since[each.uid][0] == "idle" and not each.releasing]
    return sorted(idle, key=lambda each: (memory.since[each.uid][1], each.slot, each.uid))


def _acquired(node: NodeSeen, wanted: int, missing: int, memory: Memory, rules: Rules) -> Sequence[Acquire]:
    """As many as are wanted or are to be kept in reserve, and those that are lost; as far as there are any."""
    coming = sum(each.state in ("starting", "new") for each in node.placeholders)
    idle = sum(each.offers for each in _idle(node, memory))
    reserve = max(0, rules.min_idle - idle - coming)
    count = min(max(wanted, reserve) + max(0, missing - coming), node.free, rules.at_once - coming)
    used = {each.slot for each in node.placeholders}
    free_slots = (slot for slot in range(len(used) + max(0, count)) if slot not in used)
    return [Acquire(slot=slot) for slot, _ in zip(free_slots, range(count), strict=False)]


def _again(node: NodeSeen, memory: Memory, rules: Rules, now_s: float) -> float | None:
    """The next moment at which time alone changes something."""
    times = [memory.until_s, memory.search_after_s]
    for each in node.placeholders:
        doing, since_s = memory.since[each.uid]
        if doing == "starting":
            times.append(since_s + rules.start_timeout_s)
        if doing == "idle" and rules.release_idle_after_s is not None:
            times.append(since_s + rules.release_idle_after_s)
    return min((at_s for at_s in times if at_s > now_s), default=None)
