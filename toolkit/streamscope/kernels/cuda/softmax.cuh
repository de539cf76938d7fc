// Softmax and log-softmax kernels and their gradients, each in one pass over memory where a row fits the registers.
//
// Each is: join something over a row, then map every element. Softmax joins maximum and sum together (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018); the gradients join a sum.

//@ arithmetic:
typedef $real real;
__device__ inline real larger(real a, real b) { return fmax(a, b); }  // a NaN is noticed in the sum
__device__ inline real sum(real a, real b) { return a + b; }
$power
$accumulator
__device__ inline real value(acc_t row, $inputs) { return $value; }

//@ power:
__device__ inline real power(real x) { return exp(x); }

//@ half_power:
// Half needs no more digits than the instruction gives, and a kernel waits for exp.
__device__ inline real power(real x)
{
    x *= real(1.4426950408889634);
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return exp2(x);
#endif
}

//@ maximum_and_sum:
struct acc_t { real m, s; };  // maximum, and the sum of exp(x - m)
__device__ inline real scale(real from, real to) { return from == to ? real(1) : exp(from - to); }
__device__ inline acc_t identity() { return {-$infinite, 0}; }
__device__ inline acc_t term(real x) { return {x, 1}; }
__device__ inline acc_t joined(acc_t a, acc_t b)
{
    const real m = larger(a.m, b.m);
    return {m, a.s * scale(a.m, m) + b.s * scale(b.m, m)};
}
__device__ inline acc_t shuffled(acc_t a, int offset)
{
    return {__shfl_xor_sync(0xffffffffu, a.m, offset), __shfl_xor_sync(0xffffffffu, a.s, offset)};
}
// A row whose maximum is infinite has no softmax.
__device__ inline real total(acc_t a) { return a.m - a.m == 0 ? a.s : a.m - a.m; }

//@ sum: what the gradients join.
typedef real acc_t;
__device__ inline acc_t identity() { return 0; }
__device__ inline acc_t term(real dy, real y) { return $term; }
__device__ inline acc_t joined(acc_t a, acc_t b) { return a + b; }
__device__ inline acc_t shuffled(acc_t a, int offset) { return __shfl_xor_sync(0xffffffffu, a, offset); }

//@ kept: a row is read into registers, joined and written.
$declared
acc_t row = identity();
$load
$join
row = across(row);
if (!valid) return;
$write

//@ kept_in_two_steps: its maximum, then a sum, so that each element is raised to a power once only.
real kept[$count];
acc_t row = identity();
$load
const real largest = across_larger(row.m);
row.s = 0;
$step
const real total = across_sum(row.s), closing = $closing;
if (!valid) return;
$write

//@ read_twice: a row is read to join it, and again, from the cache if it is there still, to write it.
acc_t row = identity();
#pragma unroll 4
for (long long at = lane * $width; at < columns; at += $of_turn) {
    $load
    $join
}
row = across(row);
if (!valid) return;
#pragma unroll 4
for (long long at = lane * $width; at < columns; at += $of_turn) {
    $load
    $write
}

//@ columns: along an axis with others behind it, a thread for each line.
extern "C" __global__ void __launch_bounds__($threads)
$name($parameters, long long rows, long long columns, long long inner)
{
    const long long line = (long long)blockIdx.x * $threads + threadIdx.x;
    if (line >= rows * inner) return;
    const long long first = line / inner * columns * inner + line % inner;
    acc_t row = identity();
    #pragma unroll 4
    for (long long i = 0; i < columns; ++i) row = joined(row, term($elements));
    #pragma unroll 4
    for (long long i = 0; i < columns; ++i) {
        $items
        $write
    }
}
