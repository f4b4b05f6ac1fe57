"""What all messages have in common: frozen, keyword-only, tagged with name and version, growing by addition only.

JSON on the wire, so that the plain `nats` command and any language can speak it. Within a version only new fields with
defaults are added; a reader of version N ignores what N+1 adds. Each message names what caused it in `cause`.

A value is made once, from values that were there before: it can be part of no cycle, so the garbage collector is told
not to look at it (`gc=False`). A state of 5,000 nodes is a million objects that a collection need not walk.
"""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A part of a message."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type", tag=True):
    """A whole message; subclasses set their tag, for example `tag="pod.request.v1"`."""


_encoder = msgspec.json.Encoder(order="deterministic")


def encode(message: msgspec.Struct) -> bytes:
    """The one encoding: equal values give equal bytes, on any machine."""
    return _encoder.encode(message)
