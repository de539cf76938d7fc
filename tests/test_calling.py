"""One calling rule for every verb: a function or a program, its inputs, keywords; and whose a keyword is."""

from __future__ import annotations

import inspect
from functools import partial

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import DeviceError, KeywordError, ProgramError
from streamscope.trace.stored import MOST_REPEATS

X = np.ones((4, 4), np.float32)
VERBS = [ss.compare, ss.best, ss.advise, ss.audit, ss.warm, ss.tune, ss.prepare, ss.compare_compilation]
SHARED = ["engine", "engines", "device", "streams", "repeats", "progress", "memory_limit"]
DEFAULTS = {"device": "auto", "streams": 2, "progress": True, "memory_limit": None, "engines": None, "engine": "async"}
on_simulated = [partial(ss.compare, device="simulated", engines="sync", progress=False), partial(ss.prepare, device="simulated"), ss.audit]


def scaled(x, y, *, training=False):
    return x * 2.0 + y if training else x + y


def keywords_of(verb):
    return [parameter for parameter in inspect.signature(verb).parameters.values() if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
class TestEveryVerb:
    def test_takes_a_program_its_inputs_and_attributes(self, verb):
        kinds = [parameter.kind for parameter in inspect.signature(verb).parameters.values()]
        assert kinds[:2] == [inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL]
        assert kinds[-1] is inspect.Parameter.VAR_KEYWORD

    def test_has_the_shared_keywords_first_in_one_order_with_one_default(self, verb):
        names = [parameter.name for parameter in keywords_of(verb)]
        shared = [name for name in names if name in SHARED]
        assert names[: len(shared)] == sorted(shared, key=SHARED.index)
        for parameter in keywords_of(verb):
            assert parameter.default == DEFAULTS.get(parameter.name, parameter.default)

    def test_says_which_keyword_was_meant(self, verb):
        told = rf"ss\.{verb.__name__} at test_calling\.py:\d+ has no keyword 'trainig' \(did you mean training\?"
        with pytest.raises(KeywordError, match=told):
            verb(scaled, X, X, trainig=True)

    def test_keywords_that_both_have_are_refused(self, verb):
        own = keywords_of(verb)[0].name
        function = eval(f"lambda x, {own}=1: x")
        with pytest.raises(KeywordError, match=rf"{own}= is a keyword of ss\.{verb.__name__}, and .* functools\.partial"):
            verb(function, X, **{own: "simulated"})

    def test_wants_a_function_or_a_program(self, verb):
        with pytest.raises(ProgramError, match=rf"ss\.{verb.__name__} wants a function or a program, not a int"):
            verb(3, X)


def test_a_misspelled_keyword_of_a_verb():
    with pytest.raises(KeywordError, match=r"has no keyword 'repeat'.*did you mean repeats"):
        ss.compare(scaled, X, X, repeat=5)
    with pytest.raises(TypeError, match=r"it has engine, device, streams; 'scaled' has training"):
        ss.prepare(scaled, X, X, wholly_different=5)


def test_a_plain_function_is_a_program_and_attributes_reach_it():
    runs = ss.compare(scaled, X, X, training=True, engines="sync,graph", device="simulated", progress=False)
    assert runs.program == "scaled"
    assert all(run.correct for run in runs.values())
    prepared = ss.prepare(scaled, X, X, training=True, engine="graph", device="simulated")
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X * 2 + X)
    assert len(ss.audit(scaled, X, X, training=True).plan.program.operations) == 2
    assert ss.best(scaled, X, X, training=True, device="simulated", engines="sync", progress=False).prepared.program.name == "scaled"


def test_attributes_of_verbs_that_compile():
    pytest.importorskip("cuda.bindings.nvrtc")
    options = {"training": True, "device": "simulated", "progress": False}
    assert ss.warm(scaled, X, X, **options).kernels
    assert ss.compare_compilation(scaled, X, X, repeats=1, **options).program == "scaled"


@pytest.mark.parametrize("verb", on_simulated)
def test_a_parameter_of_a_verb_s_name_can_be_an_input(verb):
    assert verb(lambda x, streams: x + streams, X, X, streams=2)


@pytest.mark.parametrize("verb", on_simulated)
def test_a_parameter_of_a_verb_s_name_keeps_its_default(verb):
    assert verb(lambda x, streams=3.0: x * streams, X)


@pytest.mark.parametrize("verb", on_simulated)
def test_a_function_that_takes_any_name_gets_every_other(verb):
    seen = []

    def greedy(x, **attributes):
        seen.append(attributes)
        return x + x

    assert verb(greedy, X, repeat=5)
    assert all(attributes == {"repeat": 5} for attributes in seen)


def test_the_way_out_of_two_meanings_works():
    def chunked(x, streams):
        return x * float(streams)

    prepared = ss.prepare(partial(chunked, streams=3), X, device="simulated")
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X * 3)


def test_a_traced_program_has_no_attributes_left():
    with pytest.raises(KeywordError, match="has no keyword 'training'"):
        ss.prepare(ss.program(scaled).trace(X, X, training=True), X, X, training=True)


def test_prepare_loads_inputs_and_takes_specs_and_traced_programs():
    traced = ss.program(scaled).trace(X, X)
    for program, inputs in ((traced, ()), (scaled, [ss.ArraySpec((4, 4), "float32")] * 2)):
        prepared = ss.prepare(program, *inputs, device="simulated")
        prepared.load([X, X])
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], X + X)
    prepared = ss.prepare(traced, X, X, device="simulated")
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X + X)


def test_an_engine_by_position_is_an_input_that_does_not_fit():
    with pytest.raises(ProgramError, match="cannot take 3 arguments"):
        ss.prepare(scaled, X, X, "graph")


def test_the_options_allow_what_traces_can_hold():
    from streamscope.options import REPEATS

    assert REPEATS.most == MOST_REPEATS


def test_wrong_keywords_are_found_before_anything_runs():
    def never(x):
        raise AssertionError

    for verb in VERBS:
        with pytest.raises(KeywordError):
            verb(never, X, no_such=1)


def test_tuning_needs_a_gpu():
    with pytest.raises(DeviceError, match=r"ss\.tune"):
        ss.tune(scaled, X, X, device="simulated", progress=False)


def test_what_a_partial_has_bound_is_no_rival_of_a_verbs_keyword():
    def chunked(x, streams):
        return x * float(streams)

    prepared = ss.prepare(partial(chunked, streams=3), X, device="simulated", engine="dual", streams=2)
    assert prepared.plan.streams <= 2
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X * 3)
