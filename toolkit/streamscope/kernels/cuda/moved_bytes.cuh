// Copies between pieces of device memory, many in one launch.

//@ moved_bytes: a block copies a piece. A source of 0 stands for zeros.
typedef unsigned long long long_word;

extern "C" __global__ void moved_bytes(const long_word* pieces)
{
    const long_word source = pieces[3 * blockIdx.x], target = pieces[3 * blockIdx.x + 1], size = pieces[3 * blockIdx.x + 2];
    const long_word wide = (source | target) % 16 == 0 ? size / 16 : 0;
    for (long_word at = threadIdx.x; at < wide; at += blockDim.x)
        reinterpret_cast<uint4*>(target)[at] = source ? reinterpret_cast<const uint4*>(source)[at] : make_uint4(0, 0, 0, 0);
    for (long_word at = 16 * wide + threadIdx.x; at < size; at += blockDim.x)
        reinterpret_cast<unsigned char*>(target)[at] = source ? reinterpret_cast<const unsigned char*>(source)[at] : 0;
}
