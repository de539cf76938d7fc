"""Compute, communication and copies: by hand, and against a count for each nanosecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import Work, span_ns, work_of, work_split
from streamscope.trace import Basis, SpanBuilder, SpanKind, SpanTable

KERNEL, COPY, SET, LAUNCH, RANGE = (SpanKind[name] for name in ("KERNEL", "COPY", "SET", "LAUNCH", "RANGE"))
STREAMS = ("stream 7", "stream 20", "stream 24")
NCCL, GEMM, MEMCPY = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "gemm", "Memcpy DtoH"


def spans_of(*rows):
    builder = SpanBuilder(["host", *STREAMS])
    for kind, name, lane, start_ns, end_ns in rows:
        builder.add(kind, name, lane, start_ns, end_ns, basis=Basis.DERIVED)
    return builder.build()


def test_by_hand():
    found = work_split(
        spans_of(
            (LAUNCH, "call", "host", 0, 5),
            (KERNEL, GEMM, "stream 7", 10, 40), (KERNEL, NCCL, "stream 20", 30, 70), (COPY, MEMCPY, "stream 24", 35, 90),
            (SET, "Memset", "stream 7", 95, 100),
        )
    )  # fmt: skip
    assert (found.compute_ns, found.communication_ns, found.memory_ns) == (30, 40, 60)
    assert (found.exposed_communication_ns, found.exposed_memory_ns) == (30, 25)
    assert (found.hidden_communication_ns, found.hidden_memory_ns) == (10, 5)
    assert found.communication_overlap == 0.25
    assert (found.idle_ns, found.total_ns) == (15, 100)


@given(st.lists(st.tuples(st.sampled_from([GEMM, NCCL, MEMCPY]), st.sampled_from(STREAMS), st.integers(0, 50), st.integers(0, 12))))
def test_against_a_count_for_each_nanosecond(rows):
    spans = spans_of(*((COPY if name == MEMCPY else KERNEL, name, lane, start, start + length) for name, lane, start, length in rows))
    at = {name: {t for one, _, start, length in rows if one == name for t in range(start, start + length)} for name in (GEMM, NCCL, MEMCPY)}
    found = work_split(spans)
    assert (found.compute_ns, found.communication_ns, found.memory_ns) == tuple(map(len, at.values()))
    assert found.exposed_communication_ns == len(at[NCCL] - at[GEMM])
    assert found.exposed_memory_ns == len(at[MEMCPY] - at[GEMM] - at[NCCL])
    assert found.hidden_communication_ns == len(at[NCCL] & at[GEMM])
    assert found.hidden_memory_ns == len(at[MEMCPY] & at[GEMM])
    assert found.total_ns == span_ns(spans)
    assert (found.communication_overlap is None) == (not at[NCCL])


@given(spans=st.from_type(SpanTable))
def test_the_parts_add_up(spans):
    found = work_split(spans)
    assert found.total_ns == span_ns(spans)
    assert min(found.compute_ns, found.exposed_memory_ns, found.idle_ns) >= 0


@pytest.mark.parametrize(
    ("name", "work"),
    [
        (NCCL, Work.COMMUNICATION), ("ncclKernel_Broadcast_RING_LL", Work.COMMUNICATION), ("nvshmemi_transfer", Work.COMMUNICATION),
        ("void deep_ep::intranode::dispatch<768>(int4*)", Work.COMPUTE), ("deep_ep::intranode::dispatch", Work.COMMUNICATION),
        ("nccl_like_gemm", Work.COMPUTE), ("my_ncclKernel", Work.COMPUTE), (GEMM, Work.COMPUTE),
    ],
)  # fmt: skip
def test_a_kernel_is_known_by_its_name_or_its_symbol(name, work):
    assert work_of(spans_of((KERNEL, name, "stream 7", 0, 5))).tolist() == [work]
    builder = SpanBuilder(STREAMS)
    builder.add(KERNEL, "reduce", "stream 7", 0, 5, symbol=name)
    assert work_of(builder.build()).tolist() == [work]


def test_host_spans_are_no_work():
    assert work_of(spans_of((RANGE, NCCL, "host", 0, 5), (COPY, NCCL, "stream 7", 5, 9))).tolist() == [-1, Work.MEMORY]
