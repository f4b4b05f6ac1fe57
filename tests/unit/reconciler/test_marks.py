"""Our annotations: written in one form, read back in the same, and never beyond what Kubernetes takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.decisions import CardSlice
from contracts.messages import encode
from contracts.requests import PodRequest, PodTemplate
from contracts.units import CardUuid, RequestUid
from reconciler import marks

slices = st.lists(
    st.builds(
        CardSlice,
        card=st.integers(0, 2**64).map(lambda number: CardUuid(f"GPU-{number:x}-a")),
        share_milli=st.integers(1, 1000),
        memory_mib=st.integers(0, 16 * 1024 * 1024),
    ),
    max_size=8,
).map(tuple)


@given(slices)
def test_slices_read_back_as_written(pieces: tuple[CardSlice, ...]) -> None:
    """decode(encode(x)) is x, in its order."""
    written = marks.binding_marks("e-1-0", pieces, node="n1", epoch="e", sequence=7)

    assert marks.slices_of(written) == pieces
    assert marks.bound_by_us({marks.UID: "e-1-0", **written}, "n1")


def test_a_request_reads_back_as_accepted() -> None:
    """Word for word, with who it is."""
    request = PodRequest(name="train", pod=PodTemplate(image="i", args=("ü", "a=b,c")))
    written = marks.request_marks("e-1-0", encode(request), epoch="e", sequence=7, traceparent="00-x")

    assert marks.request_of(written) == request
    assert marks.mark_of(written) == marks.Mark(uid=RequestUid("e-1-0"), epoch="e", sequence=7)
    assert written[marks.TRACEPARENT] == "00-x"


def test_without_a_trace_there_is_no_trace_annotation() -> None:
    """An empty annotation would be noise on every pod."""
    assert marks.TRACEPARENT not in marks.request_marks("u", b"{}", epoch="e", sequence=1)


BAD_SHARES = [
    {},
    {marks.SHARES: "a=1:1"},
    {marks.CARDS: "a"},
    {marks.SHARES: "a=1:1", marks.CARDS: "b"},
    {marks.SHARES: "a=0:1", marks.CARDS: "a"},
    {marks.SHARES: "a=1001:1", marks.CARDS: "a"},
    {marks.SHARES: "a=-1:1", marks.CARDS: "a"},
    {marks.SHARES: "a=1", marks.CARDS: "a"},
    {marks.SHARES: "a=1:1,", marks.CARDS: "a,"},
    {marks.SHARES: "a=1:99999999999", marks.CARDS: "a"},
]


@pytest.mark.parametrize("annotations", BAD_SHARES)
def test_shares_that_we_would_not_have_written_are_refused(annotations: dict[str, str]) -> None:
    """Absent, out of bounds, or at odds with the cards."""
    with pytest.raises(marks.BadMark):
        marks.slices_of(annotations)


@pytest.mark.parametrize("spec", ["", "{", '{"type":"pod.withdraw.v1","name":"x"}', "null"])
def test_a_request_that_cannot_be_read_is_refused(spec: str) -> None:
    """Never half a request."""
    with pytest.raises(marks.BadMark):
        marks.request_of({marks.SPEC: spec})


@pytest.mark.parametrize("sequence", ["", "x", "-1", "1.0", "9" * 19, "٣"])
def test_a_mark_needs_a_sequence(sequence: str) -> None:
    """Digits only."""
    assert marks.mark_of({marks.UID: "u", marks.EPOCH: "e", marks.SEQUENCE: sequence}) is None


def test_a_key_that_kubernetes_would_choke_on_later_is_refused_now() -> None:
    """A binding's metadata is not validated by the API server: the pod would be unmanageable for ever."""
    with pytest.raises(marks.BadMark, match="Bad Key"):
        marks.checked({"Bad Key!!": "x"})


def test_annotations_beyond_the_limit_are_refused_with_both_numbers() -> None:
    """All annotations of the pod count together, those of the user too."""
    half = {"a.example/x": "x" * (marks.ANNOTATIONS_LIMIT // 2)}
    marks.checked(half)

    with pytest.raises(marks.BadMark, match=str(marks.ANNOTATIONS_LIMIT)):
        marks.checked(half, {"b.example/x": "ü" * (marks.ANNOTATIONS_LIMIT // 4)})
