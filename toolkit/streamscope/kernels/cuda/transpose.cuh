// Copies of transposed views: tiles go through shared memory, so that neighbours in memory are read together, and written together.

//@ transpose: along `source` elements follow each other where they are read, along `target` where they are written.
typedef words<$bytes>::type word_t;
// For both axes their extent, how far their elements lie apart in the other array, and how many tiles they have; then the others.
struct layout { long long source, target, read_apart, written_apart, source_tiles, target_tiles$others; };

extern "C" __global__ void __launch_bounds__($threads)
$name(const word_t* in, word_t* out, layout at)
{
    __shared__ word_t tile[$edge][$edge + 1];
    const int across = threadIdx.x % $edge, down = threadIdx.x / $edge;
    unsigned rest = blockIdx.x;
    const long long target = (long long)(rest % (unsigned)at.target_tiles) * $edge;
    rest /= (unsigned)at.target_tiles;
    const long long source = (long long)(rest % (unsigned)at.source_tiles) * $edge;
    rest /= (unsigned)at.source_tiles;
    long long from = 0, to = 0;
    $outer
    #pragma unroll
    for (int k = down; k < $edge; k += $step)
        if (target + k < at.target && source + across < at.source)
            tile[k][across] = in[from + (target + k) * at.read_apart + source + across];
    __syncthreads();
    #pragma unroll
    for (int k = down; k < $edge; k += $step)
        if (source + k < at.source && target + across < at.target)
            out[to + (source + k) * at.written_apart + target + across] = tile[across][k];
}

//@ outer: where a block's tile lies along the other axes.
#pragma unroll
for (int axis = $last; axis >= 0; --axis) {
    const unsigned along = rest % (unsigned)at.extent[axis];
    rest /= (unsigned)at.extent[axis];
    from += along * at.read[axis];
    to += along * at.written[axis];
}
