// Sums of an expression over the axes along which an operand was broadcast: the gradient of that operand.
//
// A block computes some results, each by as many of its threads as it takes to have loads under way: threads beside each other in memory
// load what lies beside each other, by vectors where all arrays allow it. Few results of many values are computed in parts, one a block,
// which a second kernel of the same kind adds up. No kernel uses atomics, so a result is the same each time.

//@ kernel:
extern "C" __global__ void __launch_bounds__($threads)
$name($parameters)
{
    const int column = threadIdx.x $column_of $of_thread, row = threadIdx.x $row_of $of_thread;
    const long long n = ((long long)(blockIdx.x % tiles) * $groups + column) * $results;
    const summed::index_t first = blockIdx.x / tiles * share, last = first + share < count ? first + share : count;
    const kept::offsets from = kept::place(n < size ? n : 0, outer);
    $number sum[$results] = {};
    for (summed::index_t i = first + row * $step; i < last; i += $of_batch) {
        summed::loads item[$loads];
        #pragma unroll
        for (int j = 0; j < $loads; ++j) {
            const summed::index_t at = i + j * $apart;
            const summed::offsets to = summed::place(at < last ? at : i, inner);
            $fetches
        }
        // What was loaded at once is added up by itself, so that few roundings follow each other.
        $number half[$results] = {};
        #pragma unroll
        for (int j = 0; j < $loads; ++j)
            if (i + j * $apart < last)
                #pragma unroll
                for (int k = 0; k < $width; ++k) half[$result] += value($values);
        for (int k = 0; k < $results; ++k) sum[k] += half[k];
    }
    $joined
    if (row == 0 && n < size)
        for (int k = 0; k < $results; ++k) $write
}

//@ joined: what the threads of a result have is added up in shared memory.
__shared__ $number partial[$results][$threads];
for (int k = 0; k < $results; ++k) partial[k][threadIdx.x] = sum[k];
__syncthreads();
for (int half = $half; half > 0; half /= 2) {
    if (row < half)
        for (int k = 0; k < $results; ++k) partial[k][threadIdx.x] += partial[k][threadIdx.x + half * $beside];
    __syncthreads();
}
for (int k = 0; k < $results; ++k) sum[k] = partial[k][threadIdx.x];

//@ fetch_vector:
item[j].$array = fetched<$width>($array + from.$array + to.$array);

//@ fetch_element:
item[j].$array = *($array + from.$array + to.$array);

//@ loads:
struct loads { $fields };

//@ inside:
namespace $name {
$code
}
