"""Every message there is, with its tag: collected from the map of subjects, so that nothing is listed twice."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from contracts.messages import Message
from contracts.subjects import CHANNELS, Channel


def tag_of(message: type[msgspec.Struct]) -> str:
    """`pod.request.v1` of PodRequest."""
    return str(message.__struct_config__.tag)


def messages_of(channel: Channel) -> tuple[type[Message], ...]:
    """All that travels on a channel, the reply included."""
    return channel.messages + ((channel.reply,) if channel.reply else ())


def all_messages() -> tuple[type[Message], ...]:
    """Each message once, in order of its tag."""
    return tuple(sorted({m for channel in CHANNELS for m in messages_of(channel)}, key=tag_of))


def channels_of(message: type[Message]) -> Iterator[Channel]:
    """Where a message travels."""
    return (channel for channel in CHANNELS if message in messages_of(channel))
