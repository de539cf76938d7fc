"""What stamps leave out, by a CUPTI that tests make up."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from streamscope.devices.cuda.stamps import Slots
from streamscope.errors import RecordingError
from streamscope.recording import stamp_overhead
from streamscope.recording.stamp_overhead import Launched, LeftOut, left_out_ns


class Gpu:
    """Its kernels take ``blocks`` µs by their stamps, and by CUPTI 600 ns more, one more for each thread, and once in nine times 9 µs.

    In a graph of 20 nodes or more they take 50 ns less.
    """

    def __init__(self, *kernels: tuple[str, int, int]) -> None:
        self.slots = [Slots(symbol, (number, 0), blocks, threads, 0, 0) for number, (symbol, blocks, threads) in enumerate(kernels)]
        self.launched: list[int] = []
        self.shorter: set[int] = set()  # of what was launched
        self.captured: list[int] | None = None
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
        self.shorter.clear()
        yield found
        lengths = [
            1_000 * self.slots[slot].blocks + 600 + self.slots[slot].threads - 50 * (place in self.shorter)
            for place, slot in enumerate(self.launched)
        ] + [5] * self.strange
        lengths[4::9] = [each + 9_000 for each in lengths[4::9]]
        rows = [(number, 0, length) for number, length in enumerate(lengths)]
        work = np.array(rows, [("correlation", "i8"), ("start_ns", "i8"), ("end_ns", "i8")])
        found.append(SimpleNamespace(work=work[::-1]))  # in no order

    def launch(self, *slots: int):
        return Launched(lambda: (self.launched if self.captured is None else self.captured).extend(slots), slots, "main")

    def begin_capture(self, _stream) -> None:
        self.captured = []

    def end_capture(self, _stream, _update=None):
        nodes, self.captured = self.captured, None

        def launch(_stream) -> None:
            if len(nodes) >= 20:
                self.shorter |= set(range(len(self.launched), len(self.launched) + len(nodes)))
            self.launched.extend(nodes)

        return SimpleNamespace(launch=launch)


@pytest.fixture
def gpu(monkeypatch):
    made = Gpu(("add", 1, 32), ("add", 4, 32), ("softmax", 2, 64), ("softmax, second", 1, 128), ("add", 1, 32))
    monkeypatch.setattr(stamp_overhead, "subscription", lambda: made)
    return made


def told(*kernels):
    """Return what is told of kernels: symbol, blocks, threads."""
    return {kernel: LeftOut(600 + kernel[2], 550 + kernel[2]) for kernel in kernels}


def test_each_kernel_has_its_own_and_is_measured_once(gpu):
    launches = [gpu.launch(0), gpu.launch(1), gpu.launch(2, 3), gpu.launch(4)]
    expected = told(("add", 1, 32), ("add", 4, 32), ("softmax", 2, 64), ("softmax, second", 1, 128))
    assert left_out_ns(gpu, gpu, launches) == expected
    assert gpu.launched[:4] in ([0, 1, 2, 3], [4, 1, 2, 3])  # of two equal kernels, one is enough
    gpu.launched.clear()
    assert left_out_ns(gpu, gpu, launches[:2]) == expected
    assert gpu.launched == []


def test_where_somebody_else_launches_nothing_is_told(gpu):
    gpu.strange = 1
    assert left_out_ns(gpu, gpu, [gpu.launch(0)]) == {}
    gpu.strange = 0
    assert left_out_ns(gpu, gpu, [gpu.launch(0)]) == told(("add", 1, 32))


def test_without_cupti_nothing_is_told(gpu):
    gpu.refused = True
    assert left_out_ns(gpu, gpu, [gpu.launch(0)]) == {}
