"""A certificate authority of its own and one server certificate, made with the `openssl` program.

In: the names of the server, a folder that nobody else reads. Out: PEM texts. The authority's key is thrown away: it
signs once.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

DAYS = 3650
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")


class NoCertificate(RuntimeError):  # noqa: N818 - named by what is the case
    """`openssl` is missing, or said no."""


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """PEM texts."""

    authority: str
    certificate: str
    key: str


async def make(names: Sequence[str], folder: Path) -> Certificates:
    """An authority, and a certificate for all `names` that it has signed.

    Raises:
        NoCertificate: with what openssl said.
    """
    await _openssl(
        "req", "-x509", *_CURVE, "-keyout", "ca.key", "-out", "ca.crt", "-days", str(DAYS), "-subj", "/CN=gpubus",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        folder=folder,
    )  # fmt: skip
    alternative = ",".join(f"DNS:{name}" for name in names)
    await _openssl(
        "req", "-x509", *_CURVE, "-keyout", "tls.key", "-out", "tls.crt", "-days", str(DAYS),
        "-subj", f"/CN={names[0]}", "-CA", "ca.crt", "-CAkey", "ca.key",
        "-addext", f"subjectAltName={alternative}", "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", "keyUsage=critical,digitalSignature", "-addext", "extendedKeyUsage=serverAuth,clientAuth",
        folder=folder,
    )  # fmt: skip
    (folder / "ca.key").unlink()
    read = [(folder / name).read_text(encoding="ascii") for name in ("ca.crt", "tls.crt", "tls.key")]
    return Certificates(authority=read[0], certificate=read[1], key=read[2])


async def _openssl(*arguments: str, folder: Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise NoCertificate("the program openssl is not on PATH")
    process = await asyncio.create_subprocess_exec(
        program, *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise NoCertificate(f"openssl {arguments[0]}: {said.decode(errors='replace').strip()[-400:]}")
