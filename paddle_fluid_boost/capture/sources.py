"""Whose code a file is: Paddle's and the standard library's are trusted, the user's is examined."""

from __future__ import annotations

import functools
import os
import sysconfig

import numpy

from . import _paddle as pd

_PADDLE = os.path.dirname(pd.paddle.__file__) + os.sep
_NUMPY = os.path.dirname(numpy.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = tuple(
    {sysconfig.get_path(name).rstrip(os.sep) + os.sep for name in ("stdlib", "platstdlib")}
)


@functools.lru_cache(maxsize=4096)
def origin(filename: str) -> str:
    """``"paddle"``, ``"numpy"``, ``"ours"``, ``"stdlib"`` or ``"user"`` for a code's file name.

    Third-party packages (``paddleclas``, ``einops``) count as the user's: their forwards are as
    free to have effects as anybody's.
    """
    if filename.startswith(_PADDLE):
        return "paddle"
    if filename.startswith(_NUMPY):
        return "numpy"
    if filename.startswith(_OURS):
        return "ours"
    if filename.startswith("<frozen "):
        return "stdlib"
    if filename.startswith(_STDLIB) and f"{os.sep}site-packages{os.sep}" not in filename:
        return "stdlib"
    return "user"


def is_user_file(filename: str) -> bool:
    """True when ``filename`` is neither Paddle's, numpy's, ours nor the standard library's."""
    return origin(filename) == "user"
