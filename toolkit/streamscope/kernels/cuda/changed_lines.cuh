//@ changed_lines: finds the lines of 512 bytes that differ from what they held, by a hash of each.
//@ A block looks at one piece of 64 KiB, a warp at one line after the other. What it finds is noted under the number of the look: that
//@ number, the piece, and a bit for each of its 128 lines.
typedef unsigned int word;
typedef unsigned long long long_word;

__device__ long_word mixed(long_word value)
{
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

extern "C" __global__ void changed_lines(
    const long_word* starts, const word* sizes, word first, word look, long_word* hashes, word* found, word* found_count, word most)
{
    __shared__ word changed[4];
    const word piece = first + blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long_word start = starts[piece];
    const word size = sizes[piece];
    if (threadIdx.x < 4)
        changed[threadIdx.x] = 0;
    __syncthreads();
    for (word line = warp; line < 128 && line * 512 < size; line += 8) {
        const word at = line * 512 + lane * 16;
        long_word hash = 0;
        if (at + 16 <= size && start % 16 == 0) {
            const ulonglong2 both = *reinterpret_cast<const ulonglong2*>(start + at);
            hash = mixed(both.x + at) + mixed(both.y ^ 0x9e3779b97f4a7c15ull * (at + 8));
        } else {
            for (word one = at; one < at + 16 && one < size; ++one)
                hash += mixed(*reinterpret_cast<const unsigned char*>(start + one) + 256ull * (one + 1));
        }
        for (int apart = 16; apart; apart /= 2)
            hash += __shfl_xor_sync(0xffffffffu, hash, apart);
        const long_word place = 128ull * piece + line;
        if (lane == 0 && hashes[place] != hash) {
            hashes[place] = hash;
            atomicOr(&changed[line / 32], 1u << line % 32);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && (changed[0] | changed[1] | changed[2] | changed[3])) {
        const word place = atomicAdd(found_count, 1u);
        if (place < most) {
            found[6 * place] = look;
            found[6 * place + 1] = piece;
            for (int part = 0; part < 4; ++part)
                found[6 * place + 2 + part] = changed[part];
        }
    }
}
