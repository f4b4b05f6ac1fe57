"""What each isolation mode needs in a pod, and what it is able to hold. Pure: nothing here touches a node.

What flows in: a mode, and what one pod was assigned. What flows out: `PodChanges`, the entries of its environment and
the folders of the host that it sees. Values that change with the share are read through annotations (`marked`), so that
they can be written again in place: a container reads them at each start.

A pod has one mode: cards of different modes are never mixed in it, nor tenants of different modes on a card.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from contracts.decisions import CardSlice
from contracts.inventory import IsolationMode
from contracts.shares import Enforced

MIB = 1024 * 1024
MIN_PERCENT = 1


class HostPaths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the modes' parts lie on every node; the same for all who read or write them."""

    mps: str = "/var/lib/gpubus/mps"
    """Holds `pipe` and `log` of the one MPS control daemon of a node."""
    hami: str = "/usr/local/vgpu"
    """Holds HAMi-core's `libvgpu.so`."""
    gemini: str = "/kubeshare"
    """Holds Gemini's `library`, and `scheduler/config` and `scheduler/podmanagerport`."""


DEFAULT_PATHS = HostPaths()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One environment variable: a fixed `value`, a `field` of the pod, or (`marked`) the annotation of its own name."""

    name: str
    value: str = ""
    field: str = ""
    marked: bool = False


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the host, seen at the same path in the container unless `path` says otherwise."""

    name: str
    host_path: str
    path: str
    read_only: bool = True


class PodChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a mode sets in a pod; nothing of it may be set by the user."""

    env: tuple[Entry, ...] = ()
    mounts: tuple[Mount, ...] = ()

    @property
    def marks(self) -> dict[str, str]:
        """The values that travel in annotations, by the variable's name."""
        return {entry.name: entry.value for entry in self.env if entry.marked}


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod was given."""

    pod: str
    """`<namespace>/<name>`."""
    slices: tuple[CardSlice, ...]
    """In the order in which the container sees the cards."""
    port: int = 0
    """Of its manager, where the mode has one; 0 while it is not known."""


class CannotIsolate(ValueError):  # noqa: N818 - named by what is the case
    """This assignment cannot be held by the modes of its cards; the text says why."""


def mode_of(modes: Iterable[IsolationMode], pod: str) -> IsolationMode:
    """The one mode of a pod's cards; none without cards. Raises CannotIsolate: there are several."""
    found = sorted(set(modes))
    if len(found) > 1:
        raise CannotIsolate(f"the cards of {pod} are shared by {' and '.join(found)}; a pod takes one mode")
    return found[0] if found else "none"


def pod_changes(mode: IsolationMode, assigned: Assigned, paths: HostPaths = DEFAULT_PATHS) -> PodChanges:
    """What the mode sets in the pod. Raises CannotIsolate."""
    match mode:
        case "mps":
            return _mps(assigned, paths)
        case "hami-core":
            return _hami(assigned, paths)
        case "gemini":
            return _gemini(assigned, paths)
        case _:  # a MIG instance is a device of its own, and `none` sets nothing: the UUID among the cards is all
            return PodChanges()


def needs_node(mode: IsolationMode) -> bool:
    """Whether a pod must wait until its node has prepared something."""
    return mode in ("mps", "hami-core", "gemini")


DECLARED: dict[IsolationMode, Enforced] = {
    "none": "none",
    "mps": "both",
    "hami-core": "both",
    "gemini": "both",
    "mig": "both",
}
NOTES: dict[IsolationMode, str] = {
    "none": "shares are counted, nothing is enforced",
    "mps": "the memory limit holds for each process, not for the container; a fatal fault ends all clients of the card",
    "hami-core": "a program that is linked statically or drops LD_PRELOAD escapes; compute is held on average",
    "gemini": "one card a pod; a program that is linked statically escapes; managed memory is not counted",
    "mig": "fixed by the profile: a share of an instance is counted only",
}


def percent(share_milli: int) -> int:
    """Whole percent, rounded down so that the percentages of a card never add up to more than 100; at least 1."""
    return max(MIN_PERCENT, share_milli // 10)


# --- the modes -------------------------------------------------------------------------------------------------------


def _mps(assigned: Assigned, paths: HostPaths) -> PodChanges:
    """Clients of the node's MPS daemon: a percentage of threads, and pinned memory by the ordinal of the card.

    The two limits are read by the CUDA driver when a process begins; see NVIDIA's "Multi-Process Service", 4.3 and 5.3.
    """
    limits = ",".join(f"{index}={piece.memory_mib}M" for index, piece in enumerate(assigned.slices))
    share = percent(min((piece.share_milli for piece in assigned.slices), default=0))
    return PodChanges(
        env=(
            Entry(name="CUDA_MPS_PIPE_DIRECTORY", value=f"{paths.mps}/pipe"),
            Entry(name="CUDA_MPS_LOG_DIRECTORY", value=f"{paths.mps}/log"),
            Entry(name="CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value=str(share), marked=True),
            Entry(name="CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", value=limits, marked=True),
        ),
        mounts=(
            Mount(name="mps-pipe", host_path=f"{paths.mps}/pipe", path=f"{paths.mps}/pipe", read_only=False),
            Mount(name="mps-log", host_path=f"{paths.mps}/log", path=f"{paths.mps}/log", read_only=False),
            # server and clients share memory: the host's /dev/shm of the daemon, instead of the host's whole IPC
            Mount(name="mps-shm", host_path=f"{paths.mps}/shm", path="/dev/shm", read_only=False),  # noqa: S108
        ),
    )


HAMI_CACHE = "/tmp/gpubus-vgpu.cache"  # noqa: S108 - in the container, where each restart begins with nothing
"""HAMi-core keeps its accounts here, shared by all processes of the container. It lies in the container's own writable
layer, which a restart throws away: no slots of dead processes are left, however often it crashes."""


def _hami(assigned: Assigned, paths: HostPaths) -> PodChanges:
    """A library before CUDA's that counts allocations and holds kernels back, per card by its ordinal."""
    limits = [
        entry
        for index, piece in enumerate(assigned.slices)
        for entry in (
            Entry(name=f"CUDA_DEVICE_MEMORY_LIMIT_{index}", value=f"{piece.memory_mib}m", marked=True),
            Entry(name=f"CUDA_DEVICE_SM_LIMIT_{index}", value=str(percent(piece.share_milli)), marked=True),
        )
    ]
    return PodChanges(
        env=(
            *limits,
            Entry(name="CUDA_DEVICE_MEMORY_SHARED_CACHE", value=HAMI_CACHE),
            Entry(name="LD_PRELOAD", value=f"{paths.hami}/libvgpu.so"),
        ),
        mounts=(Mount(name="vgpu", host_path=paths.hami, path=paths.hami),),
    )


def _gemini(assigned: Assigned, paths: HostPaths) -> PodChanges:
    """Gemini's hook asks the pod's manager on the node for tokens, by the name that stands in the node's files."""
    if len(assigned.slices) > 1:
        raise CannotIsolate(f"gemini serves one card a pod, {assigned.pod} has {len(assigned.slices)}")
    library = f"{paths.gemini}/library"
    return PodChanges(
        env=(
            Entry(name="LD_PRELOAD", value=f"{library}/libgemhook.so.1"),
            Entry(name="POD_MANAGER_IP", field="status.hostIP"),
            Entry(name="POD_MANAGER_PORT", value=str(assigned.port) if assigned.port else "", marked=True),
            Entry(name="POD_NAME", value=assigned.pod),
        ),
        mounts=(Mount(name="kubeshare-lib", host_path=library, path=library),),
    )
