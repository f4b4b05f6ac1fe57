"""Settings machinery: a frozen struct from defaults, a TOML file and the environment; all faults are told at once.

What flows in: a struct type whose fields are groups (structs), a TOML file, an environment mapping.
What flows out: one checked value, and for each leaf where its value came from.
It never guesses: an unknown key is refused with the nearest valid one, a wrong type with its path and its source.

One file and one environment may serve every service of an installation: a top-level group that belongs to another
service (`[monitor]` as seen by the scheduler) is skipped. Variables that Kubernetes injects for a Service that happens
to be called like our prefix (`GPUBUS_SERVICE_HOST`, `GPUBUS_NATS_PORT_4222_TCP`) are not settings either.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from contracts.fielddocs import FieldDocs, docs_by_class

SERVICES = ("scheduler", "reconciler", "monitor", "autoscaler", "gpubus")
"""Groups with these names belong to one service each; the others ignore them."""

PREFIX = "GPUBUS_"
MASK = "********"
Secret = Annotated[str, Meta(extra={"secret": True})]
"""A string that is never printed."""

_SERVICE_LINK = re.compile(r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_SERVICE_PORT = re.compile(r"(.*_)?PORT")
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of settings, or a group of groups. Every field has a docstring: unit, default, why."""

    def problems(self) -> Iterator[str]:
        """What is wrong across the fields of this group; each a sentence that names the fields."""
        return iter(())


class SettingsError(Exception):
    """The operator's mistake: every problem that was found, one a line."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


S = TypeVar("S", bound=Settings)
Tree = Mapping[str, Any]


class Loaded(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """Settings with their origins: leaf path (`nats.urls`) -> `file …` or `environment …`; absent = default."""

    settings: S
    origins: Mapping[str, str]


class _Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One value as it was given."""

    value: Any
    origin: str
    strict: bool


def load(
    settings_type: type[S], file: Path | None = None, env: Mapping[str, str] | None = None, prefix: str = PREFIX
) -> S:
    """Defaults, overlaid by the TOML file, overlaid by the environment.

    Raises:
        SettingsError: with every problem found.
    """
    return load_traced(settings_type, file, env, prefix).settings


def load_traced(
    settings_type: type[S], file: Path | None = None, env: Mapping[str, str] | None = None, prefix: str = PREFIX
) -> Loaded[S]:
    """As `load`, with the origin of each value."""
    problems: list[str] = []
    given = _from_file(settings_type, file, problems) if file else {}
    given |= _from_environment(settings_type, env or {}, prefix, problems)
    values = {path: _convert(settings_type, path, leaf, problems) for path, leaf in given.items()}
    if problems:
        raise SettingsError(tuple(problems))
    settings = msgspec.convert(_nest(values), settings_type)
    crossed = tuple(_cross_checks(settings, ""))
    if crossed:
        raise SettingsError(crossed)
    return Loaded(settings=settings, origins={path: leaf.origin for path, leaf in given.items()})


# --- layers ----------------------------------------------------------------------------------------------------------


def _from_file(settings_type: type[Settings], file: Path, problems: list[str]) -> dict[str, _Leaf]:
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{file}: {error}")
        return {}
    leaves: dict[str, _Leaf] = {}
    for path, value in _flatten(settings_type, tree, (), problems, str(file)):
        leaves[path] = _Leaf(value=value, origin=f"file {file}", strict=True)
    return leaves


def _flatten(
    group: type[Settings], tree: Tree, above: tuple[str, ...], problems: list[str], source: str
) -> Iterator[tuple[str, Any]]:
    types = field_types(group)
    for key, value in tree.items():
        path = (*above, key)
        if not above and key in SERVICES and key not in types:
            continue
        if key not in types:
            problems.append(f"{source}: {_unknown('.'.join(path), _paths(group, above))}")
        elif _is_group(types[key]) and isinstance(value, Mapping):
            yield from _flatten(types[key], value, path, problems, source)
        elif _is_group(types[key]):
            problems.append(f"{source}: {'.'.join(path)} is a group of settings, not a {type(value).__name__}")
        else:
            yield ".".join(path), value


def _from_environment(
    settings_type: type[Settings], env: Mapping[str, str], prefix: str, problems: list[str]
) -> dict[str, _Leaf]:
    known = {variable(path, prefix): path for path, _ in leaves(settings_type)}
    groups = {name.upper() for name in SERVICES} - {name.upper() for name in field_types(settings_type)}
    found: dict[str, _Leaf] = {}
    for name in sorted(env):
        rest = name.removeprefix(prefix)
        if name in known:
            found[known[name]] = _Leaf(value=env[name], origin=f"environment {name}", strict=False)
        elif rest != name and not _is_service_link(rest, env[name]) and rest.partition("__")[0] not in groups:
            problems.append(f"environment: {_unknown(name, list(known))}")
    return found


def _is_service_link(name: str, value: str) -> bool:
    """`NATS_PORT=tcp://10.0.0.1:4222` is one, `NATS_PORT=4222` is a misspelt setting."""
    return bool(_SERVICE_LINK.fullmatch(name)) or ("://" in value and bool(_SERVICE_PORT.fullmatch(name)))


def variable(path: str, prefix: str = PREFIX) -> str:
    """The environment variable of a leaf: `nats.connect_timeout_s` -> `GPUBUS_NATS__CONNECT_TIMEOUT_S`."""
    return prefix + path.replace(".", "__").upper()


def _unknown(name: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.0)
    return f"unknown setting {name!r}" + (f"; the nearest valid one is {near[0]!r}" if near else "")


# --- one value -------------------------------------------------------------------------------------------------------


def _convert(settings_type: type[Settings], path: str, leaf: _Leaf, problems: list[str]) -> Any:
    kind = dict(leaves(settings_type))[path]
    raw = leaf.value
    if not leaf.strict and _is_list(kind):
        raw = [part.strip() for part in raw.split(",") if part.strip()]
    try:
        value = msgspec.convert(raw, kind, strict=leaf.strict)
    except msgspec.ValidationError as error:
        shown = MASK if _is_secret(kind) else _USER_INFO.sub(MASK, repr(leaf.value))
        problems.append(f"{leaf.origin}: {path} = {shown}: {error}")
        return None
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(f"{leaf.origin}: {path} = {value}: expected a finite number")
    return value


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *groups, last = path.split(".")
        at = tree
        for group in groups:
            at = at.setdefault(group, {})
        at[last] = value
    return tree


def _cross_checks(settings: Settings, above: str) -> Iterator[str]:
    yield from (f"{above}: {problem}" if above else problem for problem in settings.problems())
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from _cross_checks(value, f"{above}.{name}" if above else name)


# --- looking at types ------------------------------------------------------------------------------------------------


def field_types(group: type[Settings]) -> dict[str, Any]:
    """Field name -> resolved type, in order."""
    return {field.name: field.type for field in msgspec.structs.fields(group)}


def leaves(group: type[Settings], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting that holds a value: (path, type), in order of declaration."""
    for name, kind in field_types(group).items():
        path = f"{above}.{name}" if above else name
        if _is_group(kind):
            yield from leaves(kind, path)
        else:
            yield path, kind


def _paths(group: type[Settings], above: tuple[str, ...]) -> list[str]:
    return [".".join((*above, name)) for name in field_types(group)]


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)


def _is_list(kind: Any) -> bool:
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(bare) in (tuple, list, frozenset, set)


def _is_secret(kind: Any) -> bool:
    """Also inside `Secret | None`."""
    metas = [m for m in getattr(kind, "__metadata__", ()) if isinstance(m, Meta)]
    return any((m.extra or {}).get("secret") for m in metas) or any(map(_is_secret, get_args(kind)))


# --- printing --------------------------------------------------------------------------------------------------------


def render(settings: Settings, origins: Mapping[str, str] | None = None, *, docs: bool = False) -> str:
    """The effective settings as TOML: a comment after each value says where it came from; secrets are masked.

    Without `origins` (a value that was not loaded) each leaf that differs from its default says `set in code`.
    With `docs` each setting is preceded by its docstring.
    """
    lines: list[str] = []
    _render_group(settings, "", _origin_of(settings, origins), lines, docs=docs)
    return "\n".join(lines).strip() + "\n"


def _origin_of(settings: Settings, origins: Mapping[str, str] | None) -> Callable[[str, Any], str]:
    if origins is not None:
        return lambda path, _: origins.get(path, "default")
    defaults = dict(_default_leaves(type(settings), ""))
    return lambda path, value: "default" if defaults.get(path, msgspec.NODEFAULT) == value else "set in code"


def _default_leaves(group: type[Settings], above: str) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(group):
        path = f"{above}.{field.name}" if above else field.name
        if _is_group(field.type):
            yield from _default_leaves(field.type, path)
        else:
            yield path, field.default


def _render_group(
    group: Settings, above: str, origin: Callable[[str, Any], str], lines: list[str], *, docs: bool
) -> None:
    notes = field_docs(type(group)) if docs else {}
    nested: list[tuple[str, Settings]] = []
    for name, kind in field_types(type(group)).items():
        value = getattr(group, name)
        path = f"{above}.{name}" if above else name
        if isinstance(value, Settings):
            nested.append((path, value))
            continue
        if name in notes:
            lines.append(f"# {notes[name]}")
        lines.append(_assignment(name, value, kind) + f"  # {origin(path, value)}")
    for path, value in nested:
        lines += ["", f"[{path}]"]
        _render_group(value, path, origin, lines, docs=docs)


def _assignment(name: str, value: Any, kind: Any) -> str:
    if value is None:
        return f"# {name} is not set"
    if _is_secret(kind) and value:
        return f'{name} = "{MASK}"'
    return f"{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, (tuple, list, set, frozenset)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        # A JSON string is a TOML basic string. What stands before the @ of a URL is a credential.
        return msgspec.json.encode(_USER_INFO.sub(MASK, value)).decode().replace("\x7f", "\\u007f")
    return msgspec.json.encode(value).decode()


def field_docs(group: type[Settings]) -> FieldDocs:
    """Field name -> docstring, those of base groups included; empty where the source is not at hand."""
    found: FieldDocs = {}
    for base in reversed(group.__mro__):
        module = sys.modules.get(base.__module__)
        if module is not None and issubclass(base, Settings):
            found |= _module_docs(module).get(base.__name__, {})
    return found


def _module_docs(module: Any) -> dict[str, FieldDocs]:
    try:
        return docs_by_class(inspect.getsource(module))
    except (OSError, TypeError):
        return {}
