"""A case: one program with its inputs and the results that it should have, prepared for engine after engine and checked under each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from streamscope.analysis.verdict import FUNCTION, NOTHING, NUMPY, PLAIN_CALL
from streamscope.arrays import Array
from streamscope.calling import check_captured, no_program
from streamscope.devices.log import DeviceLog
from streamscope.devices.protocol import Device
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.errors import EngineError, MemoryWarning, ProgramError, RaceError
from streamscope.host_memory import free_bytes
from streamscope.interrupts import deferred, let_through, nothing_collected
from streamscope.measuring.elimination import in_turns
from streamscope.measuring.plain_call import Answer, PlainFunction
from streamscope.ops.fusion import fused
from streamscope.program.foreign import CaptureInfo, ForeignFunction, ForeignProgram
from streamscope.program.operation import Program
from streamscope.program.reference import known_part, peak_bytes, run_reference
from streamscope.program.variable import host_array
from streamscope.progress import Steps, silent
from streamscope.recording.device_log import LoggedRun, logged_run
from streamscope.tolerance import absolute_errors, allowed_alone, allowed_errors, steps_of_tolerance
from streamscope.tracing import ProgramFunction
from streamscope.words import binary_size, counted

Result = TypeVar("Result")

_CHECKED_RUNS = 3
"""The first is warm, the second captures graphs, the third replays them. A device that repeats itself exactly is run once."""


@dataclass(frozen=True)
class Checked:
    """A case prepared for one engine: graphs captured, results in its outputs and checked."""

    prepared: Prepared
    max_abs_error: float
    tolerance: float
    """Error and tolerance of the element with the largest ratio of the two; NaN without a reference."""
    run: LoggedRun | None = None
    """Its only run, on a device that repeats itself exactly."""

    @property
    def correct(self) -> bool:
        """Whether the results are within the tolerance; true where there is nothing to compare them with."""
        return bool(np.isnan(self.tolerance) or self.max_abs_error <= self.tolerance)


@dataclass(frozen=True)
class Case:
    """A program with its inputs, and the results that it should have."""

    program: Program
    inputs: tuple[Array, ...]
    """On the host."""
    expected: Sequence[Array | None] | None
    """Reference outputs: NumPy's, or those of a plain call of captured code; None for an output without one, or if no output has one."""
    captured: ForeignFunction | None = None
    """Where the program was captured: it has memory of its own, in which its results are."""
    allowed: Sequence[Array | None] | None = None
    """Tolerance of each element of the outputs; see `tolerance.py`."""
    plain: Program | None = None
    """The program before it was fused, where its results are to be checked; `with_reference` computes expected values from it."""
    facts: Callable[[], CaptureInfo] | None = None
    """Facts about captured code beside its times."""
    function: PlainFunction | None = None
    """The traced function, where results are to be checked; `with_reference` compares its results with the program's."""
    answer: Answer | None = None
    """Outcome of that."""

    @classmethod
    def of(
        cls, function: object, inputs: Sequence[Any], caller: str, attributes: Mapping[str, Any] | None = None, *, checked: bool = True
    ) -> Case:
        """Trace a program function; if its results are to be checked, `with_reference` then computes its reference.

        ``function``: argument of the verb.
        ``caller``: name in errors of the verb.
        ``attributes``: the function's own.
        ``checked``: whether there are expected results, where the program has a reference.
        """
        if isinstance(function, ForeignFunction):
            check_captured(caller, function, inputs)
            found = function.expected()
            return cls(function.trace(), (), found, function, function.allowed(), facts=lambda: function.facts)
        if isinstance(function, ForeignProgram):
            check_captured(caller, function, inputs)
            return cls(function.trace(), (), None, facts=lambda: function.facts)
        if isinstance(function, Program):
            said = f"{caller} traces the program itself, and {function.name!r} is traced already"
            raise ProgramError(said, hint="give the function that was traced, and its inputs")
        if not isinstance(function, ProgramFunction):
            raise no_program(caller, function)
        plain = ProgramFunction(function.function).trace(*inputs, **(attributes or {}))
        program = fused(plain) if function.fuse else plain
        arrays = tuple(host_array(value) for value in inputs)
        if not checked or not known_part(plain).outputs:
            return cls(program, arrays, None)
        return cls(program, arrays, None, plain=plain, function=PlainFunction(function.function, tuple(inputs), attributes or {}))

    def keeping(self) -> AbstractContextManager[None]:
        """Run a block, and restore the state of captured code afterwards: a model may have been trained since it was captured."""
        return nullcontext() if self.captured is None else self.captured.keeping()

    @property
    def checked_against(self) -> str:
        """Reference of the results, in words."""
        if self.captured is not None:
            return PLAIN_CALL
        if self.program.captured:
            return NOTHING
        return FUNCTION if self.answer is not None and not self.answer.why_not else NUMPY

    @property
    def why_not_function(self) -> str:
        """Why the results are not compared with those of the function itself: a sentence without its subject; empty where they are."""
        return "" if self.answer is None else self.answer.why_not

    def host_bytes(self, device: Device, engines: int) -> int:
        """Estimate the host memory, in bytes, for checking the case and running it under so many engines.

        On a GPU, the engines hold only host variables here. Of floating-point outputs, reference, result and
        tolerance are kept as float64.
        """
        sizes = {variable.id: variable.spec.nbytes for variable in self.program.variables}
        inputs, outputs = (sum(sizes[variable] for variable in ids) for ids in (self.program.inputs, self.program.outputs))
        errors = sum(2 * 8 * self.program.variables[variable].spec.size for variable in self.program.outputs)
        checking = peak_bytes(self.plain) + outputs + errors if self.plain is not None else 0
        running = engines * (inputs + outputs) + peak_bytes(self.program) if device.info.exact else 0
        return checking + running

    def warn_if_short_of_memory(self, device: Device, engines: int) -> None:
        """Warn before a run that takes more of this machine's memory than is free; temporaries of references are unknown."""
        needed, free = self.host_bytes(device, engines), free_bytes()
        if needed > free > 0:
            message = (
                f"{self.program.name!r} under {counted(engines, 'engine')} takes about {binary_size(needed)} of this machine's memory, "
                f"and {binary_size(free)} are free: use smaller shapes, or fewer engines at a time"
            )
            warnings.warn(message, MemoryWarning, stacklevel=4)

    @property
    def reference_steps(self) -> int:
        """How many operations `with_reference` runs."""
        if self.plain is None:
            return 0
        known = known_part(self.plain)
        return len(known.operations) + steps_of_tolerance(known) + (self.function is not None)

    def with_reference(self, steps: Steps | None = None) -> Case:
        """Return the case with reference outputs and their tolerance; ``steps`` is called for each operation.

        The reference is the program in NumPy or, where the function itself computes something else, the function.
        """
        if self.plain is None:
            return self
        known, said = known_part(self.plain), steps or Steps(silent, self.reference_steps)
        said.begin("NumPy reference", len(known.operations))
        results = run_reference(known, self.inputs, lambda operation: said.part(operation.name))
        again = steps_of_tolerance(known)
        if again:
            said.begin("tolerances", again)
        limits = allowed_errors(known, self.inputs, results, lambda operation: said.part(operation.name))
        expected, allowed = (of_outputs(self.plain, known, arrays) for arrays in (results, limits))
        answer = None
        if self.function is not None:
            said.begin("plain function")
            answer = self.function.judged(self.function.results(self.plain), self.plain, expected, allowed)
            if answer.results:
                expected = [None if right is None else found for right, found in zip(expected, answer.results, strict=True)]
        return replace(self, expected=expected, allowed=allowed, plain=None, function=None, answer=answer)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The outputs that are not checked, where others are, as a reader finds them: ``"outputs[1] (noisy_0)"``."""
        names = [self.program.variables[variable].name for variable in self.program.outputs]
        return tuple(f"outputs[{index}] ({names[index]})" for index, expected in enumerate(self.expected or ()) if expected is None)

    def parts(self, device: Device) -> int:
        """Return how many launches of a run a device computes itself, and so can tell of: none on a GPU, or where the run is known."""
        return 0 if device.repeats_exactly else self._computed(device)

    def checking_parts(self, device: Device) -> int:
        """Return how many launches `prepare` lets a device compute itself."""
        return self._computed(device) * (1 if device.repeats_exactly else _CHECKED_RUNS)

    def _computed(self, device: Device) -> int:
        return sum(1 for _ in self.program.launches()) if device.info.exact else 0

    def measuring_steps(self, device: Device, engines: int, *, rounds: int, recorded: int = 0) -> int:
        """Return how many steps it takes to prepare so many engines, to let them take turns, and to record some of them."""
        parts = self.parts(device)
        return engines * max(1, self.checking_parts(device)) + rounds * max(1, engines * parts) + recorded * max(1, parts)

    def prepare(self, engine: str, device: Device, streams: int | None) -> Checked:
        """Prepare the program for an engine, run it until its graphs are captured and replayed, and check the results."""
        if device.repeats_exactly and device.log is not None:
            return uncollected(self._run_once, engine, device, device.log, streams)
        prepared = prepare_traced(self.program, engine, device, streams=streams)
        for _ in range(_CHECKED_RUNS):
            prepared.load(self.inputs)
            prepared.put_back()
            prepared.run()
            prepared.wait()
        return Checked(prepared, *largest_error(self._outputs(prepared), self.expected, self.allowed))

    def prepare_each(self, engines: Iterable[str], device: Device, streams: int | None, steps: Steps, *, named: bool) -> dict[str, Checked]:
        """Prepare the program under several engines as `prepare_or_leave_out` does, a step each."""
        found = {}
        for engine in engines:
            steps.begin(f"preparing {engine}", self.checking_parts(device))
            checked = self.prepare_or_leave_out(engine, device, streams, named=named)
            if checked is not None:
                found[engine] = checked
        return found

    def prepare_or_leave_out(self, engine: str, device: Device, streams: int | None, *, named: bool) -> Checked | None:
        """Prepare the program as `prepare` does; None, with a warning, where a guest's engine fails that nobody named."""
        try:
            return self.prepare(engine, device, streams)
        except (EngineError, RaceError) as error:
            if named or engine in ENGINES.own:
                raise
            ENGINES.warn(engine, error.__cause__ or error)
            return None

    def _run_once(self, engine: str, device: Device, log: DeviceLog, streams: int | None) -> Checked:
        prepared = prepare_traced(self.program, engine, device, streams=streams)
        prepared.load(self.inputs)
        prepared.put_back()
        # Without a warm run before: a device that repeats itself loads nothing that a capture would forbid.
        prepared.capture()
        run = logged_run(prepared, log)
        return Checked(prepared, *largest_error(self._outputs(prepared), self.expected, self.allowed), run)

    def reload(self, prepared: Prepared) -> None:
        """Fill the inputs again, if the program changes them; of captured code, restore its state."""
        if self.program.changes_inputs:
            prepared.load(self.inputs)
        prepared.put_back()

    def makespan_ns(self, checked: Checked) -> int:
        """Return the makespan of one more run, in ns; that of the only run where there is just one."""
        if checked.run is not None:
            return checked.run.makespan_ns
        self.reload(checked.prepared)
        return run_ns(checked.prepared)[1]

    def round_ns(self, checked: Mapping[str, Checked], random: np.random.Generator) -> dict[str, int]:
        """Let engines run once each, in random order; return each one's makespan, in ns."""
        return in_turns(checked, lambda name: self.makespan_ns(checked[name]), random)

    def _outputs(self, prepared: Prepared) -> list[Array]:
        """Return the results of the last run; captured code is run once more, on results that are overwritten first."""
        if self.captured is None:
            return prepared.outputs()
        # What an earlier run left there would be right, and hide that this one wrote nothing.
        self.captured.clear_outputs()
        prepared.run()
        prepared.wait()
        return self.captured.outputs()


def of_outputs(program: Program, known: Program, arrays: Sequence[Array]) -> list[Array | None]:
    """Return an array for each output of a program: None for those that its `known_part`, which the arrays are of, does not have."""
    by_variable = dict(zip(known.outputs, arrays, strict=True))
    return [by_variable.get(variable) for variable in program.outputs]


def run_ns(prepared: Prepared) -> tuple[int, int]:
    """Run once, on an idle device; return after how long all was issued, and after how long the host knew that all was done, in ns."""
    return uncollected(_run_ns, prepared)


def uncollected(function: Callable[..., Result], /, *arguments: Any) -> Result:
    """Call a function in which Python collects no garbage: in one that is timed, or makes much that stays."""
    with deferred(), nothing_collected():
        return let_through(function, *arguments)


def _run_ns(prepared: Prepared) -> tuple[int, int]:
    # Inputs are loaded and state is put back before: neither is part of the makespan.
    start = prepared.device.now_ns()
    prepared.run()
    issued = prepared.device.now_ns()
    prepared.wait()
    return issued - start, prepared.device.now_ns() - start


def largest_error(
    outputs: Sequence[Array], expected: Sequence[Array | None] | None, allowed: Sequence[Array | None] | None = None
) -> tuple[float, float]:
    """Return error and tolerance of the element with the largest ratio of the two; NaN without a reference.

    ``outputs``, ``expected``: None for an output that cannot be checked.
    ``allowed``: for each output, or each of its elements; by default that of a single operation of ours. Without an
        error anywhere, the largest tolerance is returned.
    """
    if not expected:  # Nor is there, where captured code returns nothing.
        return float("nan"), float("nan")
    limits = [None if reference is None else allowed_alone(reference) for reference in expected] if allowed is None else allowed
    worst = (0.0, 0.0)
    used = -1.0
    for output, reference, limit in zip(outputs, expected, limits, strict=True):
        if reference is None or limit is None:
            continue
        if (output.shape, output.dtype) != (reference.shape, reference.dtype):  # Only a plain call has others.
            return float("inf"), 0.0
        if reference.size == 0:
            continue
        error, most = absolute_errors(output, reference), np.broadcast_to(limit, reference.shape)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.where(error > 0, np.nan_to_num(error / most, nan=0.0, posinf=np.inf), 0.0)  # NaN: both are infinite, or both 0.
        place = np.unravel_index(np.argmax(share if share.any() else np.where(np.isfinite(most), most, -1.0)), share.shape)
        if share[place] > used:
            worst, used = (float(error[place]), float(most[place])), float(share[place])
    return worst
