// Kernels in which threads share rows: something is joined over a row, then every element is mapped.

//@ rows: along the last axis.
extern "C" __global__ void __launch_bounds__($threads)
$name($parameters, long long rows, long long columns)
{
    const int lane = threadIdx.x % $lanes;
    const long long task = (long long)blockIdx.x * $tasks + threadIdx.x / $lanes;
    // Threads past the last row work on it too, since their warp waits for them, and leave nothing.
    const bool valid = task < rows;
    const long long row_index = valid ? task : rows - 1, loads = columns / $width;
    $row_pointers
    $element* target = out + row_index * columns;
    $body
}

//@ over_kept: a loop over a thread's loads of a row, with `at` the first element of each.
#pragma unroll
for (int i = 0; i < $items; ++i) {
    if (lane + i * $lanes >= loads) continue;
    const long long at = (lane + i * $lanes) * $width;
    $statements
}

//@ each: the elements of a load.
#pragma unroll
for (int k = 0; k < $width; ++k) $statement

//@ written: the results of a load.
vector<$element, $width> result$start;
$each
put(target + at, result);
