// Sums of all elements up to each one, along an axis: x[outer, count, inner].
//
// A block takes a part of a line, tile by tile. Where a line has several parts, one kernel adds up each part, and a second one begins each
// with the sum of those before it. A result is added up in the same order each time.

//@ arithmetic:
typedef $sum sum_t;
__device__ inline sum_t value_of($element value) { return $loaded; }
__device__ inline void keep($result& to, sum_t sum) { $stored }

//@ across: the sum of the threads before this one, and of all.
__device__ inline sum_t before(sum_t own, sum_t& all)
{
    __shared__ sum_t sums[$threads];
    sums[threadIdx.x] = own;
    __syncthreads();
    for (int apart = 1; apart < $threads; apart *= 2) {
        const sum_t earlier = threadIdx.x >= apart ? sums[threadIdx.x - apart] : sum_t(0);
        __syncthreads();
        sums[threadIdx.x] += earlier;
        __syncthreads();
    }
    const sum_t result = threadIdx.x > 0 ? sums[threadIdx.x - 1] : sum_t(0);
    all = sums[$threads - 1];
    __syncthreads();  // before they are written again
    return result;
}

//@ lines: a thread for each line, beside each other in memory.
extern "C" __global__ void __launch_bounds__($threads)
$name(const $element* x, $result* out, long long lines, long long count, long long inner)
{
    const long long line = (long long)blockIdx.x * $threads + threadIdx.x;
    if (line >= lines) return;
    const long long first = line / inner * count * inner + line % inner;
    sum_t sum = 0;
    #pragma unroll 4
    for (long long i = 0; i < count; ++i) {
        const long long at = first + $step * inner;
        sum += value_of(x[at]);
        keep(out[at], sum);
    }
}

//@ totals: the sum of each part.
extern "C" __global__ void __launch_bounds__($threads)
$name(const $element* x, sum_t* totals, long long parts, long long of_part, long long count, long long inner)
{
    const long long line = blockIdx.x / parts, begin = blockIdx.x % parts * of_part;
    const long long end = begin + of_part < count ? begin + of_part : count, first = line / inner * count * inner + line % inner;
    sum_t sum = 0, all;
    for (long long i = begin + threadIdx.x; i < end; i += $threads) sum += value_of(x[first + $step * inner]);
    before(sum, all);
    if (threadIdx.x == 0) totals[blockIdx.x] = all;
}

//@ scan: the sums of each part.
extern "C" __global__ void __launch_bounds__($threads)
$name(const $element* x$totals, $result* out, long long parts, long long of_part, long long count, long long inner)
{
    const long long part = blockIdx.x % parts, line = blockIdx.x / parts, begin = part * of_part;
    const long long end = begin + of_part < count ? begin + of_part : count, first = line / inner * count * inner + line % inner;
    sum_t carried = 0;
    $carry
    for (long long tile = begin; tile < end; tile += $threads * $items) {
        sum_t sums[$items], sum = 0, all;
        #pragma unroll
        for (int k = 0; k < $items; ++k) {
            const long long i = tile + threadIdx.x * $items + k;
            if (i < end) sum += value_of(x[first + $step * inner]);
            sums[k] = sum;
        }
        const sum_t earlier = carried + before(sum, all);
        #pragma unroll
        for (int k = 0; k < $items; ++k) {
            const long long i = tile + threadIdx.x * $items + k;
            if (i < end) keep(out[first + $step * inner], earlier + sums[k]);
        }
        carried += all;
    }
}

//@ carry: the parts before this one.
sum_t sum_of_parts = 0;
for (long long earlier = threadIdx.x; earlier < part; earlier += $threads) sum_of_parts += totals[line * parts + earlier];
before(sum_of_parts, carried);
