"""Labels and source lines: what an operation is called beside its operator's name."""

from __future__ import annotations

import importlib
import linecache
import sys

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError

X = np.ones((4, 4), np.float32)


def labels(function, *arguments, fuse=False):
    return [operation.label for operation in ss.program(function, fuse=fuse).trace(*arguments).operations]


def test_nested_labels_are_joined_and_end_with_their_block():
    def step(x):
        x = ss.ops.relu(x)
        with ss.label("block"):
            x = x @ x
            with ss.label(" attention "):
                x = ss.ops.softmax(x)
            x = x + 1
        return ss.ops.tanh(x)

    assert labels(step, X) == ["", "block", "block/attention", "block", ""]


def test_a_decorated_function_and_an_inlined_program():
    @ss.label("inner")
    def layer(x):
        return x @ x

    @ss.program
    def outer(x):
        with ss.label("twice"):
            return layer(layer(x))

    def step(x):
        with ss.label("all"):
            return outer(x)

    assert labels(step, X) == ["all/twice/inner"] * 2


def test_a_label_ends_where_its_block_raises():
    def step(x):
        try:
            with ss.label("broken"):
                x = x @ x
                1 / 0  # noqa: B018 — raises
        except ZeroDivisionError:
            return x + 1

    assert labels(step, X) == ["broken", ""]


@pytest.mark.parametrize(("first", "second", "label"), [("a", "a", "a"), ("a", "b", "a+b")])
def test_a_fused_operation_has_the_labels_of_all_it_is_made_of(first, second, label):
    def step(x):
        x = x + 1
        with ss.label(first):
            x = ss.ops.relu(x)
        with ss.label(second):
            return ss.ops.exp(x)

    assert labels(step, X, fuse=True) == [label]


@pytest.mark.parametrize("name", ["", "  ", None, 3, X, b"x"])
def test_a_label_is_a_string_that_is_not_empty(name):
    def step(x):
        with ss.label(name):
            return x + 1

    with pytest.raises(ProgramError, match=r"ss\.label at test_label\.py:\d+: name=.* must be a string that is not empty"):
        ss.program(step).trace(X)


def test_a_label_outside_a_program_is_refused():
    with pytest.raises(ProgramError, match=r"ss\.label was called outside a program"), ss.label("lost"):
        pytest.fail("it went on")


def test_a_label_without_control_characters():
    def step(x):
        with ss.label("a\x1b[31m\u202eb"):
            return x + 1

    assert labels(step, X) == ["a�[31m�b"]


def test_a_printed_program_shows_label_line_and_text():
    def step(x):
        with ss.label("mlp"):
            return x @ x  # the text

    printed = str(ss.program(step).trace(X)).splitlines()[1]
    assert printed.endswith(f"    # test_label.py:{step.__code__.co_firstlineno + 2} in 'mlp': return x @ x  # the text")


def test_errors_name_the_label():
    def step(x):
        with ss.label("mlp"):
            return x @ ss.ops.relu(x)

    where = rf"test_label\.py:{step.__code__.co_firstlineno + 2} in 'mlp'"
    with pytest.raises(ProgramError, match=where):
        ss.program(step).trace(np.ones((4, 3), np.float32))
    (_, product) = ss.program(step).trace(X).operations
    for work in (product, *product.launches):
        assert str(work).endswith(f"{where})".replace("\\", ""))


def test_an_audit_shows_label_and_text():
    def step(x):
        with ss.label("left"):
            a = ss.ops.tanh(x)
        b = ss.ops.exp(x)
        return a + b

    audit = ss.audit(step, np.ones((64, 64), np.float32), engine="async")
    (finding,) = audit.of("false serialisation")
    assert [source.partition(" in ")[2] or source.partition(": ")[2] for source in finding.sources] == [
        "'left': a = ss.ops.tanh(x)",
        "b = ss.ops.exp(x)",
    ]
    for source in finding.sources:
        assert source in str(audit)
        assert source.replace("'", "&#x27;") in audit._repr_html_() or source.replace("'", "&#39;") in audit._repr_html_()


def test_a_module_that_is_changed_and_reloaded_shows_its_new_text(tmp_path, monkeypatch):
    file = tmp_path / "reloaded_program.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sources = []
    for line in ("return x + 1", "return x + 22"):
        file.write_text(f"def step(x):\n    {line}\n")
        importlib.invalidate_caches()
        module = importlib.reload(sys.modules["reloaded_program"]) if sources else importlib.import_module("reloaded_program")
        sources += [operation.source for operation in ss.program(module.step).trace(X).operations]
    monkeypatch.delitem(sys.modules, "reloaded_program")
    assert sources == ["return x + 1", "return x + 22"]


def test_code_without_a_source_has_no_text():
    function = eval(compile("lambda x: x + 1", "<made up>", "eval"))
    (operation,) = ss.program(function).trace(X).operations
    assert (operation.where, operation.source) == ("<made up>:1", "")
    assert not linecache.getlines("<made up>")
