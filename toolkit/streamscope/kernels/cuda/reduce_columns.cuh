// The reduction kernel for columns: the innermost axis is kept.

//@ kernel:
// A block reduces a part of $of_block columns, counted over all kept axes: $down threads share each column.
extern "C" __global__ void __launch_bounds__($threads, $blocks)
$name(const $held* x, $out* out, long long columns, long long results, long long tiles, long long size,
    long long share, long long count$axes)
{
    const unsigned split = blockIdx.x / (unsigned)tiles;
    const long long tile = blockIdx.x % (unsigned)tiles * ${of_block}LL;
    const long long result = tile + threadIdx.x % $across * $width;
    const $held* from = x + $place;
    const index_t first = split * share, last = result < results ? least(first + share, size) : 0;
    $own acc[$width];
    #pragma unroll
    for (int k = 0; k < $width; ++k) acc[k] = $none;
    const index_t begin = first + threadIdx.x / $across;
    $begin_stepping
    $rolled
    for (index_t i = begin; i < last; i += $of_batch) {
        waiting<$width, $held> batch[$loads];
        #pragma unroll
        for (int b = 0; b < $loads; ++b)
            if (i + b * $down < last) batch[b].fetch($load);
            $else_one
        $step
        #pragma unroll
        for (int b = 0; b < $loads; b += $at_once) {
            if (i + b * $down >= last) break;
            $take
        }
    }
    $find_nan
    __shared__ $part shared[$width][$padded];  // padded: neighbouring columns are in different banks
    #pragma unroll
    for (int k = 0; k < $width; ++k) shared[k][threadIdx.x] = acc[k];
    __syncthreads();
    for (int distance = $half; distance >= $left; distance /= 2) {
        if (threadIdx.x < distance)
            for (int k = 0; k < $width; ++k)
                shared[k][threadIdx.x] = $join(shared[k][threadIdx.x], shared[k][threadIdx.x + distance]);
        __syncthreads();
    }
    for (int c = threadIdx.x; c < $of_block; c += $threads) {
        const long long target = split * results + tile + c;
        if (tile + c >= results) break;
        const $part* part = &shared[c % $width][c / $width];
        $part best = part[0];
        #pragma unroll
        for (int p = 1; p < $parts; ++p) best = $join(best, part[p * $across]);
        const acc_t value = $best;
        $write
    }
}

//@ begin_stepping: along one axis, pointers step on; else, each place is computed, in three times the instructions.
const long long step = $down * reduced_stride_0;
const $held* at = from + begin * reduced_stride_0;

//@ step:
at += $loads * step;

//@ rolled: rolled up, the loop compiles in two thirds of the time. Narrow loads are quicker where those of several turns are under way.
#pragma unroll 1

//@ else_one: of bytes that are multiplied, all loads are taken in.
else batch[b].fill(1);

//@ take_accumulators:
#pragma unroll
for (int k = 0; k < $width; ++k) acc[k] = joined(acc[k], batch[b].values().item[k]);

//@ take_keys:
const unsigned below = under(i + b * $down - first);
#pragma unroll
for (int k = 0; k < $width; ++k) acc[k] = better_key(acc[k], keyed(batch[b].word(k / 4), k % 4, below));

//@ take_sum_of_bytes: one instruction a byte.
#pragma unroll
for (int k = 0; k < $width; ++k) acc[k] = __dp4a(own_t(batch[b].word(k / 4)), own_t(1u << k % 4 * 8), acc[k]);

//@ take_product_of_bytes:
#pragma unroll
for (int k = 0; k < $width; ++k) {
    acc_t product = 1;
    #pragma unroll
    for (int few = b; few < b + $at_once; few += $factors) {
        product_t own = $first;
        #pragma unroll
        for (int f = 1; f < $factors; ++f) own *= $other;
        product = joined(product, whole(own));
    }
    acc[k] = joined(acc[k], product);
}

//@ take:
const vector<$element, $width> loaded = batch[b].values();
#pragma unroll
for (int k = 0; k < $width; ++k) acc[k] = $absorbed(acc[k], $item, i + b * $down);

//@ find_nan: looks for the first NaN of a thread's columns where one was met; its index is not kept on the way.
bool nan = false;
#pragma unroll
for (int k = 0; k < $width; ++k) {
    nan = nan || acc[k].value != acc[k].value;
    if (acc[k].value != acc[k].value) acc[k].index = last;
}
#pragma unroll 4
for (index_t i = begin; nan && i < last; i += $down) {
    const vector<$element, $width> loaded = fetched<$width>(from + reduced_offset(i$reduced));
    #pragma unroll
    for (int k = 0; k < $width; ++k)
        if ($item != $item && i < acc[k].index) acc[k].index = i;
}

//@ byte_keys: by which a block finds the largest or smallest of many bytes: each byte above the number of its row. Keys are compared at
//@ once, in two instructions a byte; a value and its index apart take twice as many, and twice the memory where threads join theirs. Of
//@ alike bytes the first is found: the largest key, if the numbers of rows count down.
typedef $type key_t;
__device__ inline key_t no_key() { return $none; }
__device__ inline unsigned under(unsigned number) { return ${turned}number; }
__device__ inline key_t better_key(key_t a, key_t b) { return b $beyond a ? b : a; }
// The key of byte k of a word.
__device__ inline key_t keyed(unsigned word, int k, unsigned below) { return __byte_perm(word, below, k << 12 | 0x654); }
// What a key stands for, where row 0 is that of index `first`.
__device__ inline acc_t found(key_t key, index_t first)
{
    if (key == no_key()) return identity();
    return {key >> 24, first + index_t(${turned}((unsigned)key & ${most}u))};
}
