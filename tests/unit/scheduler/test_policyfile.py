"""A user's own policy: what is refused at the start, what a failure costs, and that the one in the guide works."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.metrics import CallbackOptions

from bus.ledger.fold import apply_record
from bus.ledger.snapshot import copy
from bus.runtime.exits import EndProcess, ExitCode
from contracts.decisions import Reserved
from scheduler import policyfile
from scheduler.core.failing import PolicyFailed
from scheduler.core.placer import Placer
from scheduler.core.policies import DEFAULT_POLICY, POLICIES
from scheduler.core.replay import Replay
from scheduler.metrics import _policy_failures
from scheduler.service import _own_policy
from scheduler.settings import SchedulingSettings
from tests.builders.ledger import Cluster, cluster, node, request

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "policies.md"

FULLEST = '''"""Fullest node first."""
def score(request, node, taken):
    return -node.free_milli
'''

Load = Callable[..., str]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Loads a text as a policy and takes it out of the table afterwards; returns its name."""
    names: list[str] = []

    def loading(text: str, name: str = "mine") -> str:
        (tmp_path / f"{name}.py").write_text(text)
        names.append(policyfile.load(str(tmp_path / f"{name}.py")).name)
        return names[-1]

    yield loading
    for name in names:
        POLICIES.pop(name, None)
        policyfile._loaded.pop(name, None)


def three_nodes() -> Cluster:
    """Two cards each; one node is half sold."""
    drawn = cluster(node(f"n{i}").gpus(2) for i in range(3))
    decided(drawn, "packing", share=1000, cards=1, name="there")
    return drawn


def decided(drawn: Cluster, policy: str, *, share: int = 500, cards: int = 1, name: str = "r") -> Reserved:
    """One decision, folded."""
    asked = drawn.accept(request(name).share(share).cards(cards))
    record = Placer(drawn.state, policy).place(asked)
    assert record is not None
    apply_record(drawn.state, record, 2)
    return record


# --- at the start -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def score(request, node, taken):\n  return 1.5\n", "answered 1.5 .* not a whole number"),
        ("def score(request, node, taken):\n  return True\n", "answered True"),
        ("def score(request, node, taken):\n  pass\n", "answered None"),
        ("def score(request, node, taken):\n  return 1 << 41\n", "beyond"),
        ("def score(request, node, taken):\n  return node.gpus\n", "raised AttributeError"),
        ("def score(request, node, taken):\n  return taken[0].free_milli\n", "raised IndexError"),
        ("n = iter(range(999))\ndef score(request, node, taken):\n  return next(n)\n", "answered 0, then 1"),
        ("def score(request, node):\n  return 1\n", r"score takes \(request, node, taken\)"),
        ("score = 3\n", "no function score"),
        ("def rank(a, b, c):\n  return 1\n", "no function score"),
        ("def score(:\n", "SyntaxError"),
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        ("def score(request, node, taken):\n  while True:\n    pass\n", "did not end within"),
        ("while True:\n  pass\n", "is not read to its end within"),
        ("def score(request, node, taken):\n  raise SystemExit(3)\n", "on an example, score raised SystemExit"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_in_one_line(
    text: str, words: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is registered."""
    if "while" in text:
        monkeypatch.setattr(policyfile, "LOAD_S" if text.startswith("while") else "HARD_S", 0.05)
    with pytest.raises(policyfile.BadPolicyFile, match=words) as caught:
        load(text)

    assert "\n" not in str(caught.value)
    assert "mine" not in POLICIES


def test_a_name_that_is_taken_or_none_is_refused(load: Load, tmp_path: Path) -> None:
    """The table is not overwritten by a file that is called as one of its policies."""
    with pytest.raises(policyfile.BadPolicyFile, match="there is a policy packing already"):
        load(FULLEST, "packing")
    with pytest.raises(policyfile.BadPolicyFile, match="lower-case letters"):
        load(FULLEST, "so so")
    with pytest.raises(policyfile.BadPolicyFile, match="No such file"):
        policyfile.load(str(tmp_path / "none.py"))


def test_loading_again_changes_nothing_until_the_file_does(load: Load, tmp_path: Path) -> None:
    """The version follows the text; so does what stands in the table."""
    load(FULLEST)
    first = POLICIES["mine"]

    assert policyfile.load(str(tmp_path / "mine.py")) is first
    load(FULLEST + "# changed\n")
    assert POLICIES["mine"].version != first.version
    assert POLICIES["mine"].why == "Fullest node first."


def test_the_setting_makes_its_name_one_of_the_policies() -> None:
    """By the name of the file; without it the name is unknown."""
    assert list(SchedulingSettings(policy="my-own", policy_file="/etc/My_own.py").problems()) == []
    assert "is none of" in next(iter(SchedulingSettings(policy="my-own").problems()))


# --- deciding ---------------------------------------------------------------------------------------------------------


def test_it_decides(load: Load) -> None:
    """The fullest of three nodes, and the record says by whom."""
    drawn = three_nodes()
    record = decided(drawn, load(FULLEST))

    assert record.rationale.policy == "mine"
    assert record.rationale.instead_of == ""
    assert record.placement.node == drawn.state.requests[next(iter(drawn.state.requests))].placement.node  # type: ignore[union-attr]  # it is placed
    assert record.rationale.chosen.score == -1000


def test_a_request_may_name_it(load: Load) -> None:
    """The default stays for all others."""
    drawn, name = three_nodes(), load(FULLEST)
    asked = drawn.accept(request("named").share(500).policy(name))
    record = Placer(drawn.state, "packing").place(asked)

    assert record is not None
    assert record.rationale.policy == "mine"


FAILING = """
ROUNDS = []
def score(request, node, taken):
    if node.name.startswith("n"):
        {body}
    return 1
"""


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ('raise KeyError("H100")', "raised", "mine: raised KeyError: 'H100' for n"),
        ("raise SystemExit(3)", "raised", "mine: raised SystemExit: 3 for n"),
        ('return "much"', "no-integer", "mine: answered 'much' for n"),
        ("return -(1 << 50)", "out-of-bounds", "beyond"),
        ("while True: pass", "too-slow", "mine: did not end within 0.05 s for n"),
        ("for _ in range(300000): pass", "too-slow", "mine: takes more than 0 us a node"),
    ],
)
def test_a_failure_costs_the_request_its_policy_and_not_its_place(
    body: str, kind: str, words: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default policy decides exactly as if it had been asked, the record names the failure, and it is counted."""
    name = load(FAILING.format(body=body))
    if body.startswith("for"):
        monkeypatch.setattr(policyfile, "EARNED_S", 1e-9)
        monkeypatch.setattr(policyfile, "SAVED_S", 1e-4)
    if body.startswith("while"):
        monkeypatch.setattr(policyfile, "HARD_S", 0.05)
    record = decided(three_nodes(), name)
    default = decided(three_nodes(), DEFAULT_POLICY.name)

    assert words in record.rationale.instead_of
    assert (record.rationale.policy, record.placement) == (DEFAULT_POLICY.name, default.placement)
    assert policyfile.failures()["mine", kind] >= 1


def test_what_keeps_failing_is_put_aside(load: Load) -> None:
    """After ten failures it is not called any more; every request is placed all the same."""
    name = load(FAILING.format(body='ROUNDS.append(1); raise ValueError("no")'))
    drawn = cluster(node(f"n{i}").gpus(8) for i in range(4))
    why = Counter(
        decided(drawn, name, name=f"r{i}").rationale.instead_of.partition(" until ")[0].partition(" for ")[0]
        for i in range(15)
    )

    assert why == {"mine: raised ValueError: no": 10, "mine: failed 10 times and is put aside": 5}


def test_how_an_error_shows_itself_is_not_trusted_either() -> None:
    """Its `str` raises; the failure still has a text."""

    class Odd(Exception):  # noqa: N818 - of a user
        def __str__(self) -> str:
            raise RuntimeError

    def score(*_: object) -> int:
        raise Odd

    guard = policyfile.Guard("odd", score)
    with pytest.raises(PolicyFailed, match="something of type Odd"):
        guard.judged(policyfile._REQUESTS[0], policyfile._NODES[0], ())


# --- again ------------------------------------------------------------------------------------------------------------


def test_a_decision_that_another_policy_had_to_make_is_made_again(load: Load) -> None:
    """From the log alone, without the file; a decision of the file itself is passed over and counted."""
    failing, working = load(FAILING.format(body='raise ValueError("no")'), "failing"), load(FULLEST)
    drawn = three_nodes()
    before = copy(drawn.state)
    asked = [drawn.accept(request(f"r{i}").share(300)) for i in range(2)]
    records = []
    for one, policy in zip(asked, (failing, working), strict=True):
        record = Placer(drawn.state, policy).place(one)
        assert record is not None
        apply_record(drawn.state, record, 2)
        records.append(record)
    POLICIES.pop("mine")
    again = Replay(begin=before)
    for one in asked:
        apply_record(again.state, one.accepted, 2)
    for record in records:
        again._decide([record], 2)
        apply_record(again.state, record, 2)
    found = again.result()

    assert (found.decisions, found.differences, found.unknown) == (1, (), {"mine": 1})


# --- the guide --------------------------------------------------------------------------------------------------------


def test_the_policy_of_the_guide_works(load: Load) -> None:
    """As it stands there: two halves share a card although an empty node is there, and nothing fails."""
    (text,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    name = load(text, "tidy")
    drawn = cluster(node(f"n{i}").gpus(2) for i in range(3))
    records = [decided(drawn, name, name=f"half{i}") for i in range(2)]
    whole = decided(drawn, name, share=1000, cards=2, name="pair")

    assert records[0].placement.slices[0].card == records[1].placement.slices[0].card
    assert whole.placement.node != records[0].placement.node
    assert {record.rationale.policy for record in (*records, whole)} == {"tidy"}
    assert len(text.splitlines()) <= 30


# --- the service ------------------------------------------------------------------------------------------------------


def test_the_service_does_not_start_with_a_file_that_is_no_policy(tmp_path: Path) -> None:
    """It ends with bad settings, naming file and reason; without a file nothing is loaded."""
    (tmp_path / "bad.py").write_text("score = 3\n")

    _own_policy("")
    with pytest.raises(EndProcess, match=r"policy_file .*bad\.py: no function score") as caught:
        _own_policy(str(tmp_path / "bad.py"))
    assert caught.value.code is ExitCode.BAD_SETTINGS


def test_failures_are_a_metric(load: Load) -> None:
    """By policy and kind, as somebody who scrapes sees them."""
    decided(three_nodes(), load(FAILING.format(body='raise ValueError("no")'), "counted"))
    found = {tuple(sorted((each.attributes or {}).items())): each.value for each in _policy_failures(CallbackOptions())}

    assert found[("kind", "raised"), ("policy", "counted")] == 1
