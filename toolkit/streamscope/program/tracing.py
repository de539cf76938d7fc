"""Tracing: a Python function over symbols, called once, becomes a static program."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial, update_wrapper
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from streamscope.errors import ProgramError
from streamscope.program.arrays import spec_of
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.symbol import Symbol
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec, Place

if TYPE_CHECKING:
    from streamscope.kernels.compile.compilation_log import CompilationLog
    from streamscope.ops.application import Operator


@dataclass
class Tracer:
    """Collects the operations that a function applies while it is traced."""

    name: str
    symbols: list[Symbol] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def symbol(self, spec: ArraySpec, name: str, place: Place | None, *, written: bool = True) -> Symbol:
        """Make a new variable."""
        symbol = Symbol(self, len(self.symbols), spec, name, place, written)
        self.symbols.append(symbol)
        return symbol

    def apply(
        self, operator: Operator, reads: Sequence[object], attributes: Mapping[str, Any], out: object = None
    ) -> Symbol | tuple[Symbol, ...]:
        """Apply an operator to symbols and return what it writes.

        Raises
        ------
        ProgramError
            An argument is not a symbol of this program, lies in the wrong memory, has never been written, or does not fit the operator.
        """
        where = user_line()
        sources = [self._source(operator, argument, where) for argument in reads]
        try:
            specs = operator.infer([source.spec for source in sources], attributes)
        except ProgramError as error:
            names = ", ".join(f"{source.name!r}" for source in sources)
            raise ProgramError(f"{error.message}, applied to {names} at {where}", hint=error.hint) from None
        targets = self._targets(operator, specs, out, where)
        self._check_aliases(operator, sources, targets, where)
        for target in targets:
            target.written = True
        number = len(self.operations)
        arguments, writes = tuple(source.id for source in sources), tuple(target.id for target in targets)
        work = operator.work(number, arguments, writes, [s.spec for s in sources], [t.spec for t in targets], attributes)
        once = tuple(dict.fromkeys(arguments))
        self.operations.append(Operation(number, operator.name, once, writes, dict(attributes), where, self._placed(work, where)))
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _placed(self, work: tuple[Launch, ...] | HostCall, where: str) -> tuple[Launch, ...] | HostCall:
        """Return the work of an operation with the user's line in it, without launches that write no elements: they would do nothing."""
        if isinstance(work, HostCall):
            return replace(work, where=where)
        return tuple(replace(launch, where=where) for launch in work if any(self.symbols[v].spec.size for v in launch.writes))

    def _source(self, operator: Operator, argument: object, where: str) -> Symbol:
        if not isinstance(argument, Symbol):
            raise ProgramError(
                f"{operator.name} at {where} got a {type(argument).__name__} instead of a variable of the program",
                hint="pass arrays as arguments of the program, or make them inside it with ss.empty",
            )
        if argument.tracer is not self:
            raise ProgramError(f"{operator.name} at {where} uses {argument.name!r}, which belongs to another program")
        if not argument.written:
            raise ProgramError(f"{operator.name} at {where} reads {argument.name!r}, which nothing has written")
        self._settle(argument, operator.reads_from, operator, where)
        return argument

    def _targets(self, operator: Operator, specs: Sequence[ArraySpec], out: object, where: str) -> list[Symbol]:
        if out is None:
            return [self.symbol(spec, f"{operator.name}_{len(self.operations)}", operator.writes_to) for spec in specs]
        targets: list[Any] = list(out) if isinstance(out, tuple | list) else [out]
        if len(targets) != len(specs):
            raise ProgramError(f"{operator.name} at {where} writes {len(specs)} variables, but out= names {len(targets)}")
        for index, (target, spec) in enumerate(zip(targets, specs, strict=True)):
            if target is None:
                targets[index] = self.symbol(spec, f"{operator.name}_{len(self.operations)}", operator.writes_to)
                continue
            if not isinstance(target, Symbol) or target.tracer is not self:
                raise ProgramError(f"out= of {operator.name} at {where} is not a variable of this program")
            if target.spec != spec:
                raise ProgramError(f"out= of {operator.name} at {where} is {target.spec}, but the result is {spec}")
            self._settle(target, operator.writes_to, operator, where)
        return targets

    @staticmethod
    def _check_aliases(operator: Operator, sources: Sequence[Symbol], targets: Sequence[Symbol], where: str) -> None:
        read = {source.id for source in sources}
        for index, target in enumerate(targets):
            if target.id in read and not operator.in_place:
                raise ProgramError(
                    f"{operator.name} at {where} cannot write over {target.name!r}, which it reads", hint="give another variable as out="
                )
            if any(target is other for other in targets[:index]):
                raise ProgramError(f"{operator.name} at {where} writes {target.name!r} twice", hint="give a variable for each result")

    @staticmethod
    def _settle(symbol: Symbol, place: Place, operator: Operator, where: str) -> None:
        """Check that a variable lies where the operator wants it; an unused input comes to lie there."""
        if symbol.place is None:
            symbol.place = place
        if symbol.place is not place:
            copy = "ss.to_device" if place is Place.DEVICE else "ss.to_host"
            raise ProgramError(
                f"{operator.name} at {where} wants {symbol.name!r} in {place.value} memory, but it lies in {symbol.place.value} memory",
                hint=f"copy it first with {copy}",
            )


_tracer: ContextVar[Tracer | None] = ContextVar("streamscope_tracer", default=None)


def current_tracer(what: str) -> Tracer:
    """Return the tracer of the function that is being traced.

    Raises
    ------
    ProgramError
        No function is being traced; ``what`` says which operator was called.
    """
    tracer = _tracer.get()
    if tracer is None:
        raise ProgramError(f"{what} was called outside a program", hint="call it in a function decorated with @ss.program")
    return tracer


@contextmanager
def _tracing(tracer: Tracer) -> Iterator[None]:
    token = _tracer.set(tracer)
    try:
        yield
    finally:
        _tracer.reset(token)


class ProgramFunction:
    """A Python function that can be traced into a `Program` for given arguments; made by `ss.program`.

    Parameters
    ----------
    function : callable
        Takes variables, applies operators to them, and returns a variable or a tuple of variables.
    fuse : bool
        Neighbouring element-wise operations become one each; see `program`.
    """

    def __init__(self, function: Callable[..., Any], *, fuse: bool = False) -> None:
        update_wrapper(self, function, updated=())
        self.function = function
        self.fuse = fuse
        self.name = getattr(function, "__name__", "program")

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle the program by the name under which it, or its function, is found in a module."""
        module, path = getattr(self.function, "__module__", None), getattr(self.function, "__qualname__", self.name)
        try:
            found = attrgetter(path)(sys.modules[str(module)])
        except (AttributeError, KeyError):
            found = None
        if found is self:
            return str(path)
        if found is self.function:
            return _program_of, (found, self.fuse)
        raise ProgramError(
            f"program {self.name!r} cannot be pickled: there is nothing to import as {path} from {module}",
            hint="define it at the top of a module, under the name of its function",
        )

    def __repr__(self) -> str:
        try:
            arguments = ", ".join(inspect.signature(self.function).parameters)
        except (TypeError, ValueError):  # a built-in function without a signature
            arguments = "..."
        return f"<program {self.name}({arguments}){', fused' if self.fuse else ''}>"

    def __call__(self, *arguments: object, **attributes: Any) -> Any:
        """Inline the function into the program that is being traced.

        Raises
        ------
        ProgramError
            No program is being traced, or the arguments do not fit the function.
        """
        if _tracer.get() is None:
            raise ProgramError(
                f"program {self.name!r} was called outside a program", hint=f"run it with ss.compare({self.name}, ...), or trace it first"
            )
        self._argument_names(arguments, attributes)
        return self.function(*arguments, **attributes)

    def compile(self, *inputs: Any, **options: Any) -> CompilationLog:
        """Compile all kernels that the program needs for inputs like these, together, and keep them: `streamscope.warm`.

        Parameters
        ----------
        *inputs : array
        **options
            As of `streamscope.warm`.
        """
        from streamscope.compiling.warming import warm

        return warm(self, *inputs, **options)

    def source(self, *inputs: Any, **attributes: Any) -> str:
        """Return the CUDA source of all kernels that the program needs for inputs like these: `Program.source`."""
        return self.trace(*inputs, **attributes).source()

    def trace(self, *arguments: Any, **attributes: Any) -> Program:
        """Trace the function for arrays (NumPy, CuPy, or anything with shape and dtype) like ``arguments``.

        Parameters
        ----------
        *arguments : array
        **attributes : object
            Passed on to the function as they are, for example ``training=True``. What depends on them is settled when it is traced.

        Raises
        ------
        ProgramError
            The arguments do not fit the function, an operator does not fit its operands, or nothing is returned.
        """
        tracer = Tracer(self.name)
        names = self._argument_names(arguments, attributes)
        inputs = [tracer.symbol(spec_of(value, name), name, None) for value, name in zip(arguments, names, strict=True)]
        with _tracing(tracer):
            result = self.function(*inputs, **attributes)
        outputs = self._outputs(tracer, result)
        variables = tuple(Variable(s.id, s.name, s.spec, s.place or Place.DEVICE) for s in tracer.symbols)
        traced = Program(
            self.name,
            variables,
            tuple(tracer.operations),
            tuple(symbol.id for symbol in inputs),
            tuple(symbol.id for symbol in outputs),
            not isinstance(result, tuple | list),
        )
        if not self.fuse:
            return traced
        from streamscope.ops.fusion import fused

        return fused(traced)

    def _argument_names(self, arguments: Sequence[object], attributes: Mapping[str, object]) -> list[str]:
        """Return what the function calls its arguments; those that are given by name are attributes, and not among them."""
        try:
            signature = inspect.signature(self.function)
            signature.bind(*arguments, **attributes)
        except (TypeError, ValueError) as error:  # ValueError: a built-in function without a signature
            given = f"{len(arguments)} arguments{', ' if attributes else ''}{', '.join(f'{name}=' for name in attributes)}"
            raise ProgramError(f"program {self.name!r} cannot take {given}: {error}") from None
        names: list[str] = []
        for name, value in signature.bind_partial(*arguments).arguments.items():
            variadic = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            names += [f"{name}[{index}]" for index in range(len(value))] if variadic else [name]
        return names

    def _outputs(self, tracer: Tracer, result: object) -> list[Symbol]:
        # Among several, None is the gradient of an operand that has none.
        outputs: list[Any] = [one for one in result if one is not None] if isinstance(result, tuple | list) else [result]
        hint = "return what an operator returned, or a tuple of such variables"
        if result is None or not outputs:
            raise ProgramError(f"program {self.name!r} returned nothing", hint=hint)
        for output in outputs:
            if not isinstance(output, Symbol) or output.tracer is not tracer:
                raise ProgramError(f"program {self.name!r} returned a {type(output).__name__} instead of a variable", hint=hint)
            if not output.written:
                raise ProgramError(f"program {self.name!r} returns {output.name!r}, which nothing has written")
        return outputs


def _program_of(function: Callable[..., Any], fuse: bool) -> ProgramFunction:  # noqa: FBT001 — pickle gives no names
    return ProgramFunction(function, fuse=fuse)


@overload
def program(function: Callable[..., Any], *, fuse: bool = False) -> ProgramFunction: ...


@overload
def program(*, fuse: bool = False) -> Callable[[Callable[..., Any]], ProgramFunction]: ...


def program(function: Callable[..., Any] | None = None, *, fuse: bool = False) -> Any:
    """Make a program of a function over variables: a decorator, as ``@ss.program`` or ``@ss.program(fuse=True)``.

    The function is called once for each set of argument shapes, with symbols instead of arrays; what it does with them becomes a
    static list of operations. Arguments that are given by name, as in ``engine.run(net, x, training=True)``, reach it as they are.

    Parameters
    ----------
    function : callable
        Takes variables, applies operators to them, and returns a variable or a tuple of variables.
    fuse : bool
        Make one kernel of neighbouring element-wise operations of one result shape. Intermediates that nothing else reads are then not
        written to memory, but rounded as if they were, so that results are the same to the last bit (but for signs and payloads of NaNs).
        A program that another one calls is traced into that one, whose option counts; a program of a program keeps it.

    Raises
    ------
    ProgramError
        It is not callable.
    """
    if function is None:
        return partial(program, fuse=fuse)
    if not isinstance(fuse, bool):
        raise ProgramError(f"ss.program: fuse={fuse!r} is neither True nor False")
    if not callable(function):
        raise ProgramError(f"ss.program wants a function, not a {type(function).__name__}")
    return ProgramFunction(function, fuse=fuse or (isinstance(function, ProgramFunction) and function.fuse))


def empty(shape: int | Sequence[int], dtype: Any = "float32", *, name: str = "empty") -> Symbol:
    """Make a variable in device memory that an operation must write (``out=``) before another reads it.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : dtype
    name : str
        What errors call it.

    Raises
    ------
    ProgramError
        Called outside a program, or the shape or the dtype is not possible.
    """
    tracer = current_tracer("ss.empty")
    extents = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    try:
        return tracer.symbol(ArraySpec(extents, dtype), name, Place.DEVICE, written=False)
    except ProgramError as error:
        raise ProgramError(f"ss.empty at {user_line()}: {error.message}", hint=error.hint) from None
