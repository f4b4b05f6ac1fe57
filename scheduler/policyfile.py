"""A policy of the user's own: a Python file with one function, loaded by its path, checked, and guarded ever after.

    def score(request, node, taken):
        '''Higher is better; a whole number.'''
        return -node.free_milli

What flows in: a file. What flows out: a `Policy` in the table of policies, under the name of the file, for the service,
the simulator and `whatif` alike. The function sees a request, a node on which it fits, and the cards there that it
would take; it says how good that is. What fits is not its business, so that it can never place anything wrongly.

It is called again whenever a node has changed and its answers are kept in between: it must be a function of what it is
given. It is not told the time, and gets no more of it than `EARNED_S` a call on average; `HARD_S` ends an endless loop
(in the main thread, where signals reach it). A failure costs the one request its policy, not its place: see
`scheduler.core.failing`. A policy that keeps failing is put aside.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from scheduler.core.failing import PolicyFailed
from scheduler.core.feasibility.fast import Choice
from scheduler.core.mix import Mix
from scheduler.core.orders import tightest
from scheduler.core.policies import POLICIES, Policy, Weighted
from scheduler.core.request import Shape
from scheduler.core.view import CardView, NodeView

MOST = 1 << 40
"""Scores are from -MOST to MOST: room for any sum of thousandths and MiB of a node."""

EARNED_S = 200e-6
"""Time that a call earns; a comparison of some numbers takes 5 us."""

SAVED_S = 0.5
"""Most that is saved up: a garbage collection in the middle of a call is nobody's fault."""

HARD_S = 0.5
LOAD_S = 30.0
"""For the file itself, whatever it imports: who waits for it waits to start."""

STRIKES = 10
"""Failures after which it is put aside; forgiven after `FORGIVEN` calls in a row that did not fail."""

FORGIVEN = 100_000
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class BadPolicyFile(ValueError):  # noqa: N818 - named by what is the case
    """The file is no policy: which, and why."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card as a policy sees it."""

    position: int
    """Place on the node, in index order."""
    model: str
    free_milli: int
    """Thousandths not sold; 1000 = nobody is on it."""
    free_mib: int
    capacity_mib: int


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node as a policy sees it, before the placement."""

    name: str
    cards: tuple[Card, ...]
    free_cpu_milli: int
    free_memory_mib: int
    pods: int
    """Of ours that hold something here."""

    @property
    def free_milli(self) -> int:
        """Of all cards together."""
        return sum(card.free_milli for card in self.cards)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for."""

    cards: int
    share_milli: int
    """Of each card; 0 when no card is asked for."""
    memory_mib: int | None
    """Of each card; None = the same part as the share."""
    cpu_milli: int
    host_memory_mib: int
    models: tuple[str, ...]


Score = Callable[[Request, Node, tuple[Card, ...]], int]


class Guard:
    """One user's function as a scoring rule.

    Args:
        name: of the policy.
        score: the function.
        clock: seconds of this thread at work.
    """

    def __init__(self, name: str, score: Score, clock: Callable[[], float] = time.thread_time) -> None:
        self.__name__ = name
        self.failures: Counter[str] = Counter()
        """By kind, since the process began."""
        self._score, self._clock = score, clock
        self._saved_s = SAVED_S
        self._strikes = self._good = 0
        self._requests: dict[Shape, Request] = {}

    def __call__(self, shape: Shape, view: NodeView, chosen: Choice, mix: Mix) -> int:
        """The score.

        Raises:
            PolicyFailed: there is none to be had.
        """
        del mix  # a user's policy is not told what is coming
        if self._strikes >= STRIKES:
            raise self._failed("put-aside", f"failed {STRIKES} times and is put aside until the next start")
        node = _node(view)
        taken = tuple(node.cards[view.cards.index(card)] for card in chosen)
        return self.judged(self._request(shape), node, taken)

    def judged(self, request: Request, node: Node, taken: tuple[Card, ...]) -> int:
        """The function's answer, if it is one.

        Raises:
            PolicyFailed: it is none.
        """
        found = self._asked(request, node, taken)
        if type(found) is not int:
            raise self._struck("no-integer", f"answered {_shown(found)} for {node.name}, not a whole number")
        if not -MOST <= found <= MOST:
            raise self._struck("out-of-bounds", f"answered {_shown(found)} for {node.name}, beyond {MOST}")
        self._good += 1
        if self._good >= FORGIVEN:
            self._strikes = self._good = 0
        return found

    def _asked(self, request: Request, node: Node, taken: tuple[Card, ...]) -> Any:
        began = self._clock()
        try:
            with _alarm(HARD_S):
                found = self._score(request, node, taken)
        except _OutOfTimeError:
            raise self._struck("too-slow", f"did not end within {HARD_S:g} s for {node.name}") from None
        except (Exception, SystemExit, GeneratorExit) as error:  # whoever asks must go on: also after `sys.exit()`
            why = f"raised {type(error).__name__}: {_shown(error, str)} for {node.name}"
            raise self._struck("raised", why) from error
        self._saved_s = min(SAVED_S, self._saved_s + EARNED_S) - (self._clock() - began)
        if self._saved_s < 0:
            self._saved_s = SAVED_S
            raise self._struck("too-slow", f"takes more than {EARNED_S * 1e6:.0f} us a node")
        return found

    def _request(self, shape: Shape) -> Request:
        found = self._requests.get(shape)
        if found is None:
            if len(self._requests) > 1024:  # noqa: PLR2004 - as many as are asked for in a while; it is a cache
                self._requests.clear()
            found = self._requests[shape] = Request(
                cards=shape.cards,
                share_milli=shape.share_milli,
                memory_mib=shape.memory_mib,
                cpu_milli=shape.cpu_milli,
                host_memory_mib=shape.host_memory_mib,
                models=shape.models,
            )
        return found

    def _struck(self, kind: str, why: str) -> PolicyFailed:
        self._strikes += 1
        self._good = 0
        return self._failed(kind, why)

    def _failed(self, kind: str, why: str) -> PolicyFailed:
        self.failures[kind] += 1
        return PolicyFailed(self.__name__, kind, why)


def _shown(value: Any, how: Callable[[Any], str] = repr) -> str:
    """A few characters of it; how it shows itself is the user's code as well."""
    try:
        return how(value)[:80]
    except Exception:  # noqa: BLE001 - whatever it is, it has no name
        return f"something of type {type(value).__name__}"


def _node(view: NodeView) -> Node:
    """Made once a view, which never changes."""
    found: Node | None = view.memo.get(_MEMO)
    if found is None:
        found = view.memo[_MEMO] = Node(
            name=view.name,
            cards=tuple(_card(card) for card in view.cards),
            free_cpu_milli=view.cpu_milli,
            free_memory_mib=view.memory_mib,
            pods=len(view.residents),
        )
    return found


_MEMO = "policyfile.node"


def _card(card: CardView) -> Card:
    return Card(
        position=card.position,
        model=card.model,
        free_milli=card.free_milli,
        free_mib=card.free_mib,
        capacity_mib=card.capacity_mib,
    )


# --- time -------------------------------------------------------------------------------------------------------------


class _OutOfTimeError(BaseException):
    """Raised in the middle of the user's code; no `except Exception` of theirs takes it."""


_armed = False


@contextlib.contextmanager
def _alarm(after_s: float) -> Iterator[None]:
    """Ends what takes longer. Signals reach the main thread only; elsewhere nothing is limited."""
    global _armed  # noqa: PLW0603 - a signal handler has nothing else to look at
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _ring)
    _armed = True
    signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _ring(_number: int, _frame: FrameType | None) -> None:
    if _armed:
        raise _OutOfTimeError


# --- loading ----------------------------------------------------------------------------------------------------------

_loaded: dict[str, Guard] = {}
"""By policy name: what was loaded into this process."""


def failures() -> dict[tuple[str, str], int]:
    """Failures by policy and kind, since the process began."""
    return {(name, kind): count for name, guard in _loaded.items() for kind, count in guard.failures.items()}


def is_file(name: str) -> bool:
    """Whether a policy is meant by its file."""
    return name.endswith(".py") or "/" in name


def name_of(file: str) -> str:
    """What the policy of that file is called."""
    return Path(file).stem.replace("_", "-").lower()


def load(file: str) -> Policy:
    """Read, check and register the policy of a file; loading the same one again changes nothing.

    Raises:
        BadPolicyFile: no such file, no such function, or it fails on an example.
    """
    name = name_of(file)
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        raise BadPolicyFile(f"{file}: {error.strerror or error}") from error
    if not NAME.fullmatch(name):
        raise BadPolicyFile(f"{file}: the policy is named as the file, in lower-case letters, digits and dashes")
    version = int.from_bytes(hashlib.sha256(source).digest()[:4])
    known = POLICIES.get(name)
    if known is not None and name in _loaded and known.version == version:
        return known
    if known is not None and name not in _loaded:
        raise BadPolicyFile(f"{file}: there is a policy {name} already; give the file another name")
    policy = _policy(file, name, version, *_function(file, source))
    POLICIES[name] = policy
    return policy


def _policy(file: str, name: str, version: int, score: Score, why: str) -> Policy:
    _tried(file, name, score)
    guard = _loaded[name] = Guard(name, score)
    scores = (Weighted(guard, 1),)
    return Policy(name=name, version=version, why=why, scores=scores, order=tightest, may_fail=True)


def _function(file: str, source: bytes) -> tuple[Score, str]:
    """Its `score`, and the first line of what it says of itself."""
    names: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file}
    try:
        with _alarm(LOAD_S):
            exec(compile(source, file, "exec"), names)  # noqa: S102 - the operator's own file, which is the point
    except _OutOfTimeError:
        raise BadPolicyFile(f"{file}: is not read to its end within {LOAD_S:g} s") from None
    except (Exception, SystemExit) as error:
        raise BadPolicyFile(f"{file}: {type(error).__name__}: {error}") from error
    score = names.get("score")
    if not inspect.isfunction(score):
        raise BadPolicyFile(f"{file}: no function score(request, node, taken)")
    try:
        inspect.signature(score).bind(None, None, None)
    except TypeError as error:
        raise BadPolicyFile(f"{file}: score takes (request, node, taken): {error}") from error
    first = (names.get("__doc__") or score.__doc__ or "").strip().partition("\n")[0]
    return score, first or f"a user's own: {file}"


def _tried(file: str, name: str, score: Score) -> None:
    """On a few examples: whole numbers, the same twice."""
    guard = Guard(name, score)
    for request, node in itertools.product(_REQUESTS, _NODES):
        taken = [card for card in node.cards if card.free_milli >= request.share_milli][: request.cards]
        if len(taken) < request.cards:
            continue
        try:
            one, two = (guard.judged(request, node, tuple(taken)) for _ in range(2))
        except PolicyFailed as failure:
            raise BadPolicyFile(f"{file}: on an example, score {failure.why}") from failure
        if one != two:
            raise BadPolicyFile(f"{file}: score answered {one}, then {two}, to the same question")


def _example(name: str, frees: tuple[int, ...], cpu_milli: int) -> Node:
    cards = tuple(
        Card(position=i, model="A100", free_milli=free, free_mib=80 * free, capacity_mib=80_000)
        for i, free in enumerate(frees)
    )
    return Node(name=name, cards=cards, free_cpu_milli=cpu_milli, free_memory_mib=500_000, pods=len(frees))


_NODES = (
    _example("empty", (1000,) * 8, 96_000),
    _example("half", (500, 1000), 8000),
    _example("full", (0, 0), 0),
    _example("bare", (), 4000),
)
_REQUESTS = tuple(
    Request(cards=cards, share_milli=share, memory_mib=None, cpu_milli=2000, host_memory_mib=1024, models=())
    for cards, share in ((1, 250), (1, 1000), (2, 1000), (0, 0))
)
