"""The part of a nats-server configuration that says who may do what, made from the table of identities. Pure text.

In: identities with their public keys, and, with the callout, the keys of the service that answers it. Out: the blocks
`accounts` and `authorization`. Strings are JSON strings, which the server's format takes as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from contracts.identities import ACCOUNTS, REPLY_S, Account, Crossing, Identity, Rights, crossings, rights, role_of

SYSTEM = "SYS"
CALLOUT_ACCOUNT = "AUTH"


class Callout(msgspec.Struct, frozen=True, kw_only=True):
    """Public keys around the service that judges tokens."""

    issuer: str
    """Account key that signs its answers."""
    user: str
    """User key with which the service itself logs in."""


def blocks(
    users: Mapping[Identity, str], *, callout: Callout | None = None, system_user: str = "", tokens_s: float = 2.0
) -> str:
    """The configuration blocks for identities with static keys, and for those that come with a token.

    Args:
        users: public user key of each identity that logs in with a key.
        callout: with it, everybody else is judged by the callout service.
        system_user: public key that may look at the server itself; empty = nobody.
        tokens_s: how long the server waits for the callout service, seconds.
    """
    accounts = [_account(name, users) for name in ACCOUNTS]
    if system_user:
        accounts.append(f"  {SYSTEM} {{ users: [ {{ nkey: {system_user} }} ] }}")
    text = ""
    if callout is not None:
        accounts.append(f"  {CALLOUT_ACCOUNT} {{ users: [ {{ nkey: {callout.user} }} ] }}")
        text = _authorization(
            callout, [callout.user, *users.values(), *([system_user] if system_user else [])], tokens_s
        )
    system = f"system_account: {SYSTEM}\n" if system_user else ""
    return "accounts {\n" + "\n".join(accounts) + f"\n}}\n{system}{text}"


def _authorization(callout: Callout, keyed: Sequence[str], timeout_s: float) -> str:
    return (
        f"authorization {{\n  timeout: {timeout_s:g}\n  auth_callout {{\n    issuer: {callout.issuer}\n"
        f"    account: {CALLOUT_ACCOUNT}\n    auth_users: [ {', '.join(keyed)} ]\n  }}\n}}\n"
    )


def _account(name: Account, users: Mapping[Identity, str]) -> str:
    mine = [(who, key) for who, key in sorted(users.items()) if role_of(who).account == name]
    passing = crossings()
    exports = {c: () for (home, _), found in passing.items() if home == name for c in found}
    imports = [(home, c) for (home, taker), found in passing.items() if taker == name for c in found]
    lines = [f"  # {ACCOUNTS[name]}", f"  {name} {{"]
    if name == "CORE":
        lines.append("    jetstream: enabled")
    lines += _listed("exports", [_export(c) for c in _by_subject(exports)])
    lines += _listed("imports", [_import(home, c) for home, c in imports])
    lines += _listed(
        "users", [f"{{ nkey: {key}, permissions: {permissions(rights(who))} }}  # {who}" for who, key in mine]
    )
    return "\n".join([*lines, "  }"])


def _user(who: Identity, key: str) -> str:
    return f"{{ nkey: {key}, permissions: {permissions(rights(who))} }}  # {who}"


def _listed(name: str, entries: Sequence[str]) -> list[str]:
    return [f"    {name}: [", *(f"      {entry}" for entry in entries), "    ]"] if entries else []


def _by_subject(found: Mapping[Crossing, object]) -> list[Crossing]:
    """Each once: two accounts that take the same thing share its export."""
    return list({(c.kind, c.subject): c for c in sorted(found)}.values())


def _export(crossing: Crossing) -> str:
    if crossing.kind == "stream":
        return f"{{ stream: {json.dumps(crossing.subject)} }}"
    extra = "response_type: stream" if crossing.many else f'response_threshold: "{REPLY_S}s"'
    return f"{{ service: {json.dumps(crossing.subject)}, {extra} }}"


def _import(home: Account, crossing: Crossing) -> str:
    other = f", to: {json.dumps(crossing.called)}" if crossing.called else ""
    return f"{{ {crossing.kind}: {{ account: {home}, subject: {json.dumps(crossing.subject)} }}{other} }}"


def permissions(allowed: Rights) -> str:
    """One identity's rights, as the server's configuration spells them."""
    replies = f', allow_responses: {{ max: 1, ttl: "{REPLY_S}s" }}' if allowed.replies else ""
    publish, subscribe = json.dumps(list(allowed.publish)), json.dumps(list(allowed.subscribe))
    return f"{{ publish: {{ allow: {publish} }}, subscribe: {{ allow: {subscribe} }}{replies} }}"
