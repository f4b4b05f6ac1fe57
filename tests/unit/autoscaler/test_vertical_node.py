"""A node's pods and their limits: who may use what, who gives back, what is never done. Scenarios S144 to S152."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from autoscaler.core import vertical_view
from autoscaler.core.vertical_node import NodePlan, NodeView, plan
from autoscaler.core.vertical_periods import TOKENS_KEY, interval_ms, tokens
from autoscaler.core.vertical_settle import newest, settle
from autoscaler.core.vertical_values import CardPart, Economy, Limits, PodMemory, PodView, Purse
from contracts.requests import PodTemplate
from contracts.shares import CpuLimit, NodeCpuLimits, NodeEnforcement, PodEnforcement, ShareLimit
from contracts.units import CardUuid, NodeName, RequestUid
from contracts.usage import CardUsage, ContainerUsage, NodeUsage, SliceUsage
from tests.builders.ledger import Cluster, cluster, node, request
from tests.builders.scene import Scene

ECONOMY = Economy()
PERIOD = ECONOMY.period_ms


def pod(uid: str, sold: int = 500, used: int | None = 0, **more: Any) -> PodView:
    """On card `c`, asked for by its owner, with half a core."""
    fields = {"managed": True, "cpu_sold_milli": 500, "cpu_used_milli": 100} | more
    card = CardPart(card="c", sold_milli=sold, used_milli=used, average_milli=used, elastic=fields.pop("elastic", True))
    return PodView(uid=uid, cards=fields.pop("cards", (card,)), **fields)


def use(view: PodView, used: int | None) -> PodView:
    return replace(view, cards=tuple(replace(part, used_milli=used) for part in view.cards))


def seen(*pods: PodView, cpu: int | None = 8000) -> NodeView:
    return NodeView(node="n1", pods=pods, cpu_capacity_milli=cpu)


def after(view: NodeView, *, rounds: int = 4, memory: Mapping[str, PodMemory] = {}, **more: Any) -> NodePlan:
    """The same for some periods."""
    economy, found = Economy(**more), NodePlan(memory=dict(memory))
    for turn in range(rounds):
        found = plan(view, found.memory, economy, now_ms=turn * PERIOD)
    return found


def gpu(found: NodePlan) -> list[int | None]:
    return [one.limits.gpu_milli for one in found.pods]


def granted(found: NodePlan) -> list[int]:
    return [one.granted.gpu_milli or 0 for one in found.pods]


# --- lending -------------------------------------------------------------------------------------------------------


def test_s152_a_busy_tenant_borrows_what_its_neighbour_leaves_idle_and_gives_it_back_at_once() -> None:
    """One answer gives the card back to the owner who wakes; his own limit was never below what he was sold."""
    asleep = seen(pod("owner", used=0), pod("tenant", used=500))
    lent = after(asleep)
    assert gpu(lent)[0] == 500
    assert (gpu(lent)[1] or 0) >= 700
    assert sum(granted(lent)) <= 1000

    awake = plan(seen(pod("owner", used=500), pod("tenant", used=900)), lent.memory, ECONOMY, now_ms=9 * PERIOD)

    assert gpu(awake) == [500, 500]


def test_s152_below_sold_the_owner_gets_its_own_back_in_the_same_answer() -> None:
    """Where limits may fall below what was sold, a pod at its limit wakes: it has its share at once, the other less."""
    lent = after(seen(pod("owner", used=0), pod("tenant", used=500)), below_sold=True)
    assert (gpu(lent)[0] or 0) < 500 < (gpu(lent)[1] or 0)
    held = gpu(lent)[0] or 0
    view = seen(pod("owner", used=held), pod("tenant", used=900))

    assert gpu(plan(view, lent.memory, Economy(below_sold=True), now_ms=9 * PERIOD)) == [500, 500]


def test_what_an_unmanaged_pod_leaves_idle_is_lent_and_what_it_has_is_left_alone() -> None:
    """It gets no limit of ours; unknown use is lent to nobody."""
    quiet = after(seen(pod("owner", used=50, managed=False), pod("tenant", used=500)))
    assert gpu(quiet)[0] is None
    assert (gpu(quiet)[1] or 0) > 500
    unknown = after(seen(pod("owner", used=None, managed=False), pod("tenant", used=500)))
    assert gpu(unknown) == [None, 500]


@pytest.mark.parametrize("cards", [1, 4])
def test_s146_a_pod_on_four_cards_moves_on_all_and_pays_for_each(cards: int) -> None:
    """Its cost is four times that of a card's part, and its income too; the fullest card says how much it gets."""
    parts = tuple(CardPart(card=f"c{i}", sold_milli=250, used_milli=200, elastic=True) for i in range(cards))
    wide = pod("wide", cards=parts, cpu_sold_milli=0, cpu_used_milli=0)
    found = after(seen(wide))
    assert found.pods[0].wish.income_milli == 2 * 3 * 25 * cards * 1000
    assert (gpu(found)[0] or 0) > 250
    limits = vertical_view.snapshot("n1", "e", 1, found)
    assert [one.card for one in limits.cards] == [f"c{i}" for i in range(cards)]
    crowded = after(seen(wide, pod("full", cards=(CardPart(card="c0", sold_milli=750, used_milli=750),))))
    assert gpu(crowded)[0] == 250


@given(
    st.lists(
        st.tuples(st.integers(1, 400), st.none() | st.integers(0, 1000), st.booleans(), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.sampled_from([0.0, 10.0]),
)
def test_no_card_is_promised_twice_and_nobody_gets_less_than_he_was_sold(
    drawn: list[tuple[int, int | None, bool, bool]], below_sold: bool, static_v: float
) -> None:
    """Whatever is used: grants fit the card and the CPUs; limits are at least what was sold; again is the same."""
    pods = []
    room = 1000
    for index, (share, used, managed, elastic) in enumerate(drawn):
        sold = min(share, room)
        room -= sold
        if sold:
            cpu = None if used is None or used % 3 == 0 else used
            pods.append(
                pod(f"u{index}", sold, used, managed=managed, elastic=elastic, cpu_used_milli=cpu, cpu_sold_milli=100)
            )
    found = after(seen(*pods, cpu=700), below_sold=below_sold, static_v=static_v)
    assert sum(granted(found)) <= 1000
    assert sum(one.granted.cpu_milli or 0 for one in found.pods) <= 700
    for one in found.pods:
        if not one.pod.managed:
            assert one.limits == Limits()
        for limit, sold in ((one.limits.gpu_milli, one.pod.share_milli), (one.limits.cpu_milli, 100)):
            assert below_sold or limit is None or limit >= sold
    assert found == after(seen(*pods, cpu=700), below_sold=below_sold, static_v=static_v)


def test_the_node_has_no_more_cpu_than_it_has() -> None:
    """Two pods that want four cores each of six: three each."""
    busy = [pod(uid, cpu_sold_milli=1000, cpu_used_milli=3900, tokens=5000) for uid in ("a", "b")]
    assert [one.limits.cpu_milli for one in after(seen(*busy, cpu=6000)).pods] == [3000, 3000]


# --- savings -------------------------------------------------------------------------------------------------------


def test_savings_pay_for_a_burst_and_are_spent_by_it() -> None:
    """k: what a quiet pod has saved lets it have more than its income, once; with k = 0 it does not."""
    view = seen(pod("p", 200, used=0, tokens=100, cpu_used_milli=0, cpu_sold_milli=0))
    bursts = {}
    for k in (0.0, 1.0):
        quiet = after(view, savings_k=k)
        assert quiet.pods[0].wish.savings_milli == 100_000
        burst = plan(seen(use(view.pods[0], 600)), quiet.memory, Economy(savings_k=k), now_ms=4 * PERIOD)
        bursts[k] = burst.pods[0].granted.gpu_milli or 0
        if k:
            later = plan(seen(use(view.pods[0], 600)), burst.memory, ECONOMY, now_ms=5 * PERIOD)
            assert later.pods[0].wish.savings_milli < 1000
            assert (later.pods[0].granted.gpu_milli or 0) < bursts[k]
    assert bursts[1.0] > bursts[0.0]


def test_the_first_look_earns_nothing() -> None:
    """However late the clock stands when a pod is first seen."""
    found = plan(seen(pod("p")), {}, ECONOMY, now_ms=1_700_000_000_000)
    assert found.pods[0].wish.savings_milli == 0
    assert found.memory["p"].purse.at_ms == 1_700_000_000_000


def test_small_changes_move_nothing() -> None:
    """A limit is a message and a write: use that trembles makes none."""
    still = after(seen(pod("p", used=300)))
    trembling = plan(seen(pod("p", used=315)), still.memory, ECONOMY, now_ms=9 * PERIOD)
    assert trembling.pods[0].limits == still.pods[0].limits
    jump = plan(seen(pod("p", used=450)), still.memory, ECONOMY, now_ms=9 * PERIOD)
    assert (gpu(jump)[0] or 0) > (gpu(still)[0] or 0)


# --- shrinking, and what is not known ------------------------------------------------------------------------------


def test_s149_a_shrink_below_present_use_is_staged_and_touches_no_memory() -> None:
    """Out of income it comes down by half of its use a period at most; limits speak of time alone, never of memory."""
    rich, used, steps = pod("p", 200, 800, tokens=3000, cpu_sold_milli=0, cpu_used_milli=0), 800, []
    found = after(seen(rich), savings_k=0.0)
    for turn in range(5, 9):
        view = seen(replace(use(rich, used), tokens=60))
        found = plan(view, found.memory, Economy(savings_k=0.0), now_ms=turn * PERIOD)
        steps.append(gpu(found)[0])
        used = gpu(found)[0] or 0
    assert steps == [400, 200, 200, 200]  # it was sold 200
    told = vertical_view.snapshot("n1", "e", 1, found)
    assert set(CpuLimit.__struct_fields__) | set(ShareLimit.__struct_fields__) == {"uid", "limit_milli", "card"}
    assert (len(told.limits), len(told.cards)) == (1, 1)


def test_an_unknown_use_changes_nothing() -> None:
    """No usage, no CPU figure, no facts of the node: limits stay as they were told; the other resource goes on."""
    before = after(seen(pod("p", used=300)))
    blind = seen(replace(use(pod("p"), None), cpu_used_milli=None))
    assert plan(blind, before.memory, ECONOMY, now_ms=9 * PERIOD).pods[0].limits == before.pods[0].limits
    assert (
        plan(seen(pod("p", used=900), cpu=None), before.memory, ECONOMY, now_ms=9 * PERIOD).pods[0].limits
        == before.pods[0].limits
    )
    half = plan(seen(pod("p", used=900, cpu_used_milli=None)), before.memory, ECONOMY, now_ms=9 * PERIOD).pods[0]
    assert half.limits.cpu_milli == before.pods[0].limits.cpu_milli
    assert (half.limits.gpu_milli or 0) > (before.pods[0].limits.gpu_milli or 0)


def test_a_card_whose_limits_cannot_change_is_left_alone() -> None:
    """Only Gemini's can; the others keep their share, and pay for it."""
    found = after(seen(pod("p", used=500, elastic=False)))
    assert found.pods[0].limits.gpu_milli is None
    assert found.pods[0].granted.gpu_milli == 500


# --- failures ------------------------------------------------------------------------------------------------------


def said(state: Any, what: str = "cpu", reason: str = "") -> PodEnforcement:
    return PodEnforcement(uid=RequestUid("p"), what=what, state=state, reason=reason)


def test_s148_when_the_write_fails_all_limits_return_to_what_held() -> None:
    """In the model and in the next message, CPU and card together; then it is left alone, and tried again later."""
    calm = after(seen(pod("p", used=300)))
    memory = settle(calm.memory, [said("applied"), said("applied", "c")], now_ms=5 * PERIOD, hold_ms=30_000)
    held = memory["p"].held
    assert held == calm.pods[0].limits
    grown = plan(seen(pod("p", used=900)), memory, ECONOMY, now_ms=6 * PERIOD)
    assert grown.pods[0].limits != held

    words = [said("failed", "zc", "EIO"), said("applied")]
    failed = settle(grown.memory, words, now_ms=7 * PERIOD, hold_ms=30_000)
    assert failed["p"].told == held
    left = plan(seen(pod("p", used=900)), failed, ECONOMY, now_ms=8 * PERIOD)
    assert (left.pods[0].limits, left.pods[0].wish.rule, left.pods[0].reason) == (held, "left-alone", "zc: EIO")
    again = plan(seen(pod("p", used=900)), left.memory, ECONOMY, now_ms=7 * PERIOD + 30_000)
    assert again.pods[0].limits.gpu_milli == grown.pods[0].limits.gpu_milli
    assert again.pods[0].reason == ""


def test_s148_the_first_limit_that_fails_is_withdrawn() -> None:
    """Nothing held before: it is in no message any more, and the spec's limit holds."""
    grown = after(seen(pod("p", used=900)))
    failed = settle(grown.memory, [said("refused", reason="no")], now_ms=5 * PERIOD, hold_ms=30_000)
    left = plan(seen(pod("p", used=900)), failed, ECONOMY, now_ms=6 * PERIOD)
    message = vertical_view.snapshot("n1", "e", 2, left)
    assert (message.limits, message.cards) == ((), ())


def test_a_pod_that_waits_for_its_node_has_not_failed() -> None:
    """It comes by itself; words of strangers and of pods that are gone change nothing."""
    grown = after(seen(pod("p", used=900))).memory
    strange = PodEnforcement(uid=RequestUid("x"), what="cpu", state="failed")
    assert settle(grown, [said("waiting"), strange], now_ms=0, hold_ms=1) == grown


def test_only_a_report_on_the_newest_word_counts() -> None:
    """An older one speaks of limits that are not wanted any more."""
    report = NodeEnforcement(node=NodeName("n1"), incarnation="i", epoch="e", cpu_sequence=3)
    assert newest(report, "e", 3)
    assert not newest(report, "e", 4)
    assert not newest(report, "f", 3)
    assert not newest(replace(report, refused="limits 2, 3 are in force"), "e", 3)


# --- what was sold: the ledger's word -------------------------------------------------------------------------------


def test_s144_a_running_pod_grows_by_2_gib_in_place() -> None:
    """One commit changes the ledger; the pod keeps its uid and its place; its limits start from what it now has."""
    scene = Scene(node("n1").gpus(1, memory_mib=16_000)).submit(request("a").share(500).gpu_memory(4000).cpu(500))
    before = scene["a"]
    scene.seen("a", "running").resize("a", 500, 6048).judge()
    assert scene.answers[-1].refusals == ()
    after_it = scene["a"]
    assert (after_it.uid, after_it.phase, after_it.attempt) == (before.uid, "running", before.attempt)
    assert after_it.placement is not None
    assert [piece.memory_mib for piece in after_it.placement.slices] == [6048]


def test_s145_without_room_it_is_refused_with_numbers_and_nothing_changes() -> None:
    """The card has 2,000 MiB left, the pod wants 2,048 more."""
    scene = Scene(node("n1").gpus(1, memory_mib=10_000)).submit(
        request("a").share(500).gpu_memory(4000), request("b").share(500).gpu_memory(4000)
    )
    scene.resize("a", 500, 6048).judge()
    (refusal,) = scene.answers[-1].refusals
    assert refusal.field == "memory_mib"
    assert "6000" in refusal.bound + refusal.text
    assert scene["a"].placement is not None
    assert scene["a"].placement.slices[0].memory_mib == 4000


def test_s146_the_quota_of_a_pod_with_four_shares_grows_by_four_times_the_delta() -> None:
    """Four cards of 100 MiB more each: the namespace holds 400 MiB more."""
    scene = Scene(node("n1").gpus(4)).submit(request("a").cards(4).share(100).gpu_memory(1000))
    (before,) = scene.engine.state.usage.values()
    had_mib, had_milli = before.memory_mib, before.share_milli
    scene.resize("a", 150, 1100).judge()
    (use_now,) = scene.engine.state.usage.values()
    assert (use_now.memory_mib - had_mib, use_now.share_milli - had_milli) == (400, 200)


# --- words of people -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds", "warns"),
    [
        ("2s", 2000, False),
        ("500ms", 500, False),
        ("5min", 300_000, False),
        ("1.5 m", 90_000, False),
        ("3", 3000, False),
        ("5 minuten", 2000, True),
        ("", 2000, True),
        ("-1s", 2000, True),
        ("0s", 2000, True),
        ("1e9s", 2000, True),
        ("48h", 2000, True),
        ("９s", 2000, True),
    ],
)
def test_s150_an_interval_that_does_not_parse_is_the_default_and_said(
    text: str, milliseconds: int, warns: bool
) -> None:
    """Never a crash, never another number than was meant."""
    read = interval_ms(text, 2000)
    assert (read.number, bool(read.warning)) == (milliseconds, warns)


@pytest.mark.parametrize(
    ("text", "number", "warns"),
    [("auto", None, False), ("300", 300, False), ("0", None, True), ("-3", None, True), ("²", None, True)],
)
def test_tokens_of_a_pod(text: str, number: int | None, warns: bool) -> None:
    """What cannot be read counts as `auto`; without the annotation nothing was asked for."""
    read = tokens({TOKENS_KEY: text})
    assert read is not None
    assert (read.number, bool(read.warning)) == (number, warns)
    assert tokens({"other": "300"}) is None


# --- from the ledger and the monitor -------------------------------------------------------------------------------


def world(tokens_text: str = "auto") -> Cluster:
    """Two halves of one Gemini card; the first one asks for vertical scaling."""
    made = cluster(node("n1").gpus(1, isolation="gemini").cpu(8000, foreign=1000))
    asked = request("a").share(500).cpu(1000).build()
    pod_of = PodTemplate(image="image", cpu_milli=1000, memory_mib=64, annotations={TOKENS_KEY: tokens_text})
    made.hold(replace(asked, pod=pod_of), "n1", 0)
    made.hold(request("b").share(500).cpu(500), "n1", 0)
    return made


def usage(made: Cluster, percent: int | None = 50, cpu_milli: int | None = 700) -> NodeUsage:
    uid = next(iter(made.state.requests))
    piece = SliceUsage(uid=uid, namespace="default", pod="a", share_milli=500, limit_mib=1, compute_percent=percent)
    container = ContainerUsage(container="c1", pod_uid="p", uid=uid, own=True, cpu_used_milli=cpu_milli)
    sandbox = ContainerUsage(container="c0", pod_uid="p", uid=uid, own=False, cpu_used_milli=1)
    card = CardUsage(uuid=CardUuid("n1-gpu0"), slices=(piece,))
    return NodeUsage(
        node=NodeName("n1"), incarnation="m", sequence=1, period_ms=1000, cards=(card,), containers=(container, sandbox)
    )


def test_a_view_is_the_ledger_with_what_the_monitor_measured() -> None:
    """Sold from the one, used from the other; the sandbox does not count; who was not measured is not known."""
    made = world("40")
    view = vertical_view.view(made.state, made.state.nodes["n1"], usage(made))
    assert view.cpu_capacity_milli == 7000
    asked, other = view.pods
    assert (asked.managed, asked.tokens, asked.cpu_sold_milli, asked.cpu_used_milli) == (True, 40, 1000, 700)
    assert (asked.share_milli, asked.gpu_used_milli, asked.elastic) == (500, 500, True)
    assert (other.managed, other.cpu_used_milli, other.gpu_used_milli) == (False, None, None)
    assert vertical_view.view(made.state, made.state.nodes["n1"], None).pods[0].cpu_used_milli is None


def test_the_use_of_a_sandbox_is_not_that_of_its_pod() -> None:
    """While only the sandbox is measured the pod's CPU is not known."""
    made = world()
    measured = usage(made)
    alone = replace(measured, containers=(measured.containers or ())[1:])
    assert vertical_view.view(made.state, made.state.nodes["n1"], alone).pods[0].cpu_used_milli is None


def test_who_must_leave_is_not_stretched_any_more() -> None:
    """It is withdrawn, and still counted."""
    made = world()
    request_state = next(iter(made.state.requests.values()))
    request_state.withdrawn = True
    assert [one.managed for one in vertical_view.view(made.state, made.state.nodes["n1"], usage(made)).pods] == [
        False,
        False,
    ]


def test_a_plan_as_messages_and_back() -> None:
    """What the next autoscaler reads is what was told, and it says nothing new from it."""
    made = world()
    view = vertical_view.view(made.state, made.state.nodes["n1"], usage(made))
    found = after(view)
    message = vertical_view.snapshot("n1", "e", 7, found)
    memory = vertical_view.remembered(message)
    uid = view.pods[0].uid
    assert memory[uid].told == memory[uid].held == found.pods[0].limits
    assert not vertical_view.differs(message, replace(message, sequence=8))
    assert vertical_view.differs(message, replace(message, limits=()))
    assert vertical_view.differs(message, replace(message, cards=()))
    assert not vertical_view.differs(None, replace(message, limits=(), cards=()))
    blind = plan(vertical_view.view(made.state, made.state.nodes["n1"], None), memory, ECONOMY, now_ms=0)
    assert not vertical_view.differs(message, vertical_view.snapshot("n1", "e", 8, blind))


def test_what_people_are_told_while_it_only_observes() -> None:
    """What it would grant, and no limit; all pods, also those that did not ask."""
    made = world()
    view = vertical_view.view(made.state, made.state.nodes["n1"], usage(made))
    found = after(view)
    observed = vertical_view.told(view, found, "observe", None)
    assert [(p.pod, p.managed, p.cpu_limit_milli, p.gpu_limit_milli) for p in observed.pods] == [
        ("a", True, None, None),
        ("b", False, None, None),
    ]
    assert observed.pods[0].gpu_next_milli == 500
    acts = vertical_view.told(view, found, "act", NodeCpuLimits(node=NodeName("n1"), epoch="e", sequence=7))
    assert (acts.cpu_sequence, acts.pods[0].gpu_limit_milli) == (7, 500)


def test_an_annotation_that_cannot_be_read_is_told() -> None:
    """By the pod's uid."""
    made = world("much")
    (warning,) = vertical_view.warnings(made.state, list(made.state.requests)).values()
    assert "much" in warning


def test_memory_is_kept_of_pods_that_are_here_only() -> None:
    """Nothing grows."""
    found = plan(seen(pod("p")), {"gone": PodMemory(purse=Purse(savings_milli=5))}, ECONOMY, now_ms=0)
    assert set(found.memory) == {"p"}
