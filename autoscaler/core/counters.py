"""Two simple policies of how many replicas a function keeps: `maxcount` and `watermark` (those of DGSF, IPDPS 2022).

In: the inputs of a decision. Out: a target. Calls are counted, nothing is averaged, and nothing is taken away: a
replica that answers one call only (`reuse` false) ends by itself, and is then not made again before somebody needs it.
Both count per function and never beyond its own maximum, so that a busy one takes nothing from the others.

    maxcount      at the beginning the minimum; one for each call that finds none idle
    watermark     the same, and at the beginning, and whenever there are fewer than `low`: filled to `high`

    watermark 2..9: 3 there and one ends: 2, nothing. Another ends: 1 is below 2, so 8 are made. Maximum 4: 3 are.
    maxcount 5, each takes 1 call, 2 there, 4 calls: 4. The same with 9 calls: 5. The same with 0 calls: 2.
"""

from __future__ import annotations

from autoscaler.core.numbers import Inputs, ceil_div

MAXCOUNT, WATERMARK = 1, 2
POLICIES = {"maxcount": MAXCOUNT, "watermark": WATERMARK}


def counted(inputs: Inputs) -> int:
    """How many there should be. A count of calls that is not known adds nothing."""
    there = inputs.planned if inputs.once else inputs.current
    most = inputs.max_replicas if inputs.high is None else inputs.high
    first = inputs.last_target is None
    if inputs.counted == WATERMARK and (there < inputs.low or first):
        return max(there, most)
    needed = ceil_div(inputs.calls or 0, max(1, inputs.slots))
    return max(there, min(needed, most))
