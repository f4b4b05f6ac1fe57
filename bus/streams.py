"""Streams as data: the wire configuration of a declared stream, and the comparison with what the server has.

In: `contracts.subjects.Stream`. Out: the configuration to create it with, and StreamMismatch for the first promised
field that differs. Every field that a promise rests on is named here, also those that the server would default
today: a stream with `discard: old` drops acknowledged messages without a word, one with rollup lets any writer wipe
it.
"""

from __future__ import annotations

from typing import Any

from bus.protocol import StreamMismatch
from contracts.subjects import Stream

_NANO = 1_000_000_000

ABSENT: dict[str, Any] = {
    "no_ack": False,
    "sealed": False,
    "discard_new_per_subject": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "allow_msg_schedules": False,
    "allow_msg_counter": False,
    "mirror": None,
    "sources": None,
    "republish": None,
    "subject_transform": None,
    "persist_mode": "",
    "subject_delete_marker_ttl": 0,
}
"""Options that break a promise when somebody switches them on; the server leaves them out when they are off.

`persist_mode: async` acknowledges before it syncs, `no_ack` never, a counter or schedule stream rewrites what was sent.
"""


UNPROMISED = ("description", "allow_atomic")
"""What nothing rests on: a stream without `allow_atomic` takes the same messages, more slowly."""


def wire_config(stream: Stream, *, replicas: int) -> dict[str, Any]:
    """The configuration to create a stream with; every field but those in `UNPROMISED` is a promise."""
    config = {
        "name": stream.name,
        "description": stream.purpose,
        "subjects": list(stream.subjects),
        "retention": "workqueue" if stream.queue else "limits",
        "storage": "file",
        "discard": "new",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": stream.max_bytes,
        "max_age": stream.max_age_s * _NANO,
        "max_msg_size": stream.max_msg_bytes,
        "max_msgs_per_subject": stream.each,
        "num_replicas": replicas,
        "duplicate_window": int(stream.dedup_s * _NANO),
        "deny_delete": True,
        "deny_purge": True,
        "compression": "none",
    }
    return {**config, "allow_atomic": True} if stream.together else config


def verify(stream: Stream, found: dict[str, Any], *, replicas: int) -> None:
    """Compare every promised field with what the server has.

    Raises:
        StreamMismatch: the first field that differs, with both values.
    """
    wanted = {**wire_config(stream, replicas=replicas), **ABSENT}
    for field, value in wanted.items():
        if field in UNPROMISED:
            continue
        has = found.get(field, ABSENT.get(field))
        if field == "duplicate_window" and isinstance(has, int) and has >= value:
            continue  # remembering ids for longer breaks no promise
        if _normal(has) != _normal(value):
            raise StreamMismatch(
                f"stream {stream.name}: {field} is {has!r}, but {value!r} is promised",
                stream=stream.name,
                field=field,
                wanted=value,
                found=has,
            )


def _normal(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(value, key=str)
    return "" if value == "default" else value
