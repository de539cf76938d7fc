"""What stamps leave out, by a CUPTI that tests make up."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from streamscope.devices.cuda.stamps import Slots
from streamscope.errors import RecordingError
from streamscope.recording import left_out
from streamscope.recording.left_out import left_out_ns


class Gpu:
    """Its kernels take ``blocks`` µs by their stamps, and by CUPTI 600 ns more, one more for each thread, and once in five times 9 µs."""

    def __init__(self, *kernels: tuple[str, int, int]) -> None:
        self.slots = [Slots(symbol, (number, 0), blocks, threads, 0, 0) for number, (symbol, blocks, threads) in enumerate(kernels)]
        self.launched: list[int] = []
        self.strange = 0
        self.refused = False

    def synchronize(self) -> None:
        pass

    def read(self) -> list[np.ndarray]:
        return [np.array([(7_000, 7_000 + 1_000 * slots.blocks, 0)] * slots.blocks) for slots in self.slots]

    @contextmanager
    def recording(self, kinds, *, beside_others):
        assert not beside_others  # Nobody asked for CUPTI: the records of another profiler are not taken.
        if self.refused:
            raise RecordingError("CUPTI is held by another")
        assert kinds == ["CONCURRENT_KERNEL"]
        found = []
        self.launched.clear()
        yield found
        lengths = [1_000 * self.slots[slot].blocks + 600 + self.slots[slot].threads for slot in self.launched] + [5] * self.strange
        lengths[4::5] = [each + 9_000 for each in lengths[4::5]]
        rows = [(number, 0, length) for number, length in enumerate(lengths)]
        work = np.array(rows, [("correlation", "i8"), ("start_ns", "i8"), ("end_ns", "i8")])
        found.append(SimpleNamespace(work=work[::-1]))  # in no order

    def launch(self, *slots: int):
        return lambda: self.launched.extend(slots), slots


@pytest.fixture
def gpu(monkeypatch):
    made = Gpu(("add", 1, 32), ("add", 4, 32), ("softmax", 2, 64), ("softmax, second", 1, 128), ("add", 1, 32))
    monkeypatch.setattr(left_out, "subscription", lambda: made)
    return made


def test_each_kernel_has_its_own_and_is_measured_once(gpu):
    launches = [gpu.launch(0), gpu.launch(1), gpu.launch(2, 3), gpu.launch(4)]
    expected = {("add", 1, 32): 632, ("add", 4, 32): 632, ("softmax", 2, 64): 664, ("softmax, second", 1, 128): 728}
    assert left_out_ns(gpu, gpu, launches) == expected
    assert gpu.launched[:4] in ([0, 1, 2, 3], [4, 1, 2, 3])  # of two equal kernels, one is enough
    gpu.launched.clear()
    assert left_out_ns(gpu, gpu, launches[:2]) == expected
    assert gpu.launched == []


def test_where_somebody_else_launches_nothing_is_told(gpu):
    gpu.strange = 1
    assert left_out_ns(gpu, gpu, [gpu.launch(0)]) == {}
    gpu.strange = 0
    assert left_out_ns(gpu, gpu, [gpu.launch(0)]) == {("add", 1, 32): 632}


def test_without_cupti_nothing_is_told(gpu):
    gpu.refused = True
    assert left_out_ns(gpu, gpu, [gpu.launch(0)]) == {}
