"""Lines of a watch, however the network cuts them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import lines
from reconciler.lines import Lines, TooLong

LINE = st.binary(min_size=1, max_size=20).map(lambda b: b.replace(b"\n", b"."))


@given(st.lists(LINE, max_size=8), LINE, st.lists(st.integers(0, 200), max_size=10))
def test_any_cut_gives_the_same_lines_and_drops_a_torn_end(whole: list[bytes], torn: bytes, cuts: list[int]) -> None:
    """Chunks are not lines: a line may come in many, and many lines in one."""
    stream = b"".join(line + b"\n" for line in whole) + torn
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = Lines()

    found = [line for i, j in itertools.pairwise(edges) for line in reader.feed(stream[i:j])]

    assert found == whole


def test_empty_lines_are_nothing() -> None:
    """Keep-alives of some proxies."""
    assert Lines().feed(b"\n\na\n\n") == [b"a"]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: no object is that large."""
    monkeypatch.setattr(lines, "LINE_LIMIT", 100)
    reader = Lines()
    reader.feed(b"x" * 60)

    with pytest.raises(TooLong):
        reader.feed(b"x" * 60)
