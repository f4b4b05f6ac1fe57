"""Writes the documents that are generated from the contracts; `--check` says which of them are stale.

    python -m contracts.schema            # or: make generate
    python -m contracts.schema --check    # exit code 1 and the names of stale files

What flows in: `contracts.subjects`. What flows out, under `docs/api/`: `schema/<tag>.json`, `asyncapi.json`,
`messages.md`, `identities.md`. Files are read and written in `main` alone; `documents` is pure.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from contracts import (
    answers,
    asyncapi,
    constraints,
    decisions,
    functions,
    identitydocs,
    inventory,
    jsonschema,
    messagedocs,
    outcomes,
    quotas,
    requests,
    shares,
    usage,
    workloads,
)
from contracts.catalog import all_messages, tag_of
from contracts.fielddocs import docs_by_class
from contracts.jsonschema import Docs

MODULES = (answers, constraints, decisions, functions, inventory, outcomes, quotas, requests, shares, usage, workloads)
VERSION = "1"
"""Of the wire language: the `v1` in the subjects."""
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "api"


def documents(docs: Docs) -> dict[str, str]:
    """Path under `docs/api/` -> text of the file."""
    schemas = {f"schema/{tag_of(m)}.json": _json(jsonschema.document(m, docs)) for m in all_messages()}
    pages = {"messages.md": messagedocs.page(docs), "identities.md": identitydocs.page()}
    return schemas | pages | {"asyncapi.json": _json(asyncapi.document(VERSION, docs))}


def field_docs(sources: Sequence[str]) -> Docs:
    """The docstrings under all fields, from the text of the modules."""
    return {name: docs for source in sources for name, docs in docs_by_class(source).items()}


def stale(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """What to say of each file that is missing, differs, or has no message any more; empty = all is fresh."""
    wrong = [
        f"{path} is {'stale' if path in found else 'missing'}" for path in wanted if wanted[path] != found.get(path)
    ]
    return sorted(wrong + [f"{path} belongs to no message" for path in found if path not in wanted])


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m contracts.schema", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is stale")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: docs/api")
    options = parser.parse_args(argv)
    wanted = documents(field_docs([inspect.getsource(module) for module in MODULES]))
    folder: Path = options.folder
    paths = [*folder.glob("schema/*.json"), *folder.glob("asyncapi.json"), *folder.glob("*.md")]
    found = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    wrong = stale(wanted, found)
    if options.check:
        print(*(f"{folder / line} (run: make generate)" for line in wrong), sep="\n", end="\n" if wrong else "")  # noqa: T201
        return 1 if wrong else 0
    for path in found.keys() - wanted.keys():
        (folder / path).unlink()
    for path, text in wanted.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
