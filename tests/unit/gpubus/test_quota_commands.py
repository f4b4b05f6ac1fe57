"""`gpubus set-quota` and `get quotas`: words become one message, what is wrong is named, what is not named stays."""

from __future__ import annotations

import msgspec
import pytest

from bus.memory import InMemoryBus, MemoryServer
from contracts import subjects
from contracts.answers import QuotaView
from contracts.quotas import NamespaceQuota
from gpubus.cli import main
from gpubus.cli.exits import Exit
from gpubus.cli.quota import quota_of, wanted
from gpubus.client import Client
from gpubus.errors import UsageError
from gpubus.render.quotas import quotas

BEFORE = QuotaView(namespace="team", mapped=True, share_milli=4000, memory_mib=8000, weight=3, max_priority=100)


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ({"cards": "4"}, {"share_milli": 4000}),
        ({"cards": "2.5"}, {"share_milli": 2500}),
        ({"cards": "0"}, {"share_milli": 0}),
        ({"cards": "none"}, {"share_milli": None}),
        ({"memory": "160Gi"}, {"memory_mib": 163_840}),
        ({"memory": "none", "weight": 2}, {"memory_mib": None, "weight": 2}),
        ({"max_priority": "-100"}, {"max_priority": -100}),
        ({"max_priority": "none"}, {"max_priority": None}),
        ({}, {}),
    ],
)
def test_flags_are_exact_integers_and_none_is_no_limit(flags: dict[str, str], fields: dict[str, int | None]) -> None:
    """0 is nothing at all, and never the same as no limit."""
    assert wanted(**flags) == fields  # type: ignore[arg-type]  # the table mixes their types


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"cards": "four"}, ("--cards four", "4 or 2.5")),
        ({"cards": "1.2345"}, ("--cards 1.2345", "thousandths")),
        ({"cards": "-1"}, ("--cards -1", "from 0")),
        ({"cards": "2000000"}, ("--cards 2000000", "1,000,000")),
        ({"memory": "8gb"}, ("--memory", "8Gi")),
        ({"max_priority": "high"}, ("--max-priority high", "1000000")),
    ],
)
def test_what_cannot_be_read_is_named_with_its_bound(flags: dict[str, str], words: tuple[str, ...]) -> None:
    """Flag, value and what would be accepted."""
    with pytest.raises(UsageError) as refused:
        wanted(**flags)  # type: ignore[arg-type]  # as above
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    ("namespace", "changes", "words"),
    [
        ("team", {"weight": 0}, ("weight", "0", ">= 1")),
        ("team", {"weight": 1001}, ("weight", "1001", "<= 1000")),
        ("team", {"max_priority": 2_000_000}, ("max_priority", "2000000", "<= 1000000")),
        ("Team_A", {"weight": 1}, ("namespace", "Team_A")),
    ],
)
def test_what_no_message_may_hold_is_a_usage_error(namespace: str, changes: dict[str, int], words: list[str]) -> None:
    """Told before anything is sent."""
    with pytest.raises(UsageError) as refused:
        quota_of(namespace, None, dict(changes))
    assert all(word in str(refused.value) for word in words)


def test_what_is_not_named_stays() -> None:
    """Only the weight is named; a quota that was taken away leaves nothing behind to keep."""
    changed = quota_of("team", BEFORE, {"weight": 5})
    assert changed == NamespaceQuota(namespace="team", share_milli=4000, memory_mib=8000, weight=5, max_priority=100)
    gone = QuotaView(namespace="team", mapped=False, weight=3)
    assert quota_of("team", gone, {"share_milli": 1}) == NamespaceQuota(namespace="team", share_milli=1)
    assert quota_of("team", BEFORE, {"memory_mib": None}).memory_mib is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["team"], "--remove"),
        (["team", "--remove", "--cards", "1"], "name nothing else"),
        (["team", "--cards", "x"], "--cards x"),
    ],
)
def test_a_wrong_call_ends_with_the_status_of_a_wrong_call(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, one line, no stack trace."""
    assert main(["set-quota", *words]) == Exit.USAGE
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


async def test_the_client_stores_it_on_the_subject_of_its_namespace() -> None:
    """One message a namespace, the last one stands."""
    bus = InMemoryBus(MemoryServer(), "test")
    await bus.ensure_streams()
    client = Client(bus)
    for share in (1000, 2000):
        await client.set_quota(NamespaceQuota(namespace="team", share_milli=share))
    stored = await bus.last(subjects.NAMESPACE_QUOTAS.stream, "gpubus.v1.quotas.team")
    assert stored is not None
    assert msgspec.json.decode(stored.data, type=NamespaceQuota).share_milli == 2000


def test_the_table_tells_no_limit_from_nothing() -> None:
    """`-` is no limit; without a quota while quotas are on, the limit is 0."""
    rows = [BEFORE, QuotaView(namespace="free", mapped=True, used_milli=500), QuotaView(namespace="shut", mapped=False)]
    made = quotas(rows)
    cells = [[str(cell) for cell in column.cells] for column in made.columns]
    assert cells[1] == ["0/4", "0.5/-", "0/0"]
    assert cells[5] == ["yes", "yes", "none: may hold nothing"]
