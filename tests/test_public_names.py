"""The public names: pinned, documented, and loaded when they are used."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import traceback
from functools import cached_property

import pytest

import streamscope as ss

PUBLIC = [
    "ArraySpec",
    "Comparison",
    "Engine",
    "Program",
    "StreamscopeError",
    "Symbol",
    "Trace",
    "advise",
    "analysis",
    "audit",
    "auxiliary_stream",
    "best",
    "capture",
    "compare",
    "compare_compilation",
    "compilations",
    "counter",
    "diff",
    "elementwise",
    "empty",
    "explore",
    "gpu",
    "grad",
    "host_function",
    "label",
    "load_captured",
    "load_comparison",
    "load_ipython_extension",
    "marker",
    "nvtx",
    "open_device",
    "operator",
    "ops",
    "parallelise",
    "prepare",
    "program",
    "read",
    "read_ranks",
    "record",
    "sweep",
    "tune",
    "value_and_grad",
    "verify",
    "vjp",
    "warm",
    "what_if",
    "workload",
]

NAMESPACES = ("analysis", "ops")
"""Public names that are packages with names of their own."""
VALUES = [name for name in PUBLIC if name not in NAMESPACES]
RESULTS = {
    "Advice": "streamscope.advising.advice",
    "Audit": "streamscope.auditing.audit",
    "Choice": "streamscope.measuring.choice",
    "CompilationComparison": "streamscope.compiling.compare_compilation",
    "CompilationLog": "streamscope.kernels.compile.compilation_log",
    "Gain": "streamscope.parallelising.parallelised",
    "Job": "streamscope.ranks.job",
    "JobPrediction": "streamscope.ranks.what_if",
    "LoadedCapture": "streamscope.capturing.saved",
    "Parallelised": "streamscope.parallelising.parallelised",
    "Prediction": "streamscope.predicting.prediction",
    "Prepared": "streamscope.engines.prepared",
    "Run": "streamscope.comparing.comparison",
    "Sweep": "streamscope.comparing.swept",
    "TraceDiff": "streamscope.analysis.diff",
    "Tuning": "streamscope.compiling.tuning",
    "Verification": "streamscope.predicting.verify",
}
"""What public functions return, and nobody makes: classes without a public name, whose documentation is public."""

DESCRIPTORS = (property, cached_property, classmethod, staticmethod)


def run(code, repository):
    """Run code in a fresh interpreter; return what it printed, as JSON."""
    environment = {"PYTHONPATH": str(repository / "toolkit")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(result.stdout)


def test_the_package_can_be_imported_from_a_zip(repository, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", repository / "toolkit", "streamscope")
    shown = "json.dumps([streamscope.__file__, str(streamscope.ops.relu)])"
    code = f"import sys; sys.path.insert(0, {archive!r}); import json, streamscope; print({shown})"
    place, operator = run(code, repository)
    assert place.startswith(archive)
    assert "relu" in operator


def test_the_names_are_pinned():
    assert ss.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_resolves_and_is_listed(name):
    assert getattr(ss, name) is getattr(ss, name)
    assert name in dir(ss)


def test_the_operators_are_in_a_namespace_of_their_own():
    assert dir(ss.ops) == ss.ops.__all__
    assert dir(ss) == ss.__all__
    for name in ss.ops.__all__:
        assert getattr(ss.ops, name) is getattr(ss.ops, name)
        told = inspect.getdoc(getattr(ss.ops, name))
        assert re.search(r"^Parameters\n-+\n(.|\n)*^Raises\n-+\nProgramError\n(.|\n)*^Examples\n-+\n", told, re.MULTILINE), name
    with pytest.raises(AttributeError, match=r"module 'streamscope.ops' has no attribute 'no_such_name'"):
        _ = ss.ops.no_such_name


def test_no_module_takes_the_place_of_an_operator(repository):
    modules = {path.stem for path in (repository / "toolkit" / "streamscope" / "ops").glob("*.py")}
    assert not modules & set(ss.ops.__all__)


def documented(value):
    """Yield a public object and, of a class, its public methods and properties."""
    yield value
    if inspect.isclass(value):
        for name, member in vars(value).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, DESCRIPTORS)):
                yield member


def public(name):
    return getattr(importlib.import_module(RESULTS[name]), name) if name in RESULTS else getattr(ss, name)


@pytest.mark.parametrize("name", [*VALUES, *RESULTS])
def test_every_name_is_documented(name):
    for member in documented(public(name)):
        text = inspect.getdoc(member)
        assert text, f"{member} of {name} has no docstring"
        assert text.splitlines()[0].endswith("."), f"the first line of {member} of {name} is not a sentence"


def words(value):
    return set(re.findall(r"\w+", inspect.getdoc(value) or ""))


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isfunction(getattr(ss, name))])
def test_a_function_of_several_parameters_documents_each(name):
    function = getattr(ss, name)
    parameters = set(inspect.signature(function).parameters)
    assert len(parameters) <= 1 or parameters <= words(function)


@pytest.mark.parametrize("name", [name for name in [*VALUES, *RESULTS] if dataclasses.is_dataclass(public(name))])
def test_every_field_of_a_public_dataclass_is_documented(name):
    kind = public(name)
    assert {field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")} <= words(kind)


def test_unknown_names():
    with pytest.raises(AttributeError, match=r"module 'streamscope' has no attribute 'no_such_name'$"):
        _ = ss.no_such_name


@pytest.mark.parametrize(
    ("package", "wrong", "meant"),
    [
        (ss, "parallelize", "parallelise"),
        (ss, "comapre", "compare"),
        (ss.ops, "soft_max", "softmax"),
        (ss.ops, "conv2d", "convolution"),
        (ss.ops, "silu", r"x \* ss.ops.sigmoid\(x\)"),
    ],
)
def test_a_misspelt_name_is_told_the_right_one_once(package, wrong, meant):
    """Python adds its own guess to an `AttributeError` that names the object; IPython, where most people mistype, adds none."""
    with pytest.raises(AttributeError, match=rf"has no attribute {wrong!r} \(did you mean {meant}\?\)$") as caught:
        getattr(package, wrong)
    assert "".join(traceback.format_exception(caught.value)).count("id you mean") == 1
    assert not hasattr(package, wrong)


def test_an_operator_that_is_looked_for_in_ss_says_where_it_is():
    for name in ss.ops.__all__:
        with pytest.raises(AttributeError, match=rf"ss\.{name} is ss\.ops\.{name} now"):
            getattr(ss, name)


def test_no_name_stands_in_two_public_places():
    everywhere = [*ss.__all__, *ss.ops.__all__, *ss.analysis.__all__]
    assert len(everywhere) == len(set(everywhere))


@pytest.mark.parametrize("first", ["ops.add", "compare", "workload", "Trace", "open_device"])
def test_program_stays_the_decorator_whatever_is_used_first(repository, first):
    code = f"""
import json
import streamscope as ss
ss.{first}
import streamscope.program.reference
print(json.dumps([type(ss.program).__name__, ss.program.__name__]))
"""
    assert run(code, repository) == ["function", "program"]


def test_import_loads_none_of_the_work(repository):
    code = "import json, sys; import streamscope; print(json.dumps([name for name in sys.modules if name.startswith('streamscope.')]))"
    loaded = {name.split(".")[1] for name in run(code, repository)}
    assert loaded == {"program", "public_names"}
