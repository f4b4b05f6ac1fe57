"""Limits of cards that change while a process runs: believed as CPU limits are, and written into Gemini's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.inventory import Card
from contracts.outcomes import NodeShares, ShareAssignment
from contracts.shares import NodeCpuLimits, ShareLimit
from contracts.units import CardUuid, NodeName, RequestUid
from monitor.enforce.gemini import Gemini
from monitor.enforce.gemini_files import read_config
from monitor.enforce.wanted import Standing, Work, take_limits, take_shares, work

NODE = NodeName("n1")
CARD = Card(uuid=CardUuid("GPU-a"), index=0, model="T4", memory_total_mib=16_000, isolation="gemini")
SHARES = NodeShares(
    node=NODE,
    epoch="e",
    ledger_sequence=1,
    assignments=tuple(
        ShareAssignment(
            uid=RequestUid(uid), namespace="team", pod=uid, card="GPU-a", share_milli=300, memory_mib=1, port=50_000 + i
        )
        for i, uid in enumerate(("a", "b"))
    ),
)


def todo(limit_milli: int, *, uid: str = "a", card: str = "GPU-a", epoch: str = "e") -> Work:
    limit = ShareLimit(uid=RequestUid(uid), card=CardUuid(card), limit_milli=limit_milli)
    told = NodeCpuLimits(node=NODE, epoch=epoch, sequence=1, cards=(limit,))
    return work(take_limits(take_shares(Standing(), SHARES, NODE), told, NODE), (CARD,))


@pytest.mark.parametrize(
    ("wanted", "borrow", "request_milli", "limit_milli"),
    [
        pytest.param(todo(800), False, 300, 800, id="it may borrow"),
        pytest.param(todo(100), False, 100, 100, id="held below its share, a request is no more than its limit"),
        pytest.param(todo(800), True, 300, 1000, id="everybody may use the whole card"),
        pytest.param(todo(800, epoch="f"), False, 300, 300, id="of another ledger"),
        pytest.param(todo(800, uid="x"), False, 300, 300, id="of a stranger"),
        pytest.param(todo(800, card="GPU-b"), False, 300, 300, id="of another card"),
    ],
)
def test_a_limit_of_a_card_is_written_and_read_back(
    tmp_path: Path, wanted: Work, borrow: bool, request_milli: int, limit_milli: int
) -> None:
    """The one pod has it, the other keeps its share; what stands is found to be right."""
    backend = Gemini(tmp_path, lambda: frozenset((50_000, 50_001)), borrow=borrow)
    held = wanted.cards["gemini"]
    backend.apply(held)
    one, other = read_config((tmp_path / "scheduler" / "config" / "GPU-a").read_bytes())
    assert (one.request_milli, one.limit_milli) == (request_milli, limit_milli)
    assert (other.request_milli, other.limit_milli) == (300, 1000 if borrow else 300)
    assert {pod.state for pod in backend.check(held).pods} == {"applied"}


def test_a_limit_that_is_not_written_is_found(tmp_path: Path) -> None:
    """The files hold the share, wanted is more: the pod is not told as applied."""
    backend = Gemini(tmp_path, lambda: frozenset((50_000, 50_001)))
    backend.apply(todo(300).cards["gemini"])
    assert {pod.state for pod in backend.check(todo(800).cards["gemini"]).pods} == {"failed"}
