"""The *Examples* sections of public names run, and show what they really give; ``np`` and ``ss`` are there, as in NumPy's own."""

from __future__ import annotations

import importlib
import inspect
from functools import cached_property

import numpy as np
import pytest
from tests.docs.running import needs_notebook_packages, run_examples

import streamscope as ss

NAMESPACES = {"ss": "streamscope", "ss.ops": "streamscope.ops", "ss.analysis": "streamscope.analysis"}
RESULTS = ("advising.advice:Advice", "measuring.choice:Choice", "auditing.audit:Audit", "ranks.job:Job", "ranks.what_if:JobPrediction")
"""Classes that a user meets and does not make, so that they have no name in ``ss``."""
DESCRIPTORS = (property, cached_property, classmethod, staticmethod)
FLOOR = 120
"""At least so many public names have an example."""


def public_names(module):
    """Yield the public names of a module with their objects."""
    for name in getattr(module, "__all__", ()):
        yield name, getattr(module, name)


def with_methods(name, value):
    """Yield a public object and, of a class of ours, its public methods and properties, with their names."""
    yield name, value
    if inspect.isclass(value) and value.__module__.startswith("streamscope"):
        for method, member in vars(value).items():
            if not method.startswith("_") and (inspect.isfunction(member) or isinstance(member, DESCRIPTORS)):
                yield f"{name}.{method}", member


def public_examples():
    """Return by its name the docstring of each public object that has an example; of a name that stands twice, once."""
    named = [
        (f"{prefix}.{name}", value)
        for prefix, module in NAMESPACES.items()
        for name, value in public_names(importlib.import_module(module))
    ]
    named += [
        (name, getattr(importlib.import_module(f"streamscope.{module}"), name)) for module, name in (one.split(":") for one in RESULTS)
    ]
    found = {}
    for name, value in named:
        for whole, member in with_methods(name, value):
            text = inspect.getdoc(member) or ""
            if ">>> " in text and text not in found.values():
                found[whole] = text
    return found


EXAMPLES = public_examples()


@needs_notebook_packages
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_public_name_give_what_they_show(name, tmp_path, monkeypatch):
    run_examples(EXAMPLES[name], name, name, {"np": np, "ss": ss}, tmp_path, monkeypatch)


NEED_MORE = {"auxiliary_stream", "capture", "compare_compilation", "load_captured", "parallelise", "record", "tune", "warm"}
"""They need a GPU or NVRTC, or a file that was made on a GPU."""


def test_every_function_of_ss_that_runs_anywhere_has_an_example():
    functions = {name for name, value in public_names(ss) if inspect.isfunction(value) and value.__module__ != "streamscope"}
    assert {f"ss.{name}" for name in functions - NEED_MORE} <= set(EXAMPLES)


def test_many_public_names_have_examples():
    assert len(EXAMPLES) >= FLOOR, sorted(EXAMPLES)


def test_examples_stand_in_a_section_of_their_own():
    assert [name for name, text in EXAMPLES.items() if "Examples\n--------\n" not in text] == []
