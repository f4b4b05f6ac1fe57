"""The AsyncAPI 3.1 document of all channels, from the map of subjects. Pure: one dictionary out.

The application described is gpubus as a whole: what users and operators send it receives, all else it sends.
"""

from __future__ import annotations

import re
from typing import Any

from contracts.catalog import all_messages, messages_of, tag_of
from contracts.jsonschema import Docs, components
from contracts.messages import Message
from contracts.subjects import CHANNELS, Channel, stream

Node = dict[str, Any]

_OUTSIDE = {"anybody", "users", "operators", "users, autoscaler", "workers", "workers, autoscaler"}
_PARAMETERS = {
    "namespace": "Kubernetes namespace",
    "name": "name of a request, workload or lease",
    "node": "node name with its dots as underscores",
    "card": "UUID of a card, separators as underscores",
    "pool": "a set of nodes with a log of its own; `default` unless configured",
    "stream": "the stream that the message came from",
    "function": "name of a function",
    "caller": "who waits for the answer: the call says it",
    "worker": "one process of a function",
    "replica": "the request of a worker's pod",
}
_TRACE_HEADERS = {
    "type": "object",
    "properties": {
        "traceparent": {"type": "string", "description": "W3C trace context"},
        "tracestate": {"type": "string", "description": "W3C trace context"},
        "Nats-Msg-Id": {"type": "string", "description": "duplicates within the stream's window are dropped"},
    },
}


def document(version: str, docs: Docs) -> Node:
    """The whole document."""
    replies = [channel for channel in CHANNELS if channel.reply]
    return {
        "asyncapi": "3.1.0",
        "info": {
            "title": "gpubus",
            "version": version,
            "description": "Every subject of the bus: who says what to whom, and what is kept.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {"host": "127.0.0.1:4222", "protocol": "nats", "description": "NATS 2.12 or newer with JetStream"}
        },
        "channels": {c.name: _channel(c) for c in CHANNELS} | {f"{c.name}-reply": _reply_channel(c) for c in replies},
        "operations": {c.name: _operation(c) for c in CHANNELS},
        "components": {
            "messages": {tag_of(m): _message(m) for m in all_messages()},
            "schemas": {"TraceHeaders": _TRACE_HEADERS} | components(all_messages(), docs),
        },
    }


def _channel(channel: Channel) -> Node:
    node: Node = {"address": channel.pattern, "title": channel.name, "description": _description(channel)}
    if names := re.findall(r"\{([a-z]+)\}", channel.pattern):
        node["parameters"] = {name: {"description": _PARAMETERS[name]} for name in names}
    return node | {"messages": {tag_of(m): _ref("components/messages", tag_of(m)) for m in channel.messages}}


def _reply_channel(channel: Channel) -> Node:
    return {
        "address": None,
        "description": f"The inbox named by the request on {channel.name}.",
        "messages": {tag_of(m): _ref("components/messages", tag_of(m)) for m in messages_of(channel)[-1:]},
    }


def _description(channel: Channel) -> str:
    if not channel.stream:
        return channel.purpose
    kept = stream(channel.stream)
    return f"{channel.purpose} Stream {kept.name}" + (", last message per subject." if kept.last_only else ".")


def _operation(channel: Channel) -> Node:
    node: Node = {
        "action": "receive" if channel.sender in _OUTSIDE else "send",
        "channel": _ref("channels", channel.name),
        "summary": f"{channel.sender} to {channel.receiver}: {channel.purpose}",
    }
    if channel.messages:
        node["messages"] = [_ref(f"channels/{channel.name}/messages", tag_of(m)) for m in channel.messages]
    if channel.reply:
        inbox = f"{channel.name}-reply"
        node["reply"] = {
            "address": {"location": "$message.header#/reply-to", "description": "the reply subject of the request"},
            "channel": _ref("channels", inbox),
            "messages": [_ref(f"channels/{inbox}/messages", tag_of(channel.reply))],
        }
    return node


def _message(message: type[Message]) -> Node:
    return {
        "name": tag_of(message),
        "title": message.__name__,
        "summary": (message.__doc__ or "").strip().splitlines()[0],
        "contentType": "application/json",
        "headers": _ref("components/schemas", "TraceHeaders"),
        "payload": _ref("components/schemas", message.__name__),
    }


def _ref(where: str, name: str) -> Node:
    return {"$ref": f"#/{where}/{name}"}
