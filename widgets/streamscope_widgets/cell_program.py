"""A notebook cell as a program: the arrays that it reads become the inputs, its last expression the result."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamscope.errors import ProgramError


@dataclass(frozen=True)
class CellProgram:
    """What a cell became."""

    function: Callable[..., Any]
    """Takes the inputs in order and returns the value of the cell's last expression."""
    inputs: tuple[str, ...]
    """Names of the arrays that the cell reads, in the order of the cell."""


def cell_program(cell: ast.Module, namespace: dict[str, Any], *, name: str, filename: str) -> CellProgram:
    """Make a function of a parsed cell, compiled once.

    Names of NumPy or CuPy arrays that the cell reads before it assigns them become the parameters. All other names are looked up in
    the namespace when the function runs. Assignments of the cell stay inside the function.

    ``namespace``: the user's variables: the function's globals.
    ``name``: name of the function.
    ``filename``: where a traceback finds the cell's lines.
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
    definition.lineno = 1
    module = ast.fix_missing_locations(ast.Module([definition], type_ignores=[]))
    made: dict[str, Any] = {}
    exec(compile(module, filename, "exec", dont_inherit=True), namespace, made)  # noqa: S102 — it is the user's own cell.
    # Who lists the lines of a function looks for its `def`, which the cell has not: like a module's, its lines are those of the file.
    made[name].__code__ = made[name].__code__.replace(co_name="<module>")
    return CellProgram(made[name], tuple(inputs))


def is_array(value: object) -> bool:
    """Tell whether a value is an array that a program can take: NumPy's, or one on a CUDA device such as CuPy's."""
    return isinstance(value, np.ndarray) or hasattr(type(value), "__cuda_array_interface__")


def names_of(cell: ast.Module) -> tuple[list[str], set[str]]:
    """Return the names that a cell reads before it has certainly stored them, in the order of its text, and those that it stores.

    A store inside a branch, a loop or an expression may not happen, so it does not count after it. Names that the cell
    calls ``global`` are neither: they stay the namespace's.
    """
    scopes = [(statement, _Scope.of(statement)) for statement in cell.body]
    shared = {name for _, scope in scopes for name in scope.shared}
    reads: dict[str, None] = {}
    stores: set[str] = set()
    certain: set[str] = set()
    for statement, scope in scopes:
        loaded = (scope.loaded | scope.loaded_inside) - certain - shared
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id in loaded]
        reads |= dict.fromkeys(node.id for node in sorted(names, key=lambda node: (node.lineno, node.col_offset)))
        stores |= (scope.stored | scope.stored_inside) - shared
        if isinstance(statement, _STRAIGHT) and not (isinstance(statement, ast.AnnAssign) and statement.value is None):
            certain |= scope.stored - scope.walrus
    return list(reads), stores


_STRAIGHT = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
"""Statements that have certainly stored their names when the next one runs."""


class _Scope(ast.NodeVisitor):
    """The names of one scope, by Python's rules: of a function, a class, a comprehension, or of the cell itself.

    Found in the syntax tree and not in Python's symbol tables, which since Python 3.12 count a comprehension's variables among those
    around it.
    """

    def __init__(self) -> None:
        self.loaded, self.stored = set[str](), set[str]()
        """Here itself."""
        self.walrus = set[str]()
        """Targets of ``:=``. In a comprehension they belong to the scope around it."""
        self.loaded_inside, self.stored_inside = set[str](), set[str]()
        """Names that inner scopes load, and those that they store as ``nonlocal``, where they are not their own."""
        self.shared, self.outer = set[str](), set[str]()
        """Called ``global``, and ``nonlocal``."""

    @classmethod
    def of(cls, *nodes: ast.AST | None) -> Self:
        """Return the names of a scope that consists of some pieces of code."""
        scope = cls()
        for node in nodes:
            if node is not None:
                scope.visit(node)
        return scope

    def visit_Name(self, node: ast.Name) -> None:
        (self.loaded if isinstance(node.ctx, ast.Load) else self.stored).add(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.walrus.add(node.target.id)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.loaded.add(node.target.id)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.shared.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.outer.update(node.names)

    def visit_alias(self, node: ast.alias) -> None:
        self.stored.add(node.asname or node.name.partition(".")[0])

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._visit_named(node, node.name)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._visit_named(node, node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._visit_named(node, node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._visit_named(node, node.rest)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_function(node.args, [node.body])

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.stored.add(node.name)
        self._visit_around(*node.decorator_list, node.returns)
        self._visit_function(node.args, [*_types(node), *node.body], _types(node))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 — the visitor's names are those of the nodes

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.stored.add(node.name)
        self._visit_around(*node.decorator_list)
        inside = _Scope.of(*_types(node), *node.bases, *node.keywords, *node.body)
        # Functions in a class do not see its names.
        self._take(inside, (inside.loaded - inside.stored) | inside.loaded_inside, _types(node))

    def visit_TypeAlias(self, node: Any) -> None:  # of Python 3.12
        self.stored.add(node.name.id)
        inside = _Scope.of(*_types(node), node.value)
        self._take(inside, inside.loaded | inside.loaded_inside, _types(node))

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
        self._visit_comprehension(node.generators, node.elt)

    visit_SetComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._visit_comprehension(node.generators, node.key, node.value)

    def _visit_named(self, node: ast.AST, name: str | None) -> None:
        if name is not None:
            self.stored.add(name)
        self.generic_visit(node)

    def _visit_around(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _visit_function(self, parameters: ast.arguments, body: Sequence[ast.AST], types: Sequence[Any] = ()) -> None:
        every = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
        every += [parameter for parameter in (parameters.vararg, parameters.kwarg) if parameter is not None]
        self._visit_around(*parameters.defaults, *parameters.kw_defaults, *(parameter.annotation for parameter in every))
        inside = _Scope.of(*body)
        own = {parameter.arg for parameter in every} | (inside.stored - inside.outer)
        self._take(inside, (inside.loaded | inside.loaded_inside) - own, types)

    def _visit_comprehension(self, generators: Sequence[ast.comprehension], *results: ast.AST) -> None:
        self.visit(generators[0].iter)  # It is evaluated outside.
        inside = _Scope.of(*results)
        for number, generator in enumerate(generators):
            for node in (generator.target, *([generator.iter] if number else []), *generator.ifs):
                inside.visit(node)
        self.walrus |= inside.walrus
        self.stored |= inside.walrus
        self._take(inside, (inside.loaded | inside.loaded_inside) - (inside.stored - inside.walrus))

    def _take(self, inside: _Scope, loaded: set[str], types: Sequence[Any] = ()) -> None:
        """Add an inner scope's loads and stores of names that are not its own."""
        self.loaded_inside |= loaded - inside.shared - {each.name for each in types}
        self.stored_inside |= (inside.stored & inside.outer) | (inside.stored_inside - inside.stored)


def _types(node: Any) -> Sequence[Any]:
    """Return the type parameters of a function, a class or an alias, which Python has since 3.12."""
    return getattr(node, "type_params", [])
