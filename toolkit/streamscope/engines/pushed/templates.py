"""Templates: a pushed function on variables like these, traced once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.engines.pushed.variable import VariableState
from streamscope.errors import ProgramError
from streamscope.program.launch import HostCall, Launch, LaunchKind
from streamscope.program.operation import Program, Variable
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import current_tracer, takes_list
from streamscope.program.variable import MemoryPlace
from streamscope.signatures import signature_of
from streamscope.tracing import ProgramFunction, of_its_own
from streamscope.words import counted, listed

_Function = Callable[..., Any]


@dataclass(frozen=True)
class Template:
    """A function traced for variables of certain shapes, dtypes and places."""

    program: Program
    """Its inputs are the variables that are read, each once; its outputs those that are written."""
    launches: tuple[Launch, ...]
    """Launches on a stream; empty for a host function."""
    host_call: HostCall | None
    kind: LaunchKind
    """``COPY_IN``, ``COPY_OUT``, ``COPY_PEER`` or ``COLLECTIVE`` if it does nothing else, so that it belongs on a stream for that."""
    gpus: tuple[int, ...]
    """The GPUs that it runs on: one, but for collectives."""
    temporaries: tuple[int, ...]
    """Ids of the program's variables that are neither read nor written from outside."""


def typed(value: object) -> object:
    """Return an attribute's part of a key: 1, 1.0 and True are equal, and so are 0.0 and -0.0, but they mean different kernels."""
    if isinstance(value, tuple):
        return tuple(map(typed, value))
    return (type(value), repr(value)) if isinstance(value, float | complex | np.generic) else (type(value), value)


def template_key(
    function: _Function, arguments: Sequence[VariableState], writes: Sequence[VariableState], attributes: Mapping[str, object]
) -> tuple[object, ...]:
    """Cache key of a trace: function, shapes, dtypes, places, attributes, aliasing."""
    numbers = {state.id: number for number, state in enumerate(dict.fromkeys((*arguments, *writes)))}
    used = tuple((state.spec, state.place, state.gpu, numbers[state.id]) for state in (*arguments, *writes))
    return (function, len(arguments), used, tuple((name, typed(value)) for name, value in sorted(attributes.items())))


def trace(
    function: _Function, name: str, arguments: Sequence[VariableState], writes: Sequence[VariableState], attributes: Mapping[str, Any]
) -> Program:
    """Trace a function for variables; raises whatever the function raises."""
    # A variable that is given twice is one input: two inputs may not share memory where one is written.
    reads = list(dict.fromkeys(arguments))
    in_place = any(state in reads for state in writes) and _takes_out(function)
    if in_place and takes_list(function):
        over = next(state.name for state in writes if state in reads)
        raise ProgramError(f"{name} cannot write over {over!r}, which it reads", hint="name other variables in writes=")
    # Copies from the host, and what has no operands, have no other place than their results'.
    targets = dict.fromkeys(state.gpu for state in writes if state.place is MemoryPlace.DEVICE)

    def applied(*symbols: Symbol) -> Any:
        by_state = dict(zip(reads, symbols, strict=True))
        for state, symbol in by_state.items():
            # For errors, the variable's name; and where it lies, which for a program's input is open.
            symbol.name, symbol.place, symbol.gpu = state.name, state.place, state.gpu
        tracer = current_tracer(name)
        tracer.several = any(state.gpu for state in (*reads, *writes))
        tracer.gpu = next(iter(targets), 0)
        operands, out = [by_state[state] for state in arguments], {}
        if in_place:
            outs = [by_state.get(state) for state in writes]
            out = {"out": outs[0] if len(outs) == 1 else outs}
        result = function(*([operands] if takes_list(function) else operands), **out, **attributes)
        # Each is written to memory of the user's, in its own shape.
        return [of_its_own(each) for each in result] if isinstance(result, tuple | list) else of_its_own(result)

    applied.__name__ = name
    return ProgramFunction(applied).trace(*(state.spec for state in reads))


def fitted(program: Program, reads: Sequence[VariableState], writes: Sequence[VariableState]) -> Template:
    """Check a traced program against the push's declaration."""
    name = program.name
    if len(program.outputs) != len(writes):
        results = counted(len(program.outputs), "result")
        raise ProgramError(f"{name} has {results}, and writes= names {counted(len(writes), 'variable')}", hint="each counts once")
    if len(set(program.outputs)) != len(program.outputs):
        raise ProgramError(f"{name} returns one result twice", hint="return each once, and copy it by an operation of its own")
    inputs = dict(zip(program.inputs, reads, strict=True))
    for output, state in zip(program.outputs, writes, strict=True):
        _check_result(name, program.variables[output], state)
        if (output in inputs or state in reads) and inputs.get(output) is not state:
            raise ProgramError(
                f"{name} cannot write {state.name!r} in place: its result is "
                + (f"{inputs[output].name!r} as it is" if output in inputs else "made beside it"),
                hint="write another variable, or let the function write with out= to the variable that it returns",
            )
    for operation in program.operations:
        for variable in operation.writes:
            if variable in inputs and variable not in program.outputs:
                raise ProgramError(f"{operation} changes {inputs[variable].name!r}", hint="name it in writes= and return it")
    return _template(program, writes)


def _template(program: Program, writes: Sequence[VariableState]) -> Template:
    calls = [operation.work for operation in program.operations if isinstance(operation.work, HostCall)]
    launches = tuple(program.launches())
    if len(calls) > 1 or (calls and launches):
        raise ProgramError(f"{program.name} applies host functions among other operations", hint="push each of them by itself")
    kinds = {launch.kind for launch in launches}
    gpus = tuple(sorted({launch.gpu for launch in launches})) or (writes[0].gpu if writes else 0,)
    if LaunchKind.COLLECTIVE in kinds and len(kinds) > 1:
        raise ProgramError(f"{program.name} applies collectives among other operations", hint="push each of them by itself")
    if LaunchKind.COLLECTIVE not in kinds and len(gpus) > 1:
        raise ProgramError(f"{program.name} works on GPUs {listed(list(map(str, gpus)))}", hint="push what runs on each GPU by itself")
    kind = kinds.pop() if len(kinds) == 1 else LaunchKind.KERNEL
    outside = {*program.inputs, *program.outputs}
    used = {variable for launch in launches for variable in (*launch.reads, *launch.writes)}
    return Template(program, launches, calls[0] if calls else None, kind, gpus, tuple(sorted(used - outside)))


def _check_result(name: str, result: Variable, state: VariableState) -> None:
    if result.spec != state.spec or result.place is not state.place:
        raise ProgramError(
            f"{name} makes {result.spec} in {result.place.value} memory, and {state.name!r} is {state.spec} in {state.place.value} memory",
            hint="write to a variable made for the result",
        )
    if result.gpu != state.gpu:
        raise ProgramError(
            f"{name} makes its result on GPU {result.gpu}, and {state.name!r} lies on GPU {state.gpu}",
            hint="write to a variable there, and copy that: engine.push(ss.ops.to_gpu, reads=(x,), writes=(y,), gpu=...)",
        )


def _takes_out(function: _Function) -> bool:
    if isinstance(function, ProgramFunction):
        return False
    try:
        return "out" in signature_of(function).parameters
    except (TypeError, ValueError):  # A built-in one says nothing.
        return False
