"""A function that is computed on a tape, and the way back from its results to its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamscope.differentiating.backward import labelled, pulled_back
from streamscope.errors import ProgramError
from streamscope.ops.fusion import renumbered
from streamscope.ops.host import to_device, to_host
from streamscope.ops.selection import astype, filled
from streamscope.ops.views import copy
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation, Program
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Taped, Tracer, Value, current_tracer
from streamscope.program.user_line import user_line
from streamscope.program.variable import MemoryPlace
from streamscope.words import a_kind, counted, listed

Again = Callable[[Sequence[Operation]], Callable[[Operation], bool]]
"""``again(operations of the function)(operation) -> bool``: which of them a backward pass computes again, instead of keeping results."""


@dataclass(frozen=True)
class Forward:
    """A function that has been computed on a tape, for its gradients."""

    verb: str
    """How errors name the caller."""
    name: str
    tracer: Tracer
    tape: Sequence[Taped]
    arguments: Sequence[Any]
    """Those whose gradients are asked for: variables, and tuples, lists and dictionaries of them."""
    values: Sequence[Value]
    """What their variables held when the function began."""
    inputs: Sequence[Symbol]
    """All variables among the arguments."""
    result: Any
    results: Sequence[Value]
    again: Callable[[Operation], bool]

    def seed(self) -> Symbol:
        """Return the gradient of a scalar result, which is 1."""
        result = self.result
        if not isinstance(result, Symbol) or result.shape:
            kind = f"{result.spec}, not a scalar" if isinstance(result, Symbol) else f"{a_kind(result)}, not one scalar"
            hint = "sum it up, y.sum(), or give its gradient: y, pullback = ss.vjp(function, x); has_aux=True allows further results"
            raise ProgramError(f"{self.verb} at {user_line()}: {self.name!r} returns {kind}", hint=hint)
        # Made of an input, and not of the result, which is then not computed if nobody else needs it.
        like = [each for each in self.inputs if _is_float(each) and each.gpu == result.gpu and each.size and not _on_host(each)]
        like.sort(key=lambda each: each.dtype != result.dtype)
        with _removable(self.tracer), labelled(self.tracer), self.tracer.anywhere():
            return astype(filled(1, (), [*like, _on_device(result)][0]), result.dtype, copy=False)

    def pulled_back(self, gradient: Any) -> tuple[Any, ...]:
        """Return the gradients of the arguments for that of the result."""
        given, right = list(leaves(gradient)), [each.spec for each in leaves(self.result)]
        specs = [each.spec if isinstance(each, Symbol) else a_kind(each) for each in given]
        if specs != right:
            said = f"the gradient of the result is {listed(list(map(str, specs)))}, and the result {listed(list(map(str, right)))}"
            hint = "give a variable of the result's shape and dtype"
            raise ProgramError(f"{self.verb} at {user_line()}: {said}", hint=hint)
        with _removable(self.tracer), _as_before(self.tracer):
            upstream = list(zip(self.results, map(_on_device, given), strict=True))
            found = iter(pulled_back(self.tracer, self.tape, self.values, upstream, self.again, self.verb))
            variables = [each for argument in self.arguments for each in leaves(argument)]
            with labelled(self.tracer), self.tracer.anywhere():
                gradients = [_or_zeros(next(found), each) if _is_float(each) else None for each in variables]
                own = iter(list(_of_their_own(gradients, {each.id for each in given})))
        return tuple(_like(argument, own) for argument in self.arguments)


def forward(
    verb: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    attributes: Mapping[str, Any],
    again: Again,
    *,
    chosen: Sequence[int] | None = None,
    has_aux: bool = False,
) -> tuple[Forward, Any]:
    """Compute a function on a tape; return that, and all that the function returned.

    ``chosen`` says of which arguments gradients are asked for; None: of all.
    """
    tracer, name = current_tracer(verb), getattr(function, "__name__", "function")
    places = [_place(verb, name, place, len(arguments)) for place in (range(len(arguments)) if chosen is None else chosen)]
    held = [each.id for tree in (arguments, _closure(function)) for each in leaves(tree) if isinstance(each, Symbol)]
    given = [_apart(argument, held) if place in places else argument for place, argument in enumerate(arguments)]
    asked = [given[place] for place in places]
    for each in (leaf for argument in asked for leaf in leaves(argument)):
        _check(verb, name, each, whole_numbers=chosen is None)
    values = [tracer.value_of(each) for argument in asked for each in leaves(argument) if _is_float(each)]
    with _removable(tracer) as begin, tracer.taping() as tape:
        returned = function(*given, **attributes)
    if has_aux and not (isinstance(returned, tuple) and len(returned) == 2):
        hint = "return the result and the further ones: return loss, (mean, variance)"
        raise ProgramError(f"{verb}: with has_aux=True, {name!r} must return a pair, not {a_kind(returned)}", hint=hint)
    result = returned[0] if has_aux else returned
    for each in leaves(result):
        _check(verb, f"the result of {name}", each)
    inputs = [each for argument in given for each in leaves(argument) if isinstance(each, Symbol)]
    results = [tracer.value_of(each) for each in leaves(result)]
    repeated = again(tracer.operations[begin:])
    return Forward(verb, name, tracer, tape, asked, values, inputs, result, results, repeated), returned


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the variables of tuples, lists and dictionaries, in order. None is nothing."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from leaves(each)
    elif tree is not None:
        yield tree


def _like(tree: Any, found: Iterator[Any]) -> Any:
    """Return a tuple, list or dictionary like another one, with other leaves."""
    if isinstance(tree, Mapping):
        return {name: _like(each, found) for name, each in tree.items()}
    if isinstance(tree, list | tuple):
        made = [_like(each, found) for each in tree]
        return made if isinstance(tree, list) else tuple(made)
    return None if tree is None else next(found)


@contextmanager
def _removable(tracer: Tracer) -> Iterator[int]:
    """Let operations of the block be left out of the program where nothing uses them; gives the first one's id."""
    begin = len(tracer.operations)
    tracer.finish = partial(without_unused, removable=tracer.removable)
    yield begin
    tracer.removable.update(range(begin, len(tracer.operations)))


@contextmanager
def _as_before(tracer: Tracer) -> Iterator[None]:
    """Let reshapes of the block not count: what they mean does not depend on how inputs lie in memory."""
    before = tracer.reshapes
    yield
    tracer.reshapes = before


def _place(verb: str, name: str, place: int, count: int) -> int:
    """Return the place of an argument, which may be counted from the end."""
    if not -count <= place < count:
        raise ProgramError(f"{verb}: argnums={place}, and {name!r} got {counted(count, 'argument')}", hint="arguments by position, from 0")
    return place % count


def _is_float(each: Symbol) -> bool:
    return each.dtype.kind == "f"


def _check(verb: str, name: str, each: object, *, whole_numbers: bool = False) -> None:
    """Raise a `ProgramError` for what has no gradient."""
    if not isinstance(each, Symbol):
        hint = "give variables of the program, or tuples, lists and dictionaries of them"
        raise ProgramError(f"{verb} at {user_line()}: {name!r} has {a_kind(each)}, which has no gradient", hint=hint)
    if not _is_float(each) and not whole_numbers:
        hint = "leave it out of argnums=, or convert it before: x.astype('float32')"
        raise ProgramError(f"{verb} at {user_line()}: {each.name!r} of {name!r} is {each.dtype.name}, which has no gradient", hint=hint)


def _closure(function: Callable[..., Any]) -> list[Any]:
    """Return what a function has of the function around it."""
    cells = getattr(getattr(function, "function", function), "__closure__", None) or ()
    return [cell.cell_contents for cell in cells if _is_filled(cell)]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # Its variable is set later.
        return False


def _apart(argument: Any, held: Sequence[int]) -> Any:
    """Return an argument in memory of its own. Gradients of views, and of a variable that is held twice, could not be told apart."""

    def apart(each: Any) -> Any:
        shared = isinstance(each, Symbol) and (each.seen is not None or held.count(each.id) > 1)
        return copy(each) if shared else each

    return _like(argument, map(apart, leaves(argument)))


def _or_zeros(gradient: Symbol | None, like: Symbol) -> Symbol:
    """Return the gradient of a variable, in its memory; zeros where the result does not depend on it."""
    found = gradient
    if found is None:
        source = _on_device(like)
        found = filled(0, like.shape, source) if like.size else copy(source)
    return to_host(found) if _on_host(like) else found


def _on_host(each: Symbol) -> bool:
    return each.place is MemoryPlace.HOST


def _on_device(each: Symbol) -> Symbol:
    return to_device(each) if _on_host(each) else each


def _of_their_own(gradients: Sequence[Symbol | None], taken: set[int]) -> Iterator[Symbol | None]:
    """Yield gradients, a copy of each that is the same variable as another one: one may be written in place."""
    for each in gradients:
        found = copy(each) if each is not None and each.id in taken else each
        if found is not None:
            taken.add(found.id)
        yield found


def without_unused(program: Program, removable: Collection[int]) -> Program:
    """Return a program without those of some operations on which no result depends: a gradient needs no loss, and often no last product.

    Other operations stay, also where nothing uses them: they are what the user wrote.
    """
    needed = {*program.outputs, *program.inputs}  # An input that is written is a result, too.
    left = []
    for operation in reversed(program.operations):
        if operation.id in removable and needed.isdisjoint(operation.writes) and not _has_effects(operation):
            continue
        left.append(operation)
        needed.difference_update(variable for variable in _written_whole(operation) if variable not in program.inputs)
        needed.update(operation.reads, *(work.reads for work in operation.works))
    return renumbered(program, left[::-1]) if len(left) < len(program.operations) else program


def _has_effects(operation: Operation) -> bool:
    return isinstance(operation.work, HostCall) or any(launch.stateful for launch in operation.launches)


def _written_whole(operation: Operation) -> list[int]:
    """Return the variables of which an operation leaves nothing as it was."""
    return [variable for variable, view in operation.results if view is None]
