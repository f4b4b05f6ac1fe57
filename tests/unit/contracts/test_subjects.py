"""The map of subjects: each subject belongs to one channel, and what is built can be read back."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.subjects import CHANNELS, PREFIX, REQUESTS, STREAMS, Channel, stream
from contracts.units import node_token

TOKENS = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True) | st.sampled_from(["x" * 253, "-", "_", "0"])
channels = pytest.mark.parametrize("channel", CHANNELS, ids=lambda c: c.name)


def parameters(channel: Channel) -> list[str]:
    return re.findall(r"\{([a-z]+)\}", channel.pattern)


# --- one subject, one channel ----------------------------------------------------------------------------------------


@given(channel=st.sampled_from(CHANNELS), data=st.data())
def test_parse_undoes_subject(channel, data):
    """For every channel and any legal tokens; and no other channel claims that subject."""
    given_ = {name: data.draw(TOKENS) for name in parameters(channel)}

    subject = channel.subject(**given_)

    assert channel.parse(subject) == given_
    assert [c.name for c in CHANNELS if c.parse(subject) is not None] == [channel.name]


@given(text=st.text() | st.from_regex(rf"{re.escape(PREFIX)}\.[a-z]+(\.[^ ]+)*", fullmatch=True))
def test_what_is_parsed_is_what_would_be_built(text):
    """A subject of a stranger is either exactly one of ours or none."""
    for channel in CHANNELS:
        found = channel.parse(text)
        assert found is None or channel.subject(**found) == text


BAD_TOKENS = (
    "",
    ".",
    "a.b",
    "*",
    ">",
    "a*",
    "a b",
    " ",
    "a\n",
    "\n",
    "\r\n",
    "\0",
    "ä",
    "a/b",
    "$JS",
    "x" * 254,
    "{name}",
)


@pytest.mark.parametrize("channel", [c for c in CHANNELS if parameters(c)], ids=lambda c: c.name)
def test_illegal_tokens_are_refused(channel):
    """Neither built nor recognised: no wildcard, no second level, no line break ever becomes part of a subject."""
    names = parameters(channel)
    for token in BAD_TOKENS:
        values = dict.fromkeys(names, "ok") | {names[-1]: token}

        with pytest.raises(ValueError, match=f"{names[-1]}=.* is no subject token"):
            channel.subject(**values)
        assert channel.parse(channel.pattern.format(**values)) is None


def test_a_missing_parameter_is_an_error():
    """Not a subject with a hole."""
    with pytest.raises(KeyError, match="namespace"):
        REQUESTS.subject()


def test_node_names_become_tokens_and_do_not_collide():
    """Dots become underscores, which node names never hold."""
    assert node_token("gpu-1.rack-2") == "gpu-1_rack-2"
    assert len({node_token(n) for n in ("a.b", "a-b", "ab", "a.b.c")}) == 4


def overlap(one: str, other: str) -> bool:
    """Could one literal subject match both wildcards?"""
    pairs = list(itertools.zip_longest(one.split("."), other.split(".")))
    return all(a == b or (None not in (a, b) and "*" in (a, b)) for a, b in pairs)


def test_the_overlap_check_can_fail():
    """So that the next test means something."""
    assert overlap("a.*.c", "a.b.*")
    assert not overlap("a.*", "a.b.c")
    assert not overlap("a.b", "a.c")


def test_no_two_channels_overlap():
    """One subject never means two things."""
    pairs = itertools.combinations(CHANNELS, 2)

    assert [(a.name, b.name) for a, b in pairs if overlap(a.wildcard, b.wildcard)] == []


def test_names_are_unique():
    """Of channels and of streams."""
    assert len({c.name for c in CHANNELS}) == len(CHANNELS)
    assert len({s.name for s in STREAMS}) == len(STREAMS)


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", STREAMS, ids=lambda s: s.name)
def test_the_subjects_of_a_stream_are_those_of_its_channels(kept):
    """Nothing is stored that no channel says, and each channel that says so is stored."""
    assert set(kept.subjects) == {c.wildcard for c in CHANNELS if c.stream == kept.name}
    assert len(kept.subjects) == len(set(kept.subjects))


@channels
def test_only_channels_of_a_stream_are_stored(channel):
    """A core or request subject that a stream caught would fill it, and be answered by the stream."""
    caught = [s.name for s in STREAMS for subject in s.subjects if overlap(subject, channel.wildcard)]

    assert caught == ([channel.stream] if channel.transport == "stream" else [])


@channels
def test_a_channel_is_whole(channel):
    """It begins with our prefix; a request has a reply and others have none; every message is named."""
    assert channel.pattern.startswith(f"{PREFIX}.")
    assert (channel.reply is not None) == (channel.transport == "request")
    assert channel.messages or channel.name == "leases"
    assert channel.sender
    assert channel.receiver
    assert channel.purpose.endswith((".", "?"))


@pytest.mark.parametrize("kept", STREAMS, ids=lambda s: s.name)
def test_streams_are_bounded_and_hold_their_largest_message(kept):
    """A byte limit always; a limit for one message that leaves room for a thousand of them, leases aside."""
    assert kept.max_bytes > 0
    assert kept.max_msg_bytes * (1 if kept.name == "GPUBUS_LEASES" else 1000) <= kept.max_bytes


def test_a_stream_is_found_by_name():
    """And a misspelt one says which there are."""
    assert stream("GPUBUS_LEDGER").name == "GPUBUS_LEDGER"
    with pytest.raises(KeyError, match="GPUBUS_LEDGER"):
        stream("LEDGER")
