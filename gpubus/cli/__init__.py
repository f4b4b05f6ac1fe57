"""The `gpubus` command: what was typed goes in, an exit status comes out; errors are one line for people.

Commands live in files of their own and know nothing of exit paths: they return an `Exit` or raise an error of
`gpubus.errors`. Here every ending becomes a line on stderr and a code of `gpubus.cli.exits`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from gpubus.cli.exits import Exit, exit_of
from gpubus.errors import FrontError, LocalFailure
from scheduler.compiledcode import make_writable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    from cyclopts import CycloptsError  # noqa: PLC0415 - keeps `import gpubus.cli` light for tests of the exit codes

    from gpubus.cli.app import build  # noqa: PLC0415
    from gpubus.cli.words import spelt_out  # noqa: PLC0415

    make_writable(os.environ)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app = build(given[0] if given else "")
        return int(app(spelt_out(given), exit_on_error=False, print_error=False) or 0)
    except CycloptsError as error:
        return _end(error, Exit.USAGE, f"{error}".strip(), given)
    except FrontError as error:
        return _end(error, exit_of(error), _one_line(error), given)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read us is gone (`| head`); the interpreter would say so again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a person gets one line, not a stack
        return _end(error, Exit.DEFECT, f"a defect: {type(error).__name__}: {error}; --debug shows where", given)


def _end(error: Exception, code: Exit, line: str, given: list[str]) -> int:
    if "--debug" in given:
        traceback.print_exception(error)
    if line:
        print(f"gpubus: {line}", file=sys.stderr)
    return int(code)


def _one_line(error: FrontError) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, LocalFailure) and error.log_tail:
        where = f" ({error.log_file})" if error.log_file else ""
        return f"{text}\n--- the end of its log{where} ---\n{error.log_tail}"
    return text
