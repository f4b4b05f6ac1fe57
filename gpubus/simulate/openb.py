"""Pod and node lists in the format of the openb trace (Alibaba, 2023), read strictly. Pure: text in, rows out.

    pods   name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
    nodes  sn,cpu_milli,memory_mib,gpu,model

and, which the trace does not have, a column `namespace` of pods.

How a row is read, as the trace's publishers read it: a CPU request of 0 is 100 (kube-scheduler's non-zero default);
`gpu_milli` is cut to 0..1000 and means nothing without a card; `gpu_spec` is a list of models, joined by bars; columns
that a variant of the trace leaves out are empty. A pod that names no end runs until the replay is over.

The trace: Weng et al., "Beware of Fragmentation", USENIX ATC 2023; github.com/alibaba/clusterdata.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from contracts.messages import Value
from contracts.requests import GpuAsk, PodRequest, PodTemplate
from contracts.units import NAME_PATTERN, WHOLE_CARD
from gpubus.errors import UsageError
from gpubus.local.nodes import Model, NodeSpec

CPU_DEFAULT_MILLI = 100
IMAGE = "registry.example/openb:1"
NAMESPACE = "openb"
"""Of pods whose list does not tell."""

MEMORY_MIB: Mapping[str, int] = {
    "P100": 16_384,
    "T4": 15_360,
    "V100M16": 16_384,
    "V100M32": 32_768,
    "A10": 24_576,
}
"""Of one card. The trace does not tell; G2 and G3 are undisclosed and get 32 GiB. Pods ask by share, so that the
size decides nothing in a replay."""

OTHER_MIB = 32_768


T = TypeVar("T")

Bad = list[str]
"""Complaints, one a row that was left out."""


class PodRow(Value, frozen=True, kw_only=True):
    """One pod of the trace; times in seconds of its clock."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    share_milli: int
    models: tuple[str, ...] = ()
    created_s: float = 0.0
    life_s: float | None = None
    """From being scheduled (or created) to its deletion; None when the trace does not tell."""
    namespace: str = NAMESPACE
    line: int = 0
    """Of its file, for complaints."""

    @property
    def demand_milli(self) -> int:
        """Thousandths of cards in all."""
        return self.cards * self.share_milli

    def request(self, *, policy: str | None = None, name: str | None = None) -> PodRequest:
        """The pod as somebody would publish it; it sleeps for its life, which simulated kubelets understand.

        `name`: another one than in the trace, for a pod that comes again.
        """
        command = ("sleep", "infinity" if self.life_s is None else f"{self.life_s:.3f}")
        gpu = GpuAsk(cards=self.cards, share_milli=self.share_milli or WHOLE_CARD, models=self.models)
        pod = PodTemplate(image=IMAGE, command=command, cpu_milli=self.cpu_milli, memory_mib=self.memory_mib)
        return PodRequest(name=name or self.name, pod=pod, gpu=gpu, policy=policy)


def pods(text: str, source: str, *, limit: int | None = None, bad: Bad | None = None) -> list[PodRow]:
    """Rows in order of creation (equal times in file order).

    Raises:
        UsageError: naming line, column and value; not for single rows when there is a list of `bad` ones.
    """
    rows = _read(text, source, _PODS, bad)
    return sorted(rows, key=lambda row: row.created_s)[:limit]


def nodes(text: str, source: str, *, most: int | None = None, bad: Bad | None = None) -> list[NodeSpec]:
    """Nodes with cards; when there are more than `most`, evenly spaced ones of the list, so that the mix stays.

    Raises:
        UsageError: as `pods`.
    """
    specs = _read(text, source, _NODES, bad)
    with_cards = [spec for spec in specs if spec.cards]
    if most is None or len(with_cards) <= most:
        return with_cards
    return [with_cards[index * len(with_cards) // most] for index in range(most)]


class _Row:
    """One line with its place, for errors."""

    def __init__(self, values: Mapping[str, str | None], source: str, line: int) -> None:
        self._values = values
        self.line = line
        self._where = f"{source} line {line}"

    def needed(self, columns: Iterable[str]) -> None:
        """None of these is empty, and nothing stands behind the last column."""
        if None in self._values:
            raise UsageError(f"{self._where}: more cells than columns")
        for column in columns:
            if not self.text(column):
                raise self.wrong(column, "a value")

    def text(self, column: str) -> str:
        return (self._values.get(column) or "").strip()

    def whole(self, column: str, default: int = 0) -> int:
        number = self.number(column)
        if number is None:
            return default
        if number != int(number) or number < 0:
            raise self.wrong(column, "a whole number from 0")
        return int(number)

    def number(self, column: str) -> float | None:
        text = self.text(column)
        if not text:
            return None
        if not re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,9})?", text):
            raise self.wrong(column, "a number")
        return float(text)

    def name(self, column: str) -> str:
        name = self.text(column)
        if not re.fullmatch(NAME_PATTERN, name):
            raise self.wrong(column, "lower-case letters, digits and dashes, at most 50")
        return name

    def wrong(self, column: str, bound: str) -> UsageError:
        return UsageError(f"{self._where}: {column} is {self.text(column)!r}, expected {bound}")


@dataclass(frozen=True)
class _Format(Generic[T]):
    """One kind of file: columns, how a row becomes a thing, what that is called."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    made: Callable[[_Row], T]
    name: Callable[[T], str]


def _read(text: str, source: str, form: _Format[T], bad: Bad | None) -> list[T]:
    """Every row that can be read, once a name; complaints go to `bad`, or are raised."""
    found: dict[str, T] = {}
    for row in _rows(text, source, form, bad):
        try:
            row.needed(form.needed)
            each = form.made(row)
            if form.name(each) in found:
                raise row.wrong(form.needed[0], f"a name of its own: {form.name(each)} stands there twice")
            found[form.name(each)] = each
        except UsageError as error:
            _complain(str(error), bad)
    return list(found.values())


def _complain(complaint: str, bad: Bad | None) -> None:
    if bad is None:
        raise UsageError(complaint)
    bad.append(complaint)


def _rows(text: str, source: str, form: _Format[T], bad: Bad | None) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(text))
    there, known = reader.fieldnames or (), (*form.needed, *form.optional)
    if missing := [column for column in form.needed if column not in there]:
        raise UsageError(f"{source}: no column {', '.join(missing)}")
    if unknown := [column for column in there if column not in known]:
        _complain(f"{source} line 1: no such column {', '.join(unknown)}; there are {', '.join(known)}", bad)
    try:
        for values in reader:
            yield _Row(values, source, reader.line_num)
    except csv.Error as error:
        raise UsageError(f"{source} line {reader.line_num}: {error}") from error


def _pod(row: _Row) -> PodRow:
    cards = row.whole("num_gpu")
    share = min(row.whole("gpu_milli"), WHOLE_CARD) if cards else 0
    if cards and not share:
        raise row.wrong("gpu_milli", f"1 to {WHOLE_CARD} with num_gpu = {cards}")
    created = row.number("creation_time") or 0.0
    begun, ended = row.number("scheduled_time"), row.number("deletion_time")
    return PodRow(
        name=row.name("name"),
        cpu_milli=row.whole("cpu_milli") or CPU_DEFAULT_MILLI,
        memory_mib=row.whole("memory_mib"),
        cards=cards,
        share_milli=share,
        models=tuple(filter(None, row.text("gpu_spec").split("|"))),
        created_s=created,
        life_s=None if ended is None else max(0.0, ended - (created if begun is None else begun)),
        namespace=row.name("namespace") if row.text("namespace") else NAMESPACE,
        line=row.line,
    )


def _node(row: _Row) -> NodeSpec:
    name = row.text("model") or "unknown"
    return NodeSpec(
        name=row.name("sn"),
        cards=row.whole("gpu"),
        model=Model(name=name, memory_mib=MEMORY_MIB.get(name, OTHER_MIB), reserved_mib=0),
        cpu_milli=row.whole("cpu_milli"),
        memory_mib=row.whole("memory_mib"),
    )


_PODS = _Format(
    needed=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    optional=("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time", "namespace"),
    made=_pod,
    name=lambda row: row.name,
)
_NODES = _Format(
    needed=("sn", "cpu_milli", "memory_mib", "gpu"),
    optional=("model",),
    made=_node,
    name=lambda spec: spec.name,
)
