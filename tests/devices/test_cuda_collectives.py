"""Collectives of several GPUs, with a list in the place of NCCL: what is put in a group, how it is aborted, and that the device goes on."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from streamscope.devices.cuda import collectives as module
from streamscope.devices.cuda import nccl as nccl_module
from streamscope.devices.cuda.captures import CAPTURES
from streamscope.devices.cuda.collectives import Collectives, part_calls, pieces_of
from streamscope.devices.cuda.nccl import BYTES, DTYPES
from streamscope.errors import DeviceError
from streamscope.program.collective import Collective
from streamscope.program.variable import ArraySpec


class NcclError(Exception):
    pass


class Communicator:
    def __init__(self, log, index):
        self.log, self.index = log, index
        self.aborted = False

    def allReduce(self, *arguments):  # noqa: N802 — CuPy's name
        if self.aborted:
            raise NcclError("invalid argument")
        self.log.append((self.index, *arguments))

    def abort(self):
        self.aborted = True

    def check_async_error(self):
        pass


@pytest.fixture
def log(monkeypatch):
    """The calls of NCCL."""
    log = []
    fake = SimpleNamespace(
        NcclError=NcclError,
        groupStart=lambda: log.append("start"),
        groupEnd=lambda: log.append("end"),
        NcclCommunicator=SimpleNamespace(initAll=lambda indices: [Communicator(log, index) for index in indices]),
    )
    monkeypatch.setattr(nccl_module, "nccl", lambda: fake)
    monkeypatch.setattr(module, "nccl", lambda: fake)
    monkeypatch.setattr(module, "has_nccl", lambda: True)
    monkeypatch.setattr(module, "_idle", {})
    return log


def buffer(address, shape=(8,), dtype="float32"):
    array = SimpleNamespace(flags=SimpleNamespace(c_contiguous=True))
    return SimpleNamespace(spec=ArraySpec(shape, np.dtype(dtype)), pointer=address, array=array)


def bound(collectives, collective=None):
    """Bind a sum over two GPUs: operands at 0 and 1, results at 100 and 101, streams 7 and 8."""
    collective = collective or Collective("all_reduce", (0, 1), 32, "sum")
    launches = [SimpleNamespace(collective=collective)] * 2
    streams = [SimpleNamespace(pointer=pointer) for pointer in (7, 8)]
    return collectives.bind(launches, [[buffer(0)], [buffer(1)]], [[buffer(100)], [buffer(101)]], streams)


GROUP = ["start", (4, 0, 100, 8, DTYPES["float32"], 0, 7), (6, 1, 101, 8, DTYPES["float32"], 0, 8), "end"]


def test_all_parts_go_on_their_streams_in_one_group(log):
    call = bound(Collectives((4, 6)))
    assert log == []
    call()
    call()
    assert log == GROUP * 2


def test_gpus_and_priority_have_communicators_of_their_own_and_the_next_device_gets_them(log):
    collectives = Collectives((4, 6))
    first = collectives.communicators(((0, 1), 0))
    assert collectives.communicators(((0, 1), 0)) is first
    assert collectives.communicators(((0, 1), 1)) is not first
    assert collectives.communicators(((1, 0), 0)) is not first
    del collectives
    assert Collectives((4, 6)).communicators(((0, 1), 0)) is first
    assert Collectives((4, 6)).communicators(((0, 1), 0)) is first


def test_another_device_may_take_the_last_idle_communicators_in_between(log, monkeypatch):
    class Taken(list):
        def __len__(self):
            return 1

    monkeypatch.setitem(module._idle, ((4, 6), 0), Taken())
    assert [part.index for part in Collectives((4, 6)).communicators(((0, 1), 0)).parts] == [4, 6]


def test_after_an_abort_the_device_goes_on_with_new_communicators(log):
    collectives = Collectives((4, 6))
    call = bound(collectives)
    before = collectives.communicators(((0, 1), 0))
    collectives.abort()
    assert all(part.aborted for part in before.parts)
    call()
    assert log == GROUP
    assert collectives.communicators(((0, 1), 0)) is not before


def test_a_part_that_fails_closes_the_group_and_aborts(log):
    collectives = Collectives((4, 6))
    call = bound(collectives)
    before = collectives.communicators(((0, 1), 0))
    before.parts[1].aborted = True  # Its call is an error.
    with pytest.raises(DeviceError, match="failed: invalid argument"):
        call()
    assert log == [*GROUP[:2], "end"]
    assert before.aborted
    log.clear()
    call()
    assert log == GROUP


def test_graphs_that_hold_collectives_are_lost_with_them(log):
    collectives, lost = Collectives((4, 6)), []

    class Graph:
        def break_off(self, why):
            lost.append(why)

    call, graphs = bound(collectives), [Graph(), Graph()]
    for graph, captured in zip(graphs, (True, False), strict=True):
        collectives.begin_capture()
        CAPTURES.begun(1)
        if captured:
            call()
        CAPTURES.ended(1)
        collectives.end_capture(graph)
    collectives.abort()
    assert lost == ["a graph cannot be launched any more, since its collectives were aborted"]


def test_communicators_are_made_anew_before_a_capture_and_not_in_it(log):
    collectives = Collectives((4, 6))
    call = bound(collectives)
    collectives.abort()
    CAPTURES.begun(1)
    with pytest.raises(DeviceError, match="cannot be made while a graph is captured"):
        call()
    CAPTURES.ended(1)
    collectives.begin_capture()
    CAPTURES.begun(1)
    call()
    CAPTURES.ended(1)
    assert log == GROUP


PENDING, DONE = 600, 0


def test_without_communicators_nothing_can_hang(log):
    assert not Collectives((4, 6)).wait(lambda: pytest.fail("looked"))


def test_a_wait_ends_when_the_work_does(log):
    collectives, looks = Collectives((4, 6)), iter([PENDING, PENDING, DONE])
    bound(collectives)
    assert collectives.wait(lambda: next(looks))


def test_a_wait_with_a_time_out_ends_and_aborts_nothing(log):
    collectives = Collectives((4, 6))
    assert not collectives.comes_within(lambda: PENDING, 0.001)
    bound(collectives)
    assert not collectives.comes_within(lambda: PENDING, 0.03)
    assert collectives.comes_within(lambda: DONE, 0.001)
    assert collectives.aborts == 0
    assert not collectives.communicators(((0, 1), 0)).aborted


def test_ctrl_c_in_a_wait_aborts(log):
    collectives = Collectives((4, 6))
    bound(collectives)
    made = collectives.communicators(((0, 1), 0))

    def query():
        if not made.aborted:
            raise KeyboardInterrupt
        return DONE

    with pytest.raises(KeyboardInterrupt):
        collectives.wait(query)
    assert made.aborted


def test_who_waits_hears_of_an_abort_from_another_thread(log):
    collectives = Collectives((4, 6))
    bound(collectives)
    made = collectives.communicators(((0, 1), 0))
    threading.Timer(0.02, collectives.abort).start()
    with pytest.raises(DeviceError, match="aborted while they were waited for"):
        collectives.wait(lambda: DONE if made.aborted else PENDING)


def test_an_error_that_nccl_finds_meanwhile_ends_the_wait(log):
    collectives = Collectives((4, 6))
    bound(collectives)
    made = collectives.communicators(((0, 1), 0))
    made.parts[0].check_async_error = lambda: (_ for _ in ()).throw(NcclError("a link broke"))
    with pytest.raises(DeviceError, match="a collective failed: a link broke"):
        collectives.wait(lambda: DONE if made.aborted else PENDING)
    assert made.aborted


def calls_of(collective, shape=(4,), dtype="int64"):
    """Return the calls of NCCL for operands at 1000 and 2000, results at 100,000 and 200,000, and streams 1 and 2."""
    operands, results = (
        [buffer(first * number, shape, dtype) if has(number - 1) else None for number in (1, 2)]
        for first, has in ((1000, collective.reads), (100_000, collective.writes))
    )
    return part_calls(collective, operands, results, [1, 2])


@pytest.mark.parametrize("op", ["sum", "mean", "min", "max"])
def test_the_calls_of_reductions(op):
    number = {"sum": 0, "mean": 4, "min": 3, "max": 2}[op]
    calls = calls_of(Collective("reduce_scatter", (0, 1), 16, op), (8,), "float16")
    assert calls == [(0, "reduceScatter", (1000, 100_000, 4, 6, number, 1)), (1, "reduceScatter", (2000, 200_000, 4, 6, number, 2))]


def test_the_calls_of_what_is_only_moved_are_of_bytes():
    gather = calls_of(Collective("all_gather", (0, 1), 64))
    assert gather == [(0, "allGather", (1000, 100_000, 32, BYTES, 1)), (1, "allGather", (2000, 200_000, 32, BYTES, 2))]
    send = calls_of(Collective("send", (1, 0), 32))
    assert send == [(0, "send", (1000, 32, BYTES, 1, 1)), (1, "recv", (200_000, 32, BYTES, 0, 2))]
    cast = calls_of(Collective("broadcast", (0, 1), 32, root=1))
    assert cast == [(0, "broadcast", (100_000, 100_000, 32, BYTES, 1, 1)), (1, "broadcast", (2000, 200_000, 32, BYTES, 1, 2))]
    exchange = calls_of(Collective("all_to_all", (0, 1), 32))
    assert exchange[:4] == [
        (0, "send", (1000, 16, BYTES, 0, 1)),
        (0, "recv", (100_000, 16, BYTES, 0, 1)),
        (0, "send", (1016, 16, BYTES, 1, 1)),
        (0, "recv", (100_016, 16, BYTES, 1, 1)),
    ]


def test_nothing_is_called_for_empty_arrays():
    assert calls_of(Collective("all_reduce", (0, 1), 0, "sum"), (0,)) == []


def test_what_nccl_cannot_reduce():
    with pytest.raises(DeviceError, match="NCCL cannot reduce int16"):
        calls_of(Collective("all_reduce", (0, 1), 8, "sum"), (4,), "int16")


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"])
def test_pieces_that_copies_fetch_make_up_the_result(kind):
    collective = Collective(kind, (0, 1, 2)[: 2 if kind == "send" else 3], 48, "sum" if "reduce" in kind else "", root=1)
    parts = range(len(collective.gpus))
    operands = [np.arange(6, dtype=np.int64) + 10 * part for part in parts]
    expected = iter(collective.results([operands[part] for part in parts if collective.reads(part)]))
    for part in parts:
        if collective.writes(part):
            pieces = [operands[source].view(np.uint8)[start : start + nbytes] for source, start, nbytes in pieces_of(collective, part, 48)]
            arrays = [piece.view(np.int64) for piece in pieces]
            np.testing.assert_array_equal(sum(arrays) if collective.op else np.concatenate(arrays), next(expected))
