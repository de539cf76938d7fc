// Layer normalization and its gradient: two sums over a row, the second around the mean that the first gives, then each element is mapped.

//@ arithmetic: a row's sums, and what the threads that share it have of them.
typedef $real real;
struct sums { real item[$count]; };
__device__ inline sums sum(sums a, sums b)
{
    for (int n = 0; n < $count; ++n) a.item[n] += b.item[n];
    return a;
}
__device__ inline sums shuffled(sums a, int offset)
{
    for (int n = 0; n < $count; ++n) a.item[n] = __shfl_xor_sync(0xffffffffu, a.item[n], offset);
    return a;
}

//@ layer_norm:
struct row_t { real mean, scale; };
__device__ inline sums first_of($elements) { return {x}; }
__device__ inline sums second_of(real mean, $elements) { return {(x - mean) * (x - mean)}; }
__device__ inline row_t closed(sums first, sums second, real count, real eps)
{
    return {first.item[0] / count, rsqrt(second.item[0] / count + eps)};
}
__device__ inline real value(row_t row, $elements) { return (x - row.mean) * row.scale$scaled$shifted; }

//@ layer_norm_gradient: of x; dx = scale * (g - mean(g) - n * mean(g * n)) with g = dy * weight and n = (x - mean) * scale.
struct row_t { real mean, scale, mean_of_gradient, slope; };
__device__ inline sums first_of($elements) { return {x, dy$scaled}; }
__device__ inline sums second_of(real mean, $elements) { return {(x - mean) * (x - mean), (x - mean) * (dy$scaled)}; }
__device__ inline row_t closed(sums first, sums second, real count, real eps)
{
    const real scale = rsqrt(second.item[0] / count + eps);
    return {first.item[0] / count, scale, first.item[1] / count, second.item[1] / count * scale * scale};
}
__device__ inline real value(row_t row, $elements)
{
    return row.scale * (dy$scaled - row.mean_of_gradient - (x - row.mean) * row.slope);
}

//@ kept: a row is read into registers.
$declared
sums first = {}, second = {};
$load
$first
first = across(first);
const real mean = first.item[0] / real(columns);
$second
second = across_again(second);
const row_t row = closed(first, second, real(columns), eps);
if (!valid) return;
$write

//@ read_again: a longer row is read for each sum, and to write it; from the cache if it is there still.
sums first = {}, second = {};
#pragma unroll 4
for (long long at = lane * $width; at < columns; at += $of_turn) {
    $load
    $first
}
first = across(first);
const real mean = first.item[0] / real(columns);
#pragma unroll 4
for (long long at = lane * $width; at < columns; at += $of_turn) {
    $load
    $second
}
second = across_again(second);
const row_t row = closed(first, second, real(columns), eps);
if (!valid) return;
#pragma unroll 4
for (long long at = lane * $width; at < columns; at += $of_turn) {
    $load
    $write
}
