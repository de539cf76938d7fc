"""Values taken apart into arrays and trees, and put together again; arrays are any objects of a class here."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.errors import ProgramError
from streamscope.interrupts import nothing_collected
from streamscope.parallelising.trees import difference, maker, matcher, paths, put_together, same, taken_apart


class Array:
    """Stands for an array: only its identity counts."""


def is_array(value):
    return isinstance(value, Array)


def fits(tree, value, is_array, found):
    return matcher(tree, is_array)(value, found)


class Pair(NamedTuple):
    left: object
    right: object


@dataclass(frozen=True)
class Batch:
    image: object
    labels: object = None
    count: int = field(default=0, init=False)


class Encoding(UserDict):
    """What a tokenizer returns: a mapping that is no dictionary, and knows more than its parts."""

    def __init__(self, data, length=7):
        super().__init__(data)
        self.length = length


arrays = st.builds(Array)
constants = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=3)
values = st.recursive(
    arrays | constants,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(OrderedDict, st.dictionaries(st.integers(), inner, max_size=2))
        | st.builds(Encoding, st.dictionaries(st.text(max_size=2), inner, max_size=3))
        | st.builds(defaultdict, st.just(list), st.dictionaries(st.integers(), inner, max_size=2))
        | st.builds(MappingProxyType, st.dictionaries(st.integers(), inner, max_size=2))
        | st.builds(Pair, inner, inner)
        | st.builds(Batch, inner, inner)
        | st.sets(st.integers(), max_size=3)
        | st.frozensets(st.text(max_size=2), max_size=3)
    ),
    max_leaves=12,
)


def alike(one, other):
    """Compare values, arrays by identity and NaN as equal."""
    if isinstance(one, Array):
        return one is other
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, Batch):
        return alike(one.image, other.image) and alike(one.labels, other.labels)
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@given(values)
def test_what_is_taken_apart_is_put_together_again(value):
    found, tree = taken_apart(value, is_array)
    assert all(map(is_array, found))
    assert len(set(map(id, found))) == len(found)
    assert alike(put_together(tree, found), value)
    assert alike(maker(tree)(found), value)
    assert len(paths(tree)) == len(found)
    assert len(set(paths(tree))) == len(found)


@given(values)
def test_a_value_fits_its_own_tree_and_gives_its_arrays(value):
    found, tree = taken_apart(value, is_array)
    again = [None] * len(found)
    assert fits(tree, value, is_array, again)
    assert all(one is other for one, other in zip(found, again, strict=True))
    assert difference(tree, tree) == ""


@given(values, values)
def test_a_value_fits_a_tree_where_the_trees_do_not_differ_and_only_there(one, other):
    found, tree = taken_apart(one, is_array)
    _, beside = taken_apart(other, is_array)
    assert fits(tree, other, is_array, [None] * len(found)) == (difference(tree, beside) == "")


def test_what_a_tree_holds_goes_with_the_function_that_matches_it():
    constant = Array()  # Stands for any object, such as a module that holds memory of the GPU.
    match, gone = matcher(taken_apart([constant, 1], lambda value: False)[1], is_array), ref(constant)
    assert match([constant, 1], [])
    with nothing_collected():
        del constant, match
        assert gone() is None


def test_one_array_in_two_places_is_one():
    x, y = Array(), Array()
    found, tree = taken_apart({"a": x, "b": (x, y)}, is_array)
    assert found == [x, y]
    assert paths(tree) == ["a", "b[1]"]
    assert not fits(tree, {"a": x, "b": (y, y)}, is_array, [None, None])
    assert not fits(tree, {"a": x, "b": (y, x)}, is_array, [None, None])
    assert fits(tree, {"a": y, "b": (y, x)}, is_array, [None, None])


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_arrays_that_were_one_have_to_be_one_and_others_may_be(captured, called):
    """Which places hold the same array, as numbers."""
    pools = [[Array() for _ in range(4)] for _ in range(2)]
    one, other = ([pool[number] for number in places] for pool, places in zip(pools, (captured, called), strict=True))
    found, tree = taken_apart(one, is_array)
    wanted = len(captured) == len(called) and all(
        called[first] == called[second]
        for first, number in enumerate(captured)
        for second, beside in enumerate(captured)
        if number == beside
    )
    assert fits(tree, other, is_array, [None] * len(found)) == wanted
    assert (difference(tree, taken_apart(other, is_array)[1], "x") == "") == wanted


@pytest.mark.parametrize("kind", [dict, OrderedDict, Encoding])
@given(st.dictionaries(st.text(max_size=2), values, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_keys_of_a_mapping_come_in_the_order_in_which_they_were_captured(kind, value, random):
    """A function may loop over them, as in `torch.cat(list(batch.values()))`."""
    found, tree = taken_apart(kind(value), is_array)
    names = random.sample(list(value), len(value))
    turned = kind({name: value[name] for name in names})
    fit = fits(tree, turned, is_array, [None] * len(found))
    assert fit == (names == list(value))
    words = difference(tree, taken_apart(turned, is_array)[1], "x")
    assert words == ("" if fit else f"x has its keys in the order {str(names)[1:-1]}, not in the order {str(list(value))[1:-1]}")
    fewer = kind({name: value[name] for name in list(value)[1:]})
    assert not fits(tree, fewer, is_array, [None] * len(found))


def test_keys_that_are_equal_and_of_another_type_are_others():
    assert not fits(taken_apart({1: "a"}, is_array)[1], {True: "a"}, is_array, [])


def test_paths_are_written_as_python_reaches_them():
    _, tree = taken_apart({"x": [Array(), Pair(Array(), 1)], "batch": Batch({"a b": Array()})}, is_array)
    assert paths(tree) == ["x[0]", "x[1].left", "batch.image['a b']"]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"x": 1}, {"x": 2}, "x is 2, not 1"),
        ({"x": 1}, {"x": True}, "x is True, not 1"),
        ({"x": (1, 2)}, {"x": [1, 2]}, "x is a list, not a tuple"),
        ({"x": (1, 2)}, {"x": (1,)}, "x has 1 element, not 2"),
        ({"x": None}, {"x": Array()}, "x is an array, not None"),
        ({"x": {"k": "a"}}, {"x": {"k": "b"}}, "x['k'] is 'b', not 'a'"),
    ],
)
def test_a_difference_is_named_by_its_path(one, other, words):
    trees = [taken_apart(each, is_array)[1] for each in (one, other)]
    assert difference(*trees) == words


def test_a_list_that_holds_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(ProgramError, match="nested more than 100 levels deep"):
        taken_apart(endless, is_array)


def test_constants_of_a_class_that_cannot_be_compared_are_the_same_only_if_they_are_one():
    class Odd:
        def __eq__(self, other):
            raise ValueError("no")

        __hash__ = None

    odd = Odd()
    assert same(odd, odd)
    assert not same(odd, Odd())
    assert not same(1, 1.0)


@pytest.mark.parametrize("kind", [float, complex, np.float16, np.float32, np.float64, np.complex64])
def test_numbers_are_the_same_that_nothing_can_tell_apart(kind):
    nan, tenth = float("nan"), 0.1
    assert same(kind(nan), kind(nan))
    assert same(kind(tenth), kind(tenth))
    assert same(kind(-0.0), kind(-0.0))
    assert not same(kind(0.0), kind(-0.0))  # 1 / x is another infinity.
    assert not same(kind(tenth), kind(float(np.nextafter(np.float16(tenth), np.float16(1)))))


def test_a_set_that_was_changed_in_place_is_another_and_the_function_gets_one_of_its_own():
    layers = {1, 2}
    _, tree = taken_apart({"layers": layers}, is_array)
    put_together(tree, [])["layers"].add(7)
    assert fits(tree, {"layers": {1, 2}}, is_array, [])
    layers.add(3)
    assert not fits(tree, {"layers": layers}, is_array, [])
    assert difference(tree, taken_apart({"layers": layers}, is_array)[1]) == "layers has 3 elements, not 2"


def test_a_set_of_arrays_is_refused():
    with pytest.raises(ProgramError, match="x is a frozenset of arrays, whose order is by chance") as caught:
        taken_apart({"x": frozenset([Array()])}, is_array)
    assert caught.value.hint == "pass a list"


def test_fields_that_a_dataclass_does_not_take_are_parts_of_it_too():
    @dataclass(frozen=True)
    class Masked:
        image: object
        mask: object = field(init=False, default=None)
        count: int = field(init=False)

    x, mask, other = Array(), Array(), Array()
    masked = Masked(x)
    object.__setattr__(masked, "mask", mask)
    found, tree = taken_apart({"batch": masked}, is_array)
    assert (found, paths(tree)) == ([x, mask], ["batch.image", "batch.mask"])
    again = put_together(tree, [x, other])["batch"]
    assert (again.image, again.mask, hasattr(again, "count")) == (x, other, False)
    assert not fits(tree, {"batch": Masked(x)}, is_array, [None, None])
    object.__setattr__(masked, "count", 3)
    assert not fits(tree, {"batch": masked}, is_array, [None, None])
    assert put_together(taken_apart(masked, is_array)[1], [x, mask]).count == 3


def test_mappings_of_any_kind_are_made_anew_with_what_they_know_besides():
    x, y = Array(), Array()
    words = Encoding({"a": x, "n": 3}, length=11)
    found, tree = taken_apart(words, is_array, "words")
    assert found == [x]
    assert paths(tree, "words") == ["words['a']"]
    again = put_together(tree, [y])
    assert (type(again), again["a"], again["n"], again.length, words["a"]) == (Encoding, y, 3, 11, x)
    words["a"] = y
    found = [None]
    assert fits(tree, words, is_array, found)
    assert found == [y]
    _, tree = taken_apart(defaultdict(list, a=x), is_array)
    assert put_together(tree, [y])["b"] == []


@pytest.mark.parametrize("inside", [lambda x: x, lambda x: [1, x], lambda x: {"k": x}, lambda x: UserDict(k=x), lambda x: deque([x])])
def test_an_object_of_an_unknown_class_that_holds_arrays_is_refused_by_name(inside):
    held = SimpleNamespace(rate=0.1, cache=inside(Array()))
    with pytest.raises(ProgramError, match=r"state\[0\] is a SimpleNamespace, whose 'cache' holds an array") as caught:
        taken_apart({"state": [held]}, is_array)
    assert "state[0].cache" in caught.value.hint


class Slots:
    """As `attrs` makes classes."""

    __slots__ = ("frames", "rate")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: deque([1, x]), "frames is a deque that holds arrays"),
        (lambda x: {"k": x}.values(), "frames is a dict_values that holds arrays"),
        (lambda x: iter([x]), "frames is a list_iterator, which is used up by one call"),
        (lambda x: (x for _ in range(2)), "frames is a generator, which is used up by one call"),
    ],
)
def test_arrays_that_others_may_follow_are_refused_as_constants(make, said):
    with pytest.raises(ProgramError) as caught:
        taken_apart({"frames": make(Array())}, is_array)
    assert caught.value.message.startswith(said)
    assert "list" in caught.value.hint


def test_slots_are_looked_at_as_other_attributes_are():
    held = Slots()
    held.rate = 0.1
    assert taken_apart([held], is_array)[0] == []
    held.frames = Array()
    with pytest.raises(ProgramError, match="is a Slots, whose 'frames' holds an array"):
        taken_apart([held], is_array)


@pytest.mark.parametrize("value", [range(10**12), "text", b"bytes", deque([1, 2]), {1: 2}.values(), slice(3), StringIO("file")])
def test_constants_of_many_elements_are_constants(value):
    assert taken_apart([value], is_array)[0] == []


def test_what_can_be_called_keeps_its_arrays_to_itself():
    class Module:
        def __init__(self):
            self.mask = Array()

        def __call__(self):
            """Make it callable."""

    assert taken_apart({"model": Module(), "rate": SimpleNamespace(value=1)}, is_array)[0] == []


NUMBERS = [
    np.array([7, 5, 2]),
    np.array([7, 5, 3]),
    np.array([7, 5]),
    np.array([7, 5, 2], np.int32),
    np.array(0.0),
    np.array(-0.0),
    np.array(1 + 0j),
    np.array(complex(1, -0.0)),
    np.array(2.5),
    np.array([True]),
]


@pytest.mark.parametrize("number", range(len(NUMBERS)))
def test_numbers_in_host_memory_such_as_lengths_are_constants_that_nobody_can_change(number):
    lengths = NUMBERS[number].copy()
    found, tree = taken_apart({"lengths": lengths}, lambda value: isinstance(value, np.ndarray))
    assert found == []
    assert [fits(tree, {"lengths": other}, is_array, []) for other in NUMBERS] == [other is NUMBERS[number] for other in NUMBERS]
    lengths.fill(0)
    put_together(tree, [])["lengths"].fill(0)
    assert fits(tree, {"lengths": NUMBERS[number]}, is_array, [])
    assert put_together(tree, [])["lengths"].dtype == lengths.dtype


@pytest.mark.parametrize("array", [np.ones((2, 2), int), np.ones(3), np.array(["a"]), np.array([None])])
def test_larger_arrays_and_others_than_numbers_are_no_constants(array):
    found, _ = taken_apart([array], lambda value: value is array)
    assert found[0] is array


def test_nan_without_axes_is_the_same_and_an_array_in_the_place_of_numbers_is_not():
    _, tree = taken_apart([np.array(np.nan)], is_array)
    assert fits(tree, [np.array(np.nan)], is_array, [])
    assert not fits(tree, [Array()], is_array, [])
    assert not fits(tree, [float("nan")], is_array, [])
    assert difference(tree, taken_apart([Array()], is_array)[1], "x") == "x[0] is an array, not array(nan)"


def test_where_an_array_is_wanted_its_place_says_what_numbers_on_the_host_are_not():
    one, other = (taken_apart([each], is_array)[1] for each in (Array(), np.array([3])))
    assert difference(one, other, "x") == ""
