"""What would happen if, a saved ledger, and decisions made again; nothing is changed by asking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bus.ledger import snapshot
from bus.ledger.state import LedgerState
from contracts.decisions import Accepted, Nominated, Record
from contracts.messages import encode
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest
from contracts.units import NamespaceName, RequestUid
from gpubus import ledgerfile
from gpubus.cli import main
from gpubus.cli.common import show_all
from gpubus.decideagain import decide_again
from gpubus.errors import UsageError
from gpubus.ledgerfile import Log
from gpubus.render.again import again
from gpubus.render.whatif import what_if as drawn
from gpubus.whatif import Changes, Fate, policy_of, what_if
from scheduler.core.placer import Placer
from tests.builders import history
from tests.builders.ledger import Request, node, request
from tests.builders.scene import Scene


class Written:
    """A log with decisions of the real placer: two nodes with two cards, four whole pods placed, one half waiting."""

    def __init__(self) -> None:
        self.log = history.Log()
        self.log.write(*node("n1").gpus(2).records(), *node("n2").gpus(2).records())
        for number in range(4):
            self.ask(request(f"whole{number}"))
        self.ask(request("waits").share(500))

    def ask(self, asked: Request) -> int:
        """Accepted, and placed if it fits; the sequence of the commit that placed it."""
        uid = RequestUid(f"{history.EPOCH}-{len(self.log.commits) + 1}-0")
        now = 1_000_000 + self.log.state.sequence
        self.log.write(Accepted(uid=uid, namespace="team", request=asked.build(), submitted_ms=now), at_ms=now)
        record: Record | None = Placer(self.log.state, "packing").place(self.log.state.requests[uid])
        if record is not None:
            self.log.write(record)
        return self.log.state.sequence

    @property
    def state(self) -> LedgerState:
        """At the end."""
        return self.log.state

    def saved(self, begin: LedgerState | None = None) -> Log:
        """As a file holds it; the commits after `begin`."""
        after = begin.sequence if begin is not None else 0
        stored = tuple((m.sequence, bytes(m.data)) for m in self.log.messages if m.sequence > after)
        return Log(pool="default", begin=begin, stored=stored)


@pytest.fixture
def written() -> Written:
    """One of them."""
    return Written()


def placed(fates: tuple[Fate, ...]) -> dict[str, str]:
    """Where each is, by name; empty = it waits."""
    return {fate.name: fate.node for fate in fates}


# --- what if ----------------------------------------------------------------------------------------------------------


def test_without_changes_nothing_happens(written: Written) -> None:
    """The one that waits goes on waiting, with a reason in numbers, and the state is untouched."""
    before = snapshot.digest(written.state)
    answer = what_if(written.state, Changes())

    assert placed(answer.waiting) == {"waits": ""}
    assert "500" in answer.waiting[0].reason
    assert (answer.moving, answer.leaving, answer.submitted) == ((), (), ())
    assert snapshot.digest(written.state) == before


def test_a_node_more_starts_who_waits(written: Written) -> None:
    """It is made like the one that is named, and takes the half that waits."""
    answer = what_if(written.state, Changes(add_nodes=1, like="n2"))

    assert placed(answer.waiting) == {"waits": "n2-more-1"}
    assert answer.waiting[0].cards == ("n2-more-1-0",) or answer.waiting[0].cards == ("n2-more-1-1",)


def test_a_drained_node_tells_who_moves_where(written: Written) -> None:
    """Everything is full: who is on it would wait. A node more goes to the half first, then to one of the two."""
    alone = what_if(written.state, Changes(drain=("n1",)))
    helped = what_if(written.state, Changes(drain=("n1",), add_nodes=1, like="n1"))
    there = [r.request.name for r in written.state.requests.values() if r.placement and r.placement.node == "n1"]

    assert set(placed(alone.moving)) == set(there)
    assert set(placed(alone.moving).values()) == {""}
    assert {fate.before for fate in alone.moving} == {"n1"}
    assert sorted(placed(helped.moving).values()) == ["", "n1-more-1"]
    assert placed(helped.waiting) == {"waits": "n1-more-1"}


def test_a_hundred_of_one_request(written: Written) -> None:
    """On two nodes more there is room for eight halves, one of which waits already: seven of a hundred start."""
    asked = PodRequest(name="burst", pod=request("x").build().pod, gpu=request("x").share(500).build().gpu)
    answer = what_if(written.state, Changes(add_nodes=2, like="n1", submit=asked, namespace="team", times=100))

    assert len({fate.name for fate in answer.submitted}) == 100
    assert sum(fate.node != "" for fate in (*answer.submitted, *answer.waiting)) == 8
    assert placed(answer.waiting)["waits"] != ""


def test_names_of_copies_are_free_ones(written: Written) -> None:
    """`waits-1` is taken by nobody, `waits` is: a single copy gets a number, and two of a taken number another stem."""
    taken = written.state.requests[next(iter(written.state.pending))].request
    one = what_if(written.state, Changes(submit=taken, namespace="team"))
    written.ask(request("waits-2").share(500))
    two = what_if(written.state, Changes(submit=taken, namespace="team", times=2))

    assert [fate.name for fate in one.submitted] == ["waits-1"]
    assert [fate.name for fate in two.submitted] == ["waits-x-1", "waits-x-2"]


def test_a_quota_holds_back(written: Written) -> None:
    """The team holds four cards; with a node more, and a quota of four cards, the half still waits, and says so."""
    quota = NamespaceQuota(namespace=NamespaceName("team"), share_milli=4000)
    answer = what_if(written.state, Changes(add_nodes=1, quotas=(quota,)))

    assert placed(answer.waiting) == {"waits": ""}
    assert "team may hold 4000 thousandths" in answer.waiting[0].reason


def test_another_policy_places_elsewhere(written: Written) -> None:
    """Two nodes more: packing puts two halves on one card, spreading on two nodes."""
    asked = request("more").share(500).build()
    cards = {}
    for policy in ("packing", "spreading"):
        answer = what_if(written.state, Changes(add_nodes=2, like="n1", submit=asked, policy=policy))
        cards[policy] = {fate.cards for fate in (*answer.waiting, *answer.submitted)}

    assert (len(cards["packing"]), len(cards["spreading"])) == (1, 2)


def test_the_policy_is_that_of_the_last_placement(written: Written) -> None:
    """Of requests that named none."""
    assert policy_of(written.state) == "packing"
    assert what_if(written.state, Changes()).policy == "packing"


def test_a_node_that_is_not_there_is_told(written: Written) -> None:
    """By its name."""
    for changes in (Changes(drain=("n9",)), Changes(add_nodes=1, like="n9")):
        with pytest.raises(UsageError, match="no node 'n9'"):
            what_if(written.state, changes)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_saved_ledger_reads_as_it_was(written: Written) -> None:
    """From its beginning, and from a checkpoint in the middle: the same state at the end."""
    middle = written.log.replay(until=written.log.commits[4][1])
    for begin in (None, middle):
        log = written.saved(begin)
        again = ledgerfile.read(b"".join(ledgerfile.write(log)), "f")

        assert again.stored == log.stored
        assert snapshot.digest(again.state()) == snapshot.digest(written.state)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "f line 1: no saved ledger"),
        (b'{"format":"other","pool":"p"}\n', "format 'other'"),
        (b'{"format":"gpubus.ledger.1","pool":"p","state_lines":1}\nnot json\n', "its state cannot be read"),
        (b'{"format":"gpubus.ledger.1","pool":"p"}\nseven {}\n', "f line 2: no sequence and commit"),
    ],
)
def test_a_file_of_something_else_is_told(data: bytes, words: str) -> None:
    """With the line."""
    with pytest.raises(UsageError, match=words):
        ledgerfile.read(data, "f")


def test_a_log_that_does_not_add_up_is_told(written: Written) -> None:
    """A commit in the middle is missing; another one is no commit."""
    log = written.saved()
    holed = Log(pool="default", begin=None, stored=log.stored[:3] + log.stored[4:])
    garbled = Log(pool="default", begin=None, stored=(log.stored[0], (log.stored[1][0], b"{}")))

    with pytest.raises(UsageError, match="does not add up"):
        holed.state()
    with pytest.raises(UsageError, match="cannot be read"):
        garbled.state()


# --- again ------------------------------------------------------------------------------------------------------------


def test_a_decision_comes_out_equal(written: Written) -> None:
    """From the log before it, byte for byte; also when the log begins at a checkpoint."""
    at = written.log.commits[3][1]
    for begin in (None, written.log.replay(until=at - 1)):
        found = decide_again(written.saved(begin), at)

        assert [(each.name, each.equal) for each in found.decisions] == [("whole0", True)]


def test_a_decision_that_was_tampered_with_does_not(written: Written) -> None:
    """Another score stands in the log than comes out."""
    log, (commit, at) = written.saved(), written.log.commits[3]
    forged = encode(commit).replace(b'"feasible_nodes":2', b'"feasible_nodes":1')
    stored = tuple((sequence, forged if sequence == at else data) for sequence, data in log.stored)
    (found,) = decide_again(Log(pool="default", begin=None, stored=stored), at).decisions

    assert not found.equal
    assert found.again is not None
    assert found.again.rationale.feasible_nodes == 2


def test_a_place_that_is_kept_is_looked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Nominated behind a victim: equal; by rules of another version: neither equal nor a difference."""
    scene = Scene(node("n1").gpus(1)).submit(request("v").fields(priority_class="low"))
    scene.submit(request("h").fields(priority_class="high")).judge()
    stored = tuple((m.sequence, bytes(m.data)) for m in scene.log.messages)
    at = next(at for commit, at in scene.log.commits for record in commit.records if isinstance(record, Nominated))
    old = tuple(
        (sequence, data.replace(b'"why":"preempts","version":1', b'"why":"preempts"')) for sequence, data in stored
    )
    (now,) = decide_again(Log(pool="default", begin=None, stored=stored), at).decisions
    (then,) = decide_again(Log(pool="default", begin=None, stored=old), at).decisions

    assert (now.name, now.equal, now.unknown) == ("h", True, "")
    assert (then.equal, then.unknown) == (False, "nominations version 0")
    show_all(again(decide_again(Log(pool="default", begin=None, stored=old), at)))
    assert "1 other told to leave" in (told := capsys.readouterr().out)
    assert "nominations version 0 is not known here" in told


def test_a_move_that_makes_room_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As a table: who moves, from where to where, and who starts then; and that nobody is moved by asking."""
    scene = Scene(*(node(name).gpus(1).labels(on=name) for name in ("n1", "n2")))
    for name, share, on in (("fixed", 500, "n1"), ("guard", 600, "n2")):
        scene.submit(request(name).share(share).gpu_memory(1).select(on=on))
    scene.submit(request("loose").share(400).gpu_memory(1)).seen("guard", "ended").submit(request("big"))
    show_all(drawn(what_if(scene.log.state, Changes(moves=True))))
    told = capsys.readouterr().out
    assert "1 move would make room" in told
    assert "nobody is moved by this" in told
    assert told.split("ON CARDS")[1].split()[:4] == ["ns/loose", "n2", "n1", "ns/big"]


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def file(written: Written, tmp_path: Path) -> str:
    """The log in a file."""
    (tmp_path / "saved.ledger").write_bytes(b"".join(ledgerfile.write(written.saved())))
    return str(tmp_path / "saved.ledger")


def test_the_command_answers_from_a_file(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON, without a bus."""
    flags = ["whatif", "--ledger", file, "--add-nodes", "1", "--like", "n1", "--drain", "n2"]
    codes = [main(flags), main([*flags, "-o", "json"])]
    text, _, document = capsys.readouterr().out.partition("\n{")

    assert codes == [0, 0]
    assert "waiting now: 1 request" in text
    assert "on drained nodes: 2 requests" in text
    assert {fate["name"] for fate in json.loads("{" + document)["waiting"]} == {"waits"}


def test_a_request_file_is_submitted(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same files that `gpubus submit` takes."""
    (tmp_path / "r.toml").write_text('name = "r"\n[pod]\nimage = "i"\n[gpu]\nshare_milli = 250\n')
    code = main(["whatif", "--ledger", file, "--submit", str(tmp_path / "r.toml"), "--times", "3"])

    assert code == 0
    assert "submitted: 3 requests, 0 would start, 3 would wait" in capsys.readouterr().out


def test_decide_tells_that_it_is_equal(file: str, written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a decision, and the verdict."""
    at = str(written.log.commits[3][1])

    assert main(["decide", "--ledger", file, "--at", at]) == 0
    assert f"1 decision at {at} computed again: equal, byte for byte" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["decide", "--at", "999"], "--at 999: this ledger has commits from 1 to"),
        (["whatif", "--policy", "none"], "--policy none: there are"),
        (["whatif", "--quota", "team=much"], "--quota team=much"),
        (["whatif", "--quota", "TEAM=1"], "--quota TEAM=1"),
        (["whatif", "--times", "0"], "--times 0"),
        (["whatif", "--drain", "n7"], "no node 'n7'"),
    ],
)
def test_wrong_flags_end_in_one_line(
    flags: list[str], words: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2."""
    assert main([*flags, "--ledger", file]) == 2
    assert words in capsys.readouterr().err
