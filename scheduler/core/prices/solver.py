"""Whether linear programs can be solved here."""

from __future__ import annotations

from importlib.util import find_spec


class NoSolver(RuntimeError):  # noqa: N818 - named by what is the case
    """highspy is not installed."""

    def __init__(self) -> None:
        super().__init__("linear programs need highspy, which is not installed: pip install 'gpubus[lp]'")


def solver_there() -> bool:
    """Whether `columns.solve` can be called."""
    return find_spec("highspy") is not None
