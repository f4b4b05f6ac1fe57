"""The bed's name server: what a question means, and what goes back over the wire."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.bed.names import addresses_of, looked_up, question_of, reply


def question(name: str, kind: int = 1) -> bytes:
    """As a resolver asks it."""
    labels = b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.split("."))
    return struct.pack("!6H", 0xBEEF, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def test_a_question_is_read_whatever_its_case() -> None:
    packet = question("Gpubus-NATS.gpubus-system.svc.cluster.local", kind=28) + b"more"
    labels, kind, end = question_of(packet)
    assert ".".join(labels) == "gpubus-nats.gpubus-system.svc.cluster.local"
    assert (kind, end) == (28, len(packet) - 4)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nats.bus.svc.cluster.local", ("", "nats", "bus")),
        ("nats-0.peers.bus.svc.cluster.local", ("nats-0", "peers", "bus")),
        ("nats.bus.svc", None),
        ("svc.cluster.local", None),
        ("a.b.c.d.svc.cluster.local", None),
        ("example.org", None),
    ],
)
def test_only_whole_names_of_services_mean_something(name: str, meant: tuple[str, str, str] | None) -> None:
    """A resolver tries its search list; a name that is not whole is answered with `no such name`."""
    assert looked_up(name.split(".")) == meant


def endpoint(address: str, pod: str, *, ready: bool) -> dict[str, Any]:
    return {"addresses": [address], "hostname": pod, "conditions": {"ready": ready}}


SLICES = [{"endpoints": [endpoint("10.0.0.2", "n-1", ready=True), endpoint("10.0.0.1", "n-0", ready=False)]}]


@pytest.mark.parametrize(
    ("slices", "pod", "found"),
    [
        ([], "", None),
        (SLICES, "", ["10.0.0.2"]),
        (SLICES, "n-0", ["10.0.0.1"]),
        (SLICES, "n-7", None),
        ([{"endpoints": None}], "", []),
    ],
)
def test_a_service_is_its_ready_pods_and_a_pod_is_itself(
    slices: list[dict[str, Any]], pod: str, found: list[str] | None
) -> None:
    """A peer is asked for by name before it is ready: three servers find each other so."""
    assert addresses_of(slices, pod) == found


@pytest.mark.parametrize(
    ("addresses", "failed", "code", "count"),
    [(["10.0.0.1", "10.0.0.2"], False, 0, 2), ([], False, 0, 0), (None, False, 3, 0), (None, True, 2, 0)],
)
def test_an_answer_repeats_number_and_question(
    addresses: list[str] | None, failed: bool, code: int, count: int
) -> None:
    packet = question("nats.bus.svc.cluster.local") + b"extension of the asker"
    end = question_of(packet)[2]
    answer = reply(packet, end, addresses, failed=failed)
    number, flags, questions, answers, _, _ = struct.unpack_from("!6H", answer)
    assert (number, flags & 0xF, questions, answers) == (0xBEEF, code, 1, count)
    assert flags & 0x8000
    assert answer[12:end] == packet[12:end]
    assert len(answer) == end + 16 * count
    if addresses:
        assert answer[-4:] == bytes([10, 0, 0, 2])
