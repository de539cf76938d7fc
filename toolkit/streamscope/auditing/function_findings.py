"""Comparison of a traced program with its function, which is called with NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamscope.auditing.findings import Finding, Kind, Severity, named, quoted
from streamscope.measuring.plain_call import Answer, PlainFunction, same
from streamscope.program.operation import Program
from streamscope.program.reference import known_part, run_reference
from streamscope.tolerance import allowed_errors
from streamscope.tracing import ProgramFunction


def function_findings(function: ProgramFunction, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[list[Finding], str]:
    """Compare the results of a function with its traced program; return findings and a sentence on the comparison."""
    program = ProgramFunction(function.function).trace(*inputs, **attributes)  # not fused
    plain = PlainFunction(function.function, tuple(inputs), attributes)
    found = plain.results(program)
    if isinstance(found, Answer):
        return [], _not_compared(found)
    known = known_part(program)
    results = run_reference(known, inputs)
    expected, allowed = (dict(zip(known.outputs, arrays, strict=True)) for arrays in (results, allowed_errors(known, inputs, results)))
    right, most = [*map(expected.get, program.outputs)], [*map(allowed.get, program.outputs)]
    answer = plain.judged(found, program, right, most)
    if answer.why_not:
        return [], _not_compared(answer)
    if not answer.results:
        return [], "The plain function has the results of the traced program."
    wrong = [
        variable
        for variable, one, reference, limit in zip(program.outputs, answer.results, right, most, strict=True)
        if not same([one], [reference], [limit])
    ]
    return [_finding(program, wrong)], "The plain function has other results than the traced program."


def _not_compared(answer: Answer) -> str:
    return f"The traced program was not compared with the function itself, which {answer.why_not}."


def _finding(program: Program, outputs: Sequence[int]) -> Finding:
    variables = named(program, outputs)
    writers = tuple(operation for operation in program.operations if not set(outputs).isdisjoint(operation.writes))
    message = f"{quoted(variables)} of the traced program differ from what {program.name} returns for the same arrays in NumPy."
    advice = "look for what the function does only while it is traced, or only with arrays: it is called once with each."
    return Finding(Kind.OTHER_FUNCTION, Severity.ERROR, writers, variables, message, advice)
