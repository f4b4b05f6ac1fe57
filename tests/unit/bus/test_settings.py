"""Settings: defaults, file and environment overlay each other, and everything wrong is told at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

from bus.runtime.config import field_docs, field_types, leaves
from bus.runtime.settings import (
    HealthSettings,
    LogSettings,
    NatsSettings,
    Secret,
    ServiceSettings,
    Settings,
    SettingsError,
    TelemetrySettings,
    load,
    load_traced,
    render,
)


class Inner(Settings, frozen=True, kw_only=True):
    """Two levels down."""

    depth: int = 2
    """Levels."""


class Group(Settings, frozen=True, kw_only=True):
    """A group with one field of each kind."""

    count: Annotated[int, Meta(ge=1, le=9)] = 3
    """Things."""
    period_s: Annotated[float, Meta(gt=0)] = 1.5
    """Seconds between things."""
    on: bool = False
    """Whether."""
    names: tuple[str, ...] = ("a", "b")
    """Names."""
    maybe: int | None = None
    """Perhaps."""
    password: Secret = ""
    """Never shown."""
    optional_password: Secret | None = None
    """Never shown either."""
    inner: Inner = Inner()
    """A group within."""

    def problems(self) -> Iterator[str]:
        if self.on and self.count < 2:
            yield "on needs count of 2 or more"
        if self.on and not self.names:
            yield "on needs names"


class Shape(Settings, frozen=True, kw_only=True):
    """As a service has it."""

    scheduler: Group = Group()
    other: Group = Group()


class Odd(Settings, frozen=True, kw_only=True):
    """Nothing fits in here."""

    pin: Annotated[str, Meta(max_length=2, extra={"secret": True})] = ""
    urls: Annotated[tuple[str, ...], Meta(max_length=0)] = ()


class Top(Settings, frozen=True, kw_only=True):
    odd: Odd = Odd()


@pytest.fixture
def toml(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "gpubus.toml"
        path.write_text(text)
        return path

    return write


def problems_of(*args) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(Shape, *args)
    return caught.value.problems


# --- layers ----------------------------------------------------------------------------------------------------------


def test_nothing_given_is_the_defaults():
    """Without file and environment every value is its default."""
    assert Shape() == load(Shape)


def test_environment_overlays_file_overlays_default(toml):
    """The same setting three times: the environment wins, then the file; others keep their default."""
    file = toml("[scheduler]\ncount = 4\nperiod_s = 2\n[scheduler.inner]\ndepth = 5")

    got = load(Shape, file, {"GPUBUS_SCHEDULER__COUNT": "7", "PATH": "/bin"})

    assert Group(count=7, period_s=2.0, inner=Inner(depth=5)) == got.scheduler
    assert Group() == got.other


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        ("SCHEDULER__COUNT", "9", "count", 9),
        ("SCHEDULER__PERIOD_S", "0.25", "period_s", 0.25),
        ("SCHEDULER__ON", "true", "on", True),
        ("SCHEDULER__ON", "0", "on", False),
        ("SCHEDULER__NAMES", "x, y ,z", "names", ("x", "y", "z")),
        ("SCHEDULER__NAMES", "", "names", ()),
        ("SCHEDULER__MAYBE", "5", "maybe", 5),
        ("SCHEDULER__MAYBE", "null", "maybe", None),
        ("SCHEDULER__PASSWORD", "123", "password", "123"),
    ],
)
def test_environment_strings_become_values(name, text, path, value):
    """Each kind of value can be written as the string that an environment holds."""
    got = load(Shape, None, {f"GPUBUS_{name}": text})

    assert value == getattr(got.scheduler, path)


def test_environment_reaches_nested_groups():
    """Every level is one double underscore."""
    assert load(Shape, None, {"GPUBUS_SCHEDULER__INNER__DEPTH": "8"}).scheduler.inner.depth == 8


def test_prefix_is_a_parameter():
    """Another installation on the same machine may use another prefix; ours is then not read."""
    env = {"MINE_SCHEDULER__COUNT": "2", "GPUBUS_SCHEDULER__COUNT": "9"}

    assert load(Shape, None, env, prefix="MINE_").scheduler.count == 2


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "needles"),
    [
        ("[scheduler]\ncoumt = 1", ["unknown setting 'scheduler.coumt'", "'scheduler.count'"]),
        ("[othr]\ncount = 1", ["unknown setting 'othr'", "'other'"]),
        ("[scheduler.inner]\ndeph = 1", ["'scheduler.inner.deph'", "'scheduler.inner.depth'"]),
        ("[scheduler]\ncount = '3'", ["scheduler.count = '3'", "Expected `int`, got `str`"]),
        ("[scheduler]\ncount = 10", ["scheduler.count = 10", "<= 9"]),
        ("[scheduler]\ncount = 2.5", ["scheduler.count = 2.5", "Expected `int`, got `float`"]),
        ("[scheduler]\nperiod_s = nan", ["scheduler.period_s = nan"]),
        ("[scheduler]\nperiod_s = inf", ["scheduler.period_s = inf", "finite"]),
        ("[scheduler]\nnames = 'a,b'", ["scheduler.names", "Expected `array`"]),
        ("scheduler = 3", ["scheduler is a group of settings, not a int"]),
        ("[scheduler]\ncount = {a = 1}", ["scheduler.count"]),
        ("[scheduler\n", ["gpubus.toml", "line 1"]),
    ],
)
def test_file_refusals_name_path_and_nearest(toml, text, needles):
    """A wrong key names the nearest valid one, a wrong value its path, the file and the bound."""
    (problem,) = problems_of(toml(text))

    assert [needle for needle in needles if needle not in problem] == []
    assert "gpubus.toml" in problem


@pytest.mark.parametrize(
    ("name", "value", "needles"),
    [
        ("GPUBUS_SCHEDULER__COUMT", "1", ["'GPUBUS_SCHEDULER__COUMT'", "'GPUBUS_SCHEDULER__COUNT'"]),
        ("GPUBUS_OTHER_COUNT", "1", ["'GPUBUS_OTHER_COUNT'", "'GPUBUS_OTHER__COUNT'"]),
        ("GPUBUS_OTHER_PORT", "4222", ["'GPUBUS_OTHER_PORT'"]),
        ("GPUBUS_SCHEDULER__COUNT", "abc", ["environment GPUBUS_SCHEDULER__COUNT", "scheduler.count = 'abc'"]),
        ("GPUBUS_SCHEDULER__PERIOD_S", "nan", ["scheduler.period_s"]),
        ("GPUBUS_SCHEDULER__ON", "maybe", ["scheduler.on = 'maybe'", "Expected `bool`"]),
    ],
)
def test_environment_refusals(name, value, needles):
    """A variable with our prefix that is no setting is a mistake, and a wrong value names variable and path."""
    (problem,) = problems_of(None, {name: value})

    assert [needle for needle in needles if needle not in problem] == []


def test_everything_wrong_is_told_at_once(toml):
    """An operator fixes all mistakes in one go: unknown keys and wrong values of both layers."""
    file = toml("[scheduler]\ncoumt = 1\ncount = 99\n[other]\nperiod_s = -1")

    problems = problems_of(file, {"GPUBUS_SCHEDULER__ON": "x", "GPUBUS_X__Y": "1"})

    assert len(problems) == 5


def test_cross_checks_of_all_groups_are_told_at_once(toml):
    """Cross-field problems carry the path of their group."""
    file = toml("[scheduler]\non = true\ncount = 1\nnames = []\n[other]\non = true\ncount = 1")

    assert problems_of(file) == (
        "scheduler: on needs count of 2 or more",
        "scheduler: on needs names",
        "other: on needs count of 2 or more",
    )


def test_a_missing_file_is_a_settings_error(tmp_path):
    """Not a traceback."""
    (problem,) = problems_of(tmp_path / "none.toml")

    assert "none.toml" in problem


def test_secrets_do_not_leak_into_errors():
    """A refused secret is masked, and so are credentials in a URL."""
    with pytest.raises(SettingsError) as caught:
        load(Top, None, {"GPUBUS_ODD__PIN": "hunter2", "GPUBUS_ODD__URLS": "nats://me:hunter2@h:1"})

    assert len(caught.value.problems) == 2
    assert "hunter2" not in str(caught.value)


# --- shared files and environments -----------------------------------------------------------------------------------


def test_groups_of_other_services_are_skipped(toml):
    """One file and one environment serve every service."""
    file = toml("[monitor]\nperiod_s = 'whatever'\n[scheduler]\ncount = 2")

    assert load(Shape, file, {"GPUBUS_MONITOR__X": "1", "GPUBUS_AUTOSCALER__Y": "2"}).scheduler.count == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GPUBUS_SERVICE_HOST", "10.0.0.1"),
        ("GPUBUS_NATS_SERVICE_PORT", "4222"),
        ("GPUBUS_NATS_SERVICE_PORT_CLIENT", "4222"),
        ("GPUBUS_NATS_PORT", "tcp://10.0.0.1:4222"),
        ("GPUBUS_NATS_PORT_4222_TCP", "tcp://10.0.0.1:4222"),
        ("GPUBUS_NATS_PORT_4222_TCP_ADDR", "10.0.0.1"),
        ("GPUBUS_NATS_PORT_4222_TCP_PORT", "4222"),
        ("GPUBUS_NATS_PORT_4222_TCP_PROTO", "tcp"),
        ("GPUBUS_SCHEDULER_PORT", "udp://10.0.0.1:53"),
        ("GPUBUS_METRICS_SERVICE_PORT_HTTP_METRICS", "8080"),
    ],
)
def test_service_links_of_kubernetes_are_no_settings(name, value):
    """A Service called gpubus-nats puts such variables into every pod of its namespace."""
    assert Shape() == load(Shape, None, {name: value})


# --- printing --------------------------------------------------------------------------------------------------------


def test_rendered_settings_say_where_each_value_came_from(toml):
    """Default, file and environment are told apart, line by line."""
    file = toml("[scheduler]\ncount = 4")
    loaded = load_traced(Shape, file, {"GPUBUS_SCHEDULER__ON": "true"})

    lines = render(loaded.settings, loaded.origins).splitlines()

    assert f"count = 4  # file {file}" in lines
    assert "on = true  # environment GPUBUS_SCHEDULER__ON" in lines
    assert "period_s = 1.5  # default" in lines


def test_rendered_settings_hide_secrets():
    """Tokens, optional ones too, and credentials in URLs."""
    group = Group(password="hunter2", optional_password="hunter3", names=("nats://u:hunter4@h:1", "b@c"))

    text = render(Shape(scheduler=group))

    assert "hunter" not in text
    assert 'names = ["nats://********@h:1", "b@c"]  # set in code' in text


def test_rendered_settings_are_toml_that_loads_again(toml):
    """What is printed can be used as a file and gives the same settings; odd characters survive."""
    settings = Shape(
        scheduler=Group(count=5, names=('quo"te', "new\nline", "ü\x7f", "back\\slash"), inner=Inner(depth=7))
    )

    assert settings == load(Shape, toml(render(settings)))
    assert settings == load(Shape, toml(render(settings, docs=True)))


def test_docs_are_printed_before_their_setting():
    """`--print-settings` explains itself."""
    lines = render(Shape(), docs=True).splitlines()

    assert lines[lines.index("period_s = 1.5  # default") - 1] == "# Seconds between things."


@pytest.mark.parametrize("group", [NatsSettings, TelemetrySettings, HealthSettings, LogSettings])
def test_every_shared_setting_has_a_docstring(group):
    """Unit, default and why stand under the field; a setting without is not finished."""
    assert [name for name in field_types(group) if name not in field_docs(group)] == []


# --- the shared groups -----------------------------------------------------------------------------------------------


def test_shared_defaults_are_valid():
    """A service starts without any configuration."""
    assert ServiceSettings() == load(ServiceSettings, None, {})
    assert tomllib.loads(render(ServiceSettings())).keys() == {"nats", "telemetry", "health", "log"}


def test_every_leaf_can_be_set_by_environment():
    """The path to a variable is unambiguous: no two settings share a name."""
    paths = [path for path, _ in leaves(ServiceSettings)]

    assert len(paths) == len({path.replace(".", "__").upper() for path in paths})


@pytest.mark.parametrize(
    ("env", "needle"),
    [
        ({"NATS__TOKEN": "x", "NATS__CREDENTIALS_FILE": "y"}, "credentials_file and token are both set"),
        ({"NATS__TLS_KEY_FILE": "k"}, "tls_cert_file and tls_key_file go together"),
        ({"NATS__URLS": "http://h"}, "does not begin with nats://"),
        ({"NATS__URLS": ""}, "nats.urls"),
        ({"NATS__REPLICAS": "2"}, "even number"),
        ({"TELEMETRY__OTLP_ENDPOINT": "jaeger:4318"}, "does not begin with http://"),
        ({"TELEMETRY__METRICS_INTERVAL_S": "10"}, "nowhere to push"),
        ({"TELEMETRY__SAMPLE_RATIO": "1.1"}, "telemetry.sample_ratio"),
        ({"HEALTH__PORT": "70000"}, "health.port"),
        ({"LOG__LEVEL": "loud"}, "log.level"),
    ],
)
def test_shared_groups_refuse_what_cannot_work(env, needle):
    """The mistakes that operators make, each with a sentence."""
    with pytest.raises(SettingsError, match=needle):
        load(ServiceSettings, None, {f"GPUBUS_{name}": value for name, value in env.items()})
