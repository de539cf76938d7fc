"""`ss.audit` itself: what it takes, and how it shows what it found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from html.parser import HTMLParser

import numpy as np
import pytest
from tests.auditing.conftest import spread
from tests.counting import calls_of

import streamscope as ss
from streamscope.auditing.audit import SHOWN
from streamscope.auditing.findings import Kind, Severity
from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import MemoryHeld
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError, ProgramError

X = np.arange(4, dtype=np.float32)


@ss.program
def crossed(x, y):
    left = ss.ops.multiply(x, x)
    right = ss.ops.multiply(y, y)
    return ss.ops.add(left, right)


def test_the_gpu_of_the_arrays_is_the_one_that_is_planned_for(monkeypatch):
    asked = []

    def opened(program, choice, *, gpus, inputs):
        asked.append((program.name, choice, gpus, inputs))
        return SimulatedDevice()

    monkeypatch.setattr("streamscope.auditing.audit.device_for", opened)
    ss.audit(crossed, X, X)
    assert [(*rest, inputs[0] is X) for *rest, inputs in asked] == [("crossed", "auto", None, True)]


@pytest.fixture
def broken():
    """Return a plan that misses a wait within the run."""
    plan = spread(crossed.trace(X, X))
    plans = [plan.without_wait(index) for index in range(plan.waits)]
    return next(one for one in plans if "in the run before" not in ss.audit(one).of("missing wait")[0].message)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_program_function_a_program_and_a_plan_are_the_same_to_it(engine):
    plan = ENGINES[engine].plan(crossed.trace(X, X), SimulatedDevice().estimate_ns)
    texts = {
        str(replace(ss.audit(crossed, X, X, engine=engine), compared="")),  # Of a program, the function is not known.
        str(ss.audit(crossed.trace(X, X), X, X, engine=engine)),
        str(ss.audit(crossed.trace(X, X), engine=engine)),
        str(ss.audit(plan, X, X)),
        str(ss.audit(plan)),
    }
    assert len(texts) == 1
    assert ss.audit(plan).ok


def test_what_was_captured_has_no_references_to_look_at():
    @ss.program
    def launched(x):
        return ss.operator(lambda x, y: None, reads=["x"], writes=["y"])(x)

    captured = CapturedFunction("launched", launched.trace(X), [], [], [], MemoryHeld(0, ()), None, len, (), [], [], None, None)
    audit = ss.audit(captured)
    assert audit.ok
    assert [finding.kind for finding in audit.findings] == [Kind.UNCHECKED]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool"])
@pytest.mark.parametrize("function", [lambda x: np.sum(x) + 1, lambda x: np.max(x) == x, lambda x: ~np.any(x), lambda x: x[0], np.var])
def test_arrays_without_axes_which_numpy_gives_as_numbers(function, dtype):
    audit = ss.audit(function, np.ones(3, dtype), device="simulated", progress=False)
    assert audit.findings == ()
    assert ss.audit(audit.plan).findings == ()  # with random values


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((float, X), {}, ProgramError, "not an operator of a program"),
        ((crossed, X), {}, ProgramError, "cannot take 1 argument: "),
        ((crossed, X, X), {"engine": "warp"}, EngineError, "choose from sync"),
        ((crossed.trace(X, X), X, X.astype(np.float64)), {}, ProgramError, "was traced for float32"),
        ((crossed.trace(X, X), X), {}, ProgramError, "was traced for float32"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        ss.audit(*arguments, **options)


def test_an_audit_is_data(broken):
    audit = ss.audit(broken)
    assert not audit.ok
    assert audit.findings[0].severity is Severity.ERROR
    assert audit.of(Kind.MISSING_WAIT) == audit.of("missing wait") != ()
    with pytest.raises(EngineError, match="no findings of kind 'race'"):
        audit.of("race")
    with pytest.raises(FrozenInstanceError):
        audit.findings = ()


def test_findings_are_ordered_by_severity():
    @ss.host_function
    def careless(x):
        x += 1
        return x

    @ss.program
    def step(x, y):
        return careless(x), ss.operator(lambda x, y: None, reads=["x"], writes=["y"])(y)

    severities = [list(Severity).index(finding.severity) for finding in ss.audit(step, X, X).findings]
    assert len(set(severities)) == 3
    assert severities == sorted(severities)


def test_as_a_table(broken):
    pytest.importorskip("pandas")
    audit = ss.audit(broken)
    table = audit.to_pandas()
    assert len(table) == len(audit.findings)
    row = table.iloc[0]
    finding = audit.findings[0]
    assert (row.kind, row.severity, row.message, row.advice) == ("missing wait", "error", finding.message, finding.advice)
    assert row.operations == tuple(operation.id for operation in finding.operations)
    assert row.variables == tuple(variable.name for variable in finding.variables)
    assert row.lines == finding.lines
    assert list(ss.audit(crossed, X, X, engine="dual").to_pandas().columns) == list(table.columns)


def test_as_text(broken):
    audit = ss.audit(broken)
    text = str(audit)
    assert text.startswith("Audit of crossed under spread: 1 error")
    assert "(estimated durations)" in text
    flat = " ".join(text.split())
    for finding in audit.findings:
        assert " ".join(finding.message.split()) in flat
        assert finding.advice in flat
    assert max(map(len, text.splitlines())) <= 120


def test_nothing_found_is_said():
    text = str(ss.audit(spread(crossed.trace(X, X))))
    assert text.startswith("Audit of crossed under spread: nothing to report\n3 operations, 4 event waits; at least ")


class Tags(HTMLParser):
    """Checks that tags are closed in turn, and collects their names, attributes and text."""

    def __init__(self):
        super().__init__()
        self.open, self.names, self.attributes, self.text = [], set(), set(), ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_as_html_for_an_untrusted_notebook(broken):
    name = "<script>alert('x')</script>"
    variables = tuple(replace(variable, name=name) for variable in broken.program.variables)
    operations = tuple(replace(operation, name="a<b>&c", where='<img src="x">:1') for operation in broken.program.operations)
    hostile = replace(broken, program=replace(broken.program, name=name, variables=variables, operations=operations))
    page = Tags()
    html = ss.audit(hostile)._repr_html_()
    page.feed(html)
    assert page.open == []
    assert page.names <= {"div", "p", "ul", "li", "span", "b", "code"}
    assert page.attributes == {"style"}
    assert name in page.text
    assert "a<b>&c" in page.text
    assert "background" not in html  # The page's own, light or dark.


def test_many_findings_are_counted_rather_than_shown():
    @ss.program
    def many(x):
        for _ in range(SHOWN + 10):
            x = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: x[0])(x)
        return x

    audit = ss.audit(many, X)
    assert len(audit.findings) == SHOWN + 10
    assert "… and 10 more" in str(audit)
    assert "… and 10 more" in audit._repr_html_()


def test_the_name_is_a_function_whatever_was_imported_first(repository):
    code = "import streamscope.auditing.audit; import streamscope as ss; print(type(ss.audit).__name__)"
    environment = {"PYTHONPATH": str(repository / "toolkit")}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "function\n"


def test_work_grows_with_the_program_and_no_faster():
    random = np.random.default_rng(0)

    def plan_of(count):
        choices = random.integers(0, 100, (count, 3))

        @ss.program
        def large(*variables):
            for a, b, out in choices:
                ss.ops.add(variables[a], variables[b], out=variables[out])
            return variables

        return spread(large.trace(*[X] * 100))

    small, large = plan_of(80), plan_of(320)
    assert calls_of(ss.audit, large) < 6 * calls_of(ss.audit, small)  # 4 times the operations; by pairs it would be 16 times.
    audit = ss.audit(large, touches=False)
    assert audit.ok
    assert len(ss.audit(large.without_wait(large.waits // 2), touches=False).of("missing wait")) == 1


@pytest.mark.parametrize(("touches", "said"), [(True, "Not seen: what an operator does for other values"), (False, "touches=False")])
def test_an_audit_says_what_it_does_not_see(touches, said):
    audit = ss.audit(crossed, X, X, touches=touches)
    assert said in str(audit)
    assert said in audit._repr_html_()
