"""Beginning an epoch: what runs is counted once, what waited waits again, and no word on a pod can stop it."""

from __future__ import annotations

from bus.ledger.fold import apply_record
from bus.ledger.state import LedgerState
from bus.memory import InMemoryBus, MemoryServer
from contracts import subjects
from contracts.decisions import CardSlice
from contracts.messages import encode
from contracts.outcomes import Allocation
from contracts.quotas import NamespaceQuota
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.units import CardUuid, NodeName, RequestKey, RequestUid
from scheduler.rebuild import duplicates, groups, quotas


def allocation(name: str, uid: str, *, namespace: str = "team", share: int = 500, sequence: int = 5) -> Allocation:
    """A pod that holds a part of the one card."""
    piece = CardSlice(card=CardUuid("GPU-a"), share_milli=share, memory_mib=100)
    return Allocation(
        uid=RequestUid(uid),
        namespace=namespace,
        epoch="old",
        ledger_sequence=sequence,
        request=PodRequest(name=name, pod=PodTemplate(image="i"), gpu=GpuAsk(share_milli=share)),
        node=NodeName("n1"),
        slices=(piece,),
        pod=f"{name}-abcde",
        running=True,
    )


def begun(*found: Allocation, waiting: dict[RequestKey, tuple[int, PodRequest]] | None = None) -> LedgerState:
    """The state of a new epoch."""
    state = LedgerState()
    for group in groups(state, "e2", found, waiting or {}, reason="test"):
        for record in group:
            apply_record(state, record, 1)
    return state


def test_what_runs_is_counted_even_before_its_card_is_known() -> None:
    """The monitor may be slower than the rebuild: the card is an orphan then, and its size is not dropped."""
    state = begun(allocation("a", "old-1-0"), allocation("b", "old-1-1", share=300))

    assert state.nodes["n1"].cards["GPU-a"].used_milli == 800
    assert [r.phase for r in state.requests.values()] == ["running", "running"]


def test_two_pods_that_say_the_same_are_one_and_the_other_is_named() -> None:
    """The same name, or the same uid in another namespace: forged or copied annotations stop nothing."""
    twins = (
        allocation("a", "old-1-0", sequence=5),
        allocation("a", "old-9-0", sequence=9),
        allocation("b", "old-9-0", namespace="zoo"),
    )
    state = begun(*twins)

    assert list(state.requests) == ["old-9-0"]
    assert duplicates(twins) == ["team/a-abcde", "zoo/b-abcde"]


def test_what_waited_waits_again_unless_it_runs_already() -> None:
    """A request is not run twice because it was told to wait once."""
    request = PodRequest(name="a", pod=PodTemplate(image="i"))
    other = PodRequest(name="w", pod=PodTemplate(image="i"))
    waiting = {RequestKey("team/a"): (3, request), RequestKey("team/w"): (4, other)}
    state = begun(allocation("a", "old-1-0"), waiting=waiting)

    assert [r.key for r in state.pending.values()] == ["team/w"]
    assert state.totals.accepted == 2


def test_a_card_that_pods_oversell_is_counted_as_it_is_and_shown() -> None:
    """Kubernetes is the witness: the ledger does not look away, and sells nothing more there."""
    state = begun(allocation("a", "old-1-0", share=800), allocation("b", "old-1-1", share=700))

    assert state.nodes["n1"].cards["GPU-a"].used_milli == 1500


def test_quotas_stand_before_anything_that_could_be_decided() -> None:
    """What operators said is in the first commit, also when the rebuild goes on after a kill: only what is lacking."""
    words = (NamespaceQuota(namespace="team", share_milli=500), NamespaceQuota(namespace="zoo", weight=2))
    found = list(groups(LedgerState(), "e2", (allocation("a", "old-1-0"),), {}, quotas=words, reason="test"))
    assert [type(group[0]).__name__ for group in found] == ["EpochStarted", "QuotaSet", "QuotaSet", "Accepted"]

    state = LedgerState()
    for group in found[:2]:
        for record in group:
            apply_record(state, record, 1)
    rest = list(groups(state, "e2", (allocation("a", "old-1-0"),), {}, quotas=words, reason="test"))
    assert [type(group[0]).__name__ for group in rest] == ["QuotaSet", "Accepted"]


async def test_the_last_word_on_each_namespace_is_read_and_a_foreign_one_is_not() -> None:
    """From the facts stream, beside everything else that is there; a payload that speaks of another is passed by."""
    bus = InMemoryBus(MemoryServer(), "test")
    await bus.ensure_streams()
    assert await quotas(bus) == ()
    for subject, share in (("team", 1000), ("zoo", 10), ("team", 2000), ("other", 3)):
        said = NamespaceQuota(namespace="team" if subject == "other" else subject, share_milli=share)
        await bus.store(subjects.NAMESPACE_QUOTAS.subject(namespace=subject), encode(said))
    await bus.store(subjects.NAMESPACE_QUOTAS.subject(namespace="broken"), b"{")
    assert [(q.namespace, q.share_milli) for q in await quotas(bus)] == [("zoo", 10), ("team", 2000)]
