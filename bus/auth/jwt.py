"""The tokens of NATS: JSON claims signed with an nkey, as nats-server's auth callout sends and expects them.

Pure: the time is passed in. Form: base64url(header).base64url(claims).base64url(signature), no padding; `alg` is
`ed25519-nkey`, `jti` the base32 SHA-256 of the claims without it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec
import nkeys
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from bus.auth.keys import Key
from contracts.identities import REPLY_S, Account, Rights

HEADER = b'{"typ":"JWT","alg":"ed25519-nkey"}'
VERSION = 2
_PARTS = 3
_NANO = 1_000_000_000


class BadToken(ValueError):  # noqa: N818 - named by what is the case
    """Not a token, not of this algorithm, or not signed by whom it names."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asks the callout service: who wants in, with which token."""

    server: str
    """Public key of the server that asks."""
    user: str
    """Public key that the answer must be about."""
    token: str
    name: str = ""
    """What the client calls itself; for logs."""
    host: str = ""


class _Options(msgspec.Struct):
    auth_token: str = ""
    name: str = ""


class _Server(msgspec.Struct):
    id: str = ""


class _Client(msgspec.Struct):
    host: str = ""


class _Asked(msgspec.Struct):
    user_nkey: str = ""
    server_id: _Server = msgspec.field(default_factory=_Server)
    connect_opts: _Options = msgspec.field(default_factory=_Options)
    client_info: _Client = msgspec.field(default_factory=_Client)


class _Claims(msgspec.Struct):
    iss: str
    nats: _Asked


def signed(claims: dict[str, Any], key: Key, *, now_s: int) -> str:
    """The claims as a token in the name of `key`."""
    whole = {**claims, "iss": key.public, "iat": now_s}
    digest = hashlib.sha256(msgspec.json.encode(whole, order="sorted")).digest()
    whole["jti"] = base64.b32encode(digest).decode().rstrip("=")
    body = f"{_spelt(HEADER)}.{_spelt(msgspec.json.encode(whole))}"
    signature = nkeys.from_seed(bytearray(key.seed.encode())).sign(body.encode())
    return f"{body}.{_spelt(signature)}"


def login(token: str) -> Login:
    """The question of a server, its signature checked against the server key that it names.

    Raises:
        BadToken: it was not made by the server that it names.
    """
    try:
        claims = msgspec.json.decode(_verified(token), type=_Claims)
    except msgspec.MsgspecError as error:
        raise BadToken(f"not a question of a server: {error}") from None
    asked = claims.nats
    if claims.iss != asked.server_id.id or not claims.iss.startswith("N"):
        raise BadToken(f"signed by {claims.iss[:8]}…, in the name of {asked.server_id.id[:8]}…")
    return Login(
        server=claims.iss,
        user=asked.user_nkey,
        token=asked.connect_opts.auth_token,
        name=asked.connect_opts.name,
        host=asked.client_info.host,
    )


def _verified(token: str) -> bytes:
    parts = token.split(".")
    if len(parts) != _PARTS:
        raise BadToken("not three parts")
    try:
        header, claims, signature = (_read(part) for part in parts)
        issuer = msgspec.json.decode(claims, type=_Claims).iss
        if msgspec.json.decode(header).get("alg") != "ed25519-nkey":
            raise BadToken("not signed with ed25519-nkey")
        _public(issuer).verify(f"{parts[0]}.{parts[1]}".encode(), signature)
    except (binascii.Error, msgspec.MsgspecError, BadSignatureError, ValueError, AttributeError) as error:
        raise BadToken(f"not signed by whom it names: {type(error).__name__}") from None
    return claims


def _public(issuer: str) -> VerifyKey:
    """The verifying half of a public key: base32 of a prefix byte, 32 bytes, and a checksum of two."""
    raw = base64.b32decode(issuer + "=" * (-len(issuer) % 8))
    return VerifyKey(raw[1:33])


def granted(asked: Login, who: str, account: Account, allowed: Rights, key: Key, *, now_s: int, life_s: int) -> str:
    """The answer that lets `asked` in as `who`, for `life_s` seconds."""
    rights: dict[str, Any] = {
        "type": "user",
        "version": VERSION,
        "subs": -1,
        "data": -1,
        "payload": -1,
        "pub": {"allow": list(allowed.publish)},
        "sub": {"allow": list(allowed.subscribe)},
    }
    if allowed.replies:
        rights["resp"] = {"max": 1, "ttl": REPLY_S * _NANO}
    user = {"sub": asked.user, "aud": account, "name": who, "exp": now_s + life_s, "nats": rights}
    return _answer(asked, {"jwt": signed(user, key, now_s=now_s)}, key, now_s)


def refused(asked: Login, why: str, key: Key, *, now_s: int) -> str:
    """The answer that keeps `asked` out; the reason stands in the server's log, the client hears only that."""
    return _answer(asked, {"error": why}, key, now_s)


def _answer(asked: Login, verdict: dict[str, str], key: Key, now_s: int) -> str:
    body = {"type": "authorization_response", "version": VERSION, **verdict}
    return signed({"sub": asked.user, "aud": asked.server, "nats": body}, key, now_s=now_s)


def _spelt(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _read(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
