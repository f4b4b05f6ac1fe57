r"""Gemini's two files per card, as bytes, and read back. Pure.

    config/<UUID>           N\n, then N lines `<namespace>/<pod> <request> <limit> <memory bytes>\n`
    podmanagerport/<UUID>   N\n, then N lines `<namespace>/<pod> <port>\n`

Request is the guaranteed part of the card's time in a sliding window, limit the most of it, both with six decimals, and
the request comes first. A card that nobody holds has `0\n`: a file that vanishes is not noticed by its readers. Read
back is exactly this form; anything else is `BadFile` with the line, because whoever wrote it was not us.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from contracts.units import WHOLE_CARD

LONGEST = 1 << 20
"""512 clients of 400 bytes are 200 KiB."""


class BadFile(ValueError):  # noqa: N818 - named by what is the case
    """Not a file of ours: the line and what is wrong with it."""


class Client(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One line of a config file."""

    name: str
    """`<namespace>/<pod>`."""
    request_milli: int
    limit_milli: int
    memory_bytes: int


class Listener(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One line of a port file."""

    name: str
    port: int


def config_bytes(clients: Iterable[Client]) -> bytes:
    """The config file; by name, so that equal shares are equal bytes."""
    return _file(
        f"{c.name} {_fraction(c.request_milli)} {_fraction(c.limit_milli)} {c.memory_bytes}" for c in sorted(clients)
    )


def port_bytes(listeners: Iterable[Listener]) -> bytes:
    """The port file, by name."""
    return _file(f"{one.name} {one.port}" for one in sorted(listeners))


def read_config(data: bytes) -> tuple[Client, ...]:
    """The clients of a config file. Raises BadFile."""
    return _read(data, _CLIENT, _client)


def read_ports(data: bytes) -> tuple[Listener, ...]:
    """The listeners of a port file. Raises BadFile."""
    return _read(data, _LISTENER, _listener)


# --- the forms -------------------------------------------------------------------------------------------------------

_NAME = r"([a-z0-9][a-z0-9-]{0,62}/[a-z0-9][a-z0-9.-]{0,252})"
_FRACTION = r"([01])\.([0-9]{3})000"
_CLIENT = re.compile(rf"{_NAME} {_FRACTION} {_FRACTION} (0|[1-9][0-9]{{0,18}})", re.ASCII)
_LISTENER = re.compile(rf"{_NAME} ([1-9][0-9]{{0,4}})", re.ASCII)
_COUNT = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
_HIGHEST_PORT = 65_535

Line = TypeVar("Line", Client, Listener)


def _file(lines: Iterable[str]) -> bytes:
    found = list(lines)
    return "".join(f"{line}\n" for line in (str(len(found)), *found)).encode("ascii")


def _fraction(milli: int) -> str:
    """`0.250000`: from integers, so that no float decides a digit."""
    return f"{milli // WHOLE_CARD}.{milli % WHOLE_CARD:03d}000"


def _client(match: re.Match[str]) -> Client | None:
    name, *digits, memory = match.groups()
    request, limit = (int(whole) * WHOLE_CARD + int(part) for whole, part in (digits[:2], digits[2:]))
    if not request <= limit <= WHOLE_CARD:
        return None
    return Client(name=name, request_milli=request, limit_milli=limit, memory_bytes=int(memory))


def _listener(match: re.Match[str]) -> Listener | None:
    port = int(match[2])
    return Listener(name=match[1], port=port) if port <= _HIGHEST_PORT else None


def _read(data: bytes, form: re.Pattern[str], made: Callable[[re.Match[str]], Line | None]) -> tuple[Line, ...]:
    lines = _lines(data)
    found = [_line(number, text, form, made) for number, text in enumerate(lines[1:], start=2)]
    if lines[0] != str(len(found)):
        raise BadFile(f"line 1 announces {lines[0]} lines, {len(found)} follow")
    names = [one.name for one in found]
    if len(set(names)) != len(names):
        raise BadFile("a name stands there twice")
    return tuple(found)


def _lines(data: bytes) -> list[str]:
    if len(data) > LONGEST:
        raise BadFile(f"{len(data)} bytes, at most {LONGEST} are read")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise BadFile(f"byte {error.start} is not ASCII") from error
    if not text.endswith("\n"):
        raise BadFile("the last line does not end")
    lines = text[:-1].split("\n")
    if not _COUNT.fullmatch(lines[0]):
        raise BadFile(f"line 1 is no count: {lines[0][:40]!r}")
    return lines


def _line(number: int, text: str, form: re.Pattern[str], made: Callable[[re.Match[str]], Line | None]) -> Line:
    match = form.fullmatch(text)
    line = made(match) if match else None
    if line is None:
        raise BadFile(f"line {number} is not of the form: {text[:80]!r}")
    return line
