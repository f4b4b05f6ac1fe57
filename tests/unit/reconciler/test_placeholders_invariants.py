"""Whatever happens on a shared node, in whatever order: no card is given back under a tenant, and nothing leaks."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from reconciler.placeholders.memory import NOTHING
from reconciler.placeholders.values import Acquire, End
from tests.builders.placeholders import RULES, SharedNode

number = st.integers(0, 7)


class SharedNodeMachine(RuleBasedStateMachine):
    """One node of four cards; kubelet, ledger, tenants, others and two reconcilers take turns."""

    def __init__(self) -> None:
        super().__init__()
        self.node = SharedNode(cards=4, rules=replace(RULES, min_idle=0, release_idle_after_s=10.0))
        self.broken: set[str] = set()
        """Cards whose placeholder was taken away by somebody else than us, until one of ours holds them again."""

    @rule(wanted=st.integers(0, 2))
    def calm(self, wanted: int) -> None:
        """Everybody does what is expected of them for a while."""
        self.node.settle(wanted)

    @rule()
    def idle(self) -> None:
        """Long enough for cards to be given back, and two turns, before the ledger hears anything."""
        self.node.now_s += 20.0
        self.plan(0, do=True)
        self.plan(0, do=True)

    @rule(wanted=st.integers(0, 3), do=st.booleans())
    def plan(self, wanted: int, do: bool) -> None:
        """A turn; what it asks for may be lost on the way to the API server."""
        before = self.node.seen()
        planned = self.node.turn(wanted, do=do)
        made = [step for step in planned.steps if isinstance(step, Acquire)]
        assert len(made) <= min(before.free, wanted + len(planned.lost))
        assert len({step.slot for step in made}) == len(made)
        for step in planned.steps:
            if isinstance(step, End) and step.what.state == "held":
                assert step.what.card not in before.tenants
                assert step.what.card not in before.offered

    @rule(seconds=st.sampled_from([0.1, 5.0, 20.0, 400.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.node.now_s += seconds

    @rule(take=number)
    def kubelet(self, take: int) -> None:
        """Starts and ends pods; which card one gets is its own business."""
        if self.node.free:
            self.node.start(take)

    @rule()
    def ledger(self) -> None:
        """Folds the facts."""
        self.node.hear()

    @precondition(lambda self: self.node.offered)
    @rule(which=number)
    def sell(self, which: int) -> None:
        """The scheduler goes by what it has folded, however old that is."""
        cards = sorted(self.node.offered)
        self.node.sell(cards[which % len(cards)])

    @precondition(lambda self: self.node.tenants)
    @rule(which=number)
    def leave(self, which: int) -> None:
        """A tenant ends."""
        self.node.tenants.discard(sorted(self.node.tenants)[which % len(self.node.tenants)])

    @rule(which=number)
    def evict(self, which: int) -> None:
        """A placeholder ends without us."""
        card = self.node.cards[which % 4]
        if any(each.card == card for each in self.node.live):
            self.node.lose(card)
            self.broken.add(card)

    @precondition(lambda self: self.node.free)
    @rule(which=number)
    def other(self, which: int) -> None:
        """Somebody else gets a card that is free for the device plugin."""
        free = self.node.free
        self.node.take(free[which % len(free)])

    @precondition(lambda self: self.node.others)
    @rule()
    def other_ends(self) -> None:
        """And gives it back."""
        self.node.others.popitem()

    @rule()
    def restart(self) -> None:
        """A new reconciler knows nothing but what the placeholders carry."""
        self.node.memory = NOTHING

    @rule(away=st.booleans())
    def plugin(self, away: bool) -> None:
        """The device plugin goes, and comes back."""
        self.node.plugin = not away

    @invariant()
    def no_card_is_sold_that_is_not_ours(self) -> None:
        """But for those that somebody took from under us, whose tenants are named."""
        ours = {each.card for each in self.node.live}
        self.broken -= ours
        late = self.node.offered - ours  # the ledger has not heard of these yet
        assert self.node.tenants <= ours | self.broken | late
        assert late <= self.broken

    @invariant()
    def no_card_has_two_owners(self) -> None:
        """The device plugin gives each card once."""
        cards = [each.card for each in self.node.live if each.card]
        assert len(set(cards)) == len(cards)
        assert not set(cards) & self.node.others.keys()

    @invariant()
    def what_is_offered_is_held(self) -> None:
        """Never one that is on its way, goes, or is gone."""
        assert self.node.acquired <= {each.card for each in self.node.live if each.state == "held"}

    def teardown(self) -> None:
        """Nothing leaks: without tenants and requests every card goes back to the others."""
        self.node.tenants.clear()
        self.node.plugin = True
        for _ in range(8):
            self.node.settle()
            self.node.now_s += 400.0
        assert self.node.pods == {}


TestSharedNode: Any = SharedNodeMachine.TestCase
TestSharedNode.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
