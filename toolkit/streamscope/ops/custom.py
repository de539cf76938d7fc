"""Operators of the user's own: any function that launches on the current CuPy stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamscope.arguments import Kinds, are_strings, check_kinds, shown, whole_number
from streamscope.arrays import Array
from streamscope.errors import ProgramError, described
from streamscope.ops.application import declared_spec
from streamscope.program.launch import Cost, CudaBench, CudaCall, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators, current_tracer
from streamscope.program.variable import ArraySpec
from streamscope.signatures import signature_of
from streamscope.words import counted, listed

_Shapes = Callable[..., Mapping[str, tuple[Sequence[int], Any]]]
_Predicate = Callable[[Attributes], bool]


_NAMES = 'names of its parameters, for example ["x"]'
_PREDICATE = "True, False or a function of the attributes"
_KINDS: Kinds = {
    "function": (lambda value: value is None or callable(value), "a function that launches work"),
    "reads": (are_strings, _NAMES),
    "writes": (are_strings, _NAMES),
    "shapes": (lambda value: value is None or callable(value), "a function that returns {name: (shape, dtype)}"),
    "reference": (lambda value: value is None or callable(value), "a function of NumPy arrays"),
    "capturable": (lambda value: value is None or isinstance(value, bool | np.bool_) or callable(value), _PREDICATE),
    "stateful": (lambda value: isinstance(value, bool | np.bool_) or callable(value), _PREDICATE),
    "gradient": (lambda value: value is None or callable(value), "a function of variables that returns {name: gradient}"),
}


@applies_operators
@dataclass(frozen=True)
class CustomOperator:
    """An operator made by `ss.operator`.

    Apply it to the variables it reads, in the order of the function's parameters; it returns those it writes, in the order of ``writes``.
    Attributes are given by name.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    core: Operator
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __call__(self, *arguments: object, **attributes: Any) -> Any:
        """Apply the operator inside a program that is being traced; return its outputs."""
        tracer = current_tracer(self.name)
        if len(arguments) != len(self.reads):
            raise ProgramError(f"{self.name} reads {counted(len(self.reads), 'variable')} ({', '.join(self.reads)}), got {len(arguments)}")
        given = {**self.attributes, **attributes}
        for attribute in attributes:
            if attribute not in self.attributes:
                known = ", ".join(self.attributes)
                raise ProgramError(f"{self.name} has no attribute {attribute!r}", hint=f"its attributes are {known}" if known else None)
        for attribute, value in given.items():
            if isinstance(value, Symbol):
                raise ProgramError(
                    f"{self.name} was given the variable {value.name!r} for {attribute}=, which is an attribute",
                    hint=f"an attribute is a number or an option; name {attribute} in reads= to have it as a variable",
                )
            if value is inspect.Parameter.empty:
                raise ProgramError(f"{self.name} needs {attribute}=", hint="give it when you apply the operator, or give it a default")
        named = dict(zip(self.reads, arguments, strict=True))
        out = [named.get(name) for name in self.writes]
        return tracer.apply(self.core, arguments, given, out)


def operator(
    function: Callable[..., None] | None = None,
    *,
    reads: Sequence[str],
    writes: Sequence[str],
    shapes: _Shapes | None = None,
    reference: Callable[..., Any] | None = None,
    capturable: bool | _Predicate | None = None,
    stateful: bool | _Predicate = False,
    flops: int = 0,
    gradient: Callable[..., Any] | None = None,
) -> Any:
    """Make an operator of a function that launches work on the current CuPy stream (a decorator).

    The function gets CuPy arrays: CuPy calls, a ``RawKernel``, or PyTorch through ``torch.cuda.ExternalStream`` all work.
    It must not synchronise; inside it, ``with ss.auxiliary_stream():`` puts work on a second stream where the engine has one (see there).

    Parameters
    ----------
    function : callable
        ``function(**arrays, **attributes)`` with one parameter for each name in ``reads`` and ``writes``. Its other keyword-only parameters
        are *attributes*: numbers or options that you give when you apply the operator, as in ``dropout(x, training=True)``.
    reads, writes : sequence of str
        Parameters that it reads and writes. One in both is updated in place.
    shapes : callable, optional
        ``shapes(*specs of reads, **attributes) -> {name: (shape, dtype)}`` for the variables that it writes and does not read.
        By default each is like the first variable it reads.
    reference : callable, optional
        ``reference(*arrays of reads, **attributes) -> array or tuple of arrays`` in NumPy: reads in the order of the parameters, results in
        that of ``writes``; it must not change its arguments. Without it the operator runs on CUDA only and its result is not checked.
    capturable : bool or callable, optional
        Whether it can be captured into a CUDA graph, or ``capturable(attributes) -> bool``, which is asked for each application with a
        mapping of the attributes by name. By default it can, unless it is stateful.
    stateful : bool or callable
        Whether it keeps something from call to call besides the variables that it declares, such as a random generator; or
        ``stateful(attributes) -> bool``. A replay does not call the function, so state in Python would stand still. If the state lies in
        device memory and the kernel itself changes it, say ``capturable=True``. Results that depend on state are not checked.
    flops : int
        Floating-point operations of one call, for the simulated device.
    gradient : callable, optional
        For `ss.grad`: a function over variables of a program, which returns ``{name: gradient}`` of ``reads``. Its parameters name what it
        needs: reads, writes (the results), the gradients of these (``dy`` is that of ``y``; None where nothing depends on it), and
        attributes. An operator that updates in place has none.

    Raises
    ------
    ProgramError
        An argument is of another kind, the declared names are not the function's parameters, or it writes nothing.

    Examples
    --------
    >>> @ss.operator(reads=["x"], writes=["y"], reference=lambda x: np.sort(x))
    ... def sort(x, y):
    ...     y[...] = x
    ...     y.sort()                             # CuPy's arrays on a GPU
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(sort), np.array([3, 1, 2])))
    [1 2 3]
    """
    check_kinds("ss.operator", _KINDS, function, reads, writes, shapes, reference, capturable, stateful, gradient)
    count = whole_number("ss.operator: flops", flops, least=0, error=ProgramError)

    def make(function: Callable[..., None]) -> CustomOperator:
        name = getattr(function, "__name__", "operator")
        parameters = _parameters(name, function)
        if not writes:
            raise ProgramError(f"{name} writes nothing, so nothing can depend on it", hint="name what it changes in writes=")
        declared = {*reads, *writes}
        attributes = {key: one.default for key, one in parameters.items() if one.kind is one.KEYWORD_ONLY and key not in declared}
        if set(parameters) - set(attributes) != declared:
            raise ProgramError(
                f"{name} has parameters ({', '.join(parameters)}), but declares reads={list(reads)} and writes={list(writes)}",
                hint="name each parameter in reads, writes or both; an attribute is keyword-only: def function(x, y, *, rate)",
            )
        ordered = tuple(parameter for parameter in parameters if parameter in reads)
        targets = tuple(dict.fromkeys(writes))
        made = _Declared(name, function, ordered, targets, shapes, reference, capturable, stateful, count, gradient)
        rule = None if gradient is None else made.pulled_back
        _check_gradient(made, [*attributes])
        return CustomOperator(name, ordered, targets, Operator(name, made.infer, made.build, in_place=True, gradient=rule), attributes)

    return make if function is None else make(function)


def _parameters(name: str, function: Callable[..., None]) -> Mapping[str, inspect.Parameter]:
    try:
        return signature_of(function).parameters
    except (TypeError, ValueError) as error:  # something else than a function, or a built-in one, which says nothing
        raise ProgramError(f"ss.operator: the parameters of {name} are unknown: {error}", hint="give a function of Python's") from None


def _check_gradient(declared: _Declared, attributes: Sequence[str]) -> None:
    """Raise a `ProgramError` where a gradient names something that an operator does not have, or is updated in place."""
    if declared.gradient is None:
        return
    known = (*declared.reads, *declared.writes, *(f"d{name}" for name in declared.writes), *attributes)
    in_place = [name for name in declared.reads if name in declared.writes]
    unknown = [name for name in signature_of(declared.gradient).parameters if name not in known]
    if in_place or unknown:
        problem = f"{in_place[0]!r} is updated in place" if in_place else f"it names {listed(unknown)}"
        hint = "write a new variable" if in_place else f"it may name {listed(known)}"
        raise ProgramError(f"{declared.name}: gradient= is not possible: {problem}", hint=hint)


@dataclass(frozen=True)
class _Declared:
    """Declaration of a user's operator; see `operator`."""

    name: str
    function: Callable[..., None]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    shapes: _Shapes | None
    reference: Callable[..., Any] | None
    capturable: bool | _Predicate | None
    stateful: bool | _Predicate
    flops: int
    gradient: Callable[..., Any] | None

    def pulled_back(self, backward: Backward) -> Sequence[Symbol | None]:
        """Return the gradients of the variables that it reads, which the user's function says."""
        of_results = dict(zip((f"d{name}" for name in self.writes), backward.upstream, strict=True))
        given: dict[str, Any] = {}
        for name in signature_of(self.gradient or self.function).parameters:
            if name in self.reads:
                given[name] = backward.operand(self.reads.index(name))
            elif name in self.writes:
                given[name] = backward.result(self.writes.index(name))
            else:
                given[name] = of_results[name] if name in of_results else backward.attributes[name]
        found = self.gradient(**given) if self.gradient is not None else {}
        if not isinstance(found, Mapping) or not set(found) <= set(self.reads):
            raise ProgramError(f"{self.name}: gradient= gives {shown(found)}", hint=f"return {{name: gradient}} of {listed(self.reads)}")
        for name, spec, wanted in zip(self.reads, backward.read_specs, backward.wanted, strict=True):
            if wanted and (not isinstance(found.get(name), Symbol) or found[name].spec != spec):
                has = found[name].spec if isinstance(found.get(name), Symbol) else "none"
                raise ProgramError(f"{self.name}: the gradient of {name!r}, which is {spec}, is {has}", hint="it has the shape and dtype")
        return [found.get(name) for name in self.reads]

    def infer(self, specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        """Return the specs of its outputs."""
        name, known = self.name, dict(zip(self.reads, specs, strict=True))
        declared = self.shapes(*specs, **attributes) if self.shapes is not None else {}
        if not isinstance(declared, Mapping):
            raise ProgramError(f"{name}: shapes= gives {shown(declared)}", hint="return {name: (shape, dtype)}")
        new = [target for target in self.writes if target not in known]
        for target in declared:
            if target not in new:
                raise ProgramError(f"{name}: shapes= gives {target!r}", hint=f"it is asked for {', '.join(new) or 'nothing'}")
        results = []
        for target in self.writes:
            if target in known:
                results.append(known[target])
            elif target in declared:
                results.append(declared_spec(declared[target], f"{name}: shapes= gives {shown(declared[target])} for {target!r}"))
            elif specs:
                results.append(specs[0])
            else:
                raise ProgramError(f"{name}: the shape of {target!r} is unknown", hint="give shapes=")
        return results

    def build(self, application: Application) -> tuple[Launch, ...]:
        """Return its launch."""
        attributes = application.attributes
        reference, function = self.reference, self.function
        given = tuple(attributes.items())  # Unlike a mapping, it can be compared: the audit looks at like references once.

        def as_list(arrays: Sequence[Array]) -> Sequence[Array]:
            result = reference(*arrays, **dict(given)) if reference is not None else ()
            return list(result) if isinstance(result, tuple | list) else [result]

        def cuda(bench: CudaBench, read_arrays: Sequence[Any], write_arrays: Sequence[Any]) -> CudaCall:
            arrays = dict(zip(self.writes, write_arrays, strict=True)) | dict(zip(self.reads, read_arrays, strict=True))
            return bench.function(lambda: function(**arrays, **attributes))

        why_not = self._why_not(attributes)
        return application.kernel(
            self.name,
            Cost(application.nbytes, self.flops, max(1, application.write_specs[0].size // 1024), 256),
            as_list if reference is not None else None,
            cuda,
            capturable=not why_not,
            why_not=why_not,
            library=True,
            stateful=self._says("stateful", attributes, declared=self.stateful),
        )

    def _why_not(self, attributes: Attributes) -> str:
        """Return why it cannot be captured with such attributes; empty if it can."""
        if self.capturable is None:
            stateful = self._says("stateful", attributes, declared=self.stateful)
            return "it is stateful, and does not say that its state can be captured" if stateful else ""
        if self._says("capturable", attributes, declared=self.capturable):
            return ""
        given = ", ".join(f"{key}={shown(value)}" for key, value in attributes.items())
        return f"its author declared capturable=False{' for ' if given else ''}{given}"

    def _says(self, argument: str, attributes: Attributes, *, declared: bool | _Predicate) -> bool:
        try:
            said = declared(attributes) if callable(declared) else declared
        except Exception as error:
            hint = f"it is called with one argument, the attributes by name: {argument}=lambda attributes: ..."
            raise ProgramError(f"{self.name}: {argument}= failed: {described(error)}", hint=hint) from error
        if not isinstance(said, bool | np.bool_):
            raise ProgramError(f"{self.name}: {argument}= gives {shown(said)}", hint="return True or False")
        return bool(said)
