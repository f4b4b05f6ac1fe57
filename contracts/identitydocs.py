"""`docs/api/identities.md`: the table of identities as a matrix of channels, and what crosses between accounts.

Pure: text out.
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.identities import ACCOUNTS, ROLES, Role, crossings
from contracts.subjects import CHANNELS, STREAMS, Channel

_HEAD = """\
# Identities on the bus

Generated from `contracts/identities.py` by `make generate`; do not edit.
What each mark means, how identities log in and what is not closed: [security](../security.md).
"""

_LEGEND = """\
**S** sends, **H** hears, **A** answers; **o** behind it: only what carries the identity's own node or namespace.
Everybody also hears its own inbox, and nobody else's.
"""


_STREAM_LEGEND = """\
**L** fetches single messages, **F** follows from any place on, **C** creates and checks.
**Q** makes the consumers of a work queue, **T** takes from it and settles what it took.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _HEAD,
            "## Roles\n",
            _table(("identity", "account", "purpose"), ([spelt(r), r.account, r.purpose] for r in ROLES)),
            _table(("account", "who is in it"), ([name, text] for name, text in ACCOUNTS.items())),
            "## Subjects\n",
            _LEGEND,
            _table(("subject", *(r.name for r in ROLES)), (_row(channel) for channel in CHANNELS)),
            "## Streams\n",
            _STREAM_LEGEND,
            _table(("stream", *(r.name for r in ROLES)), (_stream(stream.name) for stream in STREAMS)),
            "## What crosses between accounts\n",
            _table(("from", "to", "kind", "subject"), _crossings()),
        ]
    )


def spelt(role: Role) -> str:
    """How an identity of the role is written."""
    return f"`{role.name}/<{role.value}>`" if role.value else f"`{role.name}`"


def _row(channel: Channel) -> list[str]:
    return [f"`{channel.pattern}`", *(_mark(role, channel) for role in ROLES)]


def _mark(role: Role, channel: Channel) -> str:
    own = "o" if any(f"{{{name}}}" in channel.pattern for name in role.names) else ""
    marks = (("S", role.sends), ("H", role.hears), ("A", role.answers))
    return " ".join(letter + own for letter, channels in marks if channel in channels)


def _stream(name: str) -> list[str]:
    def mark(role: Role) -> str:
        marks = (
            ("L", name in role.looks),
            ("F", name in role.follows),
            ("C", role.manages),
            ("Q", name in role.queues),
            ("T", name in role.takes),
        )
        return " ".join(letter for letter, has in marks if has)

    return [f"`{name}`", *(mark(role) for role in ROLES)]


def _crossings() -> Iterable[list[str]]:
    for (home, taker), found in crossings().items():
        for one in found:
            name = f"`{one.subject}`" + (f" as `{one.called}`" if one.called else "")
            yield [home, taker, one.kind, name]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
