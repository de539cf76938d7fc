// Pooling of images, channels last, and its gradients: a thread for each vector of channels of one pixel of what is written.
//
// The gradients gather what windows have for a pixel, in the order of the windows, so that no kernel uses atomics.

//@ arithmetic:
typedef $real real;
typedef $index index_t;
__device__ inline real larger(real a, real b) { return a < b || b != b ? b : a; }  // NaN is passed on
__device__ inline bool alike(real a, real b) { return a == b || (a != a && b != b); }
__device__ inline real lowest() { return -$infinite; }

//@ forward: of each window of x[images, height, width, channels], the largest element or the mean.
extern "C" __global__ void __launch_bounds__($threads)
$name(const $element* x, $element* out, index_t size, index_t channels, index_t height, index_t width, index_t rows, index_t columns)
{
    const index_t at = (index_t)blockIdx.x * $threads + threadIdx.x;
    if (at >= size) return;
    const index_t channel = at % channels, q = at / channels % columns, p = at / channels / columns % rows;
    const $element* image = x + (at / channels / columns / rows * height * width * channels + channel) * $vector;
    real total[$vector];
    for (int k = 0; k < $vector; ++k) total[k] = $start;
    $unrolled
    for (int r = 0; r < $window; ++r) {
        const index_t h = p * $stride + r - $padding;
        if (h < 0 || h >= height) continue;
        $unrolled
        for (int s = 0; s < $window; ++s) {
            const index_t w = q * $stride + s - $padding;
            if (w < 0 || w >= width) continue;
            const vector<$element, $vector> values = fetched<$vector>(image + (h * width + w) * channels * $vector);
            for (int k = 0; k < $vector; ++k) total[k] = $joined;
        }
    }
    vector<$element, $vector> result;
    for (int k = 0; k < $vector; ++k) { $write }
    put(out + at * $vector, result);
}

//@ backward: of each pixel of x, what the windows that it is in have for it.
extern "C" __global__ void __launch_bounds__($threads)
$name($parameters, $element* out, index_t size, index_t channels, index_t height, index_t width, index_t rows, index_t columns)
{
    const index_t at = (index_t)blockIdx.x * $threads + threadIdx.x;
    if (at >= size) return;
    const index_t channel = at % channels, w = at / channels % width, h = at / channels / width % height;
    const index_t image = at / channels / width / height;
    const index_t windows = (image * rows * columns * channels + channel) * $vector;
    // The windows with h = p * stride + r - padding for an r from 0 to window - 1, and likewise w.
    const index_t first_p = h + $padding < $window ? 0 : (h + $padding - $window) / $stride + 1, last_p = (h + $padding) / $stride;
    const index_t first_q = w + $padding < $window ? 0 : (w + $padding - $window) / $stride + 1, last_q = (w + $padding) / $stride;
    real total[$vector];
    for (int k = 0; k < $vector; ++k) total[k] = 0;
    $own
    for (index_t p = first_p; p <= last_p && p < rows; ++p)
        for (index_t q = first_q; q <= last_q && q < columns; ++q) {
            const index_t place = windows + (p * columns + q) * channels * $vector;
            const vector<$element, $vector> gradient = fetched<$vector>(dy + place);
            $added
        }
    vector<$element, $vector> result;
    for (int k = 0; k < $vector; ++k) { $write }
    put(out + at * $vector, result);
}

//@ own: the pixel's elements, and where its image begins.
const vector<$element, $vector> own = fetched<$vector>(x + at * $vector);
const $element* pixels = x + (image * height * width * channels + channel) * $vector;

//@ added_if_first: the gradient goes to the first of the largest elements of a window.
const vector<$element, $vector> largest = fetched<$vector>(y + place);
for (int k = 0; k < $vector; ++k) {
    bool mine = alike($own_value, $largest_value);
    for (index_t r = 0; mine && r < $window; ++r) {
        const index_t row = p * $stride + r - $padding;
        if (row > h) break;
        if (row < 0) continue;
        for (index_t s = 0; mine && s < $window; ++s) {
            const index_t column = q * $stride + s - $padding;
            if (column >= width || (row == h && column >= w)) break;
            if (column >= 0 && alike($before_value, $largest_value)) mine = false;
        }
    }
    if (mine) total[k] += $gradient_value;
}

//@ added:
for (int k = 0; k < $vector; ++k) total[k] += $gradient_value;
