"""Errors of functions that cannot be captured: the line, the reason, and a remedy."""

from __future__ import annotations

import gc
from traceback import clear_frames, walk_tb

from streamscope.capturing.cupy_captures import what_was_refused
from streamscope.capturing.jax_arrays import REFUSED
from streamscope.errors import EngineError, OutOfMemoryError, StreamscopeError
from streamscope.program.user_line import line_of_error

CAPTURE_HINT = (
    "leave out what waits for the GPU (.item(), .cpu(), if or print of a tensor, x[mask], nonzero, torch.cuda.synchronize) "
    "or allocates host memory"
)
STREAM_HINT = (
    "something is launched on the default stream; launch it on the current one, "
    "torch.cuda.current_stream() or cupy.cuda.get_current_stream(): "
    "with Numba, kernel[blocks, threads, numba.cuda.external_stream(stream.ptr)](...)"
)
MEMORY_HINT = "give memory_limit=, for example memory_limit='2 GiB': the capture then uses some memory twice"
_GRAPH_HINT = (
    "a tensor of an earlier call is still alive, such as a loss, or a copy of a weight that was made without .detach(); its gradients "
    "belong to the default stream: delete it (del loss), and let the function return loss.detach()"
)
_DDP = "DistributedDataParallel"
_DDP_HINT = (
    f"make {_DDP} on a stream of its own (stream = torch.cuda.Stream(), with torch.cuda.stream(stream): model = {_DDP}(model)), and call "
    "the step 11 times before it is captured: it times its first ones on the host"
)
_HINTS = {
    "capturable": "make the optimiser with capturable=True, so that it counts its steps on the GPU",
    "unless the CPU tensor is pinned": "leave out .cpu() and what copies from the host: make torch.tensor([...]) before, or use torch.full",
    "unjoined": "wait for your own streams before you return: torch.cuda.current_stream().wait_stream(stream)",
    "D2H transfers are disallowed": "leave out what asks for values on the host: .get(), int(x), if of an array, x[mask], nonzero",
    "H2D transfers are disallowed": "leave out .set(), or write cupy.asarray(values), which the capture keeps as a constant",
    "AccumulateGrad": _GRAPH_HINT,
    REFUSED: "leave out what JAX computes, and call it before; XLA captures CUDA graphs of its own",
    "createOrIncrefPool": "start Python without backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF",
}
"""Remedies, by words of an error of PyTorch's, CuPy's or CUDA's."""
_OWN_GRAPH_HINT = (
    "it captures or launches a CUDA graph itself: leave that out, and compile with mode='max-autotune-no-cudagraphs' or without"
)


def not_captured(title: str, error: Exception) -> StreamscopeError:
    """Return an error of ours for one that a library raised under capture."""
    if "out of memory" in str(error).lower():
        return OutOfMemoryError(f"the device's memory is too small to capture {title}", hint=MEMORY_HINT)
    refused = what_was_refused(error)
    if refused:
        hint = "CuPy does not allow that in a capture: do it before, or with PyTorch, which shares the memory (torch.from_dlpack)"
        return EngineError(f"{title} cannot be captured: {refused}", hint=hint)
    failed = _first_of(error)
    return EngineError(f"{title} cannot be captured{line_and_reason(failed)}", hint=_hint_for(failed))


def let_variables_go(error: BaseException, handled: BaseException | None) -> None:
    """Forget the variables of functions that an error has left, and those of the errors that it followed, up to one handled already.

    IPython keeps the last error, and with it a loss that the function computed: an earlier call's, of which the next capture would fail.
    """
    left, seen = [error], {id(handled)}
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            clear_frames(one.__traceback__)
            left += filter(None, (one.__cause__, one.__context__))
    gc.collect()  # Some of what a capture had begun refers to itself in circles.


def _hint_for(failed: BaseException) -> str:
    """Return the remedy for an error."""
    text = str(failed)
    for words, hint in _HINTS.items():
        if words in text:
            return hint
    frames = [frame.f_code for frame, _ in walk_tb(failed.__traceback__)]
    files = [code.co_filename for code in frames]
    if files and files[-1].endswith("torch/nn/parallel/distributed.py"):
        return _DDP_HINT
    if "legacy stream" in text:
        if not any(code.co_name == "_engine_run_backward" for code in frames):
            return STREAM_HINT
        return _DDP_HINT if any(type(one).__name__ == _DDP for one in gc.get_objects()) else _GRAPH_HINT
    graphs = any(
        one.endswith(("torch/cuda/graphs.py", "_inductor/cudagraph_trees.py")) or ("cuda/core" in one and "graph" in one) for one in files
    )
    return _OWN_GRAPH_HINT if graphs and line_of_error(failed) is not None else CAPTURE_HINT


def _first_of(error: BaseException) -> BaseException:
    """Return the error that the function raised: another one follows from it, as the capture ends."""
    found, followed = error, error.__context__
    while followed is not None:
        found, followed = (followed if line_of_error(followed) is not None else found), followed.__context__
    return found


def line_and_reason(failed: BaseException) -> str:
    """Return the user's line that failed, and the first line of why: ``" at model.py:7, if x.sum() > 0: CUDA error: …"``."""
    line = line_of_error(failed)
    where = f" at {line.where}, {line.source.rstrip(':')}" if line is not None else ""
    return f"{where}: {(str(failed) or type(failed).__name__).strip().partition(chr(10))[0]}"
