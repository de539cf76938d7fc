"""One calling rule for every verb: a function or a program, its inputs, keywords; and whose a keyword is."""

from __future__ import annotations

import inspect
from functools import partial

import numpy as np
import pytest

import streamscope as ss
from streamscope.calling import as_program
from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import MemoryHeld
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import DeviceError, EngineError, KeywordError, ProgramError
from streamscope.trace.file_checks import MOST_REPEATS

X = np.ones((4, 4), np.float32)
VERBS = [ss.compare, ss.best, ss.audit, ss.warm, ss.tune, ss.prepare, ss.compare_compilation, ss.verify]
SHARED = ["engine", "engines", "device", "gpus", "streams", "repeats", "progress", "memory_limit"]
DEFAULTS = {"device": "auto", "gpus": None, "streams": None, "progress": True, "memory_limit": None, "engines": None, "engine": "async"}
SIMULATED = {"device": "simulated", "progress": False}
on_simulated = [partial(ss.compare, engines="sync", **SIMULATED), partial(ss.prepare, **SIMULATED), partial(ss.audit, **SIMULATED)]


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
        # An audit looks at captured code as it was captured, and at all else under async.
        defaults = DEFAULTS | ({"engine": None} if verb is ss.audit else {})
        for parameter in keywords_of(verb):
            assert parameter.default == defaults.get(parameter.name, parameter.default)

    def test_says_which_keyword_was_meant(self, verb):
        told = rf"ss\.{verb.__name__} at test_calling\.py:\d+ has no keyword 'trainig' \(did you mean training\?"
        with pytest.raises(KeywordError, match=told):
            verb(scaled, X, X, trainig=True)

    def test_keywords_that_both_have_are_refused(self, verb):
        own = keywords_of(verb)[0].name
        function = eval(f"lambda x, {own}=1: x")
        with pytest.raises(KeywordError, match=rf"{own}= is a keyword of ss\.{verb.__name__}, and .* functools\.partial"):
            verb(function, X, **{own: "simulated"})

    @pytest.mark.parametrize(("wrong", "kind"), [(3, "an int"), (X, "an ndarray"), ("step", "a str")])
    def test_wants_a_function_or_a_program(self, verb, wrong, kind):
        with pytest.raises(ProgramError, match=rf"ss\.{verb.__name__} wants a function or a program, not {kind}"):
            verb(wrong, X)


def test_a_misspelled_keyword_of_a_verb():
    with pytest.raises(KeywordError, match=r"has no keyword 'repeat'.*did you mean repeats"):
        ss.compare(scaled, X, X, repeat=5)
    with pytest.raises(TypeError, match=r"it has engine, device, gpus, streams, progress; 'scaled' has training"):
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


@pytest.mark.parametrize("verb", [ss.compare, ss.best, ss.audit, ss.prepare, ss.verify])
def test_progress_is_told_to_a_function_of_the_users(verb):
    told = []
    verb(scaled, X, X, device="simulated", progress=lambda what, step, steps: told.append((what, step, steps)))
    assert told
    assert all(isinstance(what, str) and 0 <= step <= steps for what, step, steps in told)


@pytest.mark.parametrize("verb", VERBS)
def test_progress_is_a_truth_value_or_a_function(verb):
    with pytest.raises(ProgramError, match="progress='no'") if verb is not ss.tune else pytest.raises(DeviceError):
        verb(scaled, X, X, device="simulated", progress="no")


def test_an_audit_counts_the_operations_that_it_runs():
    told = []
    ss.audit(lambda x: x + x * x, X, device="simulated", progress=lambda *step: told.append(step))
    assert [step for step in told if step[0] == "running operations"] == [("running operations", 0, 2), ("running operations", 1, 2)]


def test_an_audit_is_of_the_plan_for_its_device():
    class Slow(SimulatedDevice):
        def estimate_ns(self, launch):
            return 1e9

    audit = ss.audit(scaled, X, X, device=Slow(), progress=False)
    assert audit.needed_ns == 1e9
    with pytest.raises(DeviceError):
        ss.audit(scaled, X, X, device="none", progress=False)


class TestRunOfAnEngine:
    """`Engine.run` is called as the verbs are."""

    @pytest.fixture
    def engine(self):
        with ss.Engine("async", device="simulated") as opened:
            yield opened

    def test_takes_a_function_a_program_or_a_traced_one(self, engine):
        for given in (scaled, ss.program(scaled), ss.program(scaled).trace(X, X), partial(scaled), ss.ops.add):
            np.testing.assert_array_equal(engine.run(given, X, X), X + X)

    def test_prepares_the_same_function_once_and_a_method_too(self, engine):
        class Model:
            def forward(self, x):
                return x * 2.0

        model = Model()
        for _ in range(3):
            engine.run(scaled, X, X)
            np.testing.assert_array_equal(engine.run(model.forward, X), X * 2)
        assert engine.statistics.programs_prepared == 2

    def test_keeps_two_functions_of_one_name_apart(self, engine):
        for factor in (2.0, 3.0):
            np.testing.assert_array_equal(engine.run(lambda x, factor=factor: x * factor, X), X * factor)

    def test_says_which_keyword_was_meant(self, engine):
        for given in (scaled, ss.program(scaled)):
            with pytest.raises(
                KeywordError, match=r"engine\.run at test_calling\.py:\d+ has no keyword 'trainig' \(did you mean training\?"
            ):
                engine.run(given, X, X, trainig=True)

    def test_a_traced_program_has_no_attributes_left(self, engine):
        traced = ss.program(scaled).trace(X, X)
        for _ in range(2):
            np.testing.assert_array_equal(engine.run(traced, X, X), X + X)
            with pytest.raises(KeywordError, match=r"'training' \('scaled' has none"):
                engine.run(traced, X, X, training=True)

    def test_the_inputs_of_a_traced_program_fit_it(self, engine):
        with pytest.raises(ProgramError, match="traced as"):
            engine.run(ss.program(scaled).trace(X, X), X, X[:2])

    def test_captured_code_leaves_its_results_where_it_was_captured(self, engine):
        source = ss.operator(lambda y: None, reads=[], writes=["y"], shapes=lambda: {"y": ((4, 4), "float32")}, reference=lambda: X)
        captured = CapturedFunction(
            "captured", ss.program(source).trace(), [], [], [X], MemoryHeld(0, ()), None, len, (), [], [], None, None
        )
        for _ in range(2):
            np.testing.assert_array_equal(engine.run(captured), X)
        assert engine.statistics.programs_prepared == 1
        with pytest.raises(ProgramError, match="takes no inputs"):
            engine.run(captured, X)

    def test_a_name_of_ours_may_be_the_functions_own(self, engine):
        np.testing.assert_array_equal(engine.run(lambda x, *, device, program: x * device + program, X, device=2, program=3), X * 2 + 3)


def test_a_parallelised_function_is_captured_code_to_every_verb():
    class Parallelised:
        """As `ss.parallelise` makes it: called like a function."""

        captured = CapturedFunction(
            "captured", ss.program(scaled).trace(X, X), [], [], [], MemoryHeld(0, ()), None, len, (), [], [], None, None
        )

        def __call__(self, x):
            raise AssertionError("nobody traces it")

    with pytest.raises(ProgramError, match=r"captured 'captured' takes no inputs: the capture holds its own .*ss\.compare\(captured\)"):
        ss.compare(Parallelised(), X)
    assert as_program(Parallelised()) is Parallelised.captured


@pytest.mark.parametrize("verb", [ss.best])
def test_memory_is_limited_of_a_capture_and_not_of_its_engines(verb):
    captured = ss.load_captured("notebooks/recorded/captured/mixture_of_experts.captured.json")
    told = r"'mixture_of_experts' holds the memory of its capture.*give the limit to ss\.capture or ss\.parallelise instead"
    with pytest.raises(EngineError, match=told):
        verb(captured, memory_limit="2 GiB", progress=False)


def test_what_a_partial_has_bound_is_no_rival_of_a_verbs_keyword():
    def chunked(x, streams):
        return x * float(streams)

    prepared = ss.prepare(partial(chunked, streams=3), X, device="simulated", engine="dual", streams=2)
    assert prepared.plan.streams <= 2
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X * 3)


class TestInputsByName:
    def test_they_are_inputs_in_the_order_of_the_parameters(self):
        traced = ss.program(scaled).trace(y=X, x=X + 1, training=True)
        assert [traced.variables[variable].name for variable in traced.inputs] == ["x", "y"]
        assert str(traced) == str(ss.program(scaled).trace(X + 1, X, training=True))

    def test_after_others_by_position(self):
        with ss.Engine(device="simulated") as engine:
            np.testing.assert_array_equal(engine.run(scaled, X, y=3 * X), 4 * X)
            np.testing.assert_array_equal(engine.run(ss.program(scaled), y=3 * X, x=X, training=True), 5 * X)

    @pytest.mark.parametrize("verb", [ss.compare, ss.best, ss.prepare, ss.warm, ss.audit], ids=lambda verb: verb.__name__)
    def test_every_verb_takes_them(self, verb):
        verb(lambda x, y: x + y, x=X, y=X, device="simulated", progress=False)

    def test_one_that_is_missing_before_them_is_named(self):
        with pytest.raises(ProgramError, match=r"program 'scaled' cannot take 0 arguments, y=: missing a required argument: 'x'"):
            ss.compare(scaled, y=X, device="simulated", progress=False)

    def test_what_can_be_given_by_name_only_stays_an_attribute(self):
        seen = []

        def function(x, /, y, *, mask=None):
            seen.append(mask)
            return x + y

        traced = ss.program(function).trace(X, y=X, mask=X)
        assert len(traced.inputs) == 2
        assert seen[0] is X

    def test_a_number_of_numpys_is_no_input(self):
        (operation,) = ss.program(lambda x, b: x + b).trace(X, b=np.float32(2)).operations
        assert len(operation.reads) == 1
