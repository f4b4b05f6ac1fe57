"""Exit codes and error lines: one line for people, a code for scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpubus.cli import main
from gpubus.cli.app import COMMANDS
from gpubus.cli.exits import MEANING, Exit, exit_of, help_text
from gpubus.errors import AnswerIsNo, FrontError, LocalFailure, NoAnswer, Unreachable, UsageError

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _nobody_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No `gpubus local` of this machine, no settings of this shell."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("GPUBUS_NATS_URL", "GPUBUS_NATS__URLS", "GPUBUS_JAEGER_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (Unreachable("nats://x", "why"), 3),
        (NoAnswer("the scheduler", "why"), 4),
        (LocalFailure("nats-server", "why"), 5),
        (AnswerIsNo("x"), 1),
        (FrontError("of no kind"), 70),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: FrontError, code: int) -> None:
    """Scripts tell them apart."""
    assert exit_of(error) == code


def test_every_code_is_explained_in_help_and_guide() -> None:
    """One enum; help and guide hold each of its codes with the same words."""
    guide = (ROOT / "docs/guide/cli.md").read_text(encoding="utf-8")

    assert [code for code in Exit if f"| {code.value} | {MEANING[code]}" not in guide] == []
    assert [code for code in Exit if not re.search(rf"^ *{code.value}  ", help_text(), re.MULTILINE)] == []


def test_the_guide_knows_every_command() -> None:
    """Those and no others stand in its table."""
    guide = (ROOT / "docs/guide/cli.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `gpubus ([a-z-]+)", guide, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["sbmit"], 2, "submit"),
        (["submit", "--nme", "x"], 2, "--name"),
        (["submit", "--name", "x"], 2, "--image"),
        (["submit", "--name", "X_", "--image", "i"], 2, "lower-case"),
        (["submit", "--name", "x", "--image", "i", "--gpu-memory", "2000mb"], 2, "2000Mi"),
        (["submit", "no-such-file.json"], 2, "no-such-file.json"),
        (["submit", "f.json", "--gpus", "2"], 2, "one or the other"),
        (["submit", "--name", "x", "--image", "i", "--wait", "--timeout", "soon"], 2, "--timeout"),
        (["get", "pods"], 2, "requests"),
        (["get", "cards", "-A"], 2, "no namespace"),
        (["explain"], 2, "NAME"),
        (["explain", "a/b", "-n", "c"], 2, "namespace a"),
        (["trace", "x"], 2, "--jaeger"),
        (["local", "--nodes", "0"], 2, "--nodes 0"),
        (["local", "--nodes", "201"], 2, "200"),
        (["local", "--model", "H200"], 2, "--card-memory-mib"),
        (["get", "cards", "--nats", "http://127.0.0.1:4222"], 2, "nats://"),
        (["get", "cards", "--nats", "nats://127.0.0.1:1"], 3, "gpubus local"),
    ],
)
def test_what_was_typed_wrong_is_told_in_one_line(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says how to do it right; no stack trace."""
    monkeypatch.setenv("GPUBUS_NATS__CONNECT_TIMEOUT_S", "0.2")
    found = main(arguments)
    line = capsys.readouterr().err

    assert (found, words in line, line.startswith("gpubus: "), line.count("\n")) == (code, True, True, 1), line


def test_a_defect_is_one_line_too_and_debug_shows_where(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised, a person gets a sentence; `--debug` gives the stack."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ouch")

    monkeypatch.setattr("gpubus.cli.common.effective", broken)
    codes = [main(["get", "cards"]), main(["get", "cards", "--debug"])]
    shown = capsys.readouterr().err

    assert codes == [70, 70]
    assert shown.startswith("gpubus: a defect: ZeroDivisionError: ouch; --debug shows where\n")
    assert shown.count("Traceback") == 1


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_help_with_something_to_try(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`gpubus X --help` shows what to type."""
    code = main([*command.split(), "--help"])
    shown = capsys.readouterr().out

    assert code == 0
    assert f"gpubus {command}".strip() in shown.partition("Usage:")[2].partition("\n")[2]
