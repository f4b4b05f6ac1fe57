"""The Python API of gpubus: submit pods, follow them, ask why.

    import gpubus
    from gpubus import GpuAsk, PodRequest, PodTemplate

    async with gpubus.connect("nats://127.0.0.1:4222") as g:
        reply = await g.submit(
            PodRequest(
                name="train",
                pod=PodTemplate(image="registry.example/train:1", cpu_milli=4000, memory_mib=16_384),
                gpu=GpuAsk(cards=1, share_milli=500, memory_mib=8000),
            ),
            namespace="team",
        )
        if not reply.accepted:
            raise SystemExit(reply.refusals)            # each names field, value and bound
        async for event in g.events("team", "train"):   # accepted, pending, placed, bound, running, ended
            print(event.phase, event.text)
        print(await g.explain("train", namespace="team"))

`submit` is a question and its answer a promise: accepted means that it stands in the ledger. `fire` only stores the
request in the stream, also while no scheduler runs; its verdict comes as an event. Nothing here retries: what a lost
connection leaves unknown is told as `NoAnswer`, and sending the same request again is safe, because an equal request
under the same name is answered with the uid of the first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, TypeVar

from bus import client as nats
from bus.codec import Malformed, decode_as
from bus.headers import inject
from bus.protocol import Bus, BusError, BusUnavailable, NotPermitted, Received
from bus.runtime.tracing import SpanKind, span
from contracts import subjects
from contracts.answers import (
    AskExplain,
    AskState,
    CardView,
    Explanation,
    NodeView,
    QuotaView,
    RequestView,
    StateView,
    SubmitReply,
    Summary,
)
from contracts.inventory import CordonCard
from contracts.messages import Message, encode
from contracts.outcomes import Allocation, AllocationsPage, AskAllocations, DeadLetter, RequestEvent
from contracts.quotas import NamespaceQuota
from contracts.requests import PodRequest, Resize, Withdraw
from contracts.shares import NodeEnforcement
from contracts.subjects import Channel
from contracts.units import CardUuid, NodeName, card_token, node_token
from gpubus.errors import NoAnswer, Unreachable, UsageError
from gpubus.waiting import Goal, reached

M = TypeVar("M", bound=Message)
DEFAULT_URL = "nats://127.0.0.1:4222"
DEFAULT_NAMESPACE = "default"
ANSWER_S = 5.0
"""Longest wait for one answer. A submit takes milliseconds; a scheduler that takes over needs up to 2 s."""

HINT = "start one with `gpubus local`, or name one with --nats or GPUBUS_NATS_URL"
CONNECT_S = 2.0
"""Longest wait for a connection. A server that is up answers in milliseconds."""


@contextlib.asynccontextmanager
async def connect(
    url: str | Sequence[str] = DEFAULT_URL,
    *,
    timeout_s: float = ANSWER_S,
    connect_timeout_s: float = CONNECT_S,
    name: str = "gpubus-client",
    **options: Any,
) -> AsyncIterator[Client]:
    """Connect to the bus while the context is open.

    Args:
        url: one or more servers, `nats://host:port` or `tls://host:port`.
        timeout_s: longest wait for each answer, seconds.
        connect_timeout_s: longest wait for the connection, seconds.
        name: what the server shows for this connection.
        options: credentials and TLS, as `bus.client.connect` takes them.

    Raises:
        Unreachable: no bus there within `connect_timeout_s`.
    """
    shown = url if isinstance(url, str) else ", ".join(url)
    async with contextlib.AsyncExitStack() as stack:
        try:
            bus = await stack.enter_async_context(
                nats.connect(url, name=name, connect_timeout_s=connect_timeout_s, **options)
            )
        except BusUnavailable as error:
            raise Unreachable(shown, str(error), HINT) from error
        yield Client(bus, timeout_s=timeout_s)


class Client:
    """What a user of gpubus can do. Made by `connect`, or over any bus that is open already."""

    def __init__(self, bus: Bus, *, timeout_s: float = ANSWER_S) -> None:
        self.bus = bus
        self._timeout_s = timeout_s

    # --- asking for pods -------------------------------------------------------------------------------------------

    async def submit(self, request: PodRequest | bytes, *, namespace: str = DEFAULT_NAMESPACE) -> SubmitReply:
        """Ask for a pod and wait for the promise: accepted with its uid, or refused with every field that is wrong.

        Raises:
            NoAnswer: the scheduler did not answer; whether it was accepted is unknown, and repeating is safe.
        """
        return await self._ask("scheduler", subjects.SUBMIT, request, SubmitReply, namespace=namespace)

    async def fire(self, request: PodRequest | Withdraw | Resize | bytes, *, namespace: str = DEFAULT_NAMESPACE) -> int:
        """Store a request in the stream and return its sequence; the verdict comes as an event that names it.

        Raises:
            NoAnswer: the stream did not confirm it.
        """
        subject = _subject(subjects.REQUESTS, namespace=namespace)
        with span("publish request", kind=SpanKind.PRODUCER, attributes={"messaging.destination.name": subject}):
            try:
                stored = await self.bus.store(subject, _bytes(request), headers=inject(), timeout_s=self._timeout_s)
            except BusError as error:
                raise NoAnswer("the requests stream", str(error)) from error
        return stored.sequence

    async def withdraw(self, name: str, *, namespace: str = DEFAULT_NAMESPACE, reason: str = "") -> SubmitReply:
        """Take a request back; a running pod is deleted and its slice released once the pod is gone."""
        message = Withdraw(name=name, reason=reason)
        return await self._ask("scheduler", subjects.SUBMIT, message, SubmitReply, namespace=namespace)

    async def resize(
        self,
        name: str,
        *,
        share_milli: int,
        memory_mib: int,
        cpu_milli: int | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> SubmitReply:
        """Change a placed request in place: thousandths and MiB on each of its cards, and its CPU if it is given."""
        message = Resize(name=name, share_milli=share_milli, memory_mib=memory_mib, cpu_milli=cpu_milli)
        return await self._ask("scheduler", subjects.SUBMIT, message, SubmitReply, namespace=namespace)

    # --- cards -----------------------------------------------------------------------------------------------------

    async def cordon(self, node: str, card: str, *, reason: str = "", at_ms: int = 0) -> int:
        """Take a card out of the pool: its pods stay, no new ones come. Returns the sequence in the facts stream.

        Args:
            node: its name.
            card: its UUID.
            reason: shown to whoever asks why the card is not offered.
            at_ms: wall clock, for people.

        Raises:
            NoAnswer: the stream did not confirm it.
            UsageError: node or card cannot be addressed.
        """
        return await self._order(node, card, cordoned=True, reason=reason, at_ms=at_ms)

    async def uncordon(self, node: str, card: str, *, repaired: bool = False, reason: str = "", at_ms: int = 0) -> int:
        """Give a card back. It is offered when its monitor calls it healthy.

        Args:
            node: its name.
            card: its UUID.
            repaired: the card was seen to: its monitor may believe a failed one again, once it works.
            reason: kept with the order.
            at_ms: wall clock, for people.

        Raises:
            NoAnswer, UsageError: as `cordon`.
        """
        return await self._order(node, card, cordoned=False, repaired=repaired, reason=reason, at_ms=at_ms)

    async def _order(self, node: str, card: str, **said: Any) -> int:
        subject = _subject(subjects.CORDONS, node=node_token(node), card=card_token(card))
        order = CordonCard(node=NodeName(node), card=CardUuid(card), cause=f"operator-{said['at_ms']}", **said)
        try:
            stored = await self.bus.store(subject, encode(order), timeout_s=self._timeout_s)
        except BusError as error:
            raise NoAnswer("the facts stream", str(error)) from error
        return stored.sequence

    async def set_quota(self, quota: NamespaceQuota) -> int:
        """Say what a namespace may hold; the last word stands, as a whole. Returns the sequence in the facts stream.

        Raises:
            NoAnswer: the stream did not confirm it.
            UsageError: the namespace cannot be addressed.
        """
        subject = _subject(subjects.NAMESPACE_QUOTAS, namespace=quota.namespace)
        try:
            stored = await self.bus.store(subject, encode(quota), timeout_s=self._timeout_s)
        except BusError as error:
            raise NoAnswer("the facts stream", str(error)) from error
        return stored.sequence

    # --- asking why ------------------------------------------------------------------------------------------------

    async def explain(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> Explanation:
        """Why a request is where it is, or nowhere; `known` is false when there is none of that name."""
        return await self._ask("scheduler", subjects.EXPLAIN, AskExplain(name=name), Explanation, namespace=namespace)

    async def what_if(self, request: PodRequest | bytes, *, namespace: str = DEFAULT_NAMESPACE) -> Explanation:
        """Where a request would go now. Nothing is changed or kept."""
        return await self._ask("scheduler", subjects.WHAT_IF, request, Explanation, namespace=namespace)

    # --- views of the ledger ---------------------------------------------------------------------------------------

    async def state(self, ask: AskState) -> StateView:
        """One page of one view."""
        return await self._ask("scheduler", subjects.STATE, ask, StateView)

    async def requests(self, *, namespace: str = "") -> list[RequestView]:
        """All requests that are remembered, of one namespace or of all."""
        return [row async for page in self._pages("requests", namespace) for row in page.requests]

    async def cards(self) -> list[CardView]:
        """All cards and what is sold of them."""
        return [row async for page in self._pages("cards") for row in page.cards]

    async def enforcement(self, node: str = "*") -> list[NodeEnforcement]:
        """What nodes say that they enforce, each one's last word; empty for whoever may not read the facts."""
        subject = subjects.ENFORCEMENT.pattern.format(node=node_token(node))
        try:
            found = await self.stored(subjects.ENFORCEMENT.stream, NodeEnforcement, subject=subject)
        except NotPermitted:
            return []
        return [report for _, report in found]

    async def nodes(self) -> list[NodeView]:
        """All nodes."""
        return [row async for page in self._pages("nodes") for row in page.nodes]

    async def quotas(self) -> list[QuotaView]:
        """Every namespace that has a quota, holds something or waits: what it may hold and what it holds."""
        return [row async for page in self._pages("quotas") for row in page.quotas]

    async def summary(self) -> Summary:
        """The state in one line."""
        view = await self.state(AskState(what="summary"))
        return view.summary or Summary()

    async def _pages(self, what: Any, namespace: str = "") -> AsyncIterator[StateView]:
        after, more = "", True
        while more:
            page = await self.state(AskState(what=what, namespace=namespace, after=after))
            yield page
            after, more = page.last, page.more

    async def allocations(self) -> tuple[list[Allocation], list[str]]:
        """Which pods carry our allocations, from Kubernetes alone; then the pods whose annotations cannot be read."""
        items: list[Allocation] = []
        unreadable: list[str] = []
        after, more = "", True
        while more:
            page = await self._ask("reconciler", subjects.ALLOCATIONS, AskAllocations(after=after), AllocationsPage)
            items += page.items
            unreadable += page.unreadable
            after, more = page.last, page.more
        return items, unreadable

    # --- following -------------------------------------------------------------------------------------------------

    async def events(
        self, namespace: str = "", name: str = "", *, from_sequence: int = 1
    ) -> AsyncGenerator[RequestEvent, None]:
        """The steps of one request, of a namespace or of all, in order, for ever: stored ones first, then live ones.

        Args:
            namespace: empty = all.
            name: empty = all of the namespace.
            from_sequence: where to begin in the events stream; `await event_head()` for new ones only.
        """
        pattern = event_pattern(namespace, name)
        async with contextlib.aclosing(self.stored_events(pattern, from_sequence)) as received:
            async for message in received:
                event = decode_as(RequestEvent, message)
                if not isinstance(event, Malformed):
                    yield event

    async def stored_events(self, pattern: str, from_sequence: int) -> AsyncGenerator[Received, None]:
        """Events as they are stored, with sequence and server time. Whoever may not read streams gets the live ones."""
        reading = self.bus.read(subjects.EVENTS.stream, subject=pattern, from_sequence=from_sequence)
        try:
            async for batch in reading:
                for message in batch.messages:
                    yield message
        except NotPermitted:
            async with contextlib.aclosing(self._heard(pattern)) as heard:
                async for message in heard:
                    yield message
        finally:
            await _aclose(reading)

    async def _heard(self, pattern: str) -> AsyncGenerator[Received, None]:
        waiting: asyncio.Queue[Received] = asyncio.Queue()
        async with self.bus.subscribe(pattern, waiting.put):
            while True:
                yield await waiting.get()

    async def event_head(self) -> int:
        """The sequence that the next event will have: begin there to see only what is new."""
        try:
            return await self.bus.last_sequence(subjects.EVENTS.stream) + 1
        except NotPermitted:
            return 1  # such a reader gets live events only
        except BusError as error:
            raise NoAnswer("the events stream", str(error)) from error

    async def wait(
        self, namespace: str, name: str, goal: Goal = "running", *, uid: str = "", from_sequence: int = 1
    ) -> RequestEvent:
        """The event with which the request is as far as `goal`, or with which it will never be (`refused`, …)."""
        async with contextlib.aclosing(self.events(namespace, name, from_sequence=from_sequence)) as events:
            async for event in events:
                if (not uid or event.uid == uid) and reached(goal, event) is not None:
                    return event
        raise NoAnswer("the events stream", "it ended")

    async def stored(self, stream: str, message: type[M], *, subject: str = ">") -> list[tuple[Received, M]]:
        """Everything of one kind that a stream holds now; what cannot be decoded is left out."""
        found: list[tuple[Received, M]] = []
        reading = self.bus.read(stream, subject=subject)
        try:
            async for batch in reading:
                decoded = ((received, decode_as(message, received)) for received in batch.messages)
                found += [(received, one) for received, one in decoded if not isinstance(one, Malformed)]
                if batch.caught_up:
                    break
        finally:
            await _aclose(reading)
        return found

    async def dead_letters(self) -> list[DeadLetter]:
        """Messages that could not be understood, oldest first."""
        return [letter for _, letter in await self.stored(subjects.DEAD_LETTERS.stream, DeadLetter)]

    # --- one question ----------------------------------------------------------------------------------------------

    async def _ask(self, who: str, channel: Channel, message: Message | bytes, reply: type[M], **parameters: str) -> M:
        subject = _subject(channel, **parameters)
        with span(channel.name, kind=SpanKind.CLIENT, attributes={"messaging.destination.name": subject}):
            try:
                answer = await self.bus.request(subject, _bytes(message), headers=inject(), timeout_s=self._timeout_s)
            except BusError as error:
                raise NoAnswer(f"the {who}", str(error)) from error
        decoded = decode_as(reply, answer)
        if isinstance(decoded, Malformed):
            raise NoAnswer(f"the {who}", f"its answer cannot be read: {decoded}")
        return decoded


def _subject(channel: Channel, **parameters: str) -> str:
    try:
        return channel.subject(**parameters)
    except ValueError as error:
        raise UsageError(str(error)) from error


def event_pattern(namespace: str = "", name: str = "") -> str:
    """The subject of a request's events, with `*` for what is empty."""
    one = _subject(subjects.EVENTS, namespace=namespace or "any", name=name or "any")
    prefix, _, _ = one.rsplit(".", 2)
    return f"{prefix}.{namespace or '*'}.{name or '*'}"


def _bytes(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else encode(message)


async def _aclose(reading: AsyncIterator[Any]) -> None:
    """The port promises an iterator that can be left with `aclose()`; its type says only iterator."""
    close = getattr(reading, "aclose", None)
    if close is not None:
        await close()
