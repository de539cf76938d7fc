// Element-wise kernels: a thread reads vectors of its operands, computes a value of each element, and writes.

//@ masked_vectors: for arrays that begin behind a vector boundary, or end before one.
// The elements n to n + W - 1 of an array, of which those from 0 to size - 1 are there.
template <int W, typename E> __device__ inline vector<E, W> read(const E* array, long long n, long long size)
{
    if (n >= 0 && n + W <= size) return fetched<W>(array + n);
    vector<E, W> values = {};
    #pragma unroll
    for (int k = 0; k < W; ++k)
        if (n + k >= 0 && n + k < size) values.item[k] = array[n + k];
    return values;
}

template <int W, typename E> __device__ inline void write(E* array, long long n, long long size, const vector<E, W>& values)
{
    if (n >= 0 && n + W <= size) {
        put(array + n, values);
        return;
    }
    #pragma unroll
    for (int k = 0; k < W; ++k)
        if (n + k >= 0 && n + k < size) array[n + k] = values.item[k];
}

//@ one_vector: each thread has one vector of each array.
extern "C" __global__ void __launch_bounds__($threads)
$name($parameters)
{
    const long long n = ((long long)blockIdx.x * $threads + threadIdx.x) * $width$less_lead;
    if (n >= size) return;
    $offsets
    $loads
    $results
}

//@ many_vectors: each thread loads several vectors of each array at once.
extern "C" __global__ void __launch_bounds__($threads)
$name($parameters)
{
    const long long first = ((long long)blockIdx.x * $of_block + threadIdx.x) * $width$less_lead;
    $held
    #pragma unroll
    for (int j = 0; j < $items; ++j) {
        const long long n = first + j * $apart;
        if (n >= size) break;
        $offsets
        $loads
    }
    #pragma unroll
    for (int j = 0; j < $items; ++j) {
        const long long n = first + j * $apart;
        if (n >= size) break;
        $offsets_of_result
        $results
    }
}
