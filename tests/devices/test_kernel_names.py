"""Kernel names."""

from __future__ import annotations

import pytest

from streamscope.devices.cuda.graph_nodes import demangled
from streamscope.devices.graph_node import kernel_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("add_float32_x4", "add_float32_x4"),
        ("_Z3foov", "foo"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4EfEEvif", "vectorized_elementwise_kernel"),
        ("void a::b::kernel<4, a::CUDAFunctor_add<float> >(int)", "b::kernel CUDAFunctor_add"),
        ("void at::native::(anonymous namespace)::max_pool_forward_nhwc<c10::Half, int>(c10::Half const*, int)", "max_pool_forward_nhwc"),
        ("_ZN2at6native12_GLOBAL__N_14softEv", "soft"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_align8>(cutlass_tensorop_f16_align8::Params)", "cutlass_tensorop_f16_align8"),
        ("void cutlass::Kernel2<a::gemm_nn>(Params)", "gemm_nn"),
        ("Kernel", "Kernel"),
        ("void at::native::reduce_kernel<4, at::native::ReduceOp<float, at::native::MeanOps<float> > >(int)", "reduce_kernel MeanOps"),
        ("void at::native::elementwise_kernel<4, at::native::silu(at::Iter&)::{lambda()#1}>(int)", "elementwise_kernel silu"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(cublasGemvParamsEx<int>)", "gemvx::kernel"),
        (
            "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64",
            "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nh…",
        ),
    ],
)
def test_short_names(name, short):
    assert kernel_name(demangled(name)) == short


def test_demangling():
    assert demangled("_ZN2at6native3fooIfEEvT_") == "void at::native::foo<float>(float)"
    assert demangled("plain_c") == "plain_c"
