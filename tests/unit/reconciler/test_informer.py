"""List and watch against a scripted API server, on virtual time: every break of a watch, and no gap."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from reconciler.calls import PODS, Kube
from reconciler.errors import KubeError, NotSent, OutcomeUnknown, Unauthorized, classify
from reconciler.informer import Informer
from reconciler.objects import Pod
from reconciler.protocol import JSON, Answer
from tests.builders.pods import stranger

pytestmark = pytest.mark.looptime

Act = bytes | float | KubeError
"""A chunk, a pause, or a break."""


def line(kind: str, pod: Pod) -> bytes:
    return msgspec.json.encode({"type": kind, "object": pod}) + b"\n"


def bookmark(version: int) -> bytes:
    return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % version


def listing(version: int, *pods: Pod, more: str = "") -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": str(version), "continue": more}, "items": pods})


EXPIRED = (
    b'{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410,'
    b'"message":"too old resource version: 5 (26663)"}}\n'
)


class Scripted:
    """A transport that plays lists and watches in order; after the script it is silent for ever."""

    def __init__(self, *script: tuple[str, list[Any]]) -> None:
        self.script = list(script)
        self.calls: list[tuple[str, float, Mapping[str, str]]] = []

    async def call(self, method: str, path: str, **more: Any) -> Answer:
        acts = self._next("list", more.get("query") or {})
        for act in acts:
            if isinstance(act, KubeError):
                raise act
            if isinstance(act, Answer):
                return act
            return Answer(status=200, content_type=JSON, body=act)
        raise AssertionError("an empty list in the script")

    async def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        acts = self._next("watch", query)
        for act in acts:
            if isinstance(act, KubeError):
                raise act
            if isinstance(act, float):
                await asyncio.sleep(act)
            else:
                yield act

    def _next(self, kind: str, query: Mapping[str, str]) -> list[Any]:
        self.calls.append((kind, asyncio.get_running_loop().time(), query))
        if not self.script:
            return [NotSent("the script is over")] if kind == "list" else [1e9]
        wanted, acts = self.script.pop(0)
        assert wanted == kind, f"{kind} was called, the script says {wanted}"
        return acts

    def watched_from(self) -> list[int]:
        return [int(query["resourceVersion"]) for kind, _, query in self.calls if kind == "watch"]

    def gaps(self) -> list[float]:
        times = [at for _, at, _ in self.calls]
        return [b - a for a, b in itertools.pairwise(times)]


class Heard:
    """What an informer told."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []

    def __call__(self, changes: list[Any]) -> None:
        self.changes += [(change.kind, change.object.metadata.name) for change in changes]


@contextlib.asynccontextmanager
async def informing(server: Scripted, heard: Callable[[list[Any]], None]) -> AsyncIterator[Informer[Pod]]:
    informer = Informer(Kube(server), PODS, heard, rng=random.Random(3))
    task = asyncio.create_task(informer.run(), name="informer")
    try:
        yield informer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def play(server: Scripted, seconds: float = 600.0) -> tuple[Informer[Pod], list[tuple[str, str]]]:
    heard = Heard()
    async with informing(server, heard) as informer:
        await asyncio.sleep(seconds)
        assert not server.script, f"not played: {server.script}"
    return informer, heard.changes


A, B, C = (stranger(name, version=version) for name, version in (("a", 3), ("b", 4), ("c", 12)))


async def test_it_lists_in_pages_and_watches_from_the_lists_version() -> None:
    """Synced after the last page; the watch begins where the list was taken."""
    server = Scripted(
        ("list", [listing(10, A, more="token")]), ("list", [listing(10, B)]), ("watch", [line("ADDED", C), 1000.0])
    )

    informer, changes = await play(server)

    assert changes == [("added", "a"), ("added", "b"), ("added", "c")]
    assert server.watched_from() == [10]
    assert (server.calls[0][2], server.calls[1][2]) == ({"limit": "500"}, {"limit": "500", "continue": "token"})
    assert informer.synced.is_set()
    assert informer.trouble == ""


async def test_a_watch_that_ends_in_time_goes_on_without_a_pause() -> None:
    """The server ends it after the seconds that were asked for: normal, and no reason to list."""
    server = Scripted(
        ("list", [listing(10, A)]),
        ("watch", [60.0, bookmark(40)]),
        ("watch", [line("DELETED", stranger("a", version=50)), 60.0]),
        ("watch", [1000.0]),
    )

    _, changes = await play(server)

    assert changes == [("added", "a"), ("gone", "a")]
    assert server.watched_from() == [10, 40, 50]
    assert server.gaps()[1:] == [60.0, 60.0]
    assert all(50 <= int(query["timeoutSeconds"]) <= 70 for kind, _, query in server.calls if kind == "watch")


async def test_a_broken_watch_resumes_from_the_last_version_seen() -> None:
    """The server was killed: nothing is listed again unless it says that the version is too old."""
    server = Scripted(
        ("list", [listing(10, A)]),
        ("watch", [line("ADDED", C), 5.0, OutcomeUnknown("ClientPayloadError")]),
        ("watch", [NotSent("refused")]),
        ("watch", [1000.0]),
    )

    informer, changes = await play(server)

    assert changes == [("added", "a"), ("added", "c")]
    assert server.watched_from() == [10, 12, 12]
    assert informer.relists == 1


async def test_a_version_that_is_too_old_is_listed_again_and_compared() -> None:
    """410 comes as a line of a 200: what was deleted meanwhile is made up, what is new is told."""
    server = Scripted(
        ("list", [listing(10, A, B)]),
        ("watch", [EXPIRED]),
        ("list", [listing(20, B, C)]),
        ("watch", [1000.0]),
    )

    informer, changes = await play(server)

    assert changes == [("added", "a"), ("added", "b"), ("gone", "a"), ("added", "c")]
    assert server.watched_from() == [10, 20]
    assert informer.relists == 2


async def test_a_410_as_an_answer_is_the_same() -> None:
    """Some proxies and versions say it with the status line."""
    gone = classify(Answer(status=410, content_type=JSON, body=b'{"kind":"Status","code":410}'))
    server = Scripted(("list", [listing(10)]), ("watch", [gone]), ("list", [listing(20)]), ("watch", [1000.0]))

    informer, _ = await play(server)

    assert informer.relists == 2


async def test_a_page_token_that_expired_begins_the_list_again() -> None:
    """Half a list is no list."""
    gone = Answer(status=410, content_type=JSON, body=b'{"kind":"Status","code":410}')
    server = Scripted(
        ("list", [listing(10, A, more="t")]), ("list", [gone]), ("list", [listing(20, B)]), ("watch", [1000.0])
    )

    _, changes = await play(server)

    assert changes == [("added", "b")]


@pytest.mark.parametrize(
    "nonsense",
    [b"<html>Bad Gateway</html>\n", b'{"type":"ADDED","object":{"kind":"Pod"}}\n', b'{"type":"NEW"}\n', b"{}\n",
     b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n'],
)  # fmt: skip
async def test_nonsense_ends_the_watch_and_not_the_informer(nonsense: bytes) -> None:
    """Whatever a proxy says: a pause, and on from the last version."""
    server = Scripted(("list", [listing(10, A)]), ("watch", [nonsense]), ("watch", [1000.0]))

    _, changes = await play(server)

    assert changes == [("added", "a")]
    assert server.watched_from() == [10, 10]


async def test_a_torn_last_line_is_no_event() -> None:
    """The next watch brings it whole."""
    torn = line("ADDED", C)
    server = Scripted(
        ("list", [listing(10)]), ("watch", [torn[:-20], OutcomeUnknown("reset")]), ("watch", [torn, 1000.0])
    )

    _, changes = await play(server)

    assert changes == [("added", "c")]


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    """Fewer than two requests a second after the first few, for ten minutes; and jitter."""
    server = Scripted(("list", [listing(10)]), *(("watch", []) for _ in range(45)), ("watch", [1e6]))

    await play(server, 1200.0)

    assert len(server.calls) / sum(server.gaps()) < 2
    assert max(server.gaps()[:-1]) <= 30.0
    assert len({round(gap, 6) for gap in server.gaps()}) > 20


async def test_an_outage_of_ten_minutes_is_survived_without_a_storm() -> None:
    """Refused connections: fewer than two requests a second, and never more than 30 s from the next try."""
    refused = [("watch", [NotSent("refused")]) for _ in range(45)]
    server = Scripted(("list", [listing(10, A)]), *refused, ("watch", [line("ADDED", C), 1e6]))

    informer, changes = await play(server, 1200.0)

    assert changes == [("added", "a"), ("added", "c")]
    assert informer.trouble == ""
    assert max(server.gaps()) <= 30.0
    assert len(server.calls) / sum(server.gaps()) < 2


async def test_an_etcd_restored_from_a_backup_begins_everything_again() -> None:
    """The list is older than what we have: it is the truth all the same."""
    server = Scripted(
        ("list", [listing(100, stranger("a", version=90))]),
        ("watch", [EXPIRED]),
        ("list", [listing(60, stranger("b", version=50))]),
        ("watch", [1000.0]),
    )

    informer, changes = await play(server)

    assert changes == [("added", "a"), ("gone", "a"), ("added", "b")]
    assert informer.store.version == 60


async def test_a_token_that_stays_refused_ends_the_process_and_not_before_three_minutes() -> None:
    """A projected token is read again within a minute; an expired one would be tried for hours otherwise."""
    refused = [("watch", [Unauthorized("Unauthorized")]) for _ in range(60)]
    server = Scripted(("list", [listing(10)]), *refused)
    informer = Informer(Kube(server), PODS, Heard(), rng=random.Random(3))
    began = asyncio.get_running_loop().time()

    with pytest.raises(Unauthorized):
        await informer.run()

    assert 180 <= asyncio.get_running_loop().time() - began <= 215


async def test_a_token_that_is_refreshed_in_time_is_no_reason_to_end() -> None:
    """Two minutes of refusals, an answer, two minutes more."""
    refused: list[tuple[str, list[Any]]] = [("watch", [40.0, Unauthorized("Unauthorized")]) for _ in range(3)]
    server = Scripted(("list", [listing(10)]), *refused, ("watch", [bookmark(11), 60.0]), *refused, ("watch", [1e6]))

    informer, _ = await play(server, 900.0)

    assert informer.store.version == 11


async def test_an_idle_watch_that_is_accepted_is_no_trouble() -> None:
    """After a break nothing may happen for a minute: that the server has accepted the watch is enough to be well."""
    server = Scripted(("list", [listing(10)]), ("watch", [OutcomeUnknown("reset")]), ("watch", [b"", 50.0]))

    informer, _ = await play(server, 20.0)

    assert informer.trouble == ""


async def test_until_the_first_list_it_says_why() -> None:
    """For readiness: the reason, not only that."""
    server = Scripted(*(("list", [NotSent("connection refused")]) for _ in range(30)))
    heard = Heard()
    async with informing(server, heard) as informer:
        await asyncio.sleep(0.5)
        assert not informer.synced.is_set()
        assert "connection refused" in informer.trouble
