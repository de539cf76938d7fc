"""What a function that cannot be captured is told: the line of its own, why, and what to do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from streamscope.capturing import function as module
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
    error = module._not_captured("step", follows)
    assert type(error) is EngineError
    said = (
        r"step cannot be captured at test_refusals.py:\d+, raise RuntimeError\(REFUSED\): operation not permitted when stream is capturing"
    )
    assert re.fullmatch(said, error.message)
    assert ".item()" in error.hint


def test_without_a_line_of_the_users_the_reason_is_said_alone():
    assert module._not_captured("step", RuntimeError(REFUSED)).message == "step cannot be captured: " + REFUSED.partition("\n")[0]


def test_a_colon_at_the_end_of_the_line_is_not_said_twice():
    def library(value):
        exec("raise RuntimeError('a stream that captures does not wait')", {"__name__": "torch"})

    def branching():
        for _ in map(library, [1]):
            pass

    error = module._not_captured("step", raised(branching))
    assert "::" not in error.message
    assert error.message.endswith(": a stream that captures does not wait")


def test_memory_that_ran_out_is_told_as_that():
    def full():
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    error = module._not_captured("step", raised(full))
    assert type(error) is OutOfMemoryError
    assert "memory_limit=" in error.hint


@pytest.mark.parametrize(("result", "said"), [(np.ones(3), "a ndarray in host memory"), (1.0, "a float$"), ([2, None], "an int$")])
def test_a_result_that_is_not_on_the_gpu_is_told_by_what_it_is(result, said):
    with pytest.raises(ProgramError) as caught:
        module._results(result, "step")
    assert caught.value.message.startswith("step returned ")
    assert caught.match(said.removesuffix("$"))


@pytest.mark.parametrize("what", ["cudaErrorStreamCaptureImplicit", "CUDA error"])
def test_a_launch_on_the_default_stream_is_told_where_to_go(what):
    def launching():
        raise RuntimeError(f"{what}: operation would make the legacy stream depend on a capturing blocking stream")

    error = module._not_captured("step", raised(launching))
    assert type(error) is EngineError
    assert error.hint == module.STREAM_HINT
