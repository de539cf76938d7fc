"""What users may get wrong, at every public function: an error of ours says it, before anything runs, and never one from inside."""

from __future__ import annotations

import copy
import gzip
import inspect
import math
import pickle
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import engine_names
from streamscope.errors import (
    CompilationError,
    DeviceError,
    EngineError,
    NoDeviceError,
    OutputError,
    ProgramError,
    TraceError,
    WorkloadError,
)

X = np.ones((4, 4), np.float32)
MASKED = np.ma.masked_array(X, X > 0)
NO_DEVICES = [None, 3, True, "", "gpu", b"cuda", ["cuda"], X, object(), SimulatedDevice]
NO_ENGINES = [3, 1.5, math.nan, True, b"sync", [None], [1], [["sync"]], X, object(), len, "Sync", "", ",", [], ()]
NO_PATHS = [None, 3, b"a", X, "", "a\0b"]


@ss.program
def relu(x):
    return ss.ops.relu(x)


@ss.program
def added(a, b):
    return ss.ops.relu(a) + b


compare = partial(ss.compare, relu, X, device="simulated", progress=False)
best = partial(ss.best, relu, X, device="simulated")


@pytest.fixture(scope="module")
def traced():
    return relu.trace(X)


@pytest.fixture
def prepared():
    made = ss.prepare(added.trace(X, X), engine="async", device="simulated")
    made.load([X, X])
    return made


@pytest.fixture(scope="module")
def compared():
    return compare()


def check(call, error, *words):
    """Call something that must fail, with an error that has these words and a hint."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert caught.value.hint


@pytest.mark.parametrize("device", NO_DEVICES)
def test_what_is_no_device(device, traced):
    for call in (
        partial(ss.open_device, device),
        partial(ss.prepare, traced, engine="sync", device=device),
        partial(ss.compare, relu, X, device=device),
        partial(ss.best, relu, X, device=device),
        partial(ss.advise, device=device),
        partial(ss.Engine, device=device),
    ):
        check(call, DeviceError, "auto, cuda or simulated")


def test_an_array_as_a_device_is_not_printed_whole():
    with pytest.raises(DeviceError) as caught:
        ss.open_device(np.ones((30, 30)))
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("run", [ss.compare, ss.best])
def test_what_is_traced_is_not_traced_again(run, traced):
    with pytest.raises(ProgramError, match=r"traces the program itself, and 'relu' is traced already.*give the function that was traced"):
        run(traced, X, device="simulated")


@pytest.mark.parametrize("engines", NO_ENGINES)
def test_what_names_no_engine(engines, traced):
    for call in (partial(compare, engines=engines), partial(best, engines=engines)):
        check(call, EngineError, ", ".join(engine_names()))
    for call in (partial(ss.prepare, traced, engine=engines, device="simulated"), partial(ss.audit, relu, X, engine=engines)):
        check(call, EngineError, ", ".join(engine_names()))


@pytest.mark.parametrize("engine", [None, ["sync"], "sync,async", "auto"])
def test_one_engine_is_wanted(engine, traced):
    check(partial(ss.prepare, traced, engine=engine, device="simulated"), EngineError, "engine")
    if engine is not None:  # Of an audit, that is the default.
        check(partial(ss.audit, relu, X, engine=engine), EngineError, "engine")


@pytest.mark.parametrize("limit", ["2 potatoes", "", "-1", math.nan, math.inf, 1.5, 0, -1, True, X, [1], "9" * 5000])
def test_what_is_no_memory_limit(limit):
    check(partial(best, memory_limit=limit), EngineError, "memory limit", "512 MiB")


@pytest.mark.parametrize("number", [0, -1, 1.5, 2.0, math.nan, math.inf, True, None, "3", [1], X])
def test_what_is_no_number_of_repeats_or_streams(number, traced):
    check(partial(compare, repeats=number), EngineError, "repeats=", "1 to 200000")
    if number is None:
        return  # Then the program decides how many streams there are.
    for call in (compare, best, partial(ss.prepare, traced, engine="dual", device="simulated")):
        check(partial(call, streams=number), EngineError, "streams=", "1 to 128")


@pytest.mark.parametrize("progress", ["no", "", None, 0, 1, X])
def test_what_is_neither_a_truth_value_nor_a_function(progress):
    check(partial(compare, progress=progress), ProgramError, "progress=", "True, False, or a function")
    check(partial(ss.warm, relu, X, device="simulated", progress=progress), ProgramError, "progress=")
    check(partial(ss.compare_compilation, relu, X, device="simulated", progress=progress), ProgramError, "progress=")


@pytest.mark.parametrize("architecture", ["sm_90 ", "sm_90\n", "compute_90", "sm_123", "", b"sm_90", 90, True, X])
def test_what_is_no_architecture(architecture):
    pytest.importorskip("cuda.bindings.nvrtc")
    for call in (partial(ss.warm, relu), partial(ss.compare_compilation, relu)):
        check(partial(call, X, architecture=architecture, progress=False), CompilationError, "architecture=", "sm_80, ", "sm_90, ")


def test_numbers_of_numpy_are_numbers():
    run = compare(engines="dual", repeats=np.int64(2), streams=np.uint8(2))["dual"]
    assert run.correct
    assert run.metrics.repeats == 1  # A simulated device would do the same again.


@pytest.mark.parametrize("settings", [3, "a", [1], X, {"length": "a"}, {"length": 1.5}, {"length": None}])
def test_settings_are_whole_numbers_by_name(settings):
    with pytest.raises(WorkloadError, match="setting"):
        compare(settings=settings)


def test_settings_of_numpy_can_be_saved(tmp_path):
    compare(engines="sync", settings={"length": np.int64(5)}).save(tmp_path)
    assert ss.load_comparison(tmp_path).settings == {"length": 5}


@pytest.mark.parametrize("name", [None, 3, ["cnn"], X, "nope"])
def test_what_is_no_workload(name):
    check(partial(ss.workload, name), WorkloadError, "unknown workload", "elementwise-chain")


@pytest.mark.parametrize("result", [None, (), [], [None]])
def test_a_program_that_returns_nothing(result):
    for call in (ss.compare, ss.best, ss.audit):
        check(partial(call, ss.program(lambda x: result), X), ProgramError, "returned nothing", "what an operator returned")


@pytest.mark.parametrize("result", [X, 3, "x", [3], (X,), {"y": 1}, len])
def test_a_program_that_returns_something_else(result):
    check(partial(ss.compare, ss.program(lambda x: result), X), ProgramError, "instead of a variable", "what an operator returned")


def test_a_program_that_returns_one_good_and_one_bad_result():
    check(partial(ss.compare, ss.program(lambda x: (ss.ops.relu(x), 1.0)), X), ProgramError, "returned a float instead")


WRONG_ARRAYS = {
    "complex": np.ones(3, complex),
    "object": np.array([1, None]),
    "text": np.array(["a"]),
    "dates": np.array(["2026-01-01"], "datetime64[D]"),
    "records": np.zeros(3, [("a", "f4")]),
    "other byte order": np.ones(3, np.dtype("float32").newbyteorder()),
    "list": [1.0, 2.0],
    "number": 1.0,
    "nothing": None,
    "spec": ss.ArraySpec((3,), "float32"),
    "masked": MASKED,
}


@pytest.mark.parametrize("value", WRONG_ARRAYS.values(), ids=WRONG_ARRAYS)
def test_what_is_no_input(value, prepared):
    for call in (partial(ss.compare, relu, value, device="simulated"), partial(ss.best, relu, value), partial(ss.audit, relu, value)):
        check(call, ProgramError)
    with pytest.raises(ProgramError):
        prepared.load([value, X])


@pytest.mark.parametrize("value", [np.float32(-3), np.array(-3, np.float32)])
def test_a_single_number_with_a_dtype_is_an_array(value):
    found = ss.compare(relu, value, device="simulated", engines="sync,graph", progress=False)
    assert all(run.correct for run in found.values())


def test_rows_of_unequal_length(prepared):
    check(lambda: prepared.load([[[1.0, 2.0], [3.0]], X]), ProgramError, "a list is not an array of numbers")


def test_an_array_that_another_library_keeps_to_itself(prepared):
    class Elsewhere:
        shape, dtype = X.shape, X.dtype

        def __array__(self, *arguments, **options):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    check(lambda: prepared.load([Elsewhere(), X]), ProgramError, "Elsewhere", "cuda:0", "NumPy or CuPy")
    check(partial(ss.compare, relu, Elsewhere(), device="simulated"), ProgramError, "cuda:0")


def test_a_dtype_of_none_is_not_float64():
    check(partial(ss.ArraySpec, (2,), None), ProgramError, "dtype None", "float32")


@pytest.mark.parametrize("inputs", [None, 3, X, object()])
def test_what_cannot_be_loaded(prepared, inputs):
    check(lambda: prepared.load(inputs), ProgramError, "load wants a list of arrays", "load([array])")


@pytest.mark.parametrize("inputs", [None, 3, [X], [X, X], X, "a"])
def test_what_cannot_be_rebound(prepared, inputs):
    check(lambda: prepared.rebind(inputs), ProgramError, "by the names of inputs", "'a', 'b'")


def test_rebinding_arrays_that_do_not_fit(prepared):
    check(lambda: prepared.rebind({"c": X}), ProgramError, "no input 'c'", "a, b")
    check(lambda: prepared.rebind({1: X}), ProgramError, "no input 1", "a, b")
    check(lambda: prepared.rebind({"a": np.array([[None]])}), ProgramError, "argument 'a'", "'object' is not supported")
    with pytest.raises(ProgramError, match=r"input 'a' is float32\[2\]"):
        prepared.rebind({"a": np.ones(2, np.float32)})
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], np.maximum(X, 0) + X)


def test_advice_takes_no_program():
    check(partial(ss.advise, relu, X, device="simulated"), ProgramError, "takes no program", "ss.best")


@pytest.mark.parametrize("function", [3, "step", X])
def test_what_is_no_function(function):
    check(partial(ss.capture, function), ProgramError, "ss.capture wants a function")
    with pytest.raises(ProgramError, match=r"ss\.program wants a function"):
        ss.program(function)


@pytest.mark.parametrize("engine", [None, "warp", 3, ["sync"], X])
def test_an_engine_that_was_not_compared(compared, engine):
    with pytest.raises(KeyError, match=r"was not compared \(compared were sync, async"):
        compared[engine]


def test_what_a_trace_has_elsewhere(compared):
    trace = compared["sync"].trace
    with pytest.raises(AttributeError, match=r"has no attribute 'kernel' \(ss\.what_if\(trace\)\.kernel is there\)$"):
        trace.kernel  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'what_if' any more \(write ss\.what_if\(trace\)\)$"):
        trace.what_if  # noqa: B018
    with pytest.raises(AttributeError, match=r"'SpanTable' object has no attribute .* \(pass the trace, not its spans\)$"):
        ss.analysis.critical_path(trace.spans)
    assert repr(trace.spans) == f"<SpanTable: {len(trace.spans)} spans on {len(trace.spans.lanes)} lanes; Trace.to_pandas shows them>"


def test_a_run_can_be_copied_and_pickled(compared):
    assert repr(copy.deepcopy(compared["sync"])) == repr(pickle.loads(pickle.dumps(compared["sync"]))) == repr(compared["sync"])


@pytest.fixture(scope="module")
def graph():
    made = ss.prepare(relu.trace(X), engine="graph", device="simulated")
    for _ in range(2):
        made.run()
    return made.graphs[0]


@pytest.fixture(scope="module")
def writers(compared):
    """Return everything that writes a file."""
    return {
        "report": compared.report,
        "trace": compared["sync"].trace.to_parquet,
        "advice": ss.advise(device="simulated").report,
    }


@pytest.mark.parametrize("writer", ["report", "trace", "advice"])
class TestWriting:
    @pytest.mark.parametrize("path", NO_PATHS)
    def test_what_is_no_path(self, writers, writer, path, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        check(partial(writers[writer], path), OutputError, "cannot be a path")
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_and_a_folder_that_is_not_there(self, writers, writer, tmp_path):
        check(partial(writers[writer], tmp_path), OutputError, "it is a folder")
        check(partial(writers[writer], str(tmp_path / "none" / "file")), OutputError, "there is no folder")
        assert list(tmp_path.iterdir()) == []

    def test_any_name_that_the_system_allows(self, writers, writer, tmp_path):
        path = tmp_path / "a b\udcff"
        assert writers[writer](path) == path
        assert path.stat().st_size > 0


@pytest.mark.parametrize("path", NO_PATHS)
def test_what_is_no_path_of_a_comparison(compared, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(partial(compared.save, path), OutputError, "cannot be a path")
    check(partial(ss.load_comparison, path), TraceError, "cannot be a path")
    check(partial(ss.Trace.from_parquet, path), TraceError, "cannot be a path")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_too_long_to_be_read(tmp_path):
    for call in (ss.load_comparison, ss.Trace.from_parquet):
        check(partial(call, tmp_path / ("a" * 300)), TraceError, "File name too long")


def test_results_of_inputs_that_were_never_loaded():
    prepared = ss.prepare(added.trace(X, X), engine="async", device="simulated")
    prepared.run()
    check(prepared.outputs, EngineError, "'added' ran, but nothing was loaded into a, b", "call load")
    prepared.rebind({"a": X})
    check(prepared.outputs, EngineError, "nothing was loaded into b")
    prepared.load([X, X])
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X + X)


def test_results_of_what_has_not_run(prepared):
    check(prepared.outputs, EngineError, "'added' has not run yet", "call run() first")
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X + X)


def test_capturing_without_a_gpu_says_what_to_do_instead(monkeypatch):
    def missing():
        raise NoDeviceError("no CUDA device: none", hint="use device='simulated'")  # which ss.capture does not take

    monkeypatch.setattr("streamscope.capturing.function.libraries", missing)
    check(lambda: ss.capture(relu, X), NoDeviceError, "no CUDA device", "@ss.program")


JUNK = [None, 3.0, 0, -1, np.int64(0), 2**70, "F", [0, 1], (0,), [None], True, {}, object(), np.ones(2)]
"""What is passed for the operands and options of operators; some of it is right for some of them."""


@pytest.mark.parametrize("name", [name for name in ss.ops.__all__ if callable(getattr(ss.ops, name))])
def test_operators_say_what_they_cannot_take(name):
    operator = getattr(ss.ops, name)
    wanted = inspect.signature(operator)

    @ss.program
    def applied(x, given):
        operator(*(x if each is JUNK else each for each in given))
        return x * 1

    for given in [(one,) for one in JUNK] + [(JUNK, *rest) for count in (1, 2) for rest in product(JUNK[:: 2 * count - 1], repeat=count)]:
        try:
            wanted.bind(*given)
        except TypeError:
            continue
        with suppress(ProgramError):
            applied.trace(np.ones((2, 3, 4), np.float32), given=given)


CAPTURED = Path(__file__).parents[1] / "notebooks/recorded/captured/mixture_of_experts.captured.json"


def test_without_a_gpu_what_was_captured_elsewhere_is_named(monkeypatch):
    def missing(*_):
        raise NoDeviceError("no CUDA device: none")

    monkeypatch.setattr("streamscope.capturing.function.libraries", missing)
    monkeypatch.setattr("streamscope.parallelising.parallelise.open_device", missing)
    for verb in (ss.capture, ss.parallelise):
        check(lambda verb=verb: verb(relu, X), NoDeviceError, "no CUDA device", "notebooks/recorded/captured")
        check(lambda verb=verb: verb(3), ProgramError, "wants a function, not an int", "(function, *inputs)")


def test_captured_code_of_a_file_cannot_be_called():
    loaded = ss.load_captured(CAPTURED)
    check(lambda: ss.parallelise(loaded), ProgramError, "wants a function, not a LoadedCapture", "ss.compare(captured)")


@pytest.mark.parametrize("number", [41, 9999, -1, 1.5, "2"])
def test_nodes_that_are_not_there_are_not_named(number):
    certificate = ss.load_captured(CAPTURED).certificate()
    assert certificate.named(40).startswith("node 40, ")
    check(lambda: certificate.named(number), ProgramError, "node=", "0 to 40")


def test_captured_code_is_not_a_trace_and_binary_files_are_not_captured_code(tmp_path):
    check(lambda: ss.read(CAPTURED), TraceError, "is captured code", "ss.load_captured")
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(b"[]"))
    with pytest.raises(ProgramError, match="it is not text") as caught:
        ss.load_captured(packed)
    assert "codec" not in str(caught.value)
