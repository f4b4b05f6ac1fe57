"""LIST: filtered, in pages that all show the same moment.

The first page of a limited list remembers the objects as they were (entries never change, so this is a list
of references); the continue token names that moment and the last key served. Tokens of a moment that is no
longer remembered are answered by 410.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from gpubus.local.kube.selectors import everything
from gpubus.local.kube.status import StatusError, bad_request, expired

if TYPE_CHECKING:
    from gpubus.local.kube.history import Entry
    from gpubus.local.kube.resources import Resource
    from gpubus.local.kube.selectors import Predicate
    from gpubus.local.kube.store import Store

__all__ = ["ListQuery", "Lister"]

_MOMENTS = 64


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a list; `limit` 0 means everything."""

    resource: Resource
    namespace: str = ""
    matches: Predicate = everything
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    exact: bool = False


class _Token(msgspec.Struct, frozen=True):
    version: int
    after: tuple[str, str]


class Lister:
    """Serves lists of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._moments: OrderedDict[tuple[int, Resource], list[Entry]] = OrderedDict()

    def page(self, query: ListQuery) -> bytes:
        """The List object as JSON."""
        if query.token:
            token = _read_token(query.token)
            return self._page(query, token.version, self._remembered(token.version, query), token.after)
        self._check_version(query)
        now = self._store.entries(query.resource)
        return self._page(query, self._store.version, now, ("", ""))

    def forget(self) -> None:
        """Lose all moments: continue tokens handed out so far are void."""
        self._moments.clear()

    def _page(self, query: ListQuery, version: int, entries: list[Entry], after: tuple[str, str]) -> bytes:
        rest = [e for e in entries if e.key > after and _selected(query, e)]
        limit = 0 if query.resource_version == "0" else query.limit  # the real server ignores it for 0, too
        items = rest[:limit] if limit else rest
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if len(items) < len(rest):
            self._remember(version, query.resource, entries)
            meta["continue"] = _write_token(_Token(version, items[-1].key))
            if query.matches is everything:
                meta["remainingItemCount"] = len(rest) - len(items)
        return _list_body(query.resource, meta, items)

    def _remember(self, version: int, resource: Resource, entries: list[Entry]) -> None:
        self._moments[version, resource] = entries
        self._moments.move_to_end((version, resource))
        while len(self._moments) > _MOMENTS:
            self._moments.popitem(last=False)

    def _remembered(self, version: int, query: ListQuery) -> list[Entry]:
        entries = self._moments.get((version, query.resource))
        if entries is None:
            message = "The provided continue parameter is too old to display a consistent list result."
            raise expired(message)
        return entries

    def _check_version(self, query: ListQuery) -> None:
        """A version of the future is 504; an exact one of the past is gone."""
        if not query.resource_version:
            return
        wanted, current = _number(query.resource_version), self._store.version
        if wanted > current:
            message = f"Timeout: Too large resource version: {wanted}, current: {current}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})
        if query.exact and wanted != current:
            raise expired(f"The resourceVersion for the provided list is too old: {wanted}")


def _selected(query: ListQuery, entry: Entry) -> bool:
    return (not query.namespace or entry.key[0] == query.namespace) and query.matches(entry.obj)


def _list_body(resource: Resource, meta: dict[str, Any], items: list[Entry]) -> bytes:
    """Items of a list carry neither kind nor apiVersion; both stand first in the stored JSON and are cut off."""
    prefix = len(f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",')
    head = msgspec.json.encode({"kind": resource.kind + "List", "apiVersion": resource.api_version, "metadata": meta})
    return head[:-1] + b',"items":[' + b",".join(b"{" + item.raw[prefix:] for item in items) + b"]}"


def _number(text: str) -> int:
    if not text.isdigit():
        raise bad_request(f'Invalid value: "{text}": resourceVersion must be a number')
    return int(text)


def _write_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode("ascii")


def _read_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (ValueError, msgspec.MsgspecError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
