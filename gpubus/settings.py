"""Where the bus is and what a command assumes: from flags, the environment, a file, or the `gpubus local` that runs.

What flows in: flags, an environment, the run file. What flows out: checked settings with the origin of each value.
The order, strongest first: `--nats`, the environment, the settings file, a running `gpubus local`, the default.

Two short spellings are understood in the environment beside the full ones: `GPUBUS_NATS_URL` for `GPUBUS_NATS__URLS`
and `GPUBUS_JAEGER_URL` for `GPUBUS_GPUBUS__JAEGER_URL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from bus.runtime.config import Loaded, Settings, SettingsError, load_traced
from bus.runtime.settings import NatsSettings, Seconds, TelemetrySettings, Text
from contracts.units import NamespaceName
from gpubus.errors import UsageError
from gpubus.local.runfile import Running

SHORT = {"GPUBUS_NATS_URL": "GPUBUS_NATS__URLS", "GPUBUS_JAEGER_URL": "GPUBUS_GPUBUS__JAEGER_URL"}


class FrontSettings(Settings, frozen=True, kw_only=True):
    """What the command line assumes when it is not told."""

    jaeger_url: Text = ""
    """Base URL of Jaeger's query API, for `gpubus trace`. Empty: that of the running `gpubus local`."""
    namespace: NamespaceName = "default"
    """Namespace of names that are given without one."""
    answer_timeout_s: Seconds = 5.0
    """Longest wait for one answer. A scheduler that takes over from another needs up to 2 s."""


class ClientSettings(Settings, frozen=True, kw_only=True):
    """Settings of the `gpubus` command."""

    nats: NatsSettings = NatsSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    gpubus: FrontSettings = FrontSettings()


def effective(
    *, env: Mapping[str, str], file: Path | None = None, nats: str | None = None, running: Running | None = None
) -> Loaded[ClientSettings]:
    """The settings of one call of the command.

    Raises:
        UsageError: naming every setting that is wrong.
    """
    try:
        loaded = load_traced(ClientSettings, file, _spelt_out(env, nats))
    except SettingsError as error:
        raise UsageError("; ".join(error.problems)) from error
    return _with_local(loaded, running, flag=nats is not None)


def _spelt_out(env: Mapping[str, str], nats: str | None) -> dict[str, str]:
    """The environment with short names replaced by full ones; a full one wins; the flag wins over both."""
    names = {name: value for name, value in env.items() if name not in SHORT}
    for short, full in SHORT.items():
        if env.get(short):
            names.setdefault(full, env[short])
    return names | ({SHORT["GPUBUS_NATS_URL"]: nats} if nats is not None else {})


def _with_local(loaded: Loaded[ClientSettings], running: Running | None, *, flag: bool) -> Loaded[ClientSettings]:
    settings, origins = loaded.settings, dict(loaded.origins)
    if flag:
        origins["nats.urls"] = "flag --nats"
    if running is None:
        return Loaded(settings=settings, origins=origins)
    ours = "nats.urls" not in origins or running.nats_url in settings.nats.urls
    if not ours:
        return Loaded(settings=settings, origins=origins)
    found = f"the gpubus local with pid {running.pid}"
    for path, value in _of(running).items():
        if path not in origins:
            group, _, name = path.partition(".")
            changed = msgspec.structs.replace(getattr(settings, group), **{name: value})
            settings = msgspec.structs.replace(settings, **{group: changed})
            origins[path] = found
    return Loaded(settings=settings, origins=origins)


def _of(running: Running) -> dict[str, object]:
    return {
        "nats.urls": (running.nats_url,),
        "gpubus.jaeger_url": running.traces_url,
        "telemetry.otlp_endpoint": running.traces_url,
    }
