"""Docstrings: parameters that several functions share, and what is shown of docstrings elsewhere."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Documented = TypeVar("_Documented", bound=Callable[..., Any])

SHARED: Mapping[str, str] = {
    "program": """\
program : callable, ProgramFunction or CapturedProgram
    A function over variables, or what ``ss.capture`` or ``ss.load_captured`` returned, which takes no inputs.""",
    "traceable": """\
program : callable, ProgramFunction or Program
    A function over variables, or what ``trace`` of a program returned, which takes no inputs here.""",
    "inputs": """\
*inputs : array
    Arguments of the program: NumPy or CuPy arrays.""",
    "device": """\
device : {"auto", "cuda", "simulated"} or Device
    By default the GPU, and without one the simulated device. ``"cuda:1"`` is another GPU.""",
    "gpus": """\
gpus : int or list of int, optional
    So many GPUs, or those with these numbers, for programs over several; by default as many as the program needs.""",
    "streams": """\
streams : int, optional
    Compute streams that ``dual`` and ``graph-dual`` may use, 1 to 128; by default 2, and of captured code up to 12.""",
    "repeats": """\
repeats : int
    Timed runs of each engine, up to 200,000; a simulated device, which repeats itself exactly, is run once.""",
    "progress": """\
progress : bool or callable
    Show a progress bar, or call ``progress(what, step, steps)`` before each step. What that raises ends the work.""",
    "workers": """\
workers : int, optional
    Threads that compile; by default as many as cores and free memory allow.""",
    "attributes": """\
**attributes : object
    Passed on to the function as they are, for example ``training=True``.""",
    "out": """\
out : variable, optional
    Where the result goes; by default a new variable.""",
    "out_or_x": """\
out : variable, optional
    Where the result goes, which may be ``x`` (in place); by default a new variable.""",
    "on_gpus": """\
variables : list of variable
    One a GPU, all of one shape and dtype.""",
    "collective_order": """\
priority : int
    Of collectives that are ready at the same time, the one with the highest goes first.
out : list of variable, optional
    Where the results go, one a GPU; by default new variables.""",
    "gpus_misfit": """\
Returns
-------
list of variable
    One a GPU, in the order of the arguments.

Raises
------
ProgramError
    Called outside a program; shapes or dtypes differ or do not fit, NCCL has no such dtype, or two variables lie on one GPU.""",
    "variables_misfit": """\
Raises
------
ProgramError
    Called outside a program, or the variables do not fit.""",
}
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
        function.__doc__ = _PLACE.sub(lambda place: textwrap.indent(SHARED[place[2]], place[1]), function.__doc__)
    return function


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
