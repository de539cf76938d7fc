"""What is said of code that cannot be captured."""

from __future__ import annotations

import pytest

from streamscope.capturing.function import CAPTURE_HINT, MEMORY_HINT, STREAM_HINT, _not_captured
from streamscope.errors import EngineError, OutOfMemoryError


@pytest.mark.parametrize(
    ("said", "kind", "hint"),
    [
        (
            "cudaErrorStreamCaptureImplicit: operation would make the legacy stream depend on a capturing blocking stream",
            EngineError,
            STREAM_HINT,
        ),
        ("CUDA error: operation would make the legacy stream depend on a capturing blocking stream", EngineError, STREAM_HINT),
        ("operation not permitted when stream is capturing", EngineError, CAPTURE_HINT),
        ("CUDA out of memory. Tried to allocate 2 GiB", OutOfMemoryError, MEMORY_HINT),
    ],
)
def test_the_hint_names_the_way_round(said, kind, hint):
    error = _not_captured("step", RuntimeError(said))
    assert type(error) is kind
    assert "step" in error.message
    assert error.hint == hint
