"""The docstrings under fields, read from source text: what generated tables and printed settings say of a field.

Python throws a string under a field away, so it is taken from the syntax tree. Pure: source text in, dictionaries out;
whoever calls it reads the file.
"""

from __future__ import annotations

import ast
import inspect

FieldDocs = dict[str, str]


def docs_by_class(source: str) -> dict[str, FieldDocs]:
    """For each class of a module: field name -> its docstring in one line; fields without one are left out."""
    return {node.name: _docs_of(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _docs_of(node: ast.ClassDef) -> FieldDocs:
    pairs = zip(node.body, node.body[1:], strict=False)
    return {
        field.target.id: one_line(doc.value.value)
        for field, doc in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }


def one_line(text: str) -> str:
    """A docstring as one line."""
    return " ".join(inspect.cleandoc(text).split())
