"""`gpubus identities`: who may do what on the bus; keys and a server configuration for places without Kubernetes."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.table import Table

from bus.auth import keys, serverconfig
from bus.runtime.config import variable
from contracts.identities import ROLES, Identity, Role, UnknownIdentity, identity, rights
from gpubus.cli.common import show
from gpubus.cli.exits import Exit
from gpubus.errors import UsageError

CONFIG = "identities.conf"


def identities(*who: str, generate: Path | None = None) -> int:
    """Show the roles, or what single identities may publish and subscribe to; or make keys for them.

    With `--generate` each identity gets a key file `<identity>.nk` in the folder (with `_` for the slash), and the
    server configuration to include stands in `identities.conf`. Keys that are there already are kept.

    Try:

    ```
    gpubus identities
    gpubus identities tenant/team-a
    gpubus identities --generate keys scheduler reconciler operator monitor/gpu-1 tenant/team-a
    ```

    Args:
        who: Identities, as `scheduler`, `monitor/<node>`, `tenant/<namespace>`. None: the table of roles.
        generate: A folder to write keys and configuration to.
    """
    try:
        chosen = [identity(text) for text in who]
    except UnknownIdentity as error:
        raise UsageError(str(error)) from error
    if generate is not None:
        return _generate(chosen, generate)
    if not chosen:
        show(_table())
    for one in chosen:
        _show_rights(one)
    return int(Exit.OK)


def _table() -> Table:
    table = Table("identity", "account", "sends", "hears and answers", "purpose", title="identities on the bus")
    for role in ROLES:
        table.add_row(
            spelling(role),
            role.account,
            ", ".join(channel.name for channel in role.sends),
            ", ".join(channel.name for channel in (*role.hears, *role.answers)),
            role.purpose,
        )
    return table


def spelling(role: Role) -> str:
    """How an identity of this role is written."""
    return f"{role.name}/<{role.value}>" if role.value else role.name


def _show_rights(who: Identity) -> None:
    allowed = rights(who)
    print(f"{who}")
    for subject in allowed.publish:
        print(f"  publish    {subject}")
    for subject in allowed.subscribe:
        print(f"  subscribe  {subject}")
    if allowed.replies:
        print("  reply once to each message received")


def _generate(chosen: list[Identity], folder: Path) -> int:
    if not chosen:
        raise UsageError("--generate: name the identities to make keys for, as scheduler reconciler tenant/team-a")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    public = {who: _key(folder / key_file(who)).public for who in chosen}
    (folder / CONFIG).write_text(serverconfig.blocks(public), encoding="utf-8")
    print(f"{folder / CONFIG}: add this to nats-server.conf:  include {CONFIG}")
    for who in chosen:
        names = variable("nats.identity"), variable("nats.nkey_seed_file")
        print(f"{names[0]}={who} {names[1]}={folder / key_file(who)}", file=sys.stdout)
    return int(Exit.OK)


def key_file(who: Identity) -> str:
    """The name of an identity's key file."""
    return f"{str(who).replace('/', '_')}.nk"


def _key(file: Path) -> keys.Key:
    """The key that is there, else a new one."""
    try:
        return keys.kept(file)
    except FileNotFoundError:
        made = keys.user_key()
        keys.keep(made, file)
        return made
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
