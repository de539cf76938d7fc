"""Operators of the user's own: any function that launches on the current CuPy stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.arguments import Kinds, are_texts, check_kinds, shown, whole_number
from streamscope.errors import ProgramError
from streamscope.ops.operator import Application, Attributes, Operator, declared_spec
from streamscope.program.launch import Array, Cost, Launch, LaunchKind
from streamscope.program.tracing import current_tracer
from streamscope.program.variable import ArraySpec

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaBench, CudaCall

Shapes = Callable[..., Mapping[str, tuple[Sequence[int], Any]]]


_NAMES = 'names of its parameters, for example ["x"]'
_KINDS: Kinds = {
    "function": (lambda value: value is None or callable(value), "a function that launches work"),
    "reads": (are_texts, _NAMES),
    "writes": (are_texts, _NAMES),
    "shapes": (lambda value: value is None or callable(value), "a function that returns {name: (shape, dtype)}"),
    "reference": (lambda value: value is None or callable(value), "a function of NumPy arrays"),
    "capturable": (lambda value: isinstance(value, bool | np.bool_), "True or False"),
}


@dataclass(frozen=True)
class CustomOperator:
    """An operator made by `ss.operator`.

    Apply it to the variables it reads, in the order of the function's parameters; it returns those it writes, in the order of ``writes``.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    core: Operator

    def __call__(self, *arguments: object) -> Any:
        """Apply the operator inside a program that is being traced; returns what it writes.

        Raises
        ------
        ProgramError
            The number of arguments is wrong, or one of them is not a variable of the program.
        """
        tracer = current_tracer(self.name)
        if len(arguments) != len(self.reads):
            raise ProgramError(f"{self.name} reads {len(self.reads)} variables ({', '.join(self.reads)}), got {len(arguments)}")
        named = dict(zip(self.reads, arguments, strict=True))
        out = [named.get(name) for name in self.writes]
        return tracer.apply(self.core, arguments, {}, out)


def operator(
    function: Callable[..., None] | None = None,
    *,
    reads: Sequence[str],
    writes: Sequence[str],
    shapes: Shapes | None = None,
    reference: Callable[..., Any] | None = None,
    capturable: bool = True,
    flops: int = 0,
) -> Any:
    """Make an operator of a function that launches work on the current CuPy stream (a decorator).

    The function gets CuPy arrays: CuPy calls, a ``RawKernel``, or PyTorch through ``torch.cuda.ExternalStream`` all work.
    It must not synchronise; inside it, ``with ss.auxiliary_stream():`` puts work on a second stream where the engine has one (see there).

    Parameters
    ----------
    function : callable
        ``function(**arrays)`` with one parameter for each name in ``reads`` and ``writes``.
    reads, writes : sequence of str
        Parameters that it reads and writes. One in both is updated in place.
    shapes : callable, optional
        ``shapes(*specs of reads) -> {name: (shape, dtype)}`` for the variables that it writes and does not read.
        By default each is like the first variable it reads.
    reference : callable, optional
        ``reference(*arrays of reads) -> array or tuple of arrays`` in NumPy: reads in the order of the parameters, results in that of
        ``writes``; it must not change its arguments. Without it the operator runs on CUDA only and its result is not checked.
    capturable : bool
        False if it cannot be captured into a CUDA graph.
    flops : int
        Floating-point operations of one call, for the simulated device.

    Raises
    ------
    ProgramError
        An argument is of another kind, the declared names are not the function's parameters, or it writes nothing.
    """
    check_kinds("ss.operator", _KINDS, function, reads, writes, shapes, reference, capturable)
    count = whole_number("ss.operator: flops", flops, least=0, error=ProgramError)

    def make(function: Callable[..., None]) -> CustomOperator:
        name = getattr(function, "__name__", "operator")
        parameters = _parameters(name, function)
        if not writes:
            raise ProgramError(f"{name} writes nothing, so nothing can depend on it", hint="name what it changes in writes=")
        if set(parameters) != {*reads, *writes}:
            raise ProgramError(
                f"{name} has parameters ({', '.join(parameters)}), but declares reads={list(reads)} and writes={list(writes)}",
                hint="name each parameter in reads, writes or both",
            )
        ordered = tuple(parameter for parameter in parameters if parameter in reads)
        targets = tuple(dict.fromkeys(writes))

        def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
            return _infer(name, ordered, targets, shapes, specs)

        def build(application: Application) -> tuple[Launch, ...]:
            return (_launch(application, name, function, ordered, targets, reference, capturable=bool(capturable), flops=count),)

        return CustomOperator(name, ordered, targets, Operator(name, infer, build, in_place=True))

    return make if function is None else make(function)


def _parameters(name: str, function: Callable[..., None]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:  # something else than a function, or a built-in one, which says nothing
        raise ProgramError(f"ss.operator: the parameters of {name} are unknown: {error}", hint="give a function of Python's") from None


def _infer(
    name: str, reads: Sequence[str], writes: Sequence[str], shapes: Shapes | None, specs: Sequence[ArraySpec]
) -> Sequence[ArraySpec]:
    known = dict(zip(reads, specs, strict=True))
    declared = shapes(*specs) if shapes is not None else {}
    if not isinstance(declared, Mapping):
        raise ProgramError(f"{name}: shapes= gives {shown(declared)}", hint="return {name: (shape, dtype)}")
    new = [target for target in writes if target not in known]
    for target in declared:
        if target not in new:
            raise ProgramError(f"{name}: shapes= gives {target!r}", hint=f"it is asked for {', '.join(new) or 'nothing'}")
    results = []
    for target in writes:
        if target in known:
            results.append(known[target])
        elif target in declared:
            results.append(declared_spec(declared[target], f"{name}: shapes= gives {shown(declared[target])} for {target!r}"))
        elif specs:
            results.append(specs[0])
        else:
            raise ProgramError(f"{name}: the shape of {target!r} is unknown", hint="give shapes=")
    return results


def _launch(
    application: Application,
    name: str,
    function: Callable[..., None],
    reads: Sequence[str],
    writes: Sequence[str],
    reference: Callable[..., Any] | None,
    *,
    capturable: bool,
    flops: int,
) -> Launch:
    def as_list(arrays: Sequence[Array]) -> Sequence[Array]:
        result = reference(*arrays) if reference is not None else ()
        return list(result) if isinstance(result, tuple | list) else [result]

    def cuda(bench: CudaBench, read_arrays: Sequence[Any], write_arrays: Sequence[Any]) -> CudaCall:
        arrays = dict(zip(writes, write_arrays, strict=True)) | dict(zip(reads, read_arrays, strict=True))
        return bench.function(lambda: function(**arrays))

    moved = sum(spec.nbytes for spec in (*application.read_specs, *application.write_specs))
    cost = Cost(moved, flops, max(1, application.write_specs[0].size // 1024), 256)
    return Launch(
        application.operation,
        0,
        name,
        LaunchKind.KERNEL,
        application.reads,
        application.writes,
        cost,
        as_list if reference is not None else None,
        cuda,
        capturable=capturable,
        why_not="" if capturable else "its author declared capturable=False",
        library=True,
    )
