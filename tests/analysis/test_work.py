"""Compute, communication and copies: by hand, and against a count for each nanosecond."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import Work, span_ns, summary, work, work_of, work_split
from streamscope.errors import TraceError
from streamscope.trace import Basis, SpanBuilder, SpanKind, SpanTable

KERNEL, COPY, SET, LAUNCH, RANGE = (SpanKind[name] for name in ("KERNEL", "COPY", "SET", "LAUNCH", "RANGE"))
CASES = Path(__file__).resolve().parents[1] / "data" / "issue31"
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
        ("void deep_ep::intranode::dispatch<768>(int4*)", Work.COMMUNICATION), ("deep_ep::intranode::dispatch", Work.COMMUNICATION),
        ("_ZN7deep_ep9internode8dispatchILb1EEEvP4int4", Work.COMMUNICATION), ("rcclGenericKernel.kd", Work.COMMUNICATION),
        ("void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(float*)", Work.COMMUNICATION),
        ("void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*, int)", Work.COMMUNICATION),
        ("void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 4>(AllReduceParams)", Work.COMMUNICATION),
        ("_ZN4vllm26cross_device_reduce_1stageI6__halfLi2EEEvPNS_8RankDataE", Work.COMMUNICATION),
        ("_Z26multimem_all_reduce_kernelIfEvPf", Work.COMMUNICATION),
        ("void c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)", Work.COMMUNICATION),
        ("void turbomind::comm::AllreduceResidualBiasRMSnorm_Simple_Pull<4>(int)", Work.COMMUNICATION),
        ("void lmdeploy::comm::Barrier(int)", Work.COMMUNICATION), ("void mori::moe::EpDispatchIntraNodeKernel<4>()", Work.COMMUNICATION),
        ("void pplx::a2a_dispatch()", Work.COMMUNICATION), ("void pplx_kernels::all_to_all::a2a_combine_recv()", Work.COMMUNICATION),
        ("all2all_kernel", Work.COMMUNICATION), ("oneccl_copy", Work.COMMUNICATION), ("ubuf::userbuffers", Work.COMMUNICATION),
        ("triton_one_shot_all_reduce_kernel", Work.COMMUNICATION), ("void deepspeed::quantized_all_reduce(int)", Work.COMMUNICATION),
        ("void kraken::all_reduce<float>()", Work.COMMUNICATION), ("kernel_all_to_all_vdev", Work.COMMUNICATION),
        ("_ZN6kraken10all_reduceEPf", Work.COMMUNICATION), ("reduce_scatter_push", Work.COMMUNICATION),
        ("triton_red_fused__to_copy_all_gather_into_tensor_add", Work.COMPUTE), ("block_all_reduce_sum_f32_kernel", Work.COMPUTE),
        ("void my::all_reduce::scale<1>()", Work.COMPUTE), ("void scale<my::all_reduce>(float*)", Work.COMPUTE),
        ("reduce_all_kernel", Work.COMPUTE), ("small_reduce_scattered_rows", Work.COMPUTE), ("overall_reduce", Work.COMPUTE),
        ("void barrier_kernel<4>(float&, int)", Work.COMPUTE),
        ("nccl_like_gemm", Work.COMPUTE), ("triton_poi_fused_all_reduce_add_0", Work.COMPUTE), ("multimem_gemm_kernel", Work.COMPUTE),
        ("void gemm<deep_ep::Config, ncclDevKernel_AllReduce>(float*)", Work.COMPUTE), ("deep_epilogue_gemm", Work.COMPUTE),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(vllm::cross_device_reduce_1stage)", Work.COMPUTE),
        ("void my::deep_ep::dispatch<1>()", Work.COMPUTE), ("_Z7dispatchPN7deep_ep4NodeE", Work.COMPUTE),
        ("void (anonymous namespace)::ncclKernel()", Work.COMPUTE), ("_ZN12_GLOBAL__N_110ncclKernelEv", Work.COMPUTE),
        ("_ZN12_GLOBAL__N_ncclKernel", Work.COMPUTE), ("my_ncclKernel", Work.COMPUTE), (GEMM, Work.COMPUTE),
    ],
)  # fmt: skip
def test_a_kernel_is_known_by_its_name_or_its_symbol(name, work):
    assert work_of(spans_of((KERNEL, name, "stream 7", 0, 5))).tolist() == [work]
    builder = SpanBuilder(STREAMS)
    builder.add(KERNEL, "reduce", "stream 7", 0, 5, symbol=name)
    assert work_of(builder.build()).tolist() == [work]


def test_collectives_of_all_libraries_communicate_and_their_lookalikes_do_not():
    spans = ss.read(CASES / "comm_names.json").spans
    kernels = spans.kind == KERNEL
    assert work_of(spans)[kernels].tolist() == [Work.COMMUNICATION] * 12 + [Work.COMPUTE]
    found = summary(ss.read(CASES / "comm_names.json")).to_dict()
    assert (found["communication_us"], found["exposed_us"]) == (120, 120)  # twelve kernels of 10 µs, none beside another


def test_names_are_judged_once_each_and_without_patterns_of_yours_not_for_them(monkeypatch):
    judged: list[str] = []
    monkeypatch.setattr(work, "is_called", lambda name, patterns: judged.append(name) or False)
    spans = spans_of(*((KERNEL, name, "stream 7", at, at + 1) for at, name in enumerate((GEMM, NCCL, GEMM, GEMM))))
    assert work_of(spans).tolist() == [Work.COMPUTE, Work.COMMUNICATION, Work.COMPUTE, Work.COMPUTE]
    assert judged == []
    work_of(spans, ["*mine*"])
    assert sorted(judged) == [GEMM, NCCL]


def test_patterns_of_the_users_count_beside_those_that_are_known():
    spans = spans_of(
        (KERNEL, NCCL, "stream 7", 0, 5), (KERNEL, "void mine::Ring_send<4>(int)", "stream 20", 3, 9), (KERNEL, GEMM, "stream 24", 7, 8)
    )
    assert work_of(spans).tolist() == [Work.COMMUNICATION, Work.COMPUTE, Work.COMPUTE]
    assert work_of(spans, ["*::ring_*"]).tolist() == [Work.COMMUNICATION, Work.COMMUNICATION, Work.COMPUTE]
    assert work_of(spans, "mine::*").tolist() == [Work.COMMUNICATION, Work.COMMUNICATION, Work.COMPUTE]  # one pattern needs no list
    split = work_split(spans, ["*::ring_*"])
    assert (split.communication_ns, split.exposed_communication_ns) == (9, 8)


def test_a_pattern_that_names_no_kernel_is_told_and_what_is_none_is_refused():
    trace = ss.Trace.from_spans([("gemm", 1, 0, 10)])
    assert "no kernel is called '*ring*': this name adds nothing to communication" in summary(trace, communication=["*ring*"]).warnings
    assert summary(trace, communication=["GEMM"]).to_dict()["communication_us"] == 0.01
    for wrong in ("", 3):
        with pytest.raises(TraceError, match="is not a name of kernels that communicate"):
            summary(trace, communication=[wrong])


def test_host_spans_are_no_work():
    assert work_of(spans_of((RANGE, NCCL, "host", 0, 5), (COPY, NCCL, "stream 7", 5, 9))).tolist() == [-1, Work.MEMORY]
