"""A notebook cell as a program: the arrays that it reads become the inputs, its last expression the result."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.errors import ProgramError


@dataclass(frozen=True)
class CellProgram:
    """What a cell became.

    Attributes
    ----------
    function : callable
        Takes the inputs in order and returns the value of the cell's last expression.
    inputs : tuple of str
        Names of the arrays that the cell reads, in the order of the cell.
    """

    function: Callable[..., Any]
    inputs: tuple[str, ...]


def cell_program(cell: ast.Module, namespace: dict[str, Any], *, name: str, filename: str) -> CellProgram:
    """Make a function of a parsed cell, compiled once.

    Names of NumPy or CuPy arrays that the cell reads before it assigns them become the parameters. All other names are looked up in
    the namespace when the function runs. What the cell assigns stays inside the function.

    Parameters
    ----------
    cell : ast.Module
    namespace : dict
        The user's variables: the function's globals.
    name : str
        Name of the function.
    filename : str
        Where a traceback finds the cell's lines.

    Raises
    ------
    ProgramError
        The cell does not end with an expression.
    SyntaxError
        It holds what cannot stand in a function.
    """
    if not cell.body or not isinstance(cell.body[-1], ast.Expr):
        raise ProgramError("the cell does not end with an expression, so it has no result", hint="end it with what the program returns")
    reads, stores = names_of(cell)
    inputs = [read for read in reads if is_array(namespace.get(read))]
    # A name that the cell first reads and then assigns is a local of the function: it must begin with the value that the user gave it.
    begun = [read for read in reads if read in stores and read in namespace and read not in inputs]
    last = cell.body[-1]
    parameters = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(read) for read in inputs],
        kwonlyargs=[ast.arg(read) for read in begun],
        kw_defaults=[ast.Name(read, ast.Load()) for read in begun],
        defaults=[],
    )
    body = [*cell.body[:-1], ast.copy_location(ast.Return(last.value), last)]
    definition = ast.copy_location(ast.FunctionDef(name, parameters, body, decorator_list=[]), cell.body[0])
    module = ast.fix_missing_locations(ast.Module([definition], type_ignores=[]))
    made: dict[str, Any] = {}
    exec(compile(module, filename, "exec", dont_inherit=True), namespace, made)  # noqa: S102 — it is the user's own cell.
    return CellProgram(made[name], tuple(inputs))


def is_array(value: object) -> bool:
    """Tell whether a value is an array that a program can take: NumPy's, or one on a CUDA device such as CuPy's."""
    return isinstance(value, np.ndarray) or hasattr(type(value), "__cuda_array_interface__")


def names_of(cell: ast.Module) -> tuple[list[str], set[str]]:
    """Return the names that a cell reads before it has certainly stored them, in the order of its text, and those that it stores.

    What is stored inside a branch or a loop may not be stored after it, so it does not count there.
    """
    reads: dict[str, None] = {}
    stores: set[str] = set()
    certain: set[str] = set()
    for statement in cell.body:
        loaded, stored = _names_of_statement(statement)
        reads |= dict.fromkeys(name for name in loaded if name not in certain)
        stores |= stored
        if not isinstance(statement, ast.If | ast.For | ast.While | ast.Try | ast.With | ast.Match):
            certain |= stored
    return list(reads), stores


def _names_of_statement(statement: ast.stmt) -> tuple[list[str], set[str]]:
    """Return the names of the cell's own scope that a statement loads and those that it stores, by Python's rules of scope."""
    table = symtable.symtable(ast.unparse(statement), "<cell>", "exec")
    own = table.get_symbols()
    stored = {symbol.get_name() for symbol in own if symbol.is_assigned() or symbol.is_imported()}
    loaded = {symbol.get_name() for symbol in own if symbol.is_referenced()}
    loaded |= {symbol.get_name() for scope in _inner(table) for symbol in scope.get_symbols() if symbol.is_global()}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    loaded |= {node.target.id for node in ast.walk(statement) if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}
    ordered = sorted(names, key=lambda node: (node.lineno, node.col_offset))
    return [node.id for node in ordered if node.id in loaded], stored


def _inner(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for scope in table.get_children():
        yield scope
        yield from _inner(scope)
