"""What is remembered of one node between two plans. Pure.

In: the node as it is seen now. Out: the memory after that: since when each placeholder is as it is, which failures were
counted, how long to wait for the next try. A restart forgets it all, and then waits longer rather than shorter.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from reconciler.placeholders.values import NodeSeen, Placeholder, Rules

MOST_TOLD = 600
"""Characters of a trouble; with what stands against the node it fits into the 1,024 of its facts."""
CRITICAL_HINT = "see the events of its pod; a runtime class or a CDI entry may be missing on the node"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node."""

    since: dict[str, tuple[str, float]] = {}
    """By uid of a placeholder: what it is doing, and since when."""
    served: frozenset[str] = frozenset()
    """Placeholders whose card was sold at least once."""
    counted: frozenset[str] = frozenset()
    """Placeholders whose failure is counted."""
    failures: int = 0
    """In a row."""
    until_s: float = 0.0
    """Nothing is acquired before."""
    search_after_s: float = 0.0
    """The cards that the last search did not find are not looked for before."""
    searched: frozenset[str] = frozenset()
    trouble: str = ""
    """The last failure, in words; empty once a placeholder has come to hold a card since."""


NOTHING = Memory()
_EARLY = ("starting", "new")


def remember(node: NodeSeen, before: Memory, rules: Rules, now_s: float) -> Memory:
    """What is known after this look at the node."""
    there = {each.uid for each in node.placeholders}
    since = {each.uid: _since(doing(each, node), before.since.get(each.uid), now_s) for each in node.placeholders}
    memory = replace(before, since=since, served=before.served & there, counted=before.counted & there)
    return _failed(node, _served(memory, before), rules, now_s)


def doing(what: Placeholder, node: NodeSeen) -> str:
    """Its state; of one that holds a card, whether somebody is on it."""
    if what.state != "held":
        return what.state
    return "busy" if what.card in node.tenants else "idle"


def _since(now_doing: str, before: tuple[str, float] | None, now_s: float) -> tuple[str, float]:
    return before if before is not None and before[0] == now_doing else (now_doing, now_s)


def _served(memory: Memory, before: Memory) -> Memory:
    """A tenant ends a row of failures; a card that came to be held ends what was told of the last one."""
    busy = {uid for uid, (now_doing, _) in memory.since.items() if now_doing == "busy"}
    arrived = any(uid in before.since and before.since[uid][0] in _EARLY for uid in _holding(memory))
    return replace(
        memory,
        served=memory.served | busy,
        failures=0 if busy - memory.served else memory.failures,
        trouble="" if arrived else memory.trouble,
    )


def _holding(memory: Memory) -> set[str]:
    return {uid for uid, (now_doing, _) in memory.since.items() if now_doing in ("busy", "idle")}


def _failed(node: NodeSeen, memory: Memory, rules: Rules, now_s: float) -> Memory:
    """Those that ended or do not start; several at once are one failure: they have one cause."""
    bad = [each for each in node.placeholders if each.uid not in memory.counted and _is_bad(each, memory, rules, now_s)]
    if not bad:
        return memory
    why = bad[0].why if bad[0].state == "lost" else f"{bad[0].why} ({rules.start_timeout_s:g} s; {CRITICAL_HINT})"
    failed = fail(memory, rules, now_s)
    return replace(failed, counted=memory.counted | {each.uid for each in bad}, trouble=why[:MOST_TOLD])


def _is_bad(what: Placeholder, memory: Memory, rules: Rules, now_s: float) -> bool:
    return what.state == "lost" or overdue(what, memory, rules, now_s)


def overdue(what: Placeholder, memory: Memory, rules: Rules, now_s: float) -> bool:
    """It should hold a card by now."""
    return what.state == "starting" and now_s - memory.since[what.uid][1] >= rules.start_timeout_s


def fail(memory: Memory, rules: Rules, now_s: float) -> Memory:
    """One more in a row: 1, 2, 4, … s up to the cap."""
    pause_s = min(rules.cap_s, rules.base_s * 2 ** min(memory.failures, 30))
    return replace(memory, failures=memory.failures + 1, until_s=now_s + pause_s)


def refused(memory: Memory, why: str, rules: Rules, now_s: float) -> Memory:
    """Kubernetes itself refused a step: a quota, missing rights, a policy."""
    return replace(fail(memory, rules, now_s), trouble=why[:MOST_TOLD])
