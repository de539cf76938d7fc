// Storage types and their arithmetic types: what every generated kernel begins with.

//@ half: stored in 16 bits and computed in float; inline PTX, so that NVRTC needs no header files.
struct half_t { unsigned short bits; };
__device__ inline float load(half_t h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits)); return f; }
__device__ inline void store(half_t& h, float f) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f)); }

//@ vectors: up to 16 aligned bytes, loaded and stored in one access.
//@ An ordinary store of half the compiler takes apart, which costs a kernel three quarters of its bandwidth; hence the intrinsic, an ordinary
//@ write-back store of the whole.
template <typename E, int W> struct alignas(sizeof(E) * W) vector { E item[W]; };
template <int BYTES> struct words;
template <> struct words<1> { typedef unsigned char type; };
template <> struct words<2> { typedef unsigned short type; };
template <> struct words<4> { typedef unsigned type; };
template <> struct words<8> { typedef uint2 type; };
template <> struct words<16> { typedef uint4 type; };

template <int W, typename E> __device__ inline vector<E, W> fetched(const E* from)
{
    typedef typename words<sizeof(E) * W>::type whole;
    vector<E, W> values;
    *reinterpret_cast<whole*>(&values) = *reinterpret_cast<const whole*>(from);
    return values;
}

template <int W, typename E> __device__ inline void put(E* to, const vector<E, W>& values)
{
    typedef typename words<sizeof(E) * W>::type whole;
    __stwb(reinterpret_cast<whole*>(to), *reinterpret_cast<const whole*>(&values));
}
