"""The backward pass over a tape: from the gradients of results to those of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from streamscope.differentiating.contributions import Contributions
from streamscope.errors import ProgramError
from streamscope.program.aliasing import Aliasing
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation
from streamscope.program.symbol import Symbol, SymbolView, symbol_of
from streamscope.program.tracer import Backward, Taped, Tracer, Value
from streamscope.program.user_line import UserLine
from streamscope.program.view import whole

LABEL = "backward"
"""Label of the operations of a backward pass, before that of the operation that they belong to."""


def pulled_back(
    tracer: Tracer,
    tape: Sequence[Taped],
    arguments: Sequence[Value],
    results: Sequence[tuple[Value, Symbol]],
    again: Callable[[Operation], bool],
    verb: str,
) -> list[Symbol | None]:
    """Return the gradients of arguments for those of results; None where no result depends on an argument.

    ``again`` tells which operations are computed again instead of kept, and ``verb`` is how errors name the caller.
    """
    active = _active(tracer, tape, arguments)
    values = _Values(tracer, tape, again)
    contributions = Contributions(lambda variable: tracer.symbols[variable].spec)
    for value, gradient in results:
        if value.key in active:
            contributions.add(value, gradient)
    for taped in reversed(tape):
        wanted = [read.key in active and tracer.symbols[read.variable].dtype.kind == "f" for read in taped.reads]
        operation = tracer.operations[taped.operation]
        with _in_place_of(tracer, operation):
            upstream = [contributions.total(write) if write.key in active else None for write in taped.writes]
            if any(wanted) and any(gradient is not None for gradient in upstream):
                found = _rule(values, taped, operation, upstream, wanted, verb)
                for read, contribution, used in zip(taped.reads, found, wanted, strict=True):
                    if used and contribution is not None:
                        contributions.add(read, contribution)
            for write in taped.writes:
                before = Value(write.variable, write.version - 1)
                if write.variable in taped.kept and before.key in active:
                    contributions.add_rest(before, write)
    with labelled(tracer):
        return [contributions.total(argument) for argument in arguments]


def _active(tracer: Tracer, tape: Sequence[Taped], arguments: Sequence[Value]) -> set[tuple[int, int]]:
    """Return the floating-point values that depend on arguments through others: all that may have a gradient."""
    active = {argument.key for argument in arguments}
    for taped in tape:
        reads = [read.key for read in taped.reads]
        for write in taped.writes:
            before = (write.variable, write.version - 1) if write.variable in taped.kept else None
            if tracer.symbols[write.variable].dtype.kind == "f" and not active.isdisjoint([*reads, before]):
                active.add(write.key)
    return active


def _rule(
    values: _Values, taped: Taped, operation: Operation, upstream: Sequence[Symbol | None], wanted: Sequence[bool], verb: str
) -> Sequence[Symbol | None]:
    """Return the gradients of an operator's arguments by its rule."""
    if taped.operator.gradient is None:
        kind = "a host function, which has" if isinstance(operation.work, HostCall) else "which has"
        raise ProgramError(
            f"{verb}: the result depends on {operation.name} at {operation.line}, {kind} no gradient",
            hint="leave it out; an operator of yours has one by gradient= of ss.operator or ss.elementwise",
        )
    symbols = values.tracer.symbols
    backward = Backward(
        upstream,
        wanted,
        [read.view.spec if read.view is not None else symbols[read.variable].spec for read in taped.reads],
        [write.view.spec if write.view is not None else symbols[write.variable].spec for write in taped.writes],
        [symbols[read.variable].gpu for read in taped.reads],
        operation.attributes,
        lambda place: values.of(taped.reads[place], operation, verb),
        lambda place: values.of(taped.writes[place], operation, verb),
        lambda place: values.tracer.holds(taped.writes[place]),
    )
    try:
        return taped.operator.gradient(backward)
    except ProgramError as error:
        if operation.where not in error.message:
            error.message = f"{verb}: {error.message} at {operation.line}"
        raise


@contextmanager
def _in_place_of(tracer: Tracer, operation: Operation) -> Iterator[None]:
    """Let operations of the block have the line of the one whose gradient they compute, and run where their operands lie."""
    before, tracer.lines.instead = tracer.lines.instead, UserLine(operation.where, operation.source)
    try:
        with labelled(tracer, operation.label), tracer.anywhere():
            yield
    finally:
        tracer.lines.instead = before


@contextmanager
def labelled(tracer: Tracer, label: str = "") -> Iterator[None]:
    """Label operations of the block as those of a backward pass."""
    before, tracer.label = tracer.label, f"{LABEL}/{label}" if label else LABEL
    try:
        yield
    finally:
        tracer.label = before


class _Values:
    """Values of the forward pass, as far as variables still hold them, or they are computed again."""

    def __init__(self, tracer: Tracer, tape: Sequence[Taped], again: Callable[[Operation], bool]) -> None:
        self.tracer = tracer
        self._again: dict[tuple[int, int], Taped] = {}
        self._made: dict[tuple[int, int], Symbol] = {}
        for taped in tape:
            if _repeatable(taped, tracer.operations[taped.operation]) and again(tracer.operations[taped.operation]):
                self._again.update((write.key, taped) for write in taped.writes)

    def of(self, value: Value, by: Operation, verb: str) -> Symbol:
        """Return a variable that holds a value, as it is seen; ``by`` is the operation whose gradient asks for it."""
        if value.key in self._again:
            variable = self._repeated(value, by, verb)
        else:
            variable = self.tracer.symbols[value.variable]
            if not self.tracer.holds(value):
                raise ProgramError(
                    f"{verb}: the gradient of {by.name} at {by.line} needs {variable.name!r}, which was written in place since",
                    hint="write a new variable instead: x = x * y for x *= y, and no out= over it; or name in recompute= what made it",
                )
            if variable.stale:  # Its base in NumPy was written since, but this is a copy, which has the value.
                variable = SymbolView(variable, whole(variable.spec), Aliasing.NUMBER)
        return variable if value.view is None else symbol_of(variable, value.view, Aliasing.ARRAY)

    def _repeated(self, value: Value, by: Operation, verb: str) -> Symbol:
        """Return a value that is computed again, once for the whole pass."""
        if value.key not in self._made:
            taped = self._again[value.key]
            operation = self.tracer.operations[taped.operation]
            reads = [self.of(read, by, verb) for read in taped.reads]
            with _in_place_of(self.tracer, operation):
                found = self.tracer.apply(taped.operator, reads, operation.attributes)
            made = found if isinstance(found, tuple) else (found,)
            self._made.update((write.key, each) for write, each in zip(taped.writes, made, strict=True))
        return self._made[value.key]


def _repeatable(taped: Taped, operation: Operation) -> bool:
    """Tell whether an operation gives the same when it is done again into new variables."""
    whole_writes = all(write.view is None for write in taped.writes) and "request" not in operation.attributes
    return whole_writes and not isinstance(operation.work, HostCall) and not any(launch.stateful for launch in operation.launches)
