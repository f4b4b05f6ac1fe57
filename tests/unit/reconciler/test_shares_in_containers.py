"""What a container is told of its share: the cards that the ledger has, the limits that were sold, and nobody else's.

Rows of the scenarios that have to do with the right share in the right container; each names its number.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bus.ledger.state import RequestState
from contracts.inventory import IsolationMode
from contracts.isolation import Assigned, CannotIsolate, pod_changes
from reconciler.dialects import dialects
from reconciler.objects import Quantities
from reconciler.plan import plan
from reconciler.seen import look
from reconciler.steps import Case, Delete, Publish
from tests.builders.ledger import cluster, node, request
from tests.builders.pods import bound, one_placed

WORLD, HELD = one_placed()
SELLABLE_MIB = 80_000


@pytest.mark.parametrize("cards", ["n1-gpu1", "", "n1-gpu0,n1-gpu1", "GPU-of-nobody"])
def test_s040_a_pod_that_sees_other_cards_than_the_ledger_has_is_ended(cards: str) -> None:
    """S040: the container reads its cards from this annotation. Wrong ones end the pod, and the reason names them."""
    seen = replace(look(bound(HELD, epoch=WORLD.state.epoch, phase="Running")), cards=cards)
    step = plan(Case(epoch=WORLD.state.epoch, sequence=WORLD.state.sequence, request=HELD, seen=seen))

    assert isinstance(step, Delete)
    assert step.reason == f"carries the cards {cards or 'of nobody'}, which are not those of its placement"


def test_s040_the_right_cards_are_no_reason_to_end_it() -> None:
    """S040: the other half; without it the test above could pass for any pod."""
    seen = look(bound(HELD, epoch=WORLD.state.epoch, phase="Running"))
    step = plan(Case(epoch=WORLD.state.epoch, sequence=WORLD.state.sequence, request=HELD, seen=seen))

    assert isinstance(step, Publish)


def test_s042_two_containers_that_ask_for_shares_of_their_own_are_refused() -> None:
    """S042: a pod is one tenant. Sold as one share, the second container would be given the first one's cards."""
    asking: Quantities = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
    [said] = dialects({}, {"trainer": asking, "server": asking, "logs": {"cpu": "1"}})

    assert (said.ask, [fault.text for fault in said.faults]) == (
        {}, ["the containers server, trainer ask for cards; one container of a pod may"],
    )  # fmt: skip


def test_s042_one_that_asks_beside_one_that_does_not_is_taken() -> None:
    """S042: a sidecar without a card is common."""
    asking: Quantities = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
    [said] = dialects({}, {"trainer": asking, "logs": {"cpu": "1"}})

    assert (said.ask["memory_mib"], said.faults) == (3000, ())


def limits_mib(mode: IsolationMode, held: RequestState) -> list[int]:
    """Memory limits as the mode's own program reads them, card by card."""
    assert held.placement is not None
    changes = pod_changes(mode, Assigned(pod="ns/p", slices=held.placement.slices, port=50_051))
    values = {entry.name: entry.value for entry in changes.env}
    if mode == "mps":
        words = values["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"].split(",")
        assert [word.partition("=")[0] for word in words] == [str(n) for n in range(len(words))]
        return [int(word.partition("=")[2].removesuffix("M")) for word in words]
    return [int(values[f"CUDA_DEVICE_MEMORY_LIMIT_{n}"].removesuffix("m")) for n in range(len(held.placement.slices))]


@pytest.mark.parametrize("mode", ["mps", "hami-core"])
@given(shares=st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_s117_whoever_allocates_beyond_his_share_meets_his_own_limit_first(
    mode: IsolationMode, shares: list[int]
) -> None:
    """S117: each limit is what was sold to the byte, and together they fit the card.

    So a tenant runs into his own limit, which CUDA reports as out of memory, before the card is full for the others.
    """
    world = cluster(node("n1").gpus(1, isolation=mode, memory_mib=SELLABLE_MIB + 500, memory_reserved_mib=500))
    held = []
    for number, share in enumerate(shares):
        card = world.state.nodes["n1"].cards["n1-gpu0"]
        mib = share * SELLABLE_MIB // 1000
        if share <= card.free_milli and mib <= card.free_mib:
            held.append(world.hold(request(f"r{number}").share(share).gpu_memory(mib), "n1", 0, memory_mib=mib))
    limits = [limits_mib(mode, one) for one in held]

    assert limits == [[p.memory_mib for p in one.placement.slices] for one in held if one.placement]
    assert sum(mib for one in limits for mib in one) <= SELLABLE_MIB


@pytest.mark.parametrize("mode", ["mps", "hami-core"])
def test_s120_a_pod_on_two_capped_shares_is_capped_alike_on_both(mode: IsolationMode) -> None:
    """S120: a tensor-parallel server runs in step on all of its cards, each with a limit of its own."""
    world = cluster(node("n1").gpus(2, isolation=mode))
    held = world.hold(request("tp").share(400).gpu_memory(9000).cards(2), "n1", 0, 1, memory_mib=9000)

    assert limits_mib(mode, held) == [9000, 9000]


def test_s120_tokens_of_two_cards_are_not_dealt_to_one_pod() -> None:
    """S120: with a token for each card, two pods could each hold the one that the other waits for. So it is refused."""
    world = cluster(node("n1").gpus(2, isolation="gemini"))
    held = world.hold(request("tp").share(400).gpu_memory(9000).cards(2), "n1", 0, 1, memory_mib=9000)
    assert held.placement is not None

    with pytest.raises(CannotIsolate, match="gemini serves one card a pod, ns/tp has 2"):
        pod_changes("gemini", Assigned(pod="ns/tp", slices=held.placement.slices))
