// Copies between pieces of device memory, many in one launch.

//@ move: copies one piece by the threads of a block. A source of 0 stands for zeros.
typedef unsigned long long long_word;

__device__ inline void move(long_word source, long_word target, long_word size)
{
    const long_word wide = (source | target) % 16 == 0 ? size / 16 : 0;
    #pragma unroll 4
    for (long_word at = threadIdx.x; at < wide; at += blockDim.x)
        reinterpret_cast<uint4*>(target)[at] = source ? reinterpret_cast<const uint4*>(source)[at] : make_uint4(0, 0, 0, 0);
    for (long_word at = 16 * wide + threadIdx.x; at < size; at += blockDim.x)
        reinterpret_cast<unsigned char*>(target)[at] = source ? reinterpret_cast<const unsigned char*>(source)[at] : 0;
}

//@ moved_bytes: a block copies a piece.
extern "C" __global__ void moved_bytes(const long_word* pieces)
{
    const long_word* const piece = pieces + 3 * blockIdx.x;
    move(piece[0], piece[1], piece[2]);
}

//@ copied_arguments: a block copies a piece of an array. The addresses of the arrays are arguments of the launch. Behind them is a 0, for zeros.
struct Addresses {
    long_word of[$most + 1];
};

extern "C" __global__ void copied_arguments(const long_word* pieces, const __grid_constant__ Addresses arrays)
{
    const long_word* const piece = pieces + 4 * blockIdx.x;  // array, its target, where in it the piece begins, and its size
    const long_word source = arrays.of[piece[0]];  // 0 for zeros: `piece[2]` is 0, too, so it stays 0 below
    if (source != piece[1])
        move(source + piece[2], piece[1] + piece[2], piece[3]);
}
