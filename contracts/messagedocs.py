"""`docs/api/messages.md`: the tables of subjects and streams, and a table of fields for each message and its parts.

Pure: text out. The bounds in the tables are those that decoding checks, because they come from the same types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import inspect as types

from contracts.catalog import all_messages, channels_of, tag_of
from contracts.fielddocs import one_line
from contracts.jsonschema import Docs
from contracts.messages import Message
from contracts.subjects import CHANNELS, DAY_S, MIB, STREAMS, Channel, Stream
from contracts.words import describe, link

_HEAD = """\
# Messages and subjects

Generated from `contracts/` by `make generate`; do not edit.
Everything is JSON on NATS.
Each message names its type and version in `type`.
Within a version only fields with defaults are added, and a reader ignores what it does not know.
The JSON Schema of each message is in [schema/](schema/).
[asyncapi.json](asyncapi.json) says the same as one AsyncAPI document.
"""


def page(docs: Docs) -> str:
    """The whole page."""
    parts = sorted({p for m in all_messages() for p in _parts(m)}, key=lambda p: p.__name__)
    sections = [
        _HEAD,
        "## Subjects\n",
        _table(("subject", "message", "stream", "sender", "receiver", "reply", "purpose"), map(_subject, CHANNELS)),
        "A parameter is one token of `A-Z a-z 0-9 _ -`; the dots of a node name become underscores.\n",
        "## Streams\n",
        _table(("stream", "keeps", "at most", "for", "message at most", "purpose"), map(_stream, STREAMS)),
        "File storage, new messages refused when full, no deletion, no purge, no roll-up.\n",
        "## Messages\n",
        *(_message(m, docs) for m in all_messages()),
        "## Parts of messages\n",
        *(_part(p, docs) for p in parts),
    ]
    return "\n".join(sections)


# --- subjects and streams --------------------------------------------------------------------------------------------


def _subject(channel: Channel) -> tuple[str, ...]:
    return (
        f"`{channel.pattern}`",
        "<br>".join(link(m) for m in channel.messages) or "-",
        f"`{channel.stream}`" if channel.stream else "-",
        channel.sender,
        channel.receiver,
        link(channel.reply) if channel.reply else "-",
        channel.purpose,
    )


def _stream(stream: Stream) -> tuple[str, ...]:
    return (
        f"`{stream.name}`",
        _kept(stream),
        f"{stream.max_bytes // MIB} MiB",
        _age(stream.max_age_s),
        f"{stream.max_msg_bytes // 1024} KiB",
        stream.purpose,
    )


def _kept(stream: Stream) -> str:
    if stream.queue:
        return "until settled"
    return f"last {stream.history} per subject" if stream.history else _KEPT[stream.last_only]


_KEPT = {True: "last per subject", False: "every message"}


def _age(seconds: int) -> str:
    if not seconds:
        return "ever"
    return f"{seconds // DAY_S} days" if seconds >= DAY_S else f"{seconds // 60} minutes"


# --- fields ----------------------------------------------------------------------------------------------------------


def _message(message: type[Message], docs: Docs) -> str:
    where = ", ".join(f"`{channel.pattern}`" for channel in channels_of(message))
    title = f"### {message.__name__}\n\n`{tag_of(message)}` on {where}.\n"
    return title + f"{one_line(message.__doc__ or '')}\n\n" + _fields(message, docs)


def _part(part: type[msgspec.Struct], docs: Docs) -> str:
    tag = f"`type` is `{tag_of(part)}`.\n" if part.__struct_config__.tag else ""
    return f"### {part.__name__}\n\n{tag}{one_line(part.__doc__ or '')}\n\n" + _fields(part, docs)


def _fields(struct: type[msgspec.Struct], docs: Docs) -> str:
    notes = docs.get(struct.__name__, {})
    info = types.type_info(struct)
    if not isinstance(info, types.StructType):
        raise TypeError(f"{struct} is no struct")
    rows = (
        (
            f"`{field.name}`",
            describe(field.type),
            "required" if field.required else _default(field),
            _note(field, notes),
        )
        for field in info.fields
    )
    return _table(("field", "type and bounds", "default", "meaning"), rows)


def _default(field: types.Field) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{msgspec.json.encode(value).decode()}`"


def _note(field: types.Field, notes: dict[str, str]) -> str:
    return notes.get(field.name) or _description(field.type)


def _description(info: types.Type) -> str:
    if isinstance(info, types.Metadata):
        return str((info.extra_json_schema or {}).get("description", ""))
    return ""


def _parts(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """The structs that a message is made of, without itself."""
    seen: set[type[msgspec.Struct]] = set()
    waiting: list[types.Type] = [types.type_info(struct)]
    while waiting:
        info = waiting.pop()
        if isinstance(info, types.StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            waiting += [field.type for field in info.fields]
        waiting += [
            getattr(info, name) for name in ("type", "item_type", "key_type", "value_type") if hasattr(info, name)
        ]
        waiting += getattr(info, "types", ())
    return (s for s in seen if s is not struct and not issubclass(s, Message))


# --- Markdown --------------------------------------------------------------------------------------------------------


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
