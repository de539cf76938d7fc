"""Signatures of functions that users give."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature without evaluating its annotations.

    Since Python 3.14, `inspect.signature` evaluates them, and fails where one names a type that is imported for type checkers only.

    Raises
    ------
    TypeError
        The object cannot be called.
    ValueError
        It has no signature, as some built-in functions.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)
