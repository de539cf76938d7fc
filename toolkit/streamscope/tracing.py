"""Tracing: a Python function over symbols, called once, becomes a static program."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, update_wrapper
from operator import attrgetter
from typing import Any, overload

import numpy as np

from streamscope import ops
from streamscope.errors import ProgramError
from streamscope.ops.fusion import fused
from streamscope.ops.operators import OF_SYMBOLS
from streamscope.program import symbol
from streamscope.program.aliasing import Aliasing
from streamscope.program.operation import Program, Variable
from streamscope.program.symbol import Symbol, SymbolView
from streamscope.program.tracer import Tracer, applies_operators, is_tracing, tracing
from streamscope.program.user_line import UserLine, line_of_error
from streamscope.program.variable import MemoryPlace, spec_of
from streamscope.signatures import signature_of
from streamscope.tracebacks import users_lines_shown
from streamscope.words import a_kind, counted

symbol.operators.update(OF_SYMBOLS, __dir__=partial(dir, ops))  # the symbols stand below the operators, and know them by name only


_with_arrays: ContextVar[bool] = ContextVar("streamscope_with_arrays", default=False)


@contextmanager
def called_with_arrays() -> Iterator[None]:
    """Let programs be called like the functions that they were made of."""
    token = _with_arrays.set(True)
    try:
        yield
    finally:
        _with_arrays.reset(token)


@applies_operators
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
            arguments = ", ".join(signature_of(self.function).parameters)
        except (TypeError, ValueError):  # a built-in function without a signature
            arguments = "..."
        return f"<program {self.name}({arguments}){', fused' if self.fuse else ''}>"

    def __call__(self, *arguments: object, **attributes: Any) -> Any:
        """Inline the function into the program that is being traced."""
        if not is_tracing() and not _with_arrays.get():
            raise ProgramError(
                f"program {self.name!r} was called outside a program", hint=f"run it with ss.compare({self.name}, ...), or trace it first"
            )
        self._argument_names(arguments, attributes)
        return self.function(*arguments, **attributes)

    def source(self, *inputs: Any, **attributes: Any) -> str:
        """Return the CUDA source of the generated kernels for inputs like these, each once, below a line with the operations that run it.

        Libraries (cuBLAS, cuDNN), functions of the user's and captured code bring kernels of their own, which are not here.
        """
        from streamscope.kernels.compile.program_kernels import program_source

        return program_source(self.trace(*inputs, **attributes))

    def trace(self, *arguments: Any, **attributes: Any) -> Program:
        """Trace the function for arrays (NumPy, CuPy, or anything with shape and dtype) like ``arguments``.

        Parameters
        ----------
        *arguments : array
        **attributes : object
            Passed on to the function as they are, for example ``training=True``. What depends on them is settled when it is traced. An
            array by the name of the parameter that comes next is an argument.

        Raises
        ------
        ProgramError
            The arguments do not fit the function, an operator does not fit its operands, or nothing is returned.
        """
        arguments, attributes = self.by_position(arguments, attributes)
        tracer = Tracer(self.name)
        names = self._argument_names(arguments, attributes)
        inputs = [
            # NumPy's numbers, unlike arrays without axes, are never written.
            tracer.symbol(spec_of(value, name), name, None, sharing=Aliasing.NUMBER if isinstance(value, np.generic) else Aliasing.ARRAY)
            for value, name in zip(arguments, names, strict=True)
        ]
        with users_lines_shown(), tracing(tracer):
            try:
                result = self.function(*inputs, **attributes)
            except ProgramError as error:
                line = line_of_error(error)
                if line is not None and line.where not in error.message:
                    error.message += f" at {line.where}"
                raise
            tracer.lines.instead = UserLine(f"result of {self.name}", "")
            outputs, shapes = _placed_results(self._outputs(tracer, result), inputs)
        variables = tuple(Variable(s.id, s.name, s.spec, s.place or MemoryPlace.DEVICE, s.gpu) for s in tracer.symbols)
        renamed = tracer.lines.renamed()
        traced = Program(
            self.name,
            variables,
            tuple(each.of_file(renamed) for each in tracer.operations) if renamed else tuple(tracer.operations),
            tuple(symbol.id for symbol in inputs),
            tuple(symbol.id for symbol in outputs),
            not isinstance(result, tuple | list),
            result_shapes=shapes,
            needs_row_major=tracer.reshapes and tracer.writes_in_place(inputs),
        )
        if tracer.finish is not None:
            traced = tracer.finish(traced)
        return fused(traced) if self.fuse else traced

    def by_position(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, with the arrays that were given by the names of the parameters that come next, and the rest."""
        placed, left = list(arguments), dict(named)
        if any(map(_is_array, left.values())):
            for name in _positional(self.function)[len(placed) :]:
                if name not in left or not _is_array(left[name]):
                    break
                placed.append(left.pop(name))
        return tuple(placed), left

    def _argument_names(self, arguments: Sequence[object], attributes: Mapping[str, object]) -> list[str]:
        """Return the names of the function's arguments; those that are given by name are attributes, and not among them."""
        try:
            signature = signature_of(self.function)
            signature.bind(*arguments, **attributes)
        except (TypeError, ValueError) as error:  # ValueError: a built-in function without a signature
            given = f"{counted(len(arguments), 'argument')}{', ' if attributes else ''}{', '.join(f'{name}=' for name in attributes)}"
            raise ProgramError(f"program {self.name!r} cannot take {given}: {error}") from None
        names: list[str] = []
        for name, value in signature.bind_partial(*arguments).arguments.items():
            variadic = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            names += [f"{name}[{index}]" for index in range(len(value))] if variadic else [name]
        return names

    def _outputs(self, tracer: Tracer, result: Any) -> list[Symbol]:
        # Among several, None is the gradient of an operand that has none.
        outputs = [one for one in _flat(result) if one is not None] if isinstance(result, tuple | list) else [result]
        hint = "return what an operator returned, or a tuple of such variables"
        if result is None or not outputs:
            raise ProgramError(f"program {self.name!r} returned nothing", hint=hint)
        for output in outputs:
            if not isinstance(output, Symbol) or output.tracer is not tracer:
                raise ProgramError(f"program {self.name!r} returned {a_kind(output)} instead of a variable", hint=hint)
            if not output.written:
                raise ProgramError(f"program {self.name!r} returns {output.name!r}, which nothing has written")
            if output.stale:
                raise ProgramError(
                    f"program {self.name!r} returns {output.name!r}, a view of {output.stale!r} in NumPy, which was written since",
                    hint="index again after the write, or copy before it: x[i].copy()",
                )
        return [output.base if output.seen is None else output for output in outputs]


def _flat(results: Any) -> Iterator[Any]:
    """Yield the results of tuples and lists, which may hold further ones, as a value and its gradients do."""
    for each in results:
        if isinstance(each, tuple | list):
            yield from _flat(each)
        else:
            yield each


def _placed_results(outputs: Sequence[Symbol], inputs: Sequence[Symbol]) -> tuple[list[Symbol], dict[int, tuple[int, ...]]]:
    """Return the variables that results are read from, and the shapes of those that are returned in another shape.

    That takes no operation. Another view has memory of its own, and so has a second shape of one variable.
    """
    taken = {output.id for output in outputs if not isinstance(output, SymbolView)} | {each.id for each in inputs}
    variables, shapes = list[Symbol](), dict[int, tuple[int, ...]]()
    for output in outputs:
        if isinstance(output, SymbolView) and output.id not in taken and output.view.contiguous and output.size == output.base.size:
            taken.add(output.id)
            shapes[output.id] = output.shape
            variables.append(output.base)
        else:
            variables.append(of_its_own(output))
    return variables, shapes


def of_its_own(output: Symbol) -> Symbol:
    """Return a result that is not a view."""
    if not isinstance(output, SymbolView):
        return output
    if output.place is MemoryPlace.HOST:
        hint = "return what a host function makes of it"
        raise ProgramError(f"the result {output.name!r} is a view of host memory", hint=hint)
    copied: Symbol = symbol.operators["copy"](output)
    return copied


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic)


def _positional(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that can be given by position; empty for those that cannot be given by name."""
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, ValueError):  # a built-in function without a signature
        return []
    kinds = {inspect.Parameter.POSITIONAL_ONLY: False, inspect.Parameter.POSITIONAL_OR_KEYWORD: True}
    return [each.name if kinds[each.kind] else "" for each in parameters if each.kind in kinds]


def _program_of(function: Callable[..., Any], fuse: bool) -> ProgramFunction:  # noqa: FBT001 — pickle gives no names
    return ProgramFunction(function, fuse=fuse)


@overload
def program(function: Callable[..., Any], *, fuse: bool = False) -> ProgramFunction: ...


@overload
def program(*, fuse: bool = False) -> Callable[[Callable[..., Any]], ProgramFunction]: ...


def program(function: Callable[..., Any] | None = None, *, fuse: bool = False) -> Any:
    """Make a program of a function over variables: a decorator, as ``@ss.program`` or ``@ss.program(fuse=True)``.

    The function is called once for each set of argument shapes, with symbols instead of arrays; its operations on them become a
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

    Examples
    --------
    >>> @ss.program(fuse=True)
    ... def step(x, w):
    ...     return ss.ops.relu(x * w + 1)
    >>> print(step.trace(np.ones(4), np.ones(4)))
    step: 1 operation, 3 variables
         0  %2:float64[4] = multiply+add+relu(%0:float64[4], %1:float64[4])    # ...
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(step, np.array([1.0, -2.0]), np.array([2.0, 3.0])))
    [3. 0.]
    """
    if function is None:
        return partial(program, fuse=fuse)
    if not isinstance(fuse, bool):
        raise ProgramError(f"ss.program: fuse={fuse!r} is neither True nor False")
    if not callable(function):
        raise ProgramError(f"ss.program wants a function, not {a_kind(function)}")
    return ProgramFunction(function, fuse=fuse or (isinstance(function, ProgramFunction) and function.fuse))
