"""Convolutions against SciPy, and their gradients against SciPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.signal import correlate

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.launch import Product
from streamscope.program.reference import run_reference

LAYOUT = r"x\[N, H, W, C\], w\[K, R, S, C\] and dy\[N, P, Q, K\]"


def run(function, *arrays):
    return run_reference(ss.program(function).trace(*arrays), arrays)


def correlated(x, w, stride, padding):
    """Compute a convolution with SciPy: plane by plane, with stride 1, then thinned out."""
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    planes = [
        [sum(correlate(image[:, :, c], filters[:, :, c], mode="valid", method="direct") for c in range(x.shape[3])) for filters in w]
        for image in padded
    ]
    return np.moveaxis(np.array(planes), 1, 3)[:, ::stride, ::stride, :]


@st.composite
def convolutions(draw):
    """Draw images and weights: non-square, even and 1x1 filters, strides that leave a rest, padding wider than the filter."""
    images, channels, filters = (draw(st.integers(1, 3)) for _ in range(3))
    height, width, rows, columns = (draw(st.integers(1, 7)) for _ in range(4))
    stride, padding = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    assume(height + 2 * padding >= rows and width + 2 * padding >= columns)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return (
        random.standard_normal((images, height, width, channels)),
        random.standard_normal((filters, rows, columns, channels)),
        stride,
        padding,
    )


@given(convolutions())
def test_forward(case):
    x, w, stride, padding = case
    (y,) = run(lambda x, w: ss.ops.convolution(x, w, stride=stride, padding=padding), x, w)
    np.testing.assert_allclose(y, correlated(x, w, stride, padding), rtol=1e-10, atol=1e-10)


@given(convolutions(), st.data())
def test_gradients_are_slopes(case, data):
    x, w, stride, padding = case
    dy = np.random.default_rng(0).standard_normal(correlated(x, w, stride, padding).shape)
    dx, dw = run(lambda x, w, dy: ss.ops.convolution_backward(x, w, dy, stride=stride, padding=padding), x, w, dy)

    def loss(x, w):
        return float((correlated(x, w, stride, padding) * dy).sum())

    for gradient, array, at in ((dx, x, lambda changed: loss(changed, w)), (dw, w, lambda changed: loss(x, changed))):
        assert gradient.shape == array.shape
        place = tuple(data.draw(st.integers(0, extent - 1)) for extent in array.shape)
        step = np.zeros_like(array)
        step[place] = 0.5  # The loss is linear in each argument, so a large step has no error but rounding.
        slope = at(array + step) - at(array - step)
        np.testing.assert_allclose(gradient[place], slope, rtol=1e-9, atol=1e-9)


@given(convolutions())
def test_gradients_are_adjoint_to_the_forward_pass(case):
    # <dy, conv(x, w)> = <dx, x> = <dw, w>: true for all elements at once.
    x, w, stride, padding = case
    y = correlated(x, w, stride, padding)
    dy = np.random.default_rng(1).standard_normal(y.shape)
    dx, dw = run(lambda x, w, dy: ss.ops.convolution_backward(x, w, dy, stride=stride, padding=padding), x, w, dy)
    inner = float((dy * y).sum())
    np.testing.assert_allclose([float((dx * x).sum()), float((dw * w).sum())], inner, rtol=1e-9, atol=1e-9)


def test_by_hand():
    x = np.arange(9.0).reshape(1, 3, 3, 1)
    w = np.array([[1.0, 0.0], [0.0, 2.0]]).reshape(1, 2, 2, 1)
    (y,) = run(ss.ops.convolution, x, w)
    np.testing.assert_array_equal(y[0, :, :, 0], [[0 + 8, 1 + 10], [3 + 14, 4 + 16]])
    dx, dw = run(ss.ops.convolution_backward, x, w, np.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(dx[0, :, :, 0], [[1, 1, 0], [1, 3, 2], [0, 2, 2]])
    np.testing.assert_array_equal(dw[0, :, :, 0], [[0 + 1 + 3 + 4, 1 + 2 + 4 + 5], [3 + 4 + 6 + 7, 4 + 5 + 7 + 8]])


def test_half_accumulates_in_single_precision():
    # In half, 2,048 + 1 is 2,048.
    x, w = np.ones((1, 1, 1, 4096), np.float16), np.ones((1, 1, 1, 4096), np.float16)
    (y,) = run(ss.ops.convolution, x, w)
    assert y.dtype == np.float16
    assert y.item() == 4096
    pixels, few = np.ones((1, 64, 64, 1), np.float16), np.ones((1, 1, 1, 1), np.float16)
    _, dw = run(ss.ops.convolution_backward, pixels, few, pixels)
    assert dw.dtype == np.float16
    assert dw.item() == 4096


@pytest.mark.parametrize(
    ("x", "w", "attributes", "said"),
    [
        ((4, 4, 2), (3, 1, 1, 2), {}, r"input \(4, 4, 2\) and weights \(3, 1, 1, 2\) do not have four axes"),
        ((4, 4, 2), (3, 1, 1, 2), {}, LAYOUT),
        ((1, 4, 4, 2), (3, 1, 1, 3), {}, rf"has 2 channels, weights \(3, 1, 1, 3\) have 3.*{LAYOUT}"),
        ((1, 4, 4, 2), (3, 5, 5, 2), {}, rf"weights \(3, 5, 5, 2\) do not fit input \(1, 4, 4, 2\) with padding 0.*{LAYOUT}"),
        ((1, 4, 4, 2), (3, 4, 5, 2), {"stride": 3}, "do not fit"),
        ((0, 4, 4, 2), (3, 1, 1, 2), {}, "do not fit"),
        ((1, 4, 4, 2), (3, 1, 1, 2), {"stride": 0}, "stride 0 and padding 0 are not possible"),
        ((1, 4, 4, 2), (3, 1, 1, 2), {"padding": -1}, "stride 1 and padding -1 are not possible"),
        ((1, 4, 4, 2), (3, 1, 1, 2), {"stride": 1.5}, "stride 1.5 and padding 0 are not whole numbers"),
        ((1, 4, 4, 2), (3, 1, 1, 2), {"padding": "same"}, "padding 'same' are not whole numbers"),
    ],
)
def test_what_does_not_fit(x, w, attributes, said):
    with pytest.raises(ProgramError, match=f"convolution: .*{said}"):
        run(lambda x, w: ss.ops.convolution(x, w, **attributes), np.ones(x), np.ones(w))
    with pytest.raises(ProgramError, match=f"convolution_backward: .*{said}"):
        run(lambda x, w, dy: ss.ops.convolution_backward(x, w, dy, **attributes), np.ones(x), np.ones(w), np.ones((1, 4, 4, 3)))


def test_a_gradient_of_another_shape_than_the_output():
    with pytest.raises(ProgramError, match=rf"gradient \(1, 4, 4, 2\) does not have the output's shape, \(1, 4, 4, 3\).*{LAYOUT}"):
        run(ss.ops.convolution_backward, np.ones((1, 4, 4, 2)), np.ones((3, 1, 1, 2)), np.ones((1, 4, 4, 2)))


def test_whole_numbers_are_refused():
    with pytest.raises(ProgramError, match=f"convolution: dtypes int32, int32 do not fit.*use one of float16.*{LAYOUT}"):
        run(ss.ops.convolution, np.ones((1, 4, 4, 2), np.int32), np.ones((3, 1, 1, 2), np.int32))


def test_cost_of_the_forward_pass(launches):
    # x 2x8x6x4, w 5x3x3x4, stride 2, padding 1: y 2x4x3x5.
    (launch,) = launches(
        lambda x, w: ss.ops.convolution(x, w, stride=2, padding=1), np.ones((2, 8, 6, 4), np.float16), np.ones((5, 3, 3, 4), np.float16)
    )
    assert launch.cost.bytes == (384 + 180 + 120) * 2
    assert launch.cost.flops == 2 * 120 * 36
    assert launch.cost.blocks == 1
    assert launch.cost.product == Product("convolution", "float16", 1, 2 * 4 * 3, 9 * 4, 5)


def test_a_stride_thins_out_the_sums_of_the_data_gradient(launches):
    weight, data = launches(
        lambda x, w, dy: ss.ops.convolution_backward(x, w, dy, stride=2, padding=1),
        np.ones((2, 8, 6, 4), np.float16),
        np.ones((5, 3, 3, 4), np.float16),
        np.ones((2, 4, 3, 5), np.float16),
    )
    assert weight.cost.product == Product("weight_gradient", "float16", 1, 5, 2 * 4 * 3, 9 * 4)
    assert data.cost.product == Product("data_gradient", "float16", 1, 2 * 8 * 6, 9 * 5 // 4, 4)


def test_filters_of_one_pixel_are_products_of_their_own(launches):
    x, w, y = np.ones((2, 8, 6, 4), np.float32), np.ones((5, 1, 1, 4), np.float32), np.ones((2, 8, 6, 5), np.float32)
    (forward,) = launches(ss.ops.convolution, x, w)
    weight, data = launches(ss.ops.convolution_backward, x, w, y)
    assert forward.cost.product == Product("pointwise", "float32", 1, 96, 4, 5)
    assert weight.cost.product == Product("pointwise", "float32", 1, 5, 96, 4)
    assert data.cost.product == Product("pointwise", "float32", 1, 96, 5, 4)
    (strided,) = launches(lambda x, w: ss.ops.convolution(x, w, stride=2), x, w)
    assert strided.cost.product.kind == "convolution"


@pytest.mark.parametrize(("edge", "channels", "stem"), [(7, 8, True), (7, 9, False), (6, 8, False)])
def test_large_filters_of_few_channels_are_stems(launches, edge, channels, stem):
    x, w, y = (np.ones(shape, np.float32) for shape in ((1, 8, 8, channels), (5, edge, edge, channels), (1, 4, 4, 5)))
    padding = {"stride": 2, "padding": edge // 2 if edge % 2 else 2}
    found = [
        *launches(lambda x, w: ss.ops.convolution(x, w, **padding), x, w),
        *launches(lambda x, w, dy: ss.ops.convolution_backward(x, w, dy, **padding), x, w, y),
    ]
    kinds = ("convolution", "weight_gradient", "data_gradient")
    assert [one.cost.product.kind for one in found] == [f"stem_{kind}" if stem else kind for kind in kinds]


def test_the_backward_pass_is_two_launches_of_which_one_may_run_aside(launches):
    weight, data = launches(
        lambda x, w, dy: ss.ops.convolution_backward(x, w, dy, padding=1),
        np.ones((1, 56, 56, 64), np.float16),
        np.ones((64, 3, 3, 64), np.float16),
        np.ones((1, 56, 56, 64), np.float16),
    )
    assert (weight.part, weight.reads, weight.writes, weight.auxiliary) == (0, (0, 2), (4,), True)
    assert (data.part, data.reads, data.writes, data.auxiliary) == (1, (1, 2), (3,), False)
    flops = 2 * 56 * 56 * 64 * 3 * 3 * 64
    nbytes = (2 * 56 * 56 * 64 + 64 * 3 * 3 * 64) * 2
    assert (weight.cost.flops, weight.cost.bytes) == (data.cost.flops, data.cost.bytes) == (flops, nbytes)
    assert weight.cost.product == Product("weight_gradient", "float16", 1, 64, 56 * 56, 9 * 64)
    assert data.cost.product == Product("data_gradient", "float16", 1, 56 * 56, 9 * 64, 64)
    assert data.cost.blocks == 49  # 3,136 pixels in tiles of 64, one tile of channels
    assert weight.cost.blocks == 9 * 3  # 576 columns in tiles of 64, pixels split into 3,136 // 1,024 parts
