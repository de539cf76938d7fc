"""What kernels are called for people, and what calls of CUDA and HIP do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.trace import SpanKind
from streamscope.trace.symbols import call_kinds, short_name

VECTORIZED = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::Half>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<c10::Half>, std::array<char*, 1ul>)"
)
WITH_LAMBDA = (
    "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::(anonymous namespace)::f>"
    "(at::TensorIteratorBase&, f const&)::{lambda(int)#1}>(int, {lambda(int)#1})"
)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (VECTORIZED, "vectorized_elementwise_kernel"),
        (WITH_LAMBDA, "elementwise_kernel"),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<float, 6, false>(float*, bool const*)", "softmax_warp_forward"),
        ("void cutlass::Kernel2<cutlass_80_wmma_f16_tn_align8>(cutlass_80_wmma_f16_tn_align8::Params)", "cutlass_80_wmma_f16_tn_align8"),
        ("void cutlass::device_kernel<at::cuda::detail::enable_sm90<cutlass::gemm::GemmUniversal<int, float> > >(Params)", "enable_sm90"),
        ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64", "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64"),
        ("triton_poi_fused_add_relu_0", "triton_poi_fused_add_relu_0"),
        ("my_kernel(float*, int)", "my_kernel"),
        ("_Z9my_kernelPfi", "my_kernel"),
        ("_ZN2at6native18elementwise_kernelILi128ELi4EEEviT1_", "elementwise_kernel"),
        ("_ZN4ncclL12ncclKernel_1Ev", "ncclKernel_1"),
        ("_ZL5scalePf", "scale"),
        ("_Z99short", "_Z99short"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x64.kd", "Cijk_Ailk_Bljk_HHS_BH_MT64x64"),
        ("bool ns::operator< <int>(int)", "operator<"),
        ("unbalanced<<<", "unbalanced"),
        ("(", "("),
        ("", ""),
        ("<>", "<>"),
        (">>>", ">>>"),
    ],
)
def test_short_names(symbol, name):
    assert short_name(symbol) == name


@given(st.text("ab_:<>(){} ,&*~-1Z", max_size=60))
def test_any_text_has_a_short_name_made_of_it(symbol):
    name = short_name(symbol)
    assert set(name) <= set(symbol)
    assert 0 < len(name) <= len(symbol) or name == symbol


def test_a_long_symbol_takes_no_long_time():
    for symbol in ("<" * 1_000_000, "a<" * 300_000 + ">" * 300_000, "Kernel<" * 100_000, "operator" * 100_000, "_Z" + "1a" * 300_000):
        assert short_name(symbol)


CALLS = {
    SpanKind.LAUNCH: """
        cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx hipLaunchKernel
        hipExtModuleLaunchKernel hipModuleLaunchKernel cudaLaunchKernel_v7000 cuLaunchKernel_ptsz cudaMemcpyAsync cuMemcpyHtoDAsync_v2
        cudaMemcpy hipMemcpyWithStream cudaMemsetAsync cuMemsetD32Async""",
    SpanKind.GRAPH_LAUNCH: "cudaGraphLaunch cuGraphLaunch hipGraphLaunch cudaGraphLaunch_v10000",
    SpanKind.EVENT: """
        cudaEventRecord cudaEventRecordWithFlags cuEventRecord cudaStreamWaitEvent hipStreamWaitEvent cuStreamWaitEvent_ptsz""",
    SpanKind.SYNC: "cudaDeviceSynchronize cudaStreamSynchronize cudaEventSynchronize cuCtxSynchronize hipDeviceSynchronize",
    SpanKind.API: """
        cudaMalloc cudaMallocAsync cudaEventQuery cudaEventCreate cuModuleLoadData cudaGraphInstantiate cudaLaunchHostFunc
        __hipPushCallConfiguration aten::mm""",
}


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.name)
def test_calls(kind):
    names = CALLS[kind].split()
    assert {name: SpanKind(code) for name, code in zip(names, call_kinds(names), strict=True)} == dict.fromkeys(names, kind)
