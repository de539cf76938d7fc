// The reduction kernel for short pieces that no vectors fit: a block brings many of them into shared memory, by whole vectors.
//
// A piece is a short row, or some short rows that are added to each other. Loaded by itself, each row would begin and end with elements
// loaded one by one, which takes the most time of all.

//@ kernel:
// A block reduces some pieces; $lanes threads share each result.
extern "C" __global__ void __launch_bounds__($threads, $blocks)
$name(const $element* x, $out* out, long long pieces, long long of_block, long long size$columns)
{
    __shared__ vector<$element, $width> vectors[$most_vectors];
    $element* elements = vectors[0].item;
    const int length = size, row = $row, piece = length * row;
    const long long first = blockIdx.x * of_block;
    const int results = least(of_block, pieces - first) * row;
    // The elements have the distance from vectors that they have in memory.
    const int begin = (unsigned long long)(x + first * piece) / sizeof($element) % $width, end = begin + results * length;
    const $element* from = x + first * piece - begin;
    const int first_vector = begin > 0, end_vector = end / $width;
    waiting<$width, $element> batch[$loads];
    #pragma unroll
    for (int b = 0; b < $loads; ++b) {
        const int v = first_vector + threadIdx.x + b * $threads;
        if (v < end_vector) batch[b].fetch(from + v * $width);
    }
    #pragma unroll
    for (int b = 0; b < $loads; ++b) {
        const int v = first_vector + threadIdx.x + b * $threads;
        if (v < end_vector) batch[b].keep(&vectors[v]);
    }
    if (threadIdx.x < $width) {
        const int before = threadIdx.x, after = end_vector * $width + threadIdx.x;
        if (first_vector && before >= begin && before < end) elements[before] = from[before];
        if (end_vector >= first_vector && after < end) elements[after] = from[after];
    }
    __syncthreads();
    const int lane = threadIdx.x % $lanes;
    for (int passed = 0; passed < results; passed += $at_once) {
        const int target = passed + threadIdx.x / $lanes;
        const bool valid = target < results;
        own_t acc = identity();
        $take
        const acc_t value = across(acc);
        if (lane == 0 && valid) {
            $write
        }
    }
}

//@ take_row: element by element.
const int start = begin + target * length, last = valid ? length : 0;
#pragma unroll 4
for (int i = lane; i < last; i += $lanes) acc = absorbed(acc, $item, i);

//@ take_words_of_row: in words of 4 bytes, but for what is before and after them.
const int start = begin + target * length, last = valid ? length : 0;
const int head = least(last, -start & $last_of_word), words = (last - head) / $of_word, after = head + words * $of_word;
#pragma unroll
for (int i = 0; i < $last_of_word; ++i)
    if (i < head && lane == 0) acc = absorbed(acc, $item_before, i);
#pragma unroll 2
for (int word = lane; word < words; word += $lanes) {
    const int i = head + word * $of_word;
    const vector<$element, $of_word> few = fetched<$of_word>(elements + start + i);
    #pragma unroll
    for (int k = 0; k < $of_word; ++k) acc = absorbed(acc, $item, i + k);
}
#pragma unroll
for (int i = 0; i < $last_of_word; ++i)
    if (after + i < last && lane == $last_lane) acc = absorbed(acc, $item_after, after + i);

//@ take_column: counted over all pieces of the block. Both factors are below 2^16, so that the quotient is exact (Granlund and
//@ Montgomery, 1994).
const int quotient = (unsigned long long)target * (unsigned)reciprocal >> 32, last = valid ? length : 0;
const $element* column = elements + begin + quotient * piece + target - quotient * row;
#pragma unroll 4
for (int i = 0; i < last; ++i) acc = absorbed(acc, $item, i);
