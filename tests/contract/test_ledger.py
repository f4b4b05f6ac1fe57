"""Writing the ledger on both buses: nothing acknowledged is lost, no chain breaks, every outcome is found out."""

from __future__ import annotations

import asyncio

import pytest

from bus.ledger.append import Ledger, LostHead, OutcomeUnknown, commit_after
from bus.ledger.follow import Unreadable, follow, open_ledger
from bus.ledger.rules import ChainBroken, InvariantBroken
from bus.ledger.snapshot import digest
from bus.ledger.state import LedgerState, RequestState
from bus.protocol import Bus, BusUnavailable, StreamMismatch
from contracts.decisions import Accepted, EpochStarted, Released
from contracts.messages import encode
from contracts.requests import GangRef, PodRequest, PodTemplate
from contracts.subjects import LEDGER
from contracts.units import RequestUid
from tests.builders.history import piece, reserve
from tests.builders.ledger import cluster, node
from tests.contract.bus_worlds import World, collect
from tests.contract.ledger_world import EPOCH, SUBJECT, LossyBus, Writer, begun, judge, note, write


async def test_an_appended_commit_is_folded_and_found_again(bus: Bus) -> None:
    """Claim: append moves the committed state and the log alike."""
    ledger = await begun(bus)
    commit = await write(ledger, "a", 1)
    assert (ledger.state.sequence, ledger.state.number) == (2, 2)
    assert commit.predecessor == 1
    state, following = await open_ledger(bus)
    assert (digest(state), following) == (digest(ledger.state), 3)
    assert (ledger.written.commits, ledger.written.records) == (2, 2)


async def test_two_writers_racing_lose_no_acknowledged_commit_and_break_no_chain(world: World) -> None:
    """Claim: compare-and-set on the head makes any number of writers safe; the loser decides again."""
    first, second = await world.client("first"), await world.client("second")
    await first.ensure_streams()
    await begun(first)
    writers = [Writer(first, "a"), Writer(second, "b")]
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.run(40), name=writer.name)
    proof = await judge(first, *writers)
    assert proof.commits == 81
    assert proof.authors == ("a", "b")


async def test_a_commit_on_a_head_that_has_moved_is_lost_whole(bus: Bus) -> None:
    """Claim: a stale author writes nothing, learns it, catches up and goes on."""
    mine, theirs = await begun(bus), await begun(bus)
    await write(theirs, "b", 1)
    with pytest.raises(LostHead) as caught:
        await write(mine, "a", 1)
    assert (caught.value.predecessor, mine.state.sequence) == (1, 1)
    assert await mine.catch_up() == 1
    await write(mine, "a", 1)
    assert (await judge(bus)).authors == ("a", "b")


async def test_a_commit_that_was_made_on_another_head_is_not_even_sent(bus: Bus) -> None:
    """Claim: what was decided before the state moved is decided again."""
    ledger = await begun(bus)
    stale = commit_after(ledger.state, [note("a", 1)], author="a")
    await write(ledger, "a", 2)
    lossy = LossyBus(bus, [])
    with pytest.raises(LostHead):
        await Ledger(lossy, ledger.state).append(stale)
    assert lossy.tries == 0


async def test_a_commit_that_does_not_follow_is_a_defect_and_not_sent(bus: Bus) -> None:
    """Claim: a wrong epoch or number is refused before it can poison the log."""
    ledger = await begun(bus)
    with pytest.raises(ChainBroken):
        await ledger.append(commit_after(ledger.state, [], author="a", epoch="other"))
    assert len(await collect(bus, LEDGER.stream)) == 1


async def test_a_part_of_a_gang_and_a_position_that_goes_back_are_not_sent(bus: Bus) -> None:
    """Claim: what the fold would refuse for the commit as a whole is refused before it can poison the log."""
    ledger = await begun(bus)
    await ledger.append(commit_after(ledger.state, cluster(node("n1").gpus(1)).log, author="a", requests_through=5))
    request = PodRequest(name="m0", pod=PodTemplate(image="i"), gang=GangRef(name="g", size=2))
    member = Accepted(uid=RequestUid("u1"), namespace="ns", request=request)
    placed = reserve(RequestState(uid=member.uid, accepted=member), "n1", piece("n1-gpu0", 1))
    for commit in (
        commit_after(ledger.state, [member, placed], author="a"),
        commit_after(ledger.state, [], author="a", requests_through=4),
    ):
        with pytest.raises(InvariantBroken):
            await ledger.append(commit)
    assert len(await collect(bus, LEDGER.stream)) == 2
    assert ledger.state.requests_through == 5


async def test_two_commits_at_once_are_refused(bus: Bus) -> None:
    """Claim: one in flight: the second one would have to be decided on the first."""
    ledger = await begun(bus)
    both = await asyncio.gather(write(ledger, "a", 1), write(ledger, "a", 2), return_exceptions=True)
    assert [type(result) for result in both][1] is ChainBroken
    await write(ledger, "a", 3)


@pytest.mark.parametrize(
    ("plan", "tries"),
    [("before", 2), ("after", 2), ("before after", 3), ("after after", 2), ("after before before after", 4)],
)
async def test_an_answer_that_is_lost_is_found_out(bus: Bus, plan: str, tries: int) -> None:
    """Claim: stored exactly once, whichever way the answers got lost, and with the sequence it really has."""
    await begun(bus)
    lossy = LossyBus(bus, plan.split())  # type: ignore[arg-type]  # the literals of Loss
    ledger = await begun(lossy)
    await write(ledger, "a", 1)
    assert lossy.tries == tries
    assert ledger.state.sequence == 2
    assert len(await collect(bus, LEDGER.stream)) == 2
    await write(ledger, "a", 2)
    await judge(bus)


async def test_a_lost_answer_behind_somebody_elses_commit_is_a_lost_head(bus: Bus) -> None:
    """Claim: a conflict after an unknown outcome is not taken for success."""
    theirs = await begun(bus)
    lossy = LossyBus(bus, ["before"])
    mine = await begun(lossy)
    store = lossy.store

    async def too_late(*args: object, **options: object) -> object:
        try:
            return await store(*args, **options)  # type: ignore[arg-type]  # handed through
        finally:
            if lossy.tries == 1:
                await write(theirs, "b", 1)

    lossy.store = too_late  # type: ignore[assignment,method-assign]  # the other one writes between the two tries
    with pytest.raises(LostHead):
        await write(mine, "a", 1)
    assert await mine.catch_up() == 1
    await judge(bus)


async def test_a_commit_given_up_that_arrives_later_is_not_taken_for_the_next_one(bus: Bus) -> None:
    """Claim: author and number are the same, the bytes are not: the next one is lost, and decided again."""
    await begun(bus)
    lossy = LossyBus(bus, ["late"])
    mine = await begun(lossy, deadline_s=0.0)
    with pytest.raises(OutcomeUnknown) as caught:
        await write(mine, "a", 1)
    assert isinstance(caught.value, BusUnavailable)
    assert await mine.catch_up() == 0
    await lossy.land()
    second = LossyBus(bus, ["before"])
    with pytest.raises(LostHead):
        await Ledger(second, mine.state).append(commit_after(mine.state, [note("a", 2)], author="a"))
    assert second.tries == 2
    assert await mine.catch_up() == 1
    await write(mine, "a", 2)
    assert (await judge(bus)).commits == 3


async def test_a_log_that_was_made_again_is_noticed(world: World) -> None:
    """Claim: nobody goes on in another log as if it were this one."""
    bus = await world.client("one")
    await bus.ensure_streams()
    ledger = await begun(bus)
    await write(ledger, "a", 1)
    await world.recreate(LEDGER.stream)
    with pytest.raises(LostHead):
        await write(ledger, "a", 2)
    with pytest.raises(ChainBroken, match="another log"):
        await ledger.catch_up()


async def test_a_leader_that_answers_from_its_past_is_asked_again(bus: Bus) -> None:
    """Claim: one stale answer is no other log."""
    lossy = LossyBus(bus, [])
    ledger, other = await begun(lossy), await begun(bus)
    await write(other, "b", 1)
    lossy.forgets = 2
    assert await ledger.catch_up() == 1
    assert digest(ledger.state) == digest(other.state)


async def test_a_follower_gets_every_commit_folded(bus: Bus) -> None:
    """Claim: a standby's state is the writer's, commit by commit."""
    ledger = await begun(bus)
    following = LedgerState()
    seen = []
    async with asyncio.timeout(10):
        commits = follow(bus, following)
        for index in range(5):
            await write(ledger, "a", index)
        async for commit, sequence in commits:
            seen.append((commit.number, sequence))
            if sequence == ledger.state.sequence:
                break
        await commits.aclose()
    assert seen == [(number, number) for number in range(1, 7)]
    assert digest(following) == digest(ledger.state)


async def test_a_message_that_is_no_commit_stops_the_reader_with_its_sequence(bus: Bus) -> None:
    """Claim: it cannot be skipped: what it meant is not known."""
    await begun(bus)
    await bus.store(SUBJECT, b"{}", expected_last=1)
    with pytest.raises(Unreadable, match="message at 2 is no commit") as caught:
        await open_ledger(bus)
    assert caught.value.sequence == 2


async def test_a_commit_that_breaks_an_invariant_stops_the_reader_with_its_sequence(bus: Bus) -> None:
    """Claim: a forgery or a defect is not folded."""
    ledger = await begun(bus)
    forged = commit_after(ledger.state, [Released(uid=RequestUid("u9"), evidence="gone")], author="x")
    await bus.store(SUBJECT, encode(forged), expected_last=1)
    for reader in (open_ledger(bus), ledger.catch_up(), anext(follow(bus, ledger.state))):
        with pytest.raises(InvariantBroken, match="at 2"):
            await reader


async def test_two_pools_in_one_stream_have_two_chains(bus: Bus) -> None:
    """Claim: sequences of the other pool are gaps in mine, and no conflict."""
    ledgers = {}
    for pool in ("default", "other"):
        state, _ = await open_ledger(bus, pool)
        ledgers[pool] = Ledger(bus, state)
        record = EpochStarted(epoch=EPOCH, reason="test")
        await ledgers[pool].append(commit_after(state, [record], author="a", epoch=EPOCH))
    for index in range(3):
        for ledger in ledgers.values():
            await write(ledger, "a", index)
    for pool, ledger in ledgers.items():
        state, following = await open_ledger(bus, pool)
        assert (digest(state), following) == (digest(ledger.state), ledger.state.sequence + 1)
    assert ledgers["default"].state.sequence == 7


async def test_reading_a_log_that_is_shorter_than_the_state_is_refused(world: World) -> None:
    """Claim: a follower of a log that was lost does not wait for ever."""
    bus = await world.client("one")
    await bus.ensure_streams()
    ledger = await begun(bus)
    for index in range(3):
        await write(ledger, "a", index)
    await world.recreate(LEDGER.stream)
    with pytest.raises(StreamMismatch):
        await anext(follow(bus, ledger.state))
