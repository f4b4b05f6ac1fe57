"""The wire language: what is sent arrives as it was, old and new speak to one another, and no illegal value gets in."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect as types

from contracts.answers import AskState
from contracts.catalog import all_messages, channels_of, tag_of
from contracts.decisions import Commit
from contracts.inventory import CordonCard, Heartbeat, NodeFacts, NodeInventory
from contracts.messages import Message, Value, encode
from contracts.outcomes import DeadLetter, NodeShares, Outcome
from contracts.requests import PodRequest, RequestMessage, Resize, Withdraw
from contracts.usage import NodeUsage
from contracts.workloads import Function, Job, ScaleDecision
from tests.builders.messages import EXAMPLES, golden_path
from tests.builders.strategies import messages

ids = pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: tag_of(type(m)))


def decode(data: bytes, kind: Any) -> Any:
    return msgspec.json.decode(data, type=kind)


# --- what is sent arrives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", all_messages(), ids=tag_of)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_decode_of_encode_is_the_message(kind, data):
    """For every message and any legal values, bounds included; and equal values have equal bytes."""
    message = data.draw(messages(kind))

    got = decode(encode(message), kind)

    assert got == message
    assert encode(got) == encode(message)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), kind=st.sampled_from([PodRequest, Withdraw, Resize]))
def test_the_tag_says_which_message_it_is(data, kind):
    """A subject that carries several messages is decoded by their tags."""
    message = data.draw(messages(kind))

    assert decode(encode(message), RequestMessage) == message


@given(labels=st.permutations([(f"k{n}", str(n)) for n in range(5)]))
def test_equal_maps_have_equal_bytes(labels):
    """The order in which labels were put in does not show."""
    facts = NodeFacts(node="n1", uid="u", labels=dict(labels))

    assert encode(facts) == encode(NodeFacts(node="n1", uid="u", labels=dict(sorted(labels))))


# --- golden bytes ----------------------------------------------------------------------------------------------------


def test_every_message_has_an_example():
    """A message without kept bytes could change unseen; a kept file without a message is a break."""
    assert {type(m) for m in EXAMPLES} == set(all_messages())
    kept = golden_path(EXAMPLES[0]).parent.glob("*.json")
    assert {path.name for path in kept} == {golden_path(m).name for m in EXAMPLES}


@ids
def test_bytes_are_those_that_were_released(message):
    """Byte for byte, both ways. Written by `python -m tests.builders.messages`."""
    kept = golden_path(message).read_bytes()

    assert kept == encode(message) + b"\n"
    assert decode(kept, type(message)) == message


def structs_in(value: Any):
    """Every struct in a message, itself included."""
    if isinstance(value, msgspec.Struct):
        yield value
        for name in value.__struct_fields__:
            yield from structs_in(getattr(value, name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from structs_in(item)


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def test_examples_exercise_every_field():
    """Each optional field of each part differs from its default somewhere, so that its name stands in the bytes."""
    seen: dict[type, set[str]] = {}
    for struct in (s for m in EXAMPLES for s in structs_in(m)):
        defaults = {
            f.name: f.default if f.default is not msgspec.NODEFAULT else f.default_factory
            for f in msgspec.structs.fields(struct)
        }
        plain = {n: d() if callable(d) else d for n, d in defaults.items() if d is not msgspec.NODEFAULT}
        given = {n for n in struct.__struct_fields__ if n not in plain or getattr(struct, n) != plain[n]}
        seen.setdefault(type(struct), set()).update(given)

    missing = {kind.__name__: set(kind.__struct_fields__) - names for kind, names in seen.items()}
    assert {name: fields for name, fields in missing.items() if fields} == {}


# --- growing by addition ---------------------------------------------------------------------------------------------


def with_unknown(plain: Any, value: Any) -> Any:
    """The JSON of a message as a later version might send it: a new field in every object that is a struct."""
    if isinstance(value, msgspec.Struct):
        known = {n: with_unknown(plain[n], getattr(value, n)) for n in value.__struct_fields__ if n in plain}
        return {"added_later": {"deep": [1]}, **plain, **known}
    if isinstance(value, tuple):
        return [with_unknown(p, v) for p, v in zip(plain, value, strict=True)]
    return plain


@ids
def test_a_reader_ignores_what_a_later_version_adds(message):
    """At any depth: a rolling upgrade has both versions on the bus."""
    later = with_unknown(json.loads(encode(message)), message)

    assert later["added_later"]
    assert decode(json.dumps(later).encode(), type(message)) == message


def required_only(plain: Any, value: Any) -> Any:
    """The JSON of a message as the first version might have sent it: without any field that has a default."""
    if isinstance(value, msgspec.Struct):
        needed = {f.encode_name for f in msgspec.structs.fields(value) if f.required}
        kept = {k: required_only(v, getattr(value, k)) for k, v in plain.items() if k in needed}
        return kept | ({"type": plain["type"]} if "type" in plain else {})
    if isinstance(value, tuple):
        return [required_only(p, v) for p, v in zip(plain, value, strict=True)]
    return plain


@ids
def test_a_reader_fills_what_an_earlier_version_did_not_send(message):
    """Every optional field takes its default, at any depth."""
    earlier = required_only(json.loads(encode(message)), message)

    got = decode(json.dumps(earlier).encode(), type(message))

    assert json.loads(encode(got)) == earlier


@ids
def test_an_unknown_type_or_version_is_refused_with_its_path(message):
    """A breaking change is a new tag; whoever does not know it says so instead of guessing."""
    plain = json.loads(encode(message))
    for tag in (plain["type"][:-1] + "2", "", "pod.order.v1", None, 1):
        with pytest.raises(msgspec.ValidationError, match=r"`\$\.type`"):
            decode(json.dumps({**plain, "type": tag}).encode(), type(message))

    del plain["type"]
    if len(channels_of_tags(message)) > 1:
        with pytest.raises(msgspec.ValidationError, match="type"):
            decode(json.dumps(plain).encode(), RequestMessage)


def channels_of_tags(message: Message) -> set[type[Message]]:
    return {m for channel in channels_of(type(message)) for m in channel.messages} & {PodRequest, Withdraw, Resize}


def test_an_unknown_record_of_a_commit_is_refused_with_its_path():
    """A ledger that cannot be read whole is not read at all."""
    data = encode(next(m for m in EXAMPLES if isinstance(m, Commit)))

    with pytest.raises(msgspec.ValidationError, match=r"Invalid value 'granted' - at `\$\.records\[3\]\.type`"):
        decode(data.replace(b'"type":"reserved"', b'"type":"granted"'), Commit)


# --- bounds ----------------------------------------------------------------------------------------------------------

NOT_A_NUMBER_OF = ["1.5", "1.0", "1e3", '"1"', "true", "null", "[]", "{}", "1e309", "9" * 40]
BELOW_ONE = ["0", "-1", *NOT_A_NUMBER_OF]
BELOW_ZERO = ["-1", *NOT_A_NUMBER_OF]
NO_TEXT = ["1", "true", "null", "[]", "{}"]
BAD_NAMES = [
    '""',
    '"a.b"',
    '"*"',
    '">"',
    '"a*"',
    '"A"',
    '"a b"',
    '" a"',
    '"-a"',
    '"a-"',
    '"a_b"',
    '"a/b"',
    '"ä"',
    '"a\\n"',
    '"a\\u0000"',
    f'"{"a" * 51}"',
    '"\\ud83d\\ude00"',
    *NO_TEXT,
]
BAD_NODES = ['""', '"A"', '"a_b"', '"a/b"', '".a"', '"a."', '"a\\n"', f'"{"a" * 254}"', *NO_TEXT]
BAD_CARDS = ['""', '"a b"', '"a\\n"', '"ä"', f'"{"a" * 129}"', *NO_TEXT]
LONG_TEXT = [f'"{"x" * 1025}"', *NO_TEXT]

BAD: list[tuple[type[Message], str, list[str]]] = [
    (PodRequest, "name", BAD_NAMES),
    (PodRequest, "priority", ["1000001", "-1000001", *NOT_A_NUMBER_OF]),
    (PodRequest, "policy", [f'"{"p" * 41}"', "1", "true", "[]"]),
    (PodRequest, "cause", LONG_TEXT),
    (PodRequest, "gpu.cards", ["65", *BELOW_ZERO]),
    (PodRequest, "gpu.share_milli", ["1001", *BELOW_ONE]),
    (PodRequest, "gpu.memory_mib", ["16777217", *(v for v in BELOW_ZERO if v != "null")]),
    (PodRequest, "gpu.models", ['[""]', f'["{"m" * 81}"]', str(["m"] * 33).replace("'", '"'), '"A100"', "1"]),
    (PodRequest, "gang.name", BAD_NAMES),
    (PodRequest, "gang.size", ["513", *BELOW_ONE]),
    (PodRequest, "locality.affinity", ['""', '"a b"', '"-a"', '"a\\n"', f'"{"t" * 64}"', "1", "[]"]),
    (PodRequest, "locality.exclusion", ['""', '"a b"', "1"]),
    (PodRequest, "node_selector", ['{"a b": "c"}', '{"": "c"}', '{"a": "b c"}', '{"a": 1}', '{"/a": "b"}', "[]", "1"]),
    (PodRequest, "tolerations", ['[{"operator": "Maybe"}]', '[{"effect": "Always"}]', '[{"key": "a b"}]', "{}", "1"]),
    (PodRequest, "pod.image", ['""', '"-x"', '"a b"', '"a\\n"', '"$(x)"', f'"{"i" * 513}"', *NO_TEXT]),
    (PodRequest, "pod.cpu_milli", ["10000001", *BELOW_ZERO]),
    (PodRequest, "pod.memory_mib", ["16777217", *BELOW_ZERO]),
    (PodRequest, "pod.grace_s", ["3601", *BELOW_ZERO]),
    (PodRequest, "pod.restart_policy", ['"never"', '""', *NO_TEXT]),
    (PodRequest, "pod.env", ['[{"name": "1A"}]', '[{"name": "A-B"}]', '[{"name": "A\\n"}]', '[{"name": ""}]', "[{}]"]),
    (PodRequest, "pod.labels", ['{"a b": "c"}', '{"a": "b\\n"}', '{"a": "-"}', f'{{"{"k" * 64}": ""}}', "[]"]),
    (PodRequest, "pod.args", ["[1]", '"x"', f'["{"x" * 1025}"]']),
    (Withdraw, "name", BAD_NAMES),
    (Resize, "name", BAD_NAMES),
    (Resize, "share_milli", ["1001", *BELOW_ONE]),
    (Resize, "memory_mib", ["16777217", *BELOW_ZERO]),
    (Heartbeat, "node", BAD_NODES),
    (Heartbeat, "sequence", ["9007199254740992", *BELOW_ZERO]),
    (Heartbeat, "unhealthy", ['[""]', '["a b"]', '"x"', "[1]"]),
    (NodeInventory, "node", BAD_NODES),
    (NodeInventory, "provider", ['"amd"', '""', *NO_TEXT]),
    (NodeInventory, "cards", ['[{"uuid": "", "index": 0, "model": "m", "memory_total_mib": 1}]', "[{}]", "{}", "1"]),
    (NodeFacts, "node", BAD_NODES),
    (NodeFacts, "allocatable_cpu_milli", ["10000001", *BELOW_ZERO]),
    (NodeFacts, "gone", ["1", '"true"', "null"]),
    (NodeShares, "assignments", ['[{"share_milli": 0}]', "[{}]", "{}"]),
    (NodeUsage, "period_ms", BELOW_ZERO),
    (NodeUsage, "cards", ['[{"uuid": "u", "compute_percent": 101}]', '[{"uuid": "u", "compute_percent": -1}]']),
    (CordonCard, "card", BAD_CARDS),
    (CordonCard, "cordoned", ["1", "0", '"yes"', "null"]),
    (Outcome, "uid", ['"a b"', '"a.b"', '"a\\n"', f'"{"u" * 65}"', *NO_TEXT]),
    (Outcome, "namespace", [f'"{"n" * 64}"', *(v for v in BAD_NAMES if "aaaa" not in v)]),
    (Outcome, "phase", ['"done"', '""', *NO_TEXT]),
    (Outcome, "reason", LONG_TEXT),
    (DeadLetter, "raw_base64", [f'"{"x" * 16385}"', *NO_TEXT]),
    (AskState, "limit", ["2001", *BELOW_ONE]),
    (AskState, "what", ['"pods"', '""', *NO_TEXT]),
    (Function, "max_replicas", ["10001", *BELOW_ZERO]),
    (Function, "target_percent", ["101", *BELOW_ZERO]),
    (Function, "scaling.metric", ['"latency"', '""', *NO_TEXT]),
    (Function, "scaling.panic_percent", ["109", "1001", *BELOW_ONE]),
    (Function, "scaling.stable_s", ["86401", *BELOW_ONE]),
    (Function, "scaling.tolerance_percent", ["51", *BELOW_ZERO]),
    (Job, "min_trainers", ["10001", *BELOW_ONE]),
    (ScaleDecision, "kind", ['"pod"', '""', *NO_TEXT]),
    (ScaleDecision, "inputs", ['{"a": 1.5}', '{"a": null}', "[]"]),
    (Commit, "number", BELOW_ONE),
    (Commit, "records", ["{}", "1", '[{"type": "epoch"}]', "[1]"]),
]


def replaced(kind: type[Message], field: str, text: str) -> bytes:
    """The example of a message with the JSON text of one field replaced."""
    plain = json.loads(encode(next(m for m in EXAMPLES if type(m) is kind)))
    *above, last = field.split(".")
    at = plain
    for name in above:
        at = at[name]
    assert last in at
    at[last] = "@@"
    return json.dumps(plain).replace('"@@"', text).encode()


def refusal(data: bytes, kind: type[Message]) -> str:
    """What decoding says against it; empty when it is accepted."""
    try:
        decode(data, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("kind", "field", "texts"), BAD, ids=[f"{kind.__name__}.{field}" for kind, field, _ in BAD])
def test_illegal_values_are_refused_with_the_field(kind, field, texts):
    """A value that exists is legal: whatever is out of bounds, of another type or not exact is refused by name."""
    said = {text: refusal(replaced(kind, field, text), kind) for text in texts}

    assert {text: words for text, words in said.items() if f"`$.{field}" not in words} == {}


@pytest.mark.parametrize(
    ("kind", "field", "text"),
    [
        (PodRequest, "gpu.share_milli", "1"),
        (PodRequest, "gpu.share_milli", "1000"),
        (PodRequest, "gpu.cards", "0"),
        (PodRequest, "gpu.cards", "64"),
        (PodRequest, "gpu.memory_mib", "null"),
        (PodRequest, "gpu.memory_mib", "16777216"),
        (PodRequest, "name", f'"{"a" * 50}"'),
        (PodRequest, "name", '"0"'),
        (PodRequest, "locality.affinity", "null"),
        (PodRequest, "node_selector", '{"node.kubernetes.io/instance-type": ""}'),
        (PodRequest, "pod.image", '"r.io:5/a/b@sha256:00ff"'),
        (Heartbeat, "sequence", "9007199254740991"),
        (Heartbeat, "node", '"a.b-c.d"'),
        (CordonCard, "card", '"MIG-GPU-8f7e/1/0"'),
    ],
)
def test_the_bounds_themselves_are_legal(kind, field, text):
    """The last legal value on each side, so that the table above is not passed by refusing everything."""
    decode(replaced(kind, field, text), kind)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"NaN",
        b'"pod.request.v1"',
        b'{"type":"pod.request.v1","name":"\xff","pod":{"image":"x"}}',
        b'{"type":"pod.request.v1","name":"\\ud800","pod":{"image":"x"}}',
        b'{"type":"pod.request.v1","name":"a","pod":{"image":"x"},"gpu":{"share_milli":NaN}}',
        b'{"type":"pod.request.v1","name":"a","pod":{"image":"x"}} trailing',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
    ids=[
        "empty",
        "cut",
        "null",
        "array",
        "NaN",
        "string",
        "bytes",
        "surrogate",
        "NaN share",
        "trailing",
        "deep arrays",
        "deep objects",
    ],
)
def test_what_is_no_message_is_refused(data):
    """Bytes that are not JSON, not an object, or a thousand levels deep: an error to catch, never anything else."""
    with pytest.raises((msgspec.DecodeError, RecursionError, UnicodeDecodeError)):
        decode(data, RequestMessage)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_clear_error(data):
    """Noise never raises anything but a decode error."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        decode(data, RequestMessage)


def open_ended(info: types.Type) -> bool:
    """An integer or a string without an upper bound, at any depth."""
    match info:
        case types.IntType():
            return info.le is None or info.ge is None
        case types.StrType():
            return info.max_length is None
        case types.Metadata():
            return open_ended(info.type)
        case types.UnionType():
            return any(map(open_ended, info.types))
        case types.VarTupleType():
            return open_ended(info.item_type)
        case _:
            return False


def test_every_integer_and_every_text_is_bounded():
    """No field can be made to hold a number that other languages read as another one, or a text without end."""
    kinds = {type(s): types.type_info(type(s)) for m in EXAMPLES for s in structs_in(m)}

    assert [f"{k.__name__}.{f.name}" for k, info in kinds.items() for f in info.fields if open_ended(f.type)] == []


# --- form ------------------------------------------------------------------------------------------------------------


def test_tags_are_unique_and_carry_a_version():
    """`<what>.v<n>`, once each."""
    tags = [tag_of(m) for m in all_messages()]

    assert len(tags) == len(set(tags))
    assert [tag for tag in tags if not tag.endswith(".v1")] == []


@ids
def test_messages_and_their_parts_are_frozen_values(message):
    """Hashable parts aside, nothing of a message can be changed after it was made."""
    for struct in structs_in(message):
        assert type(struct).__struct_config__.frozen
        assert isinstance(struct, (Message, Value))
        with pytest.raises(AttributeError):
            setattr(struct, struct.__struct_fields__[0], None)
