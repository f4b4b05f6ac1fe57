"""What of a stream is a promise, and what the server may have otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from bus.protocol import StreamMismatch
from bus.streams import verify, wire_config
from contracts.subjects import EVENTS, LEDGER, REQUESTS, stream

NANO = 1_000_000_000


def _found(name: str, **fields: Any) -> dict[str, Any]:
    return {**wire_config(stream(name), replicas=1), **fields}


def test_ids_may_be_known_for_longer_and_not_for_shorter() -> None:
    """Claim: a repeated commit must be recognised for two minutes; where ids go at once, later is as good."""
    verify(stream(LEDGER.stream), _found(LEDGER.stream, duplicate_window=240 * NANO), replicas=1)
    verify(stream(REQUESTS.stream), _found(REQUESTS.stream, duplicate_window=120 * NANO), replicas=1)
    with pytest.raises(StreamMismatch) as caught:
        verify(stream(LEDGER.stream), _found(LEDGER.stream, duplicate_window=119 * NANO), replicas=1)
    assert (caught.value.field, caught.value.wanted, caught.value.found) == ("duplicate_window", 120 * NANO, 119 * NANO)


@pytest.mark.parametrize("fields", [{"allow_atomic": False}, {"description": "another"}])
def test_what_nothing_rests_on_may_differ(fields: dict[str, Any]) -> None:
    """Claim: a stream made before batches is good enough; it is only slower."""
    verify(stream(EVENTS.stream), _found(EVENTS.stream, **fields), replicas=1)
    assert wire_config(stream(EVENTS.stream), replicas=1)["allow_atomic"] is True
    assert "allow_atomic" not in wire_config(stream(LEDGER.stream), replicas=1)
