"""JSON Schema 2020-12 of messages, from the types themselves; the docstring under a field becomes its description.

What flows in: message types and their field docs. What flows out: plain dictionaries, equal for equal types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from contracts.catalog import tag_of
from contracts.fielddocs import FieldDocs

Schema = dict[str, Any]
Docs = Mapping[str, FieldDocs]
"""Class name -> field -> docstring."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def document(message: type[msgspec.Struct], docs: Docs) -> Schema:
    """The schema of one message, complete in itself."""
    (_,), parts = msgspec.json.schema_components([message], ref_template="#/$defs/{name}")
    parts = {name: _described(schema, docs.get(name, {})) for name, schema in parts.items()}
    whole: Schema = {"$schema": DIALECT, "$id": f"urn:gpubus:{tag_of(message)}"} | parts.pop(message.__name__)
    return whole | ({"$defs": dict(sorted(parts.items()))} if parts else {})


def components(messages: Sequence[type[msgspec.Struct]], docs: Docs) -> dict[str, Schema]:
    """The schemas of all messages and their parts by class name, for `#/components/schemas`."""
    _, parts = msgspec.json.schema_components(messages, ref_template="#/components/schemas/{name}")
    return {name: _described(schema, docs.get(name, {})) for name, schema in sorted(parts.items())}


def _described(schema: Schema, docs: FieldDocs) -> Schema:
    """With a description of each field that has a docstring; the type's own follows in parentheses."""
    plain: Schema = _plain(schema)
    for name, field in plain.get("properties", {}).items():
        if name in docs:
            own = field.get("description")
            field["description"] = f"{docs[name]} ({own})" if own else docs[name]
    return plain


def _plain(schema: Any) -> Any:
    """Without `discriminator`: it is OpenAPI's, and each variant names its tag already."""
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "discriminator"}
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    return schema
