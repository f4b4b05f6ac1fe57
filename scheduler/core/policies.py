"""Policies: which scores with which weights, and which cards of a node first; one table, each line with its reason.

`GROUP` is added to every policy for requests with an affinity tag, with a weight above all that the others can reach:
such a request goes to its group if there is room, whatever the policy. `LINKED` likewise for several cards that are
asked to be linked. What else a request would rather have is added by `scheduler.core.surroundings`.

Ties, always: higher score, then `NodeState.tie` (a digest of the node's name, which has nothing to do with hardware),
then the name. On the openb trace (Weng et al., USENIX ATC 2023) a random order loses 5 points of allocation to a fixed
one, an order by hardware loses 10.

How much of the cards each policy gets sold on that trace is measured by `gpubus simulate`; docs/placement.md has the
table. The first five are for use; the others are published rules to compare with, and can be used as well.
"""

from __future__ import annotations

import msgspec

from contracts.units import WHOLE_CARD
from scheduler.core.feasibility.fast import Choice, Order, fits
from scheduler.core.menu.terms import ARRIVALS, DEPARTURES, FRAGMENTS, MenuTerms, rounded_cost
from scheduler.core.mix import Mix
from scheduler.core.orders import drawn_card, emptiest, first_of_best, in_position, least_cost, least_fragment, tightest
from scheduler.core.request import Shape
from scheduler.core.scores import (
    ScoreRule,
    best_fit,
    card_left,
    cpu_left,
    dot_product,
    fragment,
    fragment_published,
    gpu_clustering,
    gpu_packing,
    group,
    linked_cards,
    node_left,
)
from scheduler.core.scores.menu import (
    cpu_price,
    drain_price,
    fragment_rise,
    slot_price,
    tie_price,
    value_drop,
)
from scheduler.core.scores.node_value import least_value, node_value
from scheduler.core.view import NodeView


class Weighted(msgspec.Struct, frozen=True):
    """A scoring rule and what one point of it counts."""

    rule: ScoreRule
    weight: int


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How to choose among nodes where a request fits."""

    name: str
    version: int
    """Counts up with every change that can move a decision; stands in `Commit.policy_version`."""
    why: str
    scores: tuple[Weighted, ...]
    order: Order
    menu: MenuTerms | None = None
    """Scores are costs of the menu value in these terms, and are rounded as a sum."""
    learns: bool = False
    """Scores depend on the mix, and go stale at its learning points."""
    may_fail: bool = False
    """Scoring may raise `PolicyFailed`: a user's own, or one that needs what is not there. Then the default decides."""
    priced: bool = False
    """The mix comes with scarcity prices (`scheduler.core.prices`)."""
    by_lifetime: bool = False
    """Of a priced mix: its classes count by lifetime as well as by arrivals. Menus say so in their terms."""
    draws: bool = False
    """Among nodes of equal best score one is drawn by a digest of the request's uid; else the first of the fixed order
    is taken."""


GROUP_WEIGHT = 1 << 40
"""Above every other weighted score: 64 cards x 1000 thousandths x 64,001 is below 2^32."""

TIGHT_WEIGHT = 64 * WHOLE_CARD + 1
"""One thousandth on the chosen cards outweighs all that 64 cards can leave: card before node, in one number."""

GROUP = Weighted(group, GROUP_WEIGHT)

LINKED = Weighted(linked_cards, 1 << 47)
"""Above 64 cards of a group (2^46): several cards that are asked to be linked go where they are."""

MENU_COST = tuple(
    Weighted(rule, 1) for rule in (value_drop, fragment_rise, tie_price, slot_price, cpu_price, drain_price)
)

_TABLE = (
    Policy(
        name="menu-value",
        version=3,
        why="where what the node is still worth to the coming mix falls least, with prices on what is scarce: most "
        "allocation with departures on nearly every mix. The default. Learns from the ledger; first-fit until it has",
        scores=MENU_COST,
        order=least_cost,
        menu=DEPARTURES,
        learns=True,
    ),
    Policy(
        name="menu-value-arrivals",
        version=1,
        why="`menu-value` for clusters where pods do not leave: every hole will meet the whole mix, nothing drains",
        scores=MENU_COST,
        order=least_cost,
        menu=ARRIVALS,
        learns=True,
    ),
    Policy(
        name="packing",
        version=1,
        why="fullest fitting card, then fullest node: opens a new card, and then a new node, last. It needs no "
        "history, is easy to predict, and leaves whole cards and whole nodes to those who ask for them",
        scores=(Weighted(card_left, TIGHT_WEIGHT), Weighted(node_left, 1)),
        order=tightest,
    ),
    Policy(
        name="seed-best-fit",
        version=1,
        why="tightest card in the cluster, tightest CPU for requests without cards; blind to the node around the card",
        scores=(Weighted(card_left, 1), Weighted(cpu_left, 1)),
        order=tightest,
    ),
    Policy(
        name="first-fit",
        version=1,
        why="first node in the fixed hardware-neutral order: the honest baseline, hard to beat and nothing to explain",
        scores=(),
        order=in_position,
    ),
    Policy(
        name="spreading",
        version=1,
        why="emptiest card, then emptiest node: fewest neighbours, for latency rather than for use",
        scores=(Weighted(card_left, -TIGHT_WEIGHT), Weighted(node_left, -1)),
        order=emptiest,
    ),
    Policy(
        name="fgd",
        version=3,
        why="least growth of what the coming mix cannot use: most allocation of the published rules on shared cards",
        scores=(Weighted(fragment, 1),),
        order=least_fragment,
        learns=True,
    ),
    Policy(
        name="fgd-life",
        version=1,
        why="`fgd` by what is there rather than by what comes: classes count by lifetime, and on each model only "
        "those that may use it. The strongest rule without prices where pods end",
        scores=(Weighted(fragment_rise, 1),),
        order=least_cost,
        menu=FRAGMENTS,
        learns=True,
    ),
    Policy(
        name="node-value",
        version=2,
        why="least loss of what the node is worth at scarcity prices, the duals of a linear program over the learned "
        "mix: spares the models that many requests name. Needs highspy; first-fit until it has learned",
        scores=(Weighted(node_value, 1),),
        order=least_value,
        learns=True,
        may_fail=True,
        priced=True,
    ),
    Policy(
        name="node-value-life",
        version=1,
        why="`node-value` by what is there rather than by what comes: classes count by lifetime. To compare with where "
        "pods end",
        scores=(Weighted(node_value, 1),),
        order=least_value,
        learns=True,
        may_fail=True,
        priced=True,
        by_lifetime=True,
    ),
    Policy(
        name="fgd-published",
        version=3,
        why="`fgd` with its authors' rounding (a sigmoid, cut) and choice of card: to compare with their figures",
        scores=(Weighted(fragment_published, 1),),
        order=first_of_best,
        learns=True,
    ),
    Policy(
        name="best-fit",
        version=1,
        why="least CPU and share left on the node, both in one sum: the strongest of the published rules that know "
        "nothing of what is coming",
        scores=(Weighted(best_fit, 1),),
        order=tightest,
    ),
    Policy(
        name="dot-product",
        version=1,
        why="where least is free of what the request asks most of: the multi-resource rule that papers compare with",
        scores=(Weighted(dot_product, 1),),
        order=tightest,
    ),
    Policy(
        name="gpu-packing",
        version=1,
        why="cards in use, then nodes in use, then free nodes, in published steps: what `packing` is measured against",
        scores=(Weighted(gpu_packing, 1),),
        order=tightest,
    ),
    Policy(
        name="gpu-clustering",
        version=1,
        why="equal sizes on one node, so that parts of cards do not spoil nodes for whole ones: a published baseline",
        scores=(Weighted(gpu_clustering, 1),),
        order=tightest,
    ),
    Policy(
        name="random",
        version=1,
        why="any node, any card: the floor of every comparison. Drawn by a digest of the request's uid, which the log "
        "tells, so that it can be decided again",
        scores=(),
        order=drawn_card,
        draws=True,
    ),
)

POLICIES: dict[str, Policy] = {policy.name: policy for policy in _TABLE}
DEFAULT_POLICY = POLICIES["menu-value"]


class UnknownPolicy(KeyError):  # noqa: N818 - named by what is the case
    """A request names a policy that is not in the table; admission refuses it before it gets here."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no policy {name!r}; there are {', '.join(POLICIES)}")
        self.name = name


def policy_for(shape: Shape, default: Policy = DEFAULT_POLICY) -> Policy:
    """The policy that the request names, else the default.

    Raises:
        UnknownPolicy: it names one that is not in the table.
    """
    if shape.policy is None:
        return default
    found = POLICIES.get(shape.policy)
    if found is None:
        raise UnknownPolicy(shape.policy)
    return found


def weights(policy: Policy, shape: Shape) -> tuple[Weighted, ...]:
    """The rules that count for this shape."""
    tagged = policy.scores if shape.locality.affinity is None else (GROUP, *policy.scores)
    return (LINKED, *tagged) if shape.nvlink == "prefer" else tagged


def score_parts(policy: Policy, shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> dict[str, int]:
    """The weighted scores by rule, for people. Their sum is the score; with menus in micro, and before rounding."""
    return {w.rule.__name__: w.weight * w.rule(shape, view, chosen, mix) for w in weights(policy, shape)}


def evaluate(policy: Policy, shape: Shape, view: NodeView, mix: Mix) -> int | None:
    """The score of the node for the shape, a weighted sum; None when it does not fit."""
    chosen = fits(shape, view, policy.order, mix)
    if chosen is None:
        return None
    total = 0
    for weighted in policy.scores:
        total += weighted.weight * weighted.rule(shape, view, chosen, mix)
    if policy.menu is not None:
        total = -rounded_cost(-total, policy.menu)
    if shape.special:
        for weighted in weights(policy, shape)[: -len(policy.scores) or None]:
            total += weighted.weight * weighted.rule(shape, view, chosen, mix)
    return total
