"""Docstrings: parameters that several functions share, and what is shown of docstrings elsewhere."""

from __future__ import annotations

import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Documented = TypeVar("_Documented", bound=Callable[..., Any])

_BEGINNING = re.compile(r"^\[(\w+)\]\n", re.MULTILINE)


def _shared() -> Mapping[str, str]:
    """Return the parts of ``docstrings.txt`` by name, each of which begins with its name in brackets."""
    text = (pkgutil.get_data("streamscope", "docstrings.txt") or b"").decode()  # also where the package lies in a zip
    _, *parts = _BEGINNING.split(text)
    return {name: part.strip("\n") for name, part in zip(parts[::2], parts[1::2], strict=True)}


SHARED = _shared()
"""Parts of docstrings by name. ``{device}`` on a line of its own in the docstring of a verb or an operator stands for one."""
_PLACE = re.compile(r"^( *)\{(\w+)\}$", re.MULTILINE)


def with_shared_parts(function: _Documented) -> _Documented:
    """Fill the docstring of a function with the parts of `SHARED` that it names.

    Examples
    --------
    >>> @with_shared_parts
    ... def run(device):
    ...     '''Run it.
    ...
    ...     {device}
    ...     '''
    >>> print(docstring(run))
    Run it.
    <BLANKLINE>
    device : {"auto", "cuda", "simulated"} or Device
        By default the GPU, and without one the simulated device. ``"cuda:1"`` is another GPU.
    """
    if function.__doc__:  # ``python -OO`` strips it.
        function.__doc__ = _PLACE.sub(_part, function.__doc__)
    return function


def _part(place: re.Match[str]) -> str:
    """Return a part with the indentation of its place; parts may name parts."""
    return textwrap.indent(_PLACE.sub(_part, SHARED[place[2]]), place[1])


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
