// The reduction kernel for rows: the innermost axis is reduced.

//@ kernel:
// Every $lanes threads reduce one part of a row; the loads of a thread are $width elements wide between the masked ends.
extern "C" __global__ void __launch_bounds__($threads, $blocks)
$name(const $element* x, $out* out, long long rows, long long run, long long outer, long long splits$axes)
{
    const int lane = threadIdx.x % $lanes;
    const long long task = (long long)blockIdx.x * $tasks + threadIdx.x / $lanes;
    const bool valid = task < rows * splits;
    $row

    acc_t value = identity();
    own_t acc[$held];
    #pragma unroll
    for (int k = 0; k < $held; ++k) acc[k] = identity();
    for (long long i = first_outer; valid && i < last_outer; ++i) {
        const $element* part = x + kept_offset(row$kept) + outer_offset(i$outer) + first;
        const int misaligned = (unsigned long long)part / sizeof($element) % $width;
        const index_t size = last - first, before = i * run + first;
        const index_t head = least(size, ($width - misaligned) % $width), vectors = (size - head) / $width;
        // The elements around the vectors are under way with them.
        const index_t ends = size - vectors * $width, edge = lane < head ? lane : lane + vectors * $width;
        $element at_edge;
        if (lane < ends) at_edge = part[edge];
        for (index_t v = lane; v < vectors; v += $of_batch) {
            waiting<$width, $element> batch[$loads];
            #pragma unroll
            for (int b = 0; b < $loads; ++b)
                if (v + b * $lanes < vectors) batch[b].fetch(part + head + (v + b * $lanes) * $width);
            #pragma unroll
            for (int b = 0; b < $loads; ++b) {
                if (v + b * $lanes >= vectors) break;
                $absorb
            }
        }
        if (lane < ends) acc[0] = joined(acc[0], absorbed(identity(), $edge, before + edge));
        $other_ends
        $carry
    }
    #pragma unroll
    for (int k = 0; k < $held; ++k) value = joined(value, acc[k]);
    value = across(value);
    if (lane == 0 && valid) {
        $locate
        $write
    }
}

//@ whole_row: a task is a row.
const long long row = task;
long long first = 0, last = run, first_outer = 0, last_outer = outer;

//@ part_of_row: a task is some runs of a row, or a part of one. Few rows are split, so 32 bits suffice, whose divisions compile in a
//@ fraction of the time.
const unsigned row = (unsigned)task % (unsigned)rows, split = (unsigned)task / (unsigned)rows;
long long first = 0, last = run, first_outer = 0, last_outer = outer;
if (splits > outer) {
    const unsigned parts = (unsigned)splits / (unsigned)outer;
    const long long share = (run + parts * $width - 1) / (parts * $width) * $width;
    first = least(split % parts * share, run);
    last = least(first + share, run);
    first_outer = split / parts;
    last_outer = first_outer + 1;
} else {
    const long long share = (outer + splits - 1) / splits;
    first_outer = least(split * share, outer);
    last_outer = least(first_outer + share, outer);
}

//@ absorb: takes in a vector.
const index_t index = before + head + (v + b * $lanes) * $width;
const vector<$element, $width> loaded = batch[b].values();
#pragma unroll
for (int k = 0; k < $width; ++k)
    acc[k % $held] = absorbed(acc[k % $held], $item, index + k);

//@ absorb_located: the index is that of the vector's first element, until the end.
const index_t index = before + head + (v + b * $lanes) * $width;
value_t best = $first;
#pragma unroll
for (int k = 1; k < $width; ++k) best = $wanted(best, $item);
acc[0] = absorbed(acc[0], best, index);

//@ absorb_sum_of_bytes:
#pragma unroll
for (int w = 0; w < $words; ++w) acc[w % $held] = __dp4a(own_t(batch[b].word(w)), own_t(0x01010101), acc[w % $held]);

//@ absorb_product_of_bytes:
#pragma unroll
for (int w = 0; w < $words; ++w) {
    product_t product = byte_of(batch[b].word(w), 0);
    #pragma unroll
    for (int f = 1; f < $factors; ++f) product *= byte_of(batch[b].word(w), f);
    acc[w % $held] = joined(acc[w % $held], whole(product));
}

//@ other_ends: where a row's threads are fewer than the elements around its vectors may be.
for (index_t e = lane + $lanes; e < ends; e += $lanes) {
    const index_t j = e < head ? e : e + vectors * $width;
    acc[0] = joined(acc[0], absorbed(identity(), $item, before + j));
}

//@ carry: in 32 bits a thread may add the bytes of one run, but not those of many.
#pragma unroll
for (int k = 0; k < $held; ++k) value = joined(value, acc[k]);
for (int k = 0; k < $held; ++k) acc[k] = 0;

//@ locate: moves the index from a vector's first element to the element that was found. All are loaded, the last one first, since loads
//@ that wait for each other take longer.
const index_t group = value.index;
#pragma unroll
for (int step = $last; step >= 0; --step) {
    const index_t place = group + step;
    if (group >= 0 && place < run * outer && alike($candidate, value.value)) value.index = place;
}
