"""Keys of NATS identities (ed25519, spelt as nkeys): made here, kept in files that only their owner reads."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import nkeys


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A pair: the seed logs in or signs, the public half stands in configurations."""

    seed: str
    public: str


def user_key() -> Key:
    """A new key of a user."""
    return _key(nkeys.PREFIX_BYTE_USER)


def account_key() -> Key:
    """A new key that signs in an account's name."""
    return _key(nkeys.PREFIX_BYTE_ACCOUNT)


def of_seed(seed: str) -> Key:
    """The pair of a seed.

    Raises:
        ValueError: it is no seed.
    """
    try:
        pair = nkeys.from_seed(bytearray(seed.encode()))
        return Key(seed=seed, public=pair.public_key.decode())
    except (nkeys.NkeysError, ValueError) as error:
        raise ValueError(f"not an nkey seed: {error!r}") from None


def _key(prefix: int) -> Key:
    return of_seed(nkeys.encode_seed(os.urandom(32), prefix=prefix).decode())


def keep(key: Key, file: Path) -> None:
    """Write the seed where only the owner of the file reads it; a file that is there is replaced."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as opened:
        opened.write(key.seed + "\n")


def kept(file: Path) -> Key:
    """The key of a file.

    Raises:
        ValueError: there is no seed in it.
        OSError: it cannot be read.
    """
    return of_seed(file.read_text(encoding="ascii").strip())
