"""Conditions on labels, in the one form that the core compares: of nodes and of pods alike.

In: expressions as they were published, or a map of labels. Out: a `Selection`, a sorted tuple of `Match`es that must
all hold: hashable, and equal for equal meanings as far as order goes.

    In            the label is there with one of the values
    NotIn         it is absent, or has another value
    Exists        it is there
    DoesNotExist  it is absent
    Gt, Lt        it is there, an integer, and greater or less than the one given
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from contracts.constraints import Expression, NodeTerm, PodExpression, PodSelector

NAME_FIELD = "metadata.name"
"""The one field of a node that can be selected by; no label can have this value by accident, it is looked up apart."""

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class Match(msgspec.Struct, frozen=True, order=True):
    """One condition on one label."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    field: bool = False
    """On the name of the node, not on a label."""

    def __str__(self) -> str:
        """As people write it: `zone in (a, b)`, `!gpu`, `generation > 7`."""
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "Gt" | "Lt":
                return f"{self.key} {'>' if self.operator == 'Gt' else '<'} {self.values[0]}"
            case _ if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
            case _:
                return f"{self.key} {'in' if self.operator == 'In' else 'notin'} ({', '.join(self.values)})"


Selection = tuple[Match, ...]
"""Conditions that must hold together."""


def selection(labels: Mapping[str, str], expressions: Iterable[Expression | PodExpression] = ()) -> Selection:
    """Labels with these values, and the expressions."""
    equal = (Match(key, "In", (value,)) for key, value in labels.items())
    others = (Match(e.key, e.operator, tuple(sorted(set(e.values)))) for e in expressions)
    return tuple(sorted({*equal, *others}))


def of_pods(selector: PodSelector | None, own: Mapping[str, str]) -> Selection:
    """The selection of a term over pods; without a selector those that are labelled like the request itself."""
    if selector is None:
        return selection(own)
    return selection(selector.match_labels, selector.match_expressions)


def of_nodes(term: NodeTerm) -> Selection:
    """The selection of one term over nodes."""
    fields = (Match(f.key, f.operator, tuple(sorted(set(f.values))), True) for f in term.match_fields)
    return tuple(sorted({*selection({}, term.match_expressions), *fields}))


def holds(condition: Match, labels: Mapping[str, str], name: str = "") -> bool:
    """One condition on the labels (or, where it says so, the name) of one thing."""
    value = name if condition.field else labels.get(condition.key)
    match condition.operator:
        case "In":
            return value in condition.values
        case "NotIn":
            return value not in condition.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return _compares(condition, value)


def _compares(condition: Match, value: str | None) -> bool:
    if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(condition.values[0]):
        return False
    found, bound = int(value), int(condition.values[0])
    return found > bound if condition.operator == "Gt" else found < bound


def selects(conditions: Selection, labels: Mapping[str, str], name: str = "") -> bool:
    """All conditions hold, and there is one: an empty selection, which admission refuses, selects nothing."""
    for condition in conditions:
        if not holds(condition, labels, name):
            return False
    return bool(conditions)


def words(conditions: Selection) -> str:
    """As people write it."""
    return ", ".join(map(str, conditions))
