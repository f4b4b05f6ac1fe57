"""Generated documents: they are fresh, they say what decoding checks, and `--check` names what is stale."""

from __future__ import annotations

import inspect
import json
import re

import msgspec
import pytest

from contracts import asyncapi, jsonschema, schema
from contracts.catalog import all_messages, channels_of, messages_of, tag_of
from contracts.decisions import Commit
from contracts.fielddocs import docs_by_class
from contracts.messages import encode
from contracts.requests import PodRequest
from contracts.schema import FOLDER, MODULES, documents, field_docs, main, stale
from contracts.subjects import CHANNELS
from tests.builders.messages import EXAMPLES

DOCS = field_docs([inspect.getsource(module) for module in MODULES])


# --- freshness -------------------------------------------------------------------------------------------------------


def test_the_documents_in_the_repository_are_fresh(capsys):
    """`make generate` was run after the last change of the contracts."""
    code = main(["--check"])

    assert capsys.readouterr().out == ""
    assert code == 0


def test_check_names_what_is_stale_missing_or_left_over(tmp_path, capsys):
    """And writes nothing; generating again heals all three."""
    assert main(["--folder", str(tmp_path)]) == 0
    (tmp_path / "messages.md").write_text("old")
    (tmp_path / "asyncapi.json").unlink()
    (tmp_path / "schema" / "pod.order.v1.json").write_text("{}")

    assert main(["--folder", str(tmp_path), "--check"]) == 1
    out = capsys.readouterr().out
    assert re.findall(r"(\S+) (is stale|is missing|belongs to no message)", out) == [
        (f"{tmp_path}/asyncapi.json", "is missing"),
        (f"{tmp_path}/messages.md", "is stale"),
        (f"{tmp_path}/schema/pod.order.v1.json", "belongs to no message"),
    ]
    assert (tmp_path / "messages.md").read_text() == "old"

    main(["--folder", str(tmp_path)])
    assert main(["--folder", str(tmp_path), "--check"]) == 0


def test_generating_twice_gives_the_same_bytes():
    """No order of a set, no clock, no path."""
    assert documents(DOCS) == documents(DOCS)
    assert not any(str(FOLDER.parent.parent) in text for text in documents(DOCS).values())


def test_stale_compares_both_ways():
    """Pure: two mappings in, sentences out."""
    assert stale({"a": "1"}, {"a": "1"}) == []
    assert stale({"a": "1", "b": "2"}, {"a": "x", "c": "3"}) == [
        "a is stale",
        "b is missing",
        "c belongs to no message",
    ]


# --- JSON Schema -----------------------------------------------------------------------------------------------------


def test_there_is_one_schema_for_each_message():
    """Named by its tag."""
    files = {path for path in documents(DOCS) if path.startswith("schema/")}

    assert files == {f"schema/{tag_of(m)}.json" for m in all_messages()}


def references(node: object):
    """Every `$ref` of a document."""
    if isinstance(node, dict):
        yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from references(item)


def resolve(document: dict, reference: str) -> object:
    at = document
    for name in reference.removeprefix("#/").split("/"):
        at = at[name]
    return at


@pytest.mark.parametrize("message", all_messages(), ids=tag_of)
def test_a_schema_is_complete_in_itself(message):
    """Every reference leads to a part of the same file, and no part is there for nothing."""
    document = jsonschema.document(message, DOCS)
    used = set(references(document))

    assert all(resolve(document, reference) for reference in used)
    assert {f"#/$defs/{name}" for name in document.get("$defs", {})} == used - {f"#/$defs/{message.__name__}"}
    assert document["properties"]["type"] == {"enum": [tag_of(message)]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda m: tag_of(type(m)))
def test_a_schema_accepts_its_example_and_refuses_what_decoding_refuses(example):
    """With a validator where one is installed: the two ways to check a message agree."""
    validators = pytest.importorskip("jsonschema")
    document = jsonschema.document(type(example), DOCS)
    validators.Draft202012Validator.check_schema(document)
    validator = validators.Draft202012Validator(document)
    plain = json.loads(encode(example))

    assert validator.is_valid(plain)
    for broken in ({**plain, "type": "pod.order.v1"}, {k: v for k, v in plain.items() if k != "type"}):
        assert not validator.is_valid(broken)
    for field in msgspec.structs.fields(example):
        if field.required:
            assert not validator.is_valid({k: v for k, v in plain.items() if k != field.name})
        assert not validator.is_valid({**plain, field.name: [[[]]]})


def test_bounds_and_docstrings_stand_in_the_schema():
    """What the type says and what the docstring under the field says."""
    gpu = jsonschema.document(PodRequest, DOCS)["$defs"]["GpuAsk"]["properties"]

    assert gpu["share_milli"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "default": 1000,
        "description": "Thousandths of compute of each card: 1000 = whole. (thousandths of one card)",
    }


def test_each_record_names_its_tag():
    """A union can be told apart by a plain JSON Schema validator, without OpenAPI's discriminator."""
    document = jsonschema.document(Commit, DOCS)

    assert "discriminator" not in json.dumps(document)
    tags = [
        resolve(document, r["$ref"])["properties"]["type"] for r in document["properties"]["records"]["items"]["anyOf"]
    ]
    assert {"enum": ["accepted"]} in tags
    assert len({json.dumps(tag) for tag in tags}) == len(tags)


# --- AsyncAPI --------------------------------------------------------------------------------------------------------


def test_asyncapi_has_every_channel_message_and_schema():
    """Each channel with its address and one operation; each message with its payload."""
    document = asyncapi.document("1", DOCS)

    for channel in CHANNELS:
        assert document["channels"][channel.name]["address"] == channel.pattern
        assert document["operations"][channel.name]["channel"] == {"$ref": f"#/channels/{channel.name}"}
        assert document["channels"][channel.name]["messages"].keys() == {tag_of(m) for m in channel.messages}
    assert document["components"]["messages"].keys() == {tag_of(m) for m in all_messages()}


def test_every_reference_of_the_asyncapi_document_leads_somewhere():
    """Also those through channels, and each parameter of an address is described."""
    document = asyncapi.document("1", DOCS)

    assert all(resolve(document, reference) is not None for reference in references(document))
    for node in document["channels"].values():
        assert set(re.findall(r"\{(\w+)\}", node["address"] or "")) == set(node.get("parameters", {}))


def test_requests_have_a_reply_channel():
    """With the message that answers."""
    document = asyncapi.document("1", DOCS)

    for channel in (c for c in CHANNELS if c.reply):
        (reply,) = document["operations"][channel.name]["reply"]["messages"]
        assert resolve(document, reply["$ref"]) == {"$ref": f"#/components/messages/{tag_of(channel.reply)}"}


def test_what_users_send_is_received():
    """The application described is gpubus as a whole."""
    operations = asyncapi.document("1", DOCS)["operations"]

    assert {operations[name]["action"] for name in ("requests", "submit", "workloads", "cordons")} == {"receive"}
    assert {operations[name]["action"] for name in ("events", "ledger", "heartbeats", "outcomes")} == {"send"}


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_names_every_subject_stream_message_and_field():
    """And every link on it leads to a section."""
    page = documents(DOCS)["messages.md"]

    assert [c.pattern for c in CHANNELS if f"`{c.pattern}`" not in page] == []
    sections = {line.removeprefix("### ").lower() for line in page.splitlines() if line.startswith("### ")}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= sections
    for message in all_messages():
        section = page.partition(f"\n### {message.__name__}\n")[2].partition("\n### ")[0]
        assert [name for name in message.__struct_fields__ if f"| `{name}` |" not in section] == []


def test_tables_of_the_page_are_well_formed():
    """A bar in a pattern or a docstring does not add a column."""
    blocks = re.findall(r"(?:^\|.*\n)+", documents(DOCS)["messages.md"], re.MULTILINE)

    assert blocks
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_fields_on_the_page_say_their_bounds():
    """Those that decoding checks."""
    page = documents(DOCS)["messages.md"]

    assert "| `share_milli` | integer 1..1000 | `1000` | Thousandths of compute of each card: 1000 = whole. |" in page
    assert "| `memory_mib` | integer 0..16777216, or null | `null` |" in page
    assert "| `cards` | list of at most 64 [Card](#card) | required |" in page


# --- parts -----------------------------------------------------------------------------------------------------------


def test_class_names_are_unique():
    """Schemas and docstrings are found by class name."""
    names = [name for module in MODULES for name in docs_by_class(inspect.getsource(module))]

    assert len(names) == len(set(names))


def test_docstrings_are_found_under_their_field_only():
    """Not those of the class, of a method, or after a gap."""
    source = '''
class A(S):
    """Doc."""
    a: int
    """Of
    a."""
    b: int = 1
    c: int
    """Of c."""
    def f(self):
        """No."""
'''

    assert docs_by_class(source) == {"A": {"a": "Of a.", "c": "Of c."}}


def test_all_modules_with_messages_are_read():
    """A new module of messages must be listed, else its docstrings are missing from the documents."""
    assert {m.__module__ for m in all_messages()} <= {module.__name__ for module in MODULES}


def test_a_message_knows_its_channels():
    """And a reply belongs to the channel that it answers on."""
    for channel in CHANNELS:
        for message in messages_of(channel):
            assert channel in channels_of(message)
    assert schema.VERSION == "1"
