"""What a function that cannot be captured is told: the line of its own, why, and what to do."""

from __future__ import annotations

import re
import weakref

import numpy as np
import pytest

from streamscope.capturing import capture_errors as module
from streamscope.capturing.function import _check_shapes, _results
from streamscope.errors import EngineError, OutOfMemoryError, ProgramError

REFUSED = "operation not permitted when stream is capturing\nSearch for it in the documentation."


def waiting(x):
    if x > 0:
        raise RuntimeError(REFUSED)
    return x


def raised(call, *arguments):
    with pytest.raises(RuntimeError) as caught:
        call(*arguments)
    return caught.value


def test_the_first_error_counts_and_not_the_one_that_follows_as_the_capture_ends():
    follows = RuntimeError("operation failed due to a previous error during capture")
    follows.__context__ = raised(waiting, 1)
    error = module.not_captured("step", follows)
    assert type(error) is EngineError
    said = (
        r"step cannot be captured at test_capture_errors.py:\d+, raise RuntimeError\(REFUSED\): "
        "operation not permitted when stream is capturing"
    )
    assert re.fullmatch(said, error.message)
    assert ".item()" in error.hint


def test_without_a_line_of_the_users_the_reason_is_said_alone():
    assert module.not_captured("step", RuntimeError(REFUSED)).message == "step cannot be captured: " + REFUSED.partition("\n")[0]


def test_a_colon_at_the_end_of_the_line_is_not_said_twice():
    def library(value):
        exec("raise RuntimeError('a stream that captures does not wait')", {"__name__": "torch"})

    def branching():
        for _ in map(library, [1]):
            pass

    error = module.not_captured("step", raised(branching))
    assert "::" not in error.message
    assert error.message.endswith(": a stream that captures does not wait")


def test_an_error_keeps_nothing_alive_that_the_function_had_computed():
    class Loss:
        pass

    losses = []

    def step():
        loss = Loss()
        loss.log = loss
        losses.append(weakref.ref(loss))
        raise RuntimeError(REFUSED)

    errors = [raised(step) for _ in range(4)]
    errors[0].__context__, errors[0].__cause__ = errors[1], errors[2]
    errors[1].__context__ = errors[3]  # The caller handles this one, whose variables it may look at.
    module.let_variables_go(errors[0], errors[3])
    assert [one() is None for one in losses] == [True, True, True, False]


def test_memory_that_ran_out_is_told_as_that():
    def full():
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    error = module.not_captured("step", raised(full))
    assert type(error) is OutOfMemoryError
    assert "memory_limit=" in error.hint


@pytest.mark.parametrize(("result", "said"), [(np.ones(3), "an ndarray in host memory"), (1.0, "a float$"), ([2, None], "an int$")])
def test_a_result_that_is_not_on_the_gpu_is_told_by_what_it_is(result, said):
    with pytest.raises(ProgramError) as caught:
        _results(result, "step")
    assert caught.value.message.startswith("step returned ")
    assert caught.match(said.removesuffix("$"))


@pytest.mark.parametrize("what", ["cudaErrorStreamCaptureImplicit", "CUDA error"])
def test_a_launch_on_the_default_stream_is_told_where_to_go(what):
    def launching():
        raise RuntimeError(f"{what}: operation would make the legacy stream depend on a capturing blocking stream")

    error = module.not_captured("step", raised(launching))
    assert type(error) is EngineError
    assert error.hint == module.STREAM_HINT


def through(file, name, text):
    """Return an error that a function of PyTorch's raised, which one of the user's called."""
    scope = {"__name__": "torch"}
    exec(compile(f"def {name}():\n    raise RuntimeError({text!r})", file, "exec"), scope)

    def calling():
        scope[name]()

    return raised(calling)


LEGACY = "CUDA error: operation would make the legacy stream depend on a capturing blocking stream"


@pytest.mark.parametrize(
    ("file", "name", "text", "said"),
    [
        ("torch/autograd/graph.py", "_engine_run_backward", LEGACY, "del loss"),
        ("torch/autograd/graph.py", "_engine_run_backward", "The AccumulateGrad node's stream does not match the stream", "del loss"),
        ("torch/autograd/graph.py", "another", LEGACY, "default stream; launch it on the current one"),
        ("torch/_inductor/cudagraph_trees.py", "run", REFUSED, "launches a CUDA graph itself"),
        ("torch/cuda/graphs.py", "capture_begin", REFUSED, "launches a CUDA graph itself"),
        ("cuda/core/graph/_graph_builder.pyx", "launch", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "launches a CUDA graph itself"),
        ("torch/optim/adam.py", "step", "param_groups' capturable is False.", "capturable=True"),
        ("torch/tensor.py", "tensor", "Cannot copy during CUDA graph capture unless the CPU tensor is pinned", "torch.full"),
        ("torch/cuda/graphs.py", "__exit__", "CUDA error: capturing stream has unjoined work", "wait_stream"),
        ("torch/cuda/memory.py", "use", "cudaMallocAsync does not yet support createOrIncrefPool", "backend:cudaMallocAsync"),
        ("torch/tensor.py", "item", REFUSED, ".item()"),
        ("torch/nn/parallel/distributed.py", "_pre_forward", REFUSED, "call the step 11 times before it is captured"),
        ("cupy/_core/core.pyx", "get", "the current stream is capturing, so D2H transfers are disallowed", ".get()"),
        ("cupy/_core/core.pyx", "set", "the current stream is capturing, so H2D transfers are disallowed", "cupy.asarray(values)"),
    ],
)
def test_what_to_do_fits_what_went_wrong(file, name, text, said):
    """PyTorch's and CuPy's words and frames, as an H200 gave them."""
    assert said in module.not_captured("step", through(file, name, text)).hint


def test_gradients_on_the_default_stream_may_be_those_of_data_parallel_modules():
    alive = type("DistributedDataParallel", (), {})()
    error = module.not_captured("step", through("torch/autograd/graph.py", "_engine_run_backward", LEGACY))
    assert f"make {type(alive).__name__} on a stream of its own" in error.hint


def test_results_that_grow_from_call_to_call_are_refused():
    """As those of a cache that is made longer by `torch.cat`: the capture's ones cannot be compared with them."""
    _check_shapes("step", [np.ones((2, 7)), np.ones(())], [np.zeros((2, 7)), np.zeros(())])
    with pytest.raises(ProgramError, match=r"step returned results of other shapes .*: \[\(2, 8\)\] instead of \[\(2, 7\)\]") as caught:
        _check_shapes("step", [np.ones((2, 7))], [np.ones((2, 8))])
    assert "full size from the start" in caught.value.hint
