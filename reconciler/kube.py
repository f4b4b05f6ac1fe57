"""Calls to a real API server, over the connections of kubernetes-asyncio: TLS and token refresh are the library's.

What flows in: a method, a path, bytes. What flows out: an `Answer`, or one of three errors: not sent, outcome unknown,
no token. Nothing is decoded, decided or repeated here. The library's own calls have no timeout, decode every object
twice and swallow the status of a watch; so only its session and its configuration are used. This is the one module
that imports it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import ConfigException

from reconciler.errors import KubeError, NotSent, OutcomeUnknown, Unauthorized, classify
from reconciler.protocol import JSON, Answer

USER_AGENT = "gpubus-reconciler"
CONNECT_S = 5.0
SOCKET_CONNECT_S = 3.0
"""A frozen API server still completes TCP connects (the kernel does) and hangs in TLS: these two cover that."""
READ_BUFFER = 2 * 1024 * 1024


class ApiServer:
    """A `Transport`; made by `connect`."""

    def __init__(self, client: ApiClient, session: aiohttp.ClientSession) -> None:
        self._configuration: Configuration = client.configuration
        self._session = session
        rest = client.rest_client
        proxy = rest.proxy or _proxy_of_environment(str(self._configuration.host))
        self._options: dict[str, Any] = {
            **({"proxy": proxy} if proxy else {}),
            **({"proxy_headers": rest.proxy_headers} if rest.proxy_headers else {}),
            **({"server_hostname": rest.server_hostname} if rest.server_hostname else {}),
        }

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
        """One call, one try; see the port."""
        headers = await self._headers()
        if body is not None:
            headers["Content-Type"] = content_type
        timeout = aiohttp.ClientTimeout(total=timeout_s, connect=CONNECT_S, sock_connect=SOCKET_CONNECT_S)
        with _translated(f"{method} {path}"):
            async with self._session.request(
                method, self._url(path, query), data=body, headers=headers, timeout=timeout, **self._options
            ) as response:
                return _answer(response, await response.read())

    async def stream(self, path: str, *, query: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes, None]:
        """The chunks of a watch; see the port."""
        headers = await self._headers()
        timeout = aiohttp.ClientTimeout(
            total=None, connect=CONNECT_S, sock_connect=SOCKET_CONNECT_S, sock_read=silence_s
        )
        with _translated(f"watch {path}"):
            async with self._session.get(
                self._url(path, query), headers=headers, timeout=timeout, **self._options
            ) as response:
                if response.status != 200:  # noqa: PLR2004 - a watch answers 200 or it is none
                    raise classify(_answer(response, await response.read()))
                yield b""
                async for chunk in response.content.iter_any():
                    yield chunk

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")

    async def _headers(self) -> dict[str, str]:
        headers = {"Accept": JSON, "User-Agent": USER_AGENT}
        try:
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (OSError, ConfigException) as error:
            raise Unauthorized(f"the token cannot be read: {error}") from error
        if token:
            headers["Authorization"] = token.strip()
        return headers


def _answer(response: aiohttp.ClientResponse, body: bytes) -> Answer:
    return Answer(
        status=response.status,
        content_type=response.headers.get("Content-Type", ""),
        body=body,
        retry_after_s=_seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(text: str) -> float | None:
    """Retry-After in seconds; a date (nobody sends one here) counts as none."""
    return float(text) if text.isdecimal() else None


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """The library's errors as the three that matter. The order matters: the first two are kinds of the third."""
    try:
        yield
    except KubeError:
        raise
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NotSent(f"{what}: {_named(error)}") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise OutcomeUnknown(f"{what}: {_named(error)}") from error


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- connecting ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def connect(
    *, url: str = "", kubeconfig: str = "", context: str = "", connections: int = 32
) -> AsyncIterator[ApiServer]:
    """A session while the context is open; nothing is sent yet.

    Args:
        url: base URL of a server that wants no credentials (the embedded one); empty = by the next two.
        kubeconfig: path of a kubeconfig file; empty = the pod's service account, else the usual places.
        context: a context of that file; empty = its current one.
        connections: most connections at once; each watch holds one, each call in flight another.

    Raises:
        Unauthorized: neither a service account nor a readable kubeconfig.
    """
    configuration = Configuration(host=url) if url else await _configured(kubeconfig, context)
    configuration.connection_pool_maxsize = connections
    async with ApiClient(configuration) as client, _session(client) as session:
        yield ApiServer(client, session)


def _session(client: ApiClient) -> aiohttp.ClientSession:
    """Over the connections of the library's session, without its look-ups of proxies and .netrc for every call.

    Those go through two thread hops each, a tenth of the whole cost of a call. The buffer is the library's own size:
    with aiohttp's default a watch line of an object of 128 KiB ends the watch.
    """
    connector = client.rest_client.pool_manager.connector
    return aiohttp.ClientSession(connector=connector, connector_owner=False, read_bufsize=READ_BUFFER)


def _proxy_of_environment(host: str) -> str:
    """HTTP(S)_PROXY and NO_PROXY, asked once."""
    parts = urlsplit(host)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return ""
    return getproxies().get(parts.scheme, "")


async def _configured(kubeconfig: str, context: str) -> Configuration:
    configuration = Configuration()
    try:
        if not kubeconfig and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the library has no types there
        else:
            await config.load_kube_config(
                config_file=kubeconfig or None, context=context or None, client_configuration=configuration
            )
    except (ConfigException, OSError) as error:
        raise Unauthorized(f"no way to the API server: {error}") from error
    return configuration
