"""Gemini: a token server per card deals out time by two files that are written here, one pod manager per pod relays.

In: each card's assignments. Out: `config/<UUID>` and `podmanagerport/<UUID>`, a full snapshot of each card, which
Gemini's scheduler and launcher read again when they are closed after a write. The configuration comes first: a manager
that starts for a client which its scheduler does not know gets no answer. Files of cards that are not ours any more say
that nobody holds them.

After a start every file is nudged once, because the last life may have ended between the write and the event.

Checked are the files, read back, and that a manager listens on each pod's port: until then the pod waits, because the
hook in it would block for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from contracts.inventory import IsolationMode
from contracts.isolation import MIB
from contracts.outcomes import ShareAssignment
from contracts.shares import PodEnforcement
from contracts.units import WHOLE_CARD
from monitor.enforce import atomic
from monitor.enforce.backend import Findings, card_finding, pod_finding
from monitor.enforce.gemini_files import BadFile, Client, Listener, config_bytes, port_bytes, read_config, read_ports
from monitor.enforce.wanted import CardShares

_STAGING = ".gpubus"


class Gemini:
    """The backend of `gemini`.

    Args:
        folder: KubeShare's folder on the host, with `scheduler` below.
        ports: who listens on the host; None = that cannot be told.
        borrow: a tenant may use what its neighbours leave idle; else its limit is its share, or the one that is told.
    """

    mode: IsolationMode = "gemini"

    def __init__(self, folder: Path, ports: Callable[[], frozenset[int] | None], *, borrow: bool = False) -> None:
        self._config = folder / "scheduler" / "config"
        self._ports = folder / "scheduler" / "podmanagerport"
        self._staging = folder / "scheduler" / _STAGING
        self._listening = ports
        self._borrow = borrow
        self._nudged: set[Path] = set()

    def apply(self, wanted: Sequence[CardShares]) -> None:
        """Write what differs. A node without Gemini cards that never had one is left alone."""
        if not wanted and not self._config.exists():
            return
        for folder in (self._config, self._ports, self._staging):
            folder.mkdir(parents=True, exist_ok=True)
        for path, data in self._files(wanted).items():
            self._bring(path, data)

    def check(self, wanted: Sequence[CardShares]) -> Findings:
        """Read the files back and look who listens."""
        lacks = {one.card.uuid: self._differs(one) for one in wanted}
        listening = self._listening() if any(one.assignments for one in wanted) else frozenset()
        return Findings(
            cards=tuple(card_finding(self.mode, one.card, lacks=lacks[one.card.uuid]) for one in wanted),
            pods=tuple(_pod(a, lacks[one.card.uuid], listening) for one in wanted for a in one.assignments),
        )

    # --- files -------------------------------------------------------------------------------------------------------

    def _files(self, wanted: Sequence[CardShares]) -> Mapping[Path, bytes]:
        """Every file that should stand, those of cards that are not listed included; configuration before ports."""
        clients = {one.card.uuid: [self._client(a, one) for a in one.assignments if a.port] for one in wanted}
        managers = {one.card.uuid: [_listener(a) for a in one.assignments if a.port] for one in wanted}
        names = {_file_name(uuid): uuid for uuid in clients}
        return (
            {self._config / name: config_bytes(clients[uuid]) for name, uuid in names.items()}
            | {self._ports / name: port_bytes(managers[uuid]) for name, uuid in names.items()}
            | {path: config_bytes(()) for path in self._left_over(names)}
        )

    def _left_over(self, names: Container[str]) -> list[Path]:
        """Files of our form that name cards which are not shared by this mode any more; others are somebody else's."""
        configs = (path for path in self._config.iterdir() if path.name not in names and _reads(read_config, path))
        managers = (path for path in self._ports.iterdir() if path.name not in names and _reads(read_ports, path))
        return [*sorted(configs), *sorted(managers)]

    def _bring(self, path: Path, data: bytes) -> None:
        if _content(path) != data:
            atomic.write(path, data, staging=self._staging)
        elif path not in self._nudged:
            atomic.nudge(path)
        self._nudged.add(path)

    def _client(self, one: ShareAssignment, of: CardShares) -> Client:
        limit_milli = WHOLE_CARD if self._borrow else of.limits.get(one.uid, one.share_milli)
        return Client(
            name=_name(one),
            request_milli=min(one.share_milli, limit_milli),
            limit_milli=limit_milli,
            memory_bytes=one.memory_mib * MIB,
        )

    def _differs(self, one: CardShares) -> str:
        """What stands in the files instead of what should; empty when they are right."""
        name = _file_name(one.card.uuid)
        held = [a for a in one.assignments if a.port]
        try:
            clients = read_config(_content(self._config / name) or b"")
            managers = read_ports(_content(self._ports / name) or b"")
        except BadFile as error:
            return f"a file of {name} is not ours: {error}"
        same = set(clients) == {self._client(a, one) for a in held} and set(managers) == {_listener(a) for a in held}
        return "" if same else f"the files of {name} hold other clients than its pods"


def _pod(one: ShareAssignment, lacks: str, listening: frozenset[int] | None) -> PodEnforcement:
    if not one.port:
        return pod_finding(one, "waiting", "no port is free for its manager")
    if lacks:
        return pod_finding(one, "failed", lacks)
    if listening is None:
        return pod_finding(one, "waiting", "it cannot be seen who listens: /proc/1/net/tcp is not readable")
    if one.port not in listening:
        return pod_finding(one, "waiting", f"no pod manager listens on port {one.port}; does Gemini's launcher run?")
    return pod_finding(one, "applied")


def _listener(one: ShareAssignment) -> Listener:
    return Listener(name=_name(one), port=one.port)


def _name(one: ShareAssignment) -> str:
    return f"{one.namespace}/{one.pod}"


def _file_name(uuid: str) -> str:
    """A card's UUID is a file's name, never a path. Raises OSError."""
    if "/" in uuid or uuid.startswith("."):
        raise OSError(f"the card's UUID {uuid!r} cannot name a file")
    return uuid


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _reads(read: Callable[[bytes], object], path: Path) -> bool:
    try:
        read(_content(path) or b"")
    except (BadFile, OSError):
        return False
    return True
