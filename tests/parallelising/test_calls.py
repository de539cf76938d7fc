"""Arguments of a call by the names of the function's parameters."""

from __future__ import annotations

import functools
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.errors import ProgramError
from streamscope.parallelising.calls import Calls, described, name_of


def plain(x, y, *, training=False, scale=1.0):
    return x, y, training, scale


def open_to_all(x, *others, **named):
    return x, others, named


@given(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 3))
def test_one_call_written_in_any_way_has_the_same_arguments(x_named, y_named, defaulted, training):
    positional = [] if x_named else [1] if y_named else [1, 2]
    named = {"y": 2} if x_named or y_named else {}
    if x_named:
        named["x"] = 1
    if training or not defaulted:
        named["training"] = training
    found = Calls(plain).arguments(positional, named)
    wanted = inspect.signature(plain).bind(*positional, **named)
    wanted.apply_defaults()
    assert list(found.items()) == list(wanted.arguments.items())
    assert Calls(plain).call(plain, found) == plain(*positional, **named)


@given(st.lists(st.integers(), min_size=1, max_size=4), st.dictionaries(st.sampled_from("abc"), st.integers()))
def test_functions_that_take_anything(positional, named):
    calls = Calls(open_to_all)
    assert calls.call(open_to_all, calls.arguments(positional, named)) == open_to_all(*positional, **named)


@pytest.mark.parametrize(
    ("positional", "named", "words"),
    [
        ((1,), {}, "missing a required argument: 'y'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1, 2), {"x": 1}, "multiple values for argument 'x'"),
        ((1, 2), {"trainin": 1}, "unexpected keyword argument 'trainin'"),
    ],
)
def test_a_wrong_call_says_what_python_says_and_how_the_function_is_called(positional, named, words):
    with pytest.raises(ProgramError, match=words) as caught:
        Calls(plain).arguments(positional, named)
    assert caught.value.hint == "it is plain(x, y, *, training=False, scale=1.0)"


def test_what_a_partial_function_binds_is_no_argument_unless_it_is_a_number_or_the_like():
    weights = object()
    bound = functools.partial(plain, y=weights, training=True)
    calls = Calls(bound)
    arguments = calls.arguments([1], {})
    assert arguments == {"x": 1, "training": True, "scale": 1.0}
    assert calls.call(bound, arguments) == (1, weights, True, 1.0)


def test_a_module_is_called_as_its_forward_names_it():
    class Module:
        def __call__(self, *anything, **named):
            return self.forward(*anything, **named)

        def forward(self, image, mask=None):
            return image, mask

    module = Module()
    assert list(inspect.signature(described(module)).parameters) == ["image", "mask"]
    calls = Calls(module)
    assert calls.arguments([1], {}) == calls.arguments([], {"image": 1}) == {"image": 1, "mask": None}
    assert calls.call(module, calls.arguments([1], {"mask": 2})) == (1, 2)
    assert name_of(module) == "Module"


def test_a_module_that_keeps_a_function_as_func_has_its_own_mode():
    class Module:
        training = True

        def __init__(self, func):
            self.func = func

        def __call__(self, x):
            return self.func(x)

    module = Module(abs)
    calls, bound = Calls(module), Calls(functools.partial(module))
    assert (calls.name, bound.name, calls.mode()[0], bound.mode()[0]) == ("Module", "Module", True, True)
    module.training = False
    assert (calls.mode()[0], bound.mode()[0]) == (False, False)


def test_functions_without_a_signature_are_called_by_position():
    calls = Calls(max)
    assert calls.call(max, calls.arguments([3, 5], {})) == 5


def test_names():
    assert name_of(plain) == name_of(functools.partial(plain, y=1)) == "plain"
