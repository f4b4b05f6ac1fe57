"""The port to Kubernetes: HTTP calls and streams, whoever carries them.

One implementation speaks to a real API server (`kube.py`); anything that answers like one will do for a test or a
simulation. What a call means, and which answer is which error, is decided above it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from reconciler.errors import Failure

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Answer(Failure, frozen=True, kw_only=True):
    """Any answer; a failure when it is not 2xx."""

    @property
    def ok(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004


class Transport(Protocol):
    """What carries calls. Every call has a timeout."""

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_s: float = 10.0,
    ) -> Answer:
        """One call, one try.

        Raises:
            NotSent: no connection, nothing happened.
            OutcomeUnknown: cut off or timed out after it may have been sent.
            Unauthorized: there is no readable token.
        """
        ...

    def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        """The chunks of a long answer, until the server ends it; the first, which may be empty, once it has begun.

        Raises:
            NotSent, OutcomeUnknown: as `call`; also when nothing came for `silence_s`.
            KubeError: the answer is not 200, as the error it means.
        """
        ...
