// Reductions: how elements are joined, and what the kernels of rows, columns and short pieces share.

//@ waiting: what a thread has loaded, and not yet taken in.
__device__ inline long long least(long long a, long long b) { return a < b ? a : b; }
// What is loaded waits in words: of a vector of bytes, each byte would take a register.
template <int W, typename E> struct waiting
{
    typename words<sizeof(E) * W>::type whole;
    __device__ inline void fetch(const E* from) { whole = *reinterpret_cast<const typename words<sizeof(E) * W>::type*>(from); }
    __device__ inline void fill(E value)
    {
        #pragma unroll
        for (int k = 0; k < W; ++k) reinterpret_cast<E*>(&whole)[k] = value;
    }
    __device__ inline void keep(vector<E, W>* to) const { *reinterpret_cast<typename words<sizeof(E) * W>::type*>(to) = whole; }
    __device__ inline unsigned word(int number) const { return reinterpret_cast<const unsigned*>(&whole)[number]; }
    __device__ inline vector<E, W> values() const { return *reinterpret_cast<const vector<E, W>*>(&whole); }
};

//@ types: in which values are joined, and by which elements are counted.
typedef $value value_t;
typedef $index index_t;

//@ limit: the least value of a dtype, or the largest.
__device__ inline value_t $name() { return value_t($limit); }

//@ extreme: the larger or the smaller value. NaN is passed on: a comparison with one is false.
__device__ inline value_t $name(value_t a, value_t b) { return $comparison || b != b ? b : a; }

//@ extreme_float: GPUs from compute capability 8.0 on have an instruction for it in float.
__device__ inline value_t $name(value_t a, value_t b)
{
#if __CUDA_ARCH__ >= 800
    asm("$instruction.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
#else
    return $comparison || b != b ? b : a;
#endif
}

//@ plain: the accumulator is a value.
typedef value_t acc_t;
__device__ inline acc_t shuffled(acc_t a, int offset) { return __shfl_xor_sync(0xffffffffu, a, offset); }

//@ located: the accumulator is a value and its index.
struct acc_t { value_t value; index_t index; };
// Whether a is found before b; NaN is found before all.
__device__ inline bool better(value_t a, value_t b) { return !(a $not_beyond b) && b == b; }
// Whether none is found before the other.
__device__ inline bool alike(value_t a, value_t b) { return a == b || (a != a && b != b); }
// The first of the two, quickly, but the index is not that of x if x is NaN.
__device__ inline acc_t absorbed_number(acc_t a, value_t x, index_t index)
{
    return {$wanted(a.value, x), x $beyond a.value ? index : a.index};
}
__device__ inline acc_t shuffled(acc_t a, int offset)
{
    return {__shfl_xor_sync(0xffffffffu, a.value, offset), __shfl_xor_sync(0xffffffffu, a.index, offset)};
}

//@ byte_of: for bytes that come in words.
// Byte k of a word. Of signed ones the compiler shifts most twice, where one instruction does.
__device__ inline $type byte_of(unsigned word, int k)
{
#if __CUDA_ARCH__
    $type value;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(value) : "r"(word), "r"($selector));
    return value;
#else
    return ($byte)(word >> 8 * k);
#endif
}

//@ product: for bytes that are multiplied.
typedef $type product_t;
// The product of some bytes; hidden from the compiler, which would multiply all of them in 64 bits.
__device__ inline product_t whole(product_t product)
{
    asm("" : "+r"(product));
    return product;
}

//@ reducer: what a thread joins by itself, and how.
typedef $own own_t;
__device__ inline acc_t identity() { return $identity; }
__device__ inline acc_t mapped($element x, index_t index) { return $mapped; }
__device__ inline acc_t joined(acc_t a, acc_t b) { return $joined; }
__device__ inline own_t absorbed(own_t a, $element x, index_t index) { return $absorbed; }
__device__ inline $result finished(acc_t a, long long count) { return $finished; }

//@ offset: from the index of an element, counted over some axes, to its distance from their first element.
__device__ inline long long ${axes}_offset(long long index$parameters)
{
    long long offset = 0;
    $steps
    return offset$innermost;
}

//@ offset_step:
offset += index % ${axes}_extent_$axis * ${axes}_stride_$axis;
index /= ${axes}_extent_$axis;

//@ across: joins a value of each thread that shares a row; all of them get the result. To be called once.
__device__ inline $type $name($type value)
{
    for (int offset = $half; offset > 0; offset /= 2) value = $shuffled;
    $across_warps
    return value;
}

//@ across_warps:
__shared__ $type shared[$warps];
if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
__syncthreads();
const int first = threadIdx.x / $lanes * $warps_of_row;
value = shared[first];
for (int warp = 1; warp < $warps_of_row; ++warp) value = $join(value, shared[first + warp]);
