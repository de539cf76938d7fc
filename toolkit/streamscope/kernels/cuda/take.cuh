// Elements at indices along an axis, x[outer, count, inner] at indices[places], and the gradient, which adds up what came from one element.
//
// No index is followed that is not there. The gradient gathers, in the order of the places, so that no kernel uses atomics.

//@ places:
typedef $real real;
typedef $index index_t;
// Where an index points to: negative ones count from the end, and those beyond it to nothing, -1.
__device__ inline index_t found($number given, index_t count)
{
    const long long place = (long long)given < 0 ? (long long)given + count : (long long)given;
    return place >= 0 && place < count ? (index_t)place : -1;
}

//@ forward: a thread for each vector of the result. Where an index is out of range, that is NaN, or 0 of whole numbers.
extern "C" __global__ void __launch_bounds__($threads)
$name(const $element* x, const $number* indices, $element* out, index_t size, index_t count, index_t places, index_t inner)
{
    const index_t at = (index_t)blockIdx.x * $threads + threadIdx.x;
    if (at >= size) return;
    const index_t row = found(indices[at / inner % places], count), outer = at / inner / places;
    vector<$element, $vector> result;
    if (row >= 0)
        result = fetched<$vector>(x + ((outer * count + row) * inner + at % inner) * $vector);
    else
        for (int k = 0; k < $vector; ++k) { $missing }
    put(out + at * $vector, result);
}

//@ backward: a block for each row of the result, or part of a row. Its threads look through all indices, and each adds up a vector.
extern "C" __global__ void __launch_bounds__($threads)
$name(const $number* indices, const $element* dy, $element* out, index_t parts, index_t count, index_t places, index_t inner)
{
    const index_t part = blockIdx.x % parts, row = blockIdx.x / parts % count, outer = blockIdx.x / parts / count;
    const index_t column = part * $threads + threadIdx.x;
    __shared__ unsigned mine[$threads / 32];
    real total[$vector];
    for (int k = 0; k < $vector; ++k) total[k] = 0;
    for (index_t first = 0; first < places; first += $threads) {
        const index_t at = first + threadIdx.x;
        const unsigned of_warp = __ballot_sync(0xffffffffu, at < places && found(indices[at < places ? at : 0], count) == row);
        if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = of_warp;
        __syncthreads();
        for (int warp = 0; warp < $threads / 32; ++warp)
            for (unsigned left = column < inner ? mine[warp] : 0; left != 0; left &= left - 1) {
                const index_t place = first + warp * 32 + __ffs(left) - 1;
                const vector<$element, $vector> values = fetched<$vector>(dy + ((outer * places + place) * inner + column) * $vector);
                for (int k = 0; k < $vector; ++k) total[k] += $value;
            }
        __syncthreads();
    }
    if (column >= inner) return;
    vector<$element, $vector> result;
    for (int k = 0; k < $vector; ++k) { $write }
    put(out + ((outer * count + row) * inner + column) * $vector, result);
}
