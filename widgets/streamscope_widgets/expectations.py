"""``%streamscope_assert overlap > 0.3``: conditions on a comparison, which a notebook fails on."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from IPython.core.error import UsageError

from streamscope.analysis.metric import ENGINE, METRICS, metrics_of
from streamscope.arguments import UNITS
from streamscope.comparing.comparison import Comparison
from streamscope.errors import ExpectationError

SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
TIMES_US = {"": 1.0, "µs": 1.0, "μs": 1.0, "us": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
SHARES = {"": 1.0, "%": 0.01}
_CONDITION = re.compile(
    rf"(?:(?P<engine>[\w-]+)\.)?(?P<metric>\w+)\s*(?P<sign>{'|'.join(SIGNS)})\s*"
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>[^\W\d]+|%)?"
)


@dataclass(frozen=True)
class Condition:
    """One expectation: ``graph.makespan_us < 0.12 ms``."""

    text: str
    """As the user wrote it."""
    engine: str
    """Empty for the fastest or, where none can be called so, the one with the shortest median."""
    metric: str
    sign: str
    limit: float
    """In the metric's own unit."""
    unit: str
    """Empty where none was given."""
    scale: float
    """Factor from the condition's unit to the metric's."""

    def measured(self, comparison: Comparison) -> tuple[bool, str]:
        """Check the condition on a comparison, and return the measured value in words."""
        if self.engine and self.engine not in comparison:
            raise UsageError(f"engine {self.engine!r} was not compared{_near(self.engine, [*comparison])}")
        best = comparison.assessment.best
        engine = self.engine or best[0]
        value = comparison.metrics[engine].value(self.metric)
        whose = f"{self.metric} of {engine}" + (
            "" if self.engine else ", the fastest," if len(best) == 1 else ", the engine with the shortest median time,"
        )
        if value is None:
            return False, f"{whose} has no value"
        unit = self.unit or ("µs" if self.metric.endswith("_us") else "bytes" if self.metric.endswith("_bytes") else "")
        return SIGNS[self.sign](value, self.limit), f"{whose} is {value / self.scale:.6g} {unit}".rstrip()


def metric_names() -> list[str]:
    """Return the names of metrics that can be expected: those of the table of engines."""
    return [metric.name for metric in metrics_of(ENGINE)]


def conditions(text: str) -> list[Condition]:
    """Return the conditions of a line."""
    parts = [part.strip() for part in re.split(r",|\band\b|\n", text)]
    if not all(parts):
        raise UsageError("streamscope_assert needs a condition, for example: %streamscope_assert overlap > 0.3")
    return [_condition(part) for part in parts]


def check(comparison: Comparison, text: str) -> Iterator[str]:
    """Yield the measured value for each condition of a line."""
    found = [(condition, *condition.measured(comparison)) for condition in conditions(text)]
    simulated = " (simulated)" if comparison.device.simulated else ""
    failed = [f"{said}{simulated}, expected {condition.sign} {_given(condition)}" for condition, holds, said in found if not holds]
    if failed:
        raise ExpectationError("; ".join(failed))
    for condition, _, said in found:
        yield f"{said}{simulated}: {condition.sign} {_given(condition)}"


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        signs = " ".join(SIGNS)
        raise UsageError(f"{text!r} is not a condition: write a metric, one of {signs}, and a number, as in overlap > 0.3")
    engine, metric, sign, number, unit = (part or "" for part in match.groups())
    if metric not in metric_names():
        raise UsageError(f"unknown metric {metric!r}{_near(metric, metric_names())}")
    scales = _scales(metric)
    scale = scales.get(unit.upper() if metric.endswith("_bytes") else unit)
    if scale is None:
        known = ", ".join(filter(None, scales)) or "no unit"
        raise UsageError(f"{metric} is not counted in {unit!r} (it takes {known})")
    return Condition(text, engine, metric, sign, float(number) * scale, unit, scale)


def _scales(metric: str) -> Mapping[str, float]:
    if metric.endswith("_us"):
        return TIMES_US
    if metric.endswith("_bytes"):
        return UNITS
    return SHARES if METRICS[metric].unit == "%" else {"": 1.0}


def _given(condition: Condition) -> str:
    return f"{condition.limit / condition.scale:.6g} {condition.unit}".rstrip()


def _near(name: str, known: Any) -> str:
    near = get_close_matches(name, [*known], n=1)
    return f" (did you mean {near[0]}?)" if near else f" (there are {', '.join(known)})"
