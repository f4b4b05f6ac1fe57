"""numba behind one typed decorator: compiled where it is installed, the same plain functions where it is not.

Compiled code is kept between processes. Where: the folder `NUMBA_CACHE_DIR` if it is set; else `__pycache__` beside the
source if it can be written; else numba's folder in the user's cache. When none of them can be written, each process
compiles for itself (`scheduler.core.arrays.warm` before the first request). An image is built once with
`NUMBA_CACHE_DIR=/somewhere python -m scheduler.core.arrays.warm` and started with the same setting, read-only or not.

numba keeps compiled code by the date of the *one* file a function stands in: all kernels and the numbers that they are
compiled with stand in one file, so that no stale code survives an edit.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar, cast

numba: Any
try:
    numba = import_module("numba")
except ImportError:  # slower, and the same answers
    numba = None

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, compiled at its first call for the types that it is called with."""
    if numba is None:
        return function
    jit: Any = numba.njit
    try:
        return cast("Callable[P, R]", jit(cache=True, error_model="numpy")(function))
    except RuntimeError:  # no folder to keep it in
        return cast("Callable[P, R]", jit(error_model="numpy")(function))
