"""Docstrings that are shown: definitions of metrics, help of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def docstring(function: Callable[..., Any]) -> str:
    """Return a function's docstring without its indentation; empty where it has none.

    ``python -OO`` strips docstrings. They are then read from the source, which is installed with the package.
    """
    return inspect.getdoc(function) or _in_source(function)


def _in_source(function: Callable[..., Any]) -> str:
    import ast
    import textwrap

    try:
        source = textwrap.dedent(inspect.getsource(function))
        # `ast.parse` would do, but strips docstrings like the compiler from Python 3.14 on.
        module = compile(source, "<source>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True, optimize=0)
        (definition,) = ast.iter_child_nodes(module)
    except (OSError, TypeError, SyntaxError, ValueError):  # No source; built in; a lambda.
        return ""
    return (isinstance(definition, ast.FunctionDef) and ast.get_docstring(definition)) or ""
