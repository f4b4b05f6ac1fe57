"""A small HTTP client for tests: one call, one answer, nothing kept between event loops."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Answer", "call"]


class Answer(NamedTuple):
    """Status 0 means: no answer (refused, reset, timed out). `body` is decoded JSON, else the text."""

    status: int
    body: Any
    headers: Mapping[str, str]


async def call(
    method: str,
    url: str,
    *,
    query: Mapping[str, object] | None = None,
    body: object = None,
    content_type: str = "application/json",
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 30.0,
) -> Answer:
    """One request; connection errors and timeouts are status 0, never an exception."""
    headers = {"Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if body is not None:
        headers["Content-Type"] = content_type
    full = f"{url}?{urlencode({k: str(v) for k, v in query.items()})}" if query else url
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, full, data=data, headers=headers, ssl=tls or True) as answer,
        ):
            raw = await answer.read()
            is_json = answer.content_type == "application/json"
            return Answer(answer.status, _decoded(raw) if is_json else raw.decode(), answer.headers)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return Answer(0, f"{type(error).__name__}: {error}", {})


def _decoded(raw: bytes) -> Any:
    """JSON, or the text when it is a stream of several values (a watch)."""
    try:
        return json.loads(raw)
    except json.JSONDecodeError:
        return raw.decode()
