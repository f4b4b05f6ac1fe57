"""Which warm replica is promoted and which is given back: the published vectors of DGSF, and what we added."""

from __future__ import annotations

import re
import tomllib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.faults import faults
from autoscaler.core.replicas import Replica
from autoscaler.core.standby import CardRoom, Choice, Rule, fits, last_first, promoted
from autoscaler.core.warm import plan
from autoscaler.standing import choice_of
from contracts.workloads import Function, Promotion
from gpubus import workloadfile
from gpubus.errors import UsageError
from tests.builders.ledger import cluster, node, request
from tests.unit.autoscaler.function_world import function
from tests.unit.autoscaler.test_autoscaling_docs import PAGE, table

BEST: Rule = "best-fit"
FIRST: Rule = "first-fit"


def warm(index: int, card: str = "A", **fields: Any) -> Replica:
    """Ready and out of traffic, on a card of its own node."""
    plain: dict[str, Any] = {
        "in_flight": 0,
        "ready": True,
        "ready_ms": 1000,
        "phase": "Running",
        "node": f"n-{card}",
        "warm": True,
    }
    return Replica(**{"name": f"web-{index}", "uid": f"u{index}", "cards": (card,), **plain, **fields})


def choice(rule: Rule, wanted_mib: int = 0, near: str = "", **cards: int | tuple[int, int]) -> Choice:
    """`A=6000` is free memory, `A=(6000, 1)` memory and slots; two slots where only memory is told."""
    rooms = {name: free if isinstance(free, tuple) else (free, 2) for name, free in cards.items()}
    found = {name: CardRoom(free_mib=mib, free_slots=slots) for name, (mib, slots) in rooms.items()}
    return Choice(rule=rule, free_mib=wanted_mib, cards=found, near=frozenset({near} if near else ()))


AB = [warm(0, "A"), warm(1, "B")]
BA = [warm(0, "B"), warm(1, "A")]
PUBLISHED: list[tuple[str, Choice, list[Replica], str | None]] = [
    # Two cards of 16,000 MiB with two slots each; 10,000 of A are in use.
    ("best fit takes the tighter one", choice(BEST, 4000, A=6000, B=16_000), BA, "A"),
    ("which must suffice", choice(BEST, 7000, A=6000, B=16_000), AB, "B"),
    ("an exact fit is one", choice(BEST, 6000, A=6000, B=16_000), BA, "A"),
    ("more than any card has", choice(BEST, 17_000, A=6000, B=16_000), AB, None),
    ("without a slot it does not fit", choice(BEST, 4000, A=(6000, 0), B=16_000), AB, "B"),
    ("of equals the first", choice(BEST, 4000, A=6000, B=6000), BA, "B"),
    ("first fit takes the first", choice(FIRST, 4000, A=6000, B=16_000), BA, "B"),
    ("that suffices", choice(FIRST, 7000, A=6000, B=16_000), AB, "B"),
    ("and has a slot", choice(FIRST, 4000, A=(6000, 0), B=16_000), AB, "B"),
    ("first fit: more than any has", choice(FIRST, 17_000, A=6000, B=16_000), AB, None),
    ("no slot anywhere", choice(FIRST, 0, A=(6000, 0), B=(16_000, 0)), AB, None),
]


@pytest.mark.parametrize(("claim", "among", "replicas", "card"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_vectors(claim: str, among: Choice, replicas: list[Replica], card: str | None) -> None:
    """The card of who is promoted; None = no card fits, and then the steadiest is promoted all the same."""
    chosen = promoted(replicas, 1, among)[0]
    assert fits(chosen, among) is (card is not None)
    assert chosen.cards == ((card,) if card else replicas[0].cards)


COMING = {"ready": False}
OURS: list[tuple[str, Choice, list[Replica], list[str]]] = [
    ("one takes what the next one lacks", choice(BEST, 4000, A=6000, B=16_000), [*AB, warm(2, "A")], ["A", "B", "A"]),
    ("a slot too", choice(BEST, A=(10, 1), B=(20, 2)), [warm(0, "A"), warm(1, "A"), warm(2, "B")], ["A", "B", "A"]),
    ("ready before a better fit", choice(BEST, A=10, B=20), [warm(0, "A", **COMING), warm(1, "B")], ["B", "A"]),
    ("an unknown card does not fit", choice(BEST, B=20), AB, ["B", "A"]),
    ("nor one that shrank", choice(BEST, A=-1, B=20), AB, ["B", "A"]),
    ("near before a tighter fit", choice(BEST, near="n-B", A=10, B=20), AB, ["B", "A"]),
    ("but not before a fit at all", choice(BEST, 15, near="n-A", A=10, B=20), AB, ["B", "A"]),
    ("near alone", choice("steadiest", near="n-B"), AB, ["B", "A"]),
    ("nobody near: as always", choice("steadiest", near="n-C"), AB, ["A", "B"]),
    ("numbers, not letters", choice(FIRST, A=1, B=1), [warm(10, "A"), warm(9, "B")], ["B", "A"]),
    ("no card, no bound", choice(FIRST), [warm(1, "A", cards=()), warm(0, "B", cards=())], ["B", "A"]),
    ("the tighter of two cards", choice(BEST, A=9, B=3, C=5), [warm(0, "C"), warm(1, cards=("A", "B"))], ["A", "C"]),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "among", "replicas", "cards"), OURS, ids=[row[0] for row in OURS])
def test_the_order_of_promotions(claim: str, among: Choice, replicas: list[Replica], cards: list[str]) -> None:
    """First cards, in the order in which all are promoted."""
    assert [(r.cards or (r.node[2:],))[0] for r in promoted(replicas, 9, among)] == cards


def planned(replicas: list[Replica], target: int, warm_target: int, among: Choice, **more: Any) -> tuple[Any, Any]:
    steps = plan("web", replicas, target=target, warm_target=warm_target, now_ms=9000, drain_ms=1, choice=among, **more)
    return steps.promote, steps.withdraw


def test_the_plan_goes_by_the_rule_and_by_default_by_the_steadiest() -> None:
    """Of three one serves, one is kept, one is given back: with best-fit who is alone on its card goes."""
    three = [warm(0, "A"), warm(1, "B"), warm(2, "A")]
    among = choice(BEST, A=1000, B=9000)
    assert planned(three, 1, 1, among) == (("web-2",), ("web-1",))
    assert planned(three, 1, 1, Choice()) == planned(three, 1, 1, choice("steadiest", A=1000, B=9000))
    assert planned(three, 1, 1, Choice()) == (("web-1",), ("web-0",))


def test_under_pressure_the_emptiest_card_is_given_back_first() -> None:
    """All go, in the reverse of the order in which they would be promoted."""
    three = [warm(0, "A"), warm(1, "B"), warm(2, "C")]
    among = choice(BEST, A=1000, B=9000, C=4000)
    assert planned(three, 0, 3, among, pressure=True) == ((), ("web-1", "web-2", "web-0"))
    assert planned(three, 0, 3, choice(FIRST, A=1, B=1, C=1), pressure=True)[1] == ("web-2", "web-1", "web-0")


pools = st.lists(
    st.builds(warm, st.integers(0, 9), st.sampled_from("ABC"), ready=st.booleans()),
    max_size=6,
    unique_by=lambda r: r.name,
)
rooms = st.tuples(st.integers(-5, 20), st.integers(0, 3))
rules = st.sampled_from(get_args(Rule))
choices = st.builds(choice, rules, st.integers(0, 9), near=st.sampled_from(["", "n-A"]), A=rooms, B=rooms)


@given(pools, choices, st.integers(-1, 7))
def test_no_rule_loses_or_doubles_a_replica(pool: list[Replica], among: Choice, count: int) -> None:
    """So many as are asked for, ready ones first, each once; what is given back are all, too."""
    chosen = promoted(pool, count, among)
    assert len(chosen) == max(0, min(count, len(pool)))
    assert len({r.name for r in chosen}) == len(chosen)
    assert among.plain or [r.ready for r in chosen] == sorted((r.ready for r in chosen), reverse=True)
    assert sorted(r.name for r in last_first(pool, among)) == sorted(r.name for r in pool)
    if pool and count > 0:
        assert last_first(pool, among)[-1] == chosen[0]


def test_what_is_free_is_read_from_the_ledger() -> None:
    """A serving replica takes `free_mib`; slots are residents less our own warm ones; labels say who is near."""
    state = cluster(
        node("n1").gpus(2, memory_mib=16_000).labels(zone="a"),
        node("n2").gpus(2, memory_mib=16_000).card_health(1, "failed").labels(zone="b"),
    )
    for name, where, index in (("web-0", "n1", 0), ("web-1", "n1", 0), ("other", "n1", 0), ("web-2", "n2", 0)):
        state.hold(request(name).share(250).gpu_memory(2000), where, index)
    replicas = [
        warm(0, "n1-gpu0", node="n1"),
        warm(1, "n1-gpu0", node="n1", warm=False),
        warm(2, "n2-gpu0", node="n2"),
        warm(3, "n2-gpu1", node="n2"),
    ]
    wanted = Promotion(rule="best-fit", free_mib=1000, card_slots=3, near={"zone": "b"})
    found = choice_of(state.state, function(promotion=wanted), replicas)
    assert found == Choice(
        rule="best-fit",
        free_mib=1000,
        cards={
            "n1-gpu0": CardRoom(free_mib=16_000 - 3 * 2000 - 1000, free_slots=1),
            "n2-gpu0": CardRoom(free_mib=14_000, free_slots=3),
        },
        near=frozenset({"n2"}),
    )
    assert choice_of(state.state, function(), replicas) == Choice()


def test_the_worked_example_of_the_page() -> None:
    """Its settings decoded, its cards drawn, its three rows in their order; and its two sentences below."""
    settings = next(b for b in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "promotion" in b)
    wanted = msgspec.convert(tomllib.loads(settings)["function"], Function)
    drawn = cluster(node("n1").gpus(2, memory_mib=16_000).facts(labels=dict(wanted.promotion.near)))
    for name, mib, index in (("other", 6000, 0), ("resnet-0", 2000, 0), ("resnet-2", 2000, 0), ("resnet-1", 2000, 1)):
        drawn.hold(request(name).share(250).gpu_memory(mib), "n1", index)
    cards = {"A": "n1-gpu0", "B": "n1-gpu1"}
    steady = [warm(i, cards[card], node="n1", name=f"resnet-{i}") for i, card in ((2, "A"), (0, "A"), (1, "B"))]
    among = choice_of(drawn.state, wanted, steady)

    found = [(r.name.removeprefix("resnet-"), r.cards[0]) for r in promoted(steady, 3, among)]
    told = [(row[0], cards[row[1]]) for row in table("| warm replica | card | free before | | free after |")]
    assert told == found
    assert promoted(steady, 1, msgspec.structs.replace(among, free_mib=7000))[0].name == "resnet-1"
    assert promoted(steady, 1, msgspec.structs.replace(among, free_mib=17_000))[0] == steady[0]
    assert last_first(steady, among)[0].name == "resnet-1"


def test_what_nothing_would_come_of_is_a_fault() -> None:
    """Bounds on cards are told to be useless where no rule looks at cards."""
    useless = function(promotion=Promotion(free_mib=5, card_slots=2, near={"zone": "a"}))
    assert faults(useless) == (
        "promotion.free_mib is 5: only with promotion.rule best-fit or first-fit",
        "promotion.card_slots is 2: only with promotion.rule best-fit or first-fit",
    )
    assert faults(function(promotion=Promotion(rule="first-fit", free_mib=5, card_slots=2))) == ()


def test_deploy_refuses_settings_that_contradict_each_other() -> None:
    """A file is not published: the sentence names field, value and bound."""
    text = '[function]\nname = "web"\nmax_replicas = 2\nmin_replicas = 3\npod.image = "x"\npromotion.free_mib = 5\n'
    with pytest.raises(
        UsageError, match=r"web.toml.*: min_replicas is 3: at most 2, .*; promotion.free_mib is 5: only"
    ):
        workloadfile.read(text, "web.toml")
    assert workloadfile.read(text.replace("= 3", "= 1").replace("= 5", "= 0"), "web.toml")
