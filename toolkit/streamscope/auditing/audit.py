"""`ss.audit`: compare the orders that a plan keeps with those that its operations need, and their declarations with what they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from streamscope.auditing.captured_orders import order_findings
from streamscope.auditing.dependencies import Dependencies
from streamscope.auditing.findings import Finding, Kind, Severity, named, quoted
from streamscope.auditing.serialisation import serialisation, serialisation_findings
from streamscope.auditing.touches import random_values, touch_findings
from streamscope.auditing.waits import capture_findings, issue_findings, race_findings
from streamscope.calling import traced, verb
from streamscope.devices import check_device, device_for
from streamscope.devices.measured_models import model_of
from streamscope.devices.protocol import Device
from streamscope.engine_entry import DEFAULT_ENGINE, GRAPH, engine_with
from streamscope.engines import engine_names
from streamscope.engines.plan import Estimate, Plan, checked_streams, plan_for
from streamscope.errors import EngineError, ProgramError
from streamscope.measuring.case import of_outputs
from streamscope.measuring.plain_call import Answer, PlainFunction, same
from streamscope.program.captured_graph import COMMUNICATION
from streamscope.program.foreign import ForeignProgram
from streamscope.program.operation import Program
from streamscope.program.reference import known_part, run_reference
from streamscope.program.variable import host_array
from streamscope.progress import Progress, showing
from streamscope.results.result import Result
from streamscope.tolerance import allowed_errors
from streamscope.trace.file_checks import plain
from streamscope.tracing import ProgramFunction
from streamscope.words import counted, time_text, wrapped

if TYPE_CHECKING:
    import pandas as pd

_ORDER = list(Severity)
SHOWN = 50
"""Findings in a text or a page; the rest is counted."""

UNSEEN = (
    "Not seen: what an operator does for other values; arrays that a function captured (a closure, a global) and reads or writes; and what "
    "a CUDA kernel does that its reference does not."
)
"""Limits of the audit on operators that it runs."""
CAPTURED = "Not seen: what nodes of captured code touch besides what their evidence says; .certificate() lists it."
"""Limits of the audit on captured code, whose nodes it does not run."""
_NOT_LOOKED = "Not seen: what operators touch besides what they declare, since touches=False left that out."
_MOST_LINES = 4
"""Lines of the user's that are shown below a finding."""
_WIDTH = 120
"""Characters in a line of text."""


@dataclass(frozen=True)
class Audit(Result):
    """Findings of `audit`.

    Attributes
    ----------
    plan : Plan
        The audited plan, with its program and engine.
    findings : tuple of Finding
        Errors first, then warnings, then notes.
    needed_ns, planned_ns : float
        Lower bounds of a run's makespan, in ns, by estimated durations: by the declared dependencies alone, and by the plan's orders
        too. They take it that the device has room for all at once and that the host takes no time to issue.
        The order of captured collectives counts as a dependency.
    touches : bool
        Whether operators were run to see what they touch.
    replay_ns : float, optional
        How long a replay of captured code was measured to take, in ns, in the order of the capture; None where that is not known.
    compared : str
        Whether the traced program does what the function itself does, in words; empty where the function or its inputs are not known.
        Of captures of several ranks without findings: which collectives were compared.

    Examples
    --------
    >>> audit = ss.audit(lambda x: np.tanh(np.tanh(x)), np.ones(64, np.float32))
    >>> audit.ok, audit.findings
    (True, ())
    """

    view = "audit"

    plan: Plan
    findings: tuple[Finding, ...]
    needed_ns: float
    planned_ns: float
    touches: bool = True
    replay_ns: float | None = None
    compared: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was found that can make results wrong or breaks a part of the plan; warnings and notes may be there."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def of(self, kind: Kind | str) -> tuple[Finding, ...]:
        """Return the findings of one kind, for example ``"missing wait"``.

        Raises
        ------
        EngineError
            There is no such kind.

        Examples
        --------
        >>> audit = ss.audit(lambda x: np.tanh(x) + np.exp(x), np.ones((64, 64), np.float32), engine="async")
        >>> len(audit.of("false serialisation")), len(audit.of("missing wait"))
        (1, 0)
        """
        try:
            wanted = Kind(kind)
        except ValueError:
            kinds = ", ".join(repr(known.value) for known in Kind)
            raise EngineError(f"an audit has no findings of kind {kind!r}", hint=f"choose from {kinds}") from None
        return tuple(finding for finding in self.findings if finding.kind is wanted)

    def to_pandas(self) -> pd.DataFrame:
        """Return the findings as a DataFrame, one row each.

        The columns are ``kind``, ``severity``, ``operations`` (ids), ``variables`` (names), ``lines``, ``message``, ``advice`` and
        ``cost_us``.

        Examples
        --------
        >>> audit = ss.audit(lambda x: np.tanh(x) + np.exp(x), np.ones((64, 64), np.float32), engine="async")
        >>> audit.to_pandas()[["kind", "severity", "operations"]]
                          kind severity operations
        0  false serialisation  warning     (0, 1)
        """
        import pandas as pd

        columns = ["kind", "severity", "operations", "variables", "lines", "message", "advice", "cost_us"]
        return pd.DataFrame([finding.to_dict() for finding in self.findings], columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON values; times in µs.

        Examples
        --------
        >>> found = ss.audit(lambda x: np.tanh(x) + np.exp(x), np.ones((64, 64), np.float32), engine="async").to_dict()
        >>> found["ok"], [finding["kind"] for finding in found["findings"]]
        (True, ['false serialisation'])
        """
        content = {
            "program": self.plan.program.name,
            "engine": self.plan.engine,
            "ok": self.ok,
            "findings": [finding.to_dict() for finding in self.findings],
            "needed_us": self.needed_ns / 1e3,
            "planned_us": self.planned_ns / 1e3,
            "replay_us": None if self.replay_ns is None else self.replay_ns / 1e3,
            "compared": self.compared,
            "not_seen": self.not_seen,
        }
        found: dict[str, Any] = plain(content)
        return found

    @property
    def headline(self) -> str:
        """One line: the plan, and the number of findings."""
        numbers = Counter(finding.severity for finding in self.findings)
        found = ", ".join(counted(numbers[severity], severity.value) for severity in Severity if numbers[severity])
        return f"Audit of {self.plan.program.name} under {self.plan.engine}: {found or 'nothing to report'}"

    @property
    def circumstances(self) -> str:
        """One line: how large the plan is, and the two lower bounds of its makespan."""
        size = f"{counted(len(self.plan.program.operations), 'operation')}, {counted(self.plan.waits, 'event wait')}"
        if self.planned_ns == 0:
            return size
        alone, ordered = time_text(self.needed_ns), time_text(self.planned_ns)
        replay = "" if self.replay_ns is None else f"; a replay of the capture took {time_text(self.replay_ns)} (measured)"
        collectives = sum(COMMUNICATION in operation.attributes for operation in self.plan.program.operations)
        # They share nothing but the links, so captured.bound() lets them change places; a plan keeps their order.
        why = "dependencies and the order of collectives" if collectives > 1 else "dependencies alone"
        return f"{size}; at least {alone} by {why}, {ordered} in this order (estimated durations){replay}"

    @property
    def not_seen(self) -> str:
        """Limits of this audit, in words."""
        return CAPTURED if self.plan.program.captured else UNSEEN if self.touches else _NOT_LOOKED

    def __str__(self) -> str:
        lines = [self.headline, self.circumstances]
        for finding in self.findings[:SHOWN]:
            lines.append("")
            lines += wrapped(f"{finding.severity.value} · {finding.kind.value}: {finding.message}", _WIDTH, then="    ")
            lines += [f"    {source}" for source in finding.sources[:_MOST_LINES]]
            lines += wrapped(f"→ {finding.advice}", _WIDTH, first="    ", then="      ")
        if len(self.findings) > SHOWN:
            lines += ["", f"… and {len(self.findings) - SHOWN:,} more in .findings"]
        for told in filter(None, (self.compared, self.not_seen)):
            lines += ["", *wrapped(told, _WIDTH)]
        return "\n".join(lines)

    __repr__ = __str__


@verb
def audit(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram | Program | Plan | Sequence[ForeignProgram],
    /,
    *inputs: Any,
    engine: str | None = None,
    device: str | Device = "auto",
    gpus: int | Sequence[int] | None = None,
    streams: int | None = None,
    progress: bool | Progress = True,
    touches: bool = True,
    **attributes: Any,
) -> Audit:
    """Compare the orders that a plan keeps with those that the program needs, and declared accesses with real ones.

    Of captured code it lists what orders its nodes without need, each with the edges that it keeps and what it costs at most. Such are
    nodes that are not understood, memory whose use is not known, and the capture itself, under engines that keep its order.

    Nothing is launched, but for replays of live captured code, which are timed. References and host functions are called in NumPy, with
    the program's values; what they declare as read only is locked against writing. Turn that off with ``touches=False`` where a host
    function must not be called (it prints, or sends something).

    The function itself is called, too, with copies of the inputs as NumPy arrays: the traced program must do what it does.
    ``touches=False`` turns that off as well.

    The audit does not see what operators do for other values, nor arrays that a function captured (a closure, a global).
    A CUDA kernel may do what its reference does not.

    Parameters
    ----------
    program : callable, ProgramFunction, CapturedProgram, Program or Plan
        A function over variables, what ``ss.capture`` returned, a program that was traced, or a plan as it is. A list of captures, one of
        each rank of a job, is audited as the first of them; besides, their collectives must not wait for each other for ever.
    *inputs : array
        Arguments of the program. Without any, a traced program's operators are run on random values.
    engine : str, optional
        Whose plan is audited. By default that is ``"async"``, and of captured code ``"graph"``, which has the order of the capture.
    device : {"auto", "cuda", "simulated"} or Device
        For which device it is planned: its cost model estimates durations.
    {gpus}
    {streams}
    {progress}
    touches : bool
        Look at what operators touch.
    {attributes}

    Raises
    ------
    ProgramError
        The program or its inputs are wrong, or ``progress`` is neither a truth value nor a function.
    EngineError
        The engine is unknown.
    DeviceError
        The device is missing.

    Examples
    --------
    >>> def two_branches(x):
    ...     return np.tanh(x) + np.exp(x)
    >>> x = np.ones((64, 64), np.float32)
    >>> print(ss.audit(two_branches, x, engine="async"))
    Audit of two_branches under async: 1 warning
    3 operations, 0 event waits; at least 1.71 µs by dependencies alone, 2.57 µs in this order (estimated durations)
    ...
    >>> ss.audit(two_branches, x, engine="graph-dual").findings
    ()

    A plan without one of its waits has a race:

    >>> plan = ss.prepare(two_branches, x, engine="graph-dual", device="simulated").plan
    >>> ss.audit(plan.without_wait(0)).ok
    False
    """
    check_device(device, gpus)
    ranks: list[Any] = list(program) if isinstance(program, list | tuple) else []
    if isinstance(program, list | tuple) and not (ranks and all(isinstance(one, ForeignProgram) for one in ranks)):
        raise ProgramError("a list that is audited holds captured code, of one rank each", hint="ss.audit([ss.load_captured(path), ...])")
    program = ranks[0] if ranks else program
    allowed = checked_streams(streams)
    audited = program.program if isinstance(program, Plan) else traced("ss.audit", program, inputs, attributes)
    estimate = device_for(audited, device, gpus=gpus, inputs=inputs).estimate_ns
    chosen = program if isinstance(program, Plan) else _plan(audited, engine, allowed, estimate)
    touches = touches and not chosen.program.captured  # It has no reference, and its evidence is looked at instead.
    arrays = _input_arrays(chosen.program, inputs) if touches else []
    with showing("auditing", progress=progress) as said:
        said("checking orders", 0, 1)
        dependencies = Dependencies.of(chosen.program)
        order = serialisation(chosen, dependencies, estimate)
        causes = list(order_findings(chosen.program, estimate, order))
        other, compared = _compared(program, inputs, attributes) if touches else ([], "")
        said_by_capture = any(finding.kind is Kind.FALSE_SERIALISATION for finding in causes)
        found = [
            *capture_findings(chosen),
            *issue_findings(chosen, dependencies),
            *race_findings(chosen),
            *(touch_findings(chosen.program, arrays, said) if touches else ()),
            *other,
            *(() if said_by_capture else serialisation_findings(chosen, order)),
            *causes,
        ]
        if ranks:
            over_ranks, compared = _over_ranks(ranks)
            found += over_ranks
    found.sort(key=lambda finding: _ORDER.index(finding.severity))
    replay_us = program.capture_us if isinstance(program, ForeignProgram) else None
    replay_ns = None if replay_us is None else 1e3 * replay_us
    return Audit(chosen, tuple(found), order.needed_ns, order.planned_ns, touches, replay_ns, compared)


def _over_ranks(ranks: Sequence[ForeignProgram]) -> tuple[list[Finding], str]:
    """Return findings about the collectives of captures, of one rank each, and a sentence on the comparison if there are none."""
    from streamscope.auditing.rank_collectives import CapturedRank, RankGraph, agreement, collective_findings

    captures = [cast("CapturedRank", one) for one in ranks]
    graphs = list(map(RankGraph.of, captures))
    found = collective_findings(graphs, model_of(captures[0].measured_on()).multiprocessors)
    return found, "" if found else agreement(graphs)


def _compared(program: object, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[list[Finding], str]:
    """Compare the traced program with the function, where there is one; errors of references are other findings."""
    if not isinstance(program, ProgramFunction):
        return [], ""
    try:
        return _function_findings(program, inputs, attributes)
    except Exception:  # noqa: BLE001 — references and host functions are the user's code
        return [], ""


def _plan(program: Program, engine: str | None, streams: int | None, estimate: Estimate) -> Plan:
    (name,) = engine_names([(engine_with(GRAPH) if program.captured else DEFAULT_ENGINE) if engine is None else engine])
    return plan_for(program, name, estimate, streams)


def _input_arrays(program: Program, inputs: Sequence[Any]) -> list[npt.NDArray[Any]]:
    specs = [program.variables[variable].spec for variable in program.inputs]
    if not inputs:
        random = np.random.default_rng(0)
        return [random_values(spec, random) for spec in specs]
    arrays = [host_array(values) for values in inputs]
    if [(array.shape, array.dtype) for array in arrays] != [(spec.shape, spec.dtype) for spec in specs]:
        found = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in arrays)
        raise ProgramError(f"program {program.name!r} was traced for {', '.join(map(str, specs))}, but the inputs are {found}")
    return arrays


def _function_findings(function: ProgramFunction, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[list[Finding], str]:
    """Compare the results of a function with its traced program; return findings and a sentence on the comparison."""
    program = ProgramFunction(function.function).trace(*inputs, **attributes)  # not fused
    plain = PlainFunction(function.function, tuple(inputs), attributes)
    found = plain.results(program)
    if isinstance(found, Answer):
        return [], _not_compared(found)
    known = known_part(program)
    results = run_reference(known, inputs)
    right, most = (of_outputs(program, known, arrays) for arrays in (results, allowed_errors(known, inputs, results)))
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
