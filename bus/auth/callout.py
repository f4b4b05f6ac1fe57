"""The service behind nats-server's auth callout: a token comes in, an identity with its rights goes out.

In: questions on `$SYS.REQ.USER.AUTH`, and a `Judge` that knows who a token is of. Out: an answer for each, signed by
the issuer account. A judge that fails or is slow refuses: nobody gets in because something is down. Who is in stays in
until the granted time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from bus.auth import jwt
from bus.auth.keys import Key
from bus.protocol import Bus, Received
from contracts.identities import Identity, rights, role_of

log = logging.getLogger(__name__)

SUBJECT = "$SYS.REQ.USER.AUTH"
JUDGE_S = 0.8
"""Longest wait for the judge: a client gives up a try after 1 s, the server after 2 s."""


class NotAdmitted(Exception):  # noqa: N818 - named by what is the case
    """The token is of nobody that we know; the text says why, for our log and the server's."""


Judge = Callable[[str], Awaitable[Identity]]
"""Whose token is this? Raises NotAdmitted."""


class Gatekeeper:
    """Answers the server's questions.

    Args:
        judge: tells whose a token is.
        issuer: the account key named in the server's configuration.
        clock: wall clock in whole seconds; the server checks it.
        life_s: how long a login lasts.
    """

    def __init__(self, judge: Judge, issuer: Key, clock: Callable[[], int], *, life_s: int = 3600) -> None:
        self._judge = judge
        self._issuer = issuer
        self._clock = clock
        self._life_s = life_s
        self.counts: Counter[str] = Counter()
        """`admitted`, `refused`, `failed`, `malformed`."""

    @contextlib.asynccontextmanager
    async def answering(self, bus: Bus) -> AsyncIterator[None]:
        """While the context is open, whoever has a good token gets in; several of these share the work."""
        async with bus.respond(SUBJECT, self.answer, queue="gatekeepers"):
            yield

    async def answer(self, question: Received) -> bytes:
        """One question, one answer; an empty one to what is no question of a server."""
        try:
            asked = jwt.login(question.data.decode("ascii", "replace"))
        except jwt.BadToken as error:
            self.counts["malformed"] += 1
            log.warning("a question that no server asked", extra={"reason": str(error)})
            return b""
        return (await self._verdict(asked)).encode()

    async def _verdict(self, asked: jwt.Login) -> str:
        try:
            async with asyncio.timeout(JUDGE_S):
                who = await self._judge(asked.token)
        except NotAdmitted as error:
            return self._refuse(asked, "refused", str(error))
        except Exception as error:  # noqa: BLE001 - whatever the judge's trouble is, the answer is no
            return self._refuse(asked, "failed", f"cannot judge now: {type(error).__name__}: {error}")
        self.counts["admitted"] += 1
        return jwt.granted(
            asked,
            str(who),
            role_of(who).account,
            rights(who),
            self._issuer,
            now_s=self._clock(),
            life_s=self._life_s,
        )

    def _refuse(self, asked: jwt.Login, what: str, why: str) -> str:
        self.counts[what] += 1
        log.warning("not admitted", extra={"client": asked.name, "host": asked.host, "reason": why})
        return jwt.refused(asked, why, self._issuer, now_s=self._clock())
